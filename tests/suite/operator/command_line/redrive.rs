//! Dead letters go back to their queues, or stay. None is lost.

use serde_json::{Value, json};

use super::{
    TENANT, WHY,
    queues::{CHECKS, DEAD, DEFERRED_REPORTS, OUTBOX, Queues, RECONCILE, WORK},
    table,
};
use crate::support::command::Replied;

async fn redrive(queues: &Queues, table: &super::OperatorsTable, more: &[&str]) -> Replied {
    let address = queues.serve().await;
    let redrive = ["redrive", "--queue", DEAD, "--sqs-endpoint-url", &address, "--output", "json"];
    table.cli.run(&[&redrive[..], more].concat()).await
}

const TO: [&str; 4] = ["--to-checks", CHECKS, "--to-reconcile", RECONCILE];
const TO_CONSUMERS: [&str; 4] = ["--to-outbox", OUTBOX, "--to-work", WORK];

#[tokio::test]
async fn dead_letters_go_back_to_their_queues_and_unrecognised_ones_stay() {
    let table = table().await;
    table.unknown("k-1").await;
    let record = table.name("k-1");
    let check = json!({ "version": 1, "kind": "check", "key": record, "look_at": 1 });
    let ask = json!({ "version": 1, "kind": "ask", "key": record });
    let strange = [
        json!({ "version": 1, "kind": "poison", "what": "a stream record" }),
        json!({ "requestContext": {} }),
        json!({ "version": 1, "kind": "ask", "key": "no-record" }),
        json!({ "version": 1, "kind": "deferred_report", "key": record }),
        json!({ "version": 2, "kind": "ask", "key": record }),
    ];
    let queues = Queues::with_dead_letters(&[&[check.clone(), ask.clone()][..], &strange].concat());
    let ran = redrive(&queues, &table, &[&TO[..], &WHY].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (printed["moved"].as_array().unwrap().len(), printed["left"].as_array().unwrap().len()),
        (2, 5)
    );

    assert_eq!(queues.of(CHECKS), (vec![check.to_string()], true));
    assert_eq!(queues.of(RECONCILE), (vec![ask.to_string()], true));
    // Dead letters that stay are visible again at once.
    assert_eq!(queues.of(DEAD), (strange.map(|body| body.to_string()).to_vec(), true));
    let shown = table.cli.json(&["show", &record]).await;
    let lines = shown["audit"].as_array().unwrap().iter().map(|line| &line["what"]).collect::<Vec<_>>();
    assert!(lines.contains(&&json!("redrive-check to checks")) && lines.len() == 2, "{lines:?}");
    assert_eq!(shown["record"]["state"], "unknown");
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_moved_stays_and_is_seen_again() {
    let table = table().await;
    let dead_letter = json!({ "version": 1, "kind": "ask", "key": table.name("k-1") });
    let queues = Queues::with_dead_letters(std::slice::from_ref(&dead_letter));
    let before = (vec![dead_letter.to_string()], true);

    for (more, text) in [
        (&[&["--to-checks", CHECKS][..], &WHY].concat(), "--to-reconcile"),
        (&[&["--to-reconcile", DEAD][..], &WHY].concat(), "dead letters itself"),
        (&TO.to_vec().into_iter().chain(["--reason", "x"]).collect(), "--yes"),
    ] {
        let ran = redrive(&queues, &table, more).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(text) && ran.stderr.lines().count() == 1, "{ran:?}");
        assert_eq!(queues.of(DEAD), before);
    }
    queues.refuse_sending();
    let ran = redrive(&queues, &table, &[&TO[..], &WHY].concat()).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains(&format!("queue {RECONCILE}: "))
            && ran.stderr.contains("no such queue")
            && ran.stderr.lines().count() == 1,
        "{ran:?}"
    );
    assert_eq!(queues.of(DEAD), before);

    // An empty queue needs nothing.
    let empty = redrive(&Queues::default(), &table, &[&TO[..], &WHY].concat()).await;
    assert_eq!(empty.code, Some(0), "{empty:?}");
}

/// A deferred report as a worker sends it.
pub fn deferred_report() -> Value {
    let messages = include_str!("../../fixtures/formats/messages.json");
    serde_json::from_str::<Value>(messages).expect("JSON")["deferred_report"].take()
}

// T54: it is tried for days, and pages if it waits.
#[tokio::test]
async fn a_deferred_report_goes_back_to_its_own_queue() {
    let table = table().await;
    let report = deferred_report();
    let queues = Queues::with_dead_letters(std::slice::from_ref(&report));
    let ran = redrive(&queues, &table, &[&TO[..], &WHY].concat()).await;
    ran.assert_refused(2, "give --to-deferred-reports too");
    let to = ["--to-deferred-reports", DEFERRED_REPORTS];
    let ran = redrive(&queues, &table, &[&TO[..], &to, &WHY].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(queues.of(DEFERRED_REPORTS), (vec![report.to_string()], true));
}

// A dead letter that no function can process stays, and its record is named.
#[tokio::test]
async fn dead_letters_that_no_function_can_process_stay_and_name_their_record() {
    let table = table().await;
    let record = table.name("k-1");
    let dead_letters = [
        json!({ "version": 1, "kind": "contradiction", "key": record, "reason": "two effects" }),
        json!({ "version": 1, "kind": "of another version", "key": record }),
    ];
    let queues = Queues::with_dead_letters(&dead_letters);
    let ran = redrive(&queues, &table, &[&TO[..], &WHY].concat()).await;
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed["moved"], json!([]));
    let left = printed["left"].as_array().unwrap();
    let named = |dead_letter: &Value| {
        (dead_letter["kind"].clone(), dead_letter["record"].clone(), dead_letter["to"].clone())
    };
    assert_eq!(
        left.iter().map(named).collect::<Vec<_>>(),
        [
            (json!("contradiction"), json!(record), Value::Null),
            (json!("of another version"), json!(record), Value::Null),
        ]
    );
    assert_eq!(queues.of(DEAD), (dead_letters.map(|body| body.to_string()).to_vec(), true));
}

// An unreadable record stops no other dead letter, and is named.
#[tokio::test]
async fn a_dead_letter_about_an_unreadable_record_stays_and_stops_no_other() {
    let table = table().await;
    let damaged = table.unknown("damaged").await;
    let mut item = table.items().await[&("record".to_owned(), damaged.key.partition_key())].clone();
    item.remove("attempt");
    table.write_raw(item).await;
    table.unknown("k-1").await;
    let ask = |key: &str| json!({ "version": 1, "kind": "ask", "key": table.name(key) });
    let queues = Queues::with_dead_letters(&[ask("damaged"), json!("no JSON {"), ask("k-1")]);
    let ran = redrive(&queues, &table, &[&TO[..], &WHY].concat()).await;
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(1), 1), "{ran:?}");
    assert!(ran.stderr.contains("message-1") && ran.stderr.contains("cannot be read"), "{ran:?}");
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed["moved"][0]["message_id"], "message-3");
    let why = printed["left"][0]["why"].as_str().unwrap();
    assert!(why.contains("cannot be read") && printed["left"][1]["why"].is_null(), "{printed}");
    assert_eq!(queues.of(RECONCILE).0, [ask("k-1").to_string()]);
    assert_eq!(queues.of(DEAD), (vec![ask("damaged").to_string(), "no JSON {".to_owned()], true));
}

#[tokio::test]
async fn dead_letters_are_listed_and_picked_and_dropped_with_a_line_each() {
    let table = table().await;
    for key in ["k-1", "k-2"] {
        table.unknown(key).await;
    }
    let ask = |key: &str| json!({ "version": 1, "kind": "ask", "key": table.name(key) });
    let double = json!({ "version": 1, "kind": "contradiction", "key": table.name("k-2"), "reason": "two" });
    let poison = json!({ "version": 1, "kind": "poison", "what": "a stream record" });
    let all = [ask("k-1"), ask("k-2"), double, poison.clone()];
    let queues = Queues::with_dead_letters(&all);
    let address = queues.serve().await;
    let dead_letters = ["dead-letters", "--queue", DEAD, "--sqs-endpoint-url", &address];

    // Listing does not move them.
    let listed = table.cli.json(&dead_letters).await;
    assert_eq!((listed["dead_letters"].as_array().unwrap().len(), &listed["more"]), (4, &json!(false)));
    assert_eq!(listed["dead_letters"][3]["body"], poison.to_string());
    let about = table.cli.json(&[&dead_letters[..], &["--record", &table.name("k-2")]].concat()).await;
    let asks = table.cli.json(&[&dead_letters[..], &["--kind", "ask"]].concat()).await;
    assert_eq!(about["dead_letters"][0]["message_id"], "message-2");
    for (tenant, number) in [(TENANT, 3), ("another", 0)] {
        let of_tenant = table.cli.json(&[&dead_letters[..], &["--tenant", tenant]].concat()).await;
        assert_eq!(of_tenant["dead_letters"].as_array().unwrap().len(), number, "{tenant}");
    }
    assert_eq!(asks["dead_letters"].as_array().unwrap().len(), 2);
    assert_eq!(queues.of(DEAD), (all.iter().map(Value::to_string).collect(), true));

    // Only the selected dead letter is moved.
    let ran = redrive(&queues, &table, &[&TO[..], &WHY, &["--id", "message-2"]].concat()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(queues.of(RECONCILE).0, [ask("k-2").to_string()]);
    assert_eq!(queues.of(DEAD).0.len(), 3);

    // Dropped with an audit line in its record's collection. A dead letter without a record is dropped with a message.
    let drop = ["--drop", "--id", "message-1", "--id", "message-4"];
    let ran = redrive(&queues, &table, &[&drop[..], &["--yes"]].concat()).await;
    assert_eq!(ran.code, Some(2), "a reason is missing: {ran:?}");
    assert_eq!(queues.of(DEAD).0.len(), 3);
    let all_of_them = redrive(&queues, &table, &[&["--drop"][..], &WHY].concat()).await;
    all_of_them.assert_refused(2, "--id, --kind, --record or --tenant");
    assert_eq!(queues.of(DEAD).0.len(), 3);
    let ran = redrive(&queues, &table, &[&drop[..], &WHY].concat()).await;
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((printed["dropped"].as_array().unwrap().len(), ran.code), (2, Some(0)), "{ran:?}");
    assert_eq!(printed["dropped"][1]["body"], poison.to_string());
    assert_eq!(queues.of(DEAD).0, [all[2].to_string()]);
    let lines = table.cli.json(&["show", &table.name("k-1")]).await["audit"].clone();
    assert_eq!((&lines[0]["what"], &lines[0]["reason"]), (&json!("drop-ask"), &json!(WHY[2])));
    assert_eq!(queues.of(RECONCILE).0.len(), 1, "nothing that is dropped is moved");
}

// An operator sees at once which record a dead letter is about, and whether it is settled by now.
#[tokio::test]
async fn dead_letters_show_their_reason_and_the_state_of_their_record() {
    let table = table().await;
    table.unknown("k-1").await;
    table.completed("k-2", "kept").await;
    let damaged = table.unknown("k-4").await;
    let mut item = table.items().await[&("record".to_owned(), damaged.key.partition_key())].clone();
    item.remove("attempt");
    table.write_raw(item).await;
    let reason = "the provider does not answer";
    let ask = |key: &str| json!({ "version": 1, "kind": "ask", "key": table.name(key), "reason": reason });
    let poison = json!({ "version": 1, "kind": "poison", "reason": ["no text"] });
    let queues = Queues::with_dead_letters(&[ask("k-1"), ask("k-2"), ask("k-3"), ask("k-4"), poison]);
    let address = queues.serve().await;
    let dead_letters = ["dead-letters", "--queue", DEAD, "--sqs-endpoint-url", &address];

    let printed = table.cli.json(&dead_letters).await;
    let states = ["unknown", "completed", "absent", "unreadable"];
    for (dead_letter, state) in printed["dead_letters"].as_array().unwrap().iter().zip(states) {
        assert_eq!((&dead_letter["reason"], &dead_letter["state"]), (&json!(reason), &json!(state)));
    }
    let strange = &printed["dead_letters"][4];
    assert_eq!((&strange["reason"], &strange["state"]), (&Value::Null, &Value::Null));
    let shown = table.cli.run(&dead_letters).await.stdout;
    for (line, state) in shown.lines().skip(1).zip(states) {
        assert!(line.contains(state) && line.contains(reason), "{shown}");
    }
    // The oldest come first, each with its age.
    let ages = ["1d 0h", "23h 0m", "22h 0m", "21h 0m", "20h 0m"];
    assert!(shown.lines().skip(1).zip(ages).all(|(line, age)| line.contains(age)), "{shown}");
    assert!(shown.contains("a stream record that cannot be read"), "{shown}");
    assert_eq!(shown.lines().last(), Some("4 ask, 1 poison."));
    assert_eq!(printed["totals"], json!({ "ask": 4, "poison": 1 }));

    let drop = ["redrive", "--queue", DEAD, "--sqs-endpoint-url", &address, "--drop", "--kind", "poison"];
    let ran = table.cli.run(&[&drop[..], &WHY].concat()).await;
    assert!(ran.stdout.contains("(drop)") && ran.stdout.contains("1 dropped, 4 left."), "{ran:?}");
}

// A statement about the dead letters that were looked at must not be made about all of them.
#[tokio::test]
async fn dead_letters_beyond_the_limit_are_not_reported_as_absent() {
    const MORE: &str = "looked at 3 dead letters, there may be more: raise --limit\n";
    const NO_MATCH: &str = "None of the 3 dead letters that were looked at matches. Kinds: check.";
    let table = table().await;
    table.unknown("k-1").await;
    let record = table.name("k-1");
    let check = json!({ "version": 1, "kind": "check", "key": record, "look_at": 1 });
    let double = json!({ "version": 1, "kind": "contradiction", "key": record, "reason": "two" });
    // Checks from an outage come first, and the important dead letter comes last.
    let all = [check.clone(), check.clone(), check, double];
    let queues = Queues::with_dead_letters(&all);
    let before = (all.iter().map(Value::to_string).collect::<Vec<_>>(), true);
    let address = queues.serve().await;
    let dead_letters = ["dead-letters", "--queue", DEAD, "--sqs-endpoint-url", &address];
    let listed = async |more: &[&str]| table.cli.run(&[&dead_letters[..], more].concat()).await;
    let doubles = ["--kind", "contradiction"];

    let ran = listed(&[&doubles[..], &["--limit", "3"]].concat()).await;
    assert_eq!((ran.code, ran.stdout.trim_end(), &*ran.stderr), (Some(0), NO_MATCH, MORE));
    let ran = listed(&["--limit", "3"]).await;
    assert_eq!((ran.stdout.lines().count(), &*ran.stderr), (6, MORE), "{ran:?}");
    let ran = listed(&["--limit", "1", "--kind", "ask"]).await;
    assert_eq!(ran.stdout.trim_end(), "The one dead letter that was looked at does not match. Kinds: check.");
    assert_eq!(ran.stderr, "looked at one dead letter, there may be more: raise --limit\n");
    let printed = table.cli.json(&[&dead_letters[..], &doubles, &["--limit", "3"]].concat()).await;
    assert_eq!(printed, json!({ "dead_letters": [], "totals": {}, "looked_at": 3, "more": true }));

    // All dead letters are looked at.
    let ran = listed(&["--limit", "5", "--id", "message-4", "--kind", "check"]).await;
    assert_eq!(ran.stdout.trim_end(), "None of the 4 dead letters that were looked at matches.");
    assert_eq!(ran.stderr, "");
    let missing = ["--id", "message-4", "--id", "message-9"];
    listed(&missing)
        .await
        .assert_refused(3, "message-9; it is gone, or hidden while another operator looks at it");
    listed(&["--limit", "3", "--id", "message-4"]).await.assert_refused(3, "message-4; there may be more");
    let ran = listed(&[&doubles[..], &["--limit", "5"]].concat()).await;
    assert!(ran.stdout.contains("message-4") && ran.stderr.is_empty(), "{ran:?}");
    assert_eq!(queues.of(DEAD), before);

    // The same for `redrive`, which moves none of them.
    let again = ["redrive", "--queue", DEAD, "--sqs-endpoint-url", &address, "--limit", "3"];
    let drop = [&again[..], &doubles, &["--drop"], &WHY].concat();
    let ran = table.cli.run(&drop).await;
    assert_eq!((ran.code, &*ran.stderr), (Some(0), MORE), "{ran:?}");
    assert_eq!(ran.stdout, format!("{NO_MATCH}\n0 dropped, 3 left.\n"));
    let printed = table.cli.json(&drop).await;
    assert_eq!(
        (&printed["more"], &printed["looked_at"], &printed["dropped"]),
        (&json!(true), &json!(3), &json!([]))
    );
    // Nor does it drop one dead letter while the other is missing.
    let drop = ["redrive", "--queue", DEAD, "--sqs-endpoint-url", &address, "--drop"];
    let ran = table.cli.run(&[&drop[..], &missing, &WHY].concat()).await;
    ran.assert_refused(3, "nothing was changed: none of the dead letters that were looked at (4) has the id");
    assert_eq!(queues.of(DEAD), before);

    // Only an empty queue is reported as empty.
    let empty = Queues::default().serve().await;
    let dead_letters = ["dead-letters", "--queue", DEAD, "--sqs-endpoint-url", &empty];
    let ran = table.cli.run(&dead_letters).await;
    assert_eq!(
        (&*ran.stdout, &*ran.stderr),
        (
            "No dead letters are visible in dead-letters: there are none, or they are hidden while another operator looks at them. --queue names another queue.\n",
            ""
        )
    );
    let printed = table.cli.json(&dead_letters).await;
    assert_eq!(printed, json!({ "dead_letters": [], "totals": {}, "looked_at": 0, "more": false }));
}

// The outbox and a worker are consumers: they send their dead letters with a reason. Anybody may have sent what another consumer got.
#[tokio::test]
async fn deliveries_and_accepted_work_go_back_and_other_consumers_messages_stay() {
    let table = table().await;
    let record = table.unknown("k-1").await;
    let name = table.name("k-1");
    let deliver = json!({ "version": 1, "kind": "deliver", "key": name });
    let work = json!({ "version": 1, "kind": "work", "key": name, "request": "0".repeat(32) });
    let ask = json!({ "version": 1, "kind": "ask", "key": name });
    let queues = Queues::default();
    let reason = "it was tried 20 times: the target of the topic order.placed failed";
    for body in [&deliver, &work, &ask] {
        queues.bury(body, &[("idempotency-reason", reason), ("idempotency-message-id", "m-1")]);
    }
    queues.bury(&work, &[("idempotency-reason", reason), ("producer", "shop")]);
    let address = queues.serve().await;
    let dead_letters = ["dead-letters", "--queue", DEAD, "--sqs-endpoint-url", &address];
    let listed = table.cli.json(&dead_letters).await["dead_letters"].clone();
    let seen =
        listed.as_array().unwrap().iter().map(|letter| (&letter["kind"], &letter["to"])).collect::<Vec<_>>();
    let (deliver_, work_, ask_) = (json!("deliver"), json!("work"), json!("ask"));
    let (outbox, null) = (json!("outbox"), Value::Null);
    assert_eq!(seen, [(&deliver_, &outbox), (&work_, &work_), (&ask_, &null), (&work_, &null)]);
    assert_eq!((&listed[0]["reason"], &listed[0]["record"]), (&json!(reason), &json!(name)));
    let shown = table.cli.run(&[&dead_letters[..], &["--kind", "deliver"]].concat()).await;
    assert!(shown.stdout.contains(reason) && shown.stdout.contains("outbox"), "{shown:?}");

    let ran = redrive(&queues, &table, &[&TO[..], &WHY].concat()).await;
    ran.assert_refused(2, "give --to-outbox too");
    let ran = redrive(&queues, &table, &[&TO[..], &TO_CONSUMERS, &WHY].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(queues.of(OUTBOX), (vec![deliver.to_string()], true));
    assert_eq!(queues.of(WORK), (vec![work.to_string()], true));
    assert_eq!(queues.of(DEAD), (vec![ask.to_string(), work.to_string()], true));
    // Behind what was asked for this record since.
    assert_eq!(queues.groups(OUTBOX), [(json!(record.key.hash().to_string()), json!("message-1"))]);
    // T81
    assert_eq!(queues.groups(WORK), [(json!(record.key.tenant().hash().to_string()), Value::Null)]);
    let lines = table.cli.json(&["show", &name]).await["audit"].clone();
    let lines: Vec<_> = lines.as_array().unwrap().iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert!(
        ["redrive-deliver to outbox", "redrive-work to work"].iter().all(|what| lines.contains(what)),
        "{lines:?}"
    );
    // It says where to read what becomes of those.
    let in_words = [&["redrive"], &dead_letters[1..], &WHY].concat();
    const STAYS: &str = "that cannot go back by this command";
    let ran = table.cli.run(&in_words).await;
    assert!(ran.stdout.contains(&format!("Stays: 2 {STAYS}")), "{ran:?}");
    for of_these in [&["--kind", "deliver"][..], &["--drop", "--id", "message-3"]] {
        let ran = table.cli.run(&[&in_words[..], of_these].concat()).await;
        assert!(ran.stdout.contains(" left.") && !ran.stdout.contains(STAYS), "{ran:?}");
    }
}

// What has no reason of its own says where it can be found.
#[tokio::test]
async fn every_kind_of_dead_letter_says_why_it_is_there() {
    let table = table().await;
    let key = table.name("k-1");
    let message = |kind: &str| json!({ "version": 1, "kind": kind, "key": key });
    let run = json!({ "requestContext": {
        "condition": "RetryAttemptsExhausted", "functionArn": "arn:aws:lambda:eu-central-1:1:function:stale"
    } });
    let queues =
        Queues::with_dead_letters(&[message("check"), message("deferred_report"), message("deliver"), run]);
    let address = queues.serve().await;
    let list = ["dead-letters", "--queue", DEAD, "--sqs-endpoint-url", &address];
    let shown = table.cli.run(&list).await.stdout;
    let whys = [
        "log of `stale`",
        "log of `reconcile`",
        "log of `outbox`",
        "RetryAttemptsExhausted of arn:aws:lambda",
    ];
    for (line, why) in shown.lines().skip(1).zip(whys) {
        assert!(line.contains(why), "{shown}");
    }
    assert_eq!(shown.lines().last(), Some("1 check, 1 deferred_report, 1 deliver, 1 failed_run."));
}
