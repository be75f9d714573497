//! The page of the local cloud, without a browser: what it takes, and what it refuses.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{
    DynamoDbStore, Failure, Guard, Operation, RunError, Store,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{Alarm, AlarmKind, Note, Record},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{client::client, embedded, guarded::fresh, local_cloud::LocalCloud, returns::Returns};

const ORDER: &str = r#"{"customerId":"c-1","amountCents":1999,"currency":"EUR","source":"tok_ok"}"#;

/// A request with these fields, as a browser sends a form.
fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let field =
        |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    let body = fields.iter().map(field).collect::<Vec<_>>().join("&");
    request.header("content-type", "application/x-www-form-urlencoded").body(body)
}

/// What is sent by the page's first form, with these fields changed.
fn send(cloud: &LocalCloud, changed: &[(&str, &str)]) -> RequestBuilder {
    let mut fields = vec![("route", "POST /payments"), ("client", "acme"), ("key", "k-1"), ("body", ORDER)];
    fields.retain(|(name, _)| changed.iter().all(|(other, _)| other != name));
    fields.extend(changed);
    form(cloud.post("/local/send"), &fields)
}

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let answer = request.send().await.expect("an answer");
    (answer.status(), answer.json().await.unwrap_or_default())
}

/// The page, once it shows all of this about a timeline.
async fn page_with(cloud: &LocalCloud, timeline: &Value, texts: &[&str]) -> String {
    let mut page = String::new();
    for _ in 0..300 {
        page = cloud.get(&format!("/?timeline={timeline}")).send().await.unwrap().text().await.unwrap();
        if texts.iter().all(|text| page.contains(text)) {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the page lacks one of {texts:?}:\n{page}");
}

#[tokio::test]
async fn a_timeline_has_each_round_trip_and_its_units() {
    let cloud = LocalCloud::start(&[("PROVIDER_TIMEOUT_MS", "500")]).await;
    let (status, sent) = answer(send(&cloud, &[])).await;
    assert_eq!((status, &sent["key"]), (StatusCode::OK, &json!("k-1")));
    page_with(&cloud, &sent["timeline"], &["answers 201", ">complete<"]).await;
    answer(send(&cloud, &[("do", "again")])).await;
    let page = page_with(&cloud, &sent["timeline"], &["answers 201, replayed"]).await;
    let rows = [
        "<td>payments</td><td>",
        "</td><td class=\"number\">1</td><td class=\"number\">1</td><td class=\"number\"></td>",
    ];
    for step in ["reserve: in progress", "finds it completed"] {
        let row = [rows[0], step, rows[1]].concat();
        assert!(page.contains(&row), "{row}:\n{page}");
    }
    assert!(page.contains("calls the provider: POST /charges") && page.contains("1 charge in its ledger"));

    // The lost answer: unknown, asked, and settled by the provider.
    let (_, lost) = answer(send(&cloud, &[("card", "tok_timeout_charged")])).await;
    assert_ne!(lost["key"], "k-1", "a card has a fresh key");
    let told = [
        "has not answered: its caller is gone",
        "unknown: perhaps executed",
        "asks the provider: GET /charges/…",
        "complete, by provider",
    ];
    page_with(&cloud, &lost["timeline"], &told).await;
}

#[tokio::test]
async fn an_environment_is_frozen_thawed_and_killed() {
    let cloud = LocalCloud::start(&[]).await;
    let act = |what: &str| form(cloud.post("/local/environments/payments/1"), &[("do", what)]);
    let of_payments = async || {
        let all: Value = cloud.get("/environments").send().await.unwrap().json().await.unwrap();
        let all = all["environments"].as_array().expect("a list");
        all.iter().find(|one| one["function"] == "payments").expect("it is warm").clone()
    };
    assert_eq!(answer(act("freeze")).await.0, 200);
    let frozen = of_payments().await;
    assert_eq!(frozen["frozen"], true);
    let stat = format!("/proc/{}/stat", frozen["pid"]);
    while !fs::read_to_string(&stat).expect("it runs").contains(") T ") {
        tokio::task::yield_now().await;
    }
    // It does not answer before it goes on.
    let (_, sent) = answer(send(&cloud, &[])).await;
    let page = page_with(&cloud, &sent["timeline"], &["<td>client</td><td>POST /payments"]).await;
    assert!(!page.contains("reserve"), "{page}");
    assert_eq!(answer(act("thaw")).await.0, 200);
    page_with(&cloud, &sent["timeline"], &["goes on", "answers 201"]).await;
    assert_eq!(of_payments().await["frozen"], Value::Null);

    let (_, slow) = answer(send(&cloud, &[("card", "tok_slow_60000")])).await;
    page_with(&cloud, &slow["timeline"], &["calls the provider"]).await;
    assert_eq!(answer(act("kill")).await.0, 200);
    page_with(&cloud, &slow["timeline"], &["signal: killed", "answers 502"]).await;
    for (path, what, expected) in [
        ("/local/environments/payments/4", "freeze", StatusCode::CONFLICT),
        ("/local/environments/payments/4", "kill", StatusCode::CONFLICT),
        ("/local/environments/payments/99", "kill", StatusCode::NOT_FOUND),
        ("/local/environments/none/1", "kill", StatusCode::NOT_FOUND),
        ("/local/environments/payments/1", "eat", StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        assert_eq!(answer(form(cloud.post(path), &[("do", what)])).await.0, expected, "{path} {what}");
    }
}

#[tokio::test]
async fn a_slow_provider_and_a_client_that_leaves_are_told() {
    let cloud = LocalCloud::start(&[("PROVIDER_TIMEOUT_MS", "2000")]).await;
    let provider = |state: &str| form(cloud.post("/local/provider"), &[("provider", state)]);
    assert_eq!(answer(provider("slow")).await.0, 200);
    let (_, slow) = answer(send(&cloud, &[])).await;
    page_with(
        &cloud,
        &slow["timeline"],
        &["answers after 8 s", "caller is gone", "answers 504 charge-unknown"],
    )
    .await;
    assert_eq!(answer(provider("up")).await.0, 200);

    let order =
        json!({ "customerId": "c-1", "amountCents": 1, "currency": "EUR", "source": "tok_slow_1000" });
    let request = cloud.post("/payments").bearer_auth("acme").header("idempotency-key", "left").json(&order);
    let begun = async {
        loop {
            let keys = cloud.get("/").send().await.unwrap().text().await.unwrap();
            if let Some((key, _)) = keys.split_once(">acme · left</a>") {
                return key.rsplit_once("href=\"?timeline=").expect("a link to the key").1.to_owned();
            }
            tokio::task::yield_now().await;
        }
    };
    let link = tokio::select! {
        answer = request.send() => panic!("a payment that takes a second is answered: {answer:?}"),
        link = begun => link,
    };
    let timeline = json!(link.split('"').next().unwrap().parse::<u64>().unwrap());
    page_with(&cloud, &timeline, &["acme · left", "it is gone", ">complete<"]).await;

    // The form is what was sent with the key, so that it can be sent again.
    let changed =
        [("key", "\"quoted\""), ("client", "beta"), ("route", "POST /orders"), ("body", "{\"no\":1}")];
    let (_, sent) = answer(send(&cloud, &changed)).await;
    let page = page_with(&cloud, &sent["timeline"], &["beta · quoted", "answers 4"]).await;
    for value in ["value=\"POST /orders\"", "value=\"beta\"", "value=\"quoted\"", "{&#34;no&#34;:1}"] {
        assert!(page.contains(value), "{value}: {page}");
    }
}

#[tokio::test]
async fn a_form_that_cannot_be_right_is_refused_and_says_why() {
    let cloud = LocalCloud::start(&[]).await;
    for (changed, named) in [
        (("route", "/payments"), "method and a path"),
        (("route", "PO ST /payments"), "begin with /"),
        (("route", "GET/ /payments"), "no such method"),
        (("route", "POST /operations/{key}"), "parameters"),
        (("key", "line\nbreak"), "header"),
        (("key", "\u{e9}"), "header"),
        (("client", "line\nbreak"), "header"),
        (("client", " "), "header"),
    ] {
        let (status, refused) = answer(send(&cloud, &[changed])).await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(named), "{changed:?}: {status} {refused}");
    }
    let (_, sent) = answer(send(&cloud, &[])).await;
    page_with(&cloud, &sent["timeline"], &["answers 201"]).await;
    let settle = |fields: &[(&str, &str)]| form(cloud.post("/local/settle"), fields);
    for (fields, named) in [
        ([("record", "no record"), ("executed", "no")], "no such record"),
        ([("record", "acme#create-payment#gone"), ("executed", "no")], "no such record"),
        ([("record", "acme#create-payment#gone"), ("executed", "yes")], "must be JSON"),
        ([("record", "acme#create-payment#k-1"), ("executed", "no")], "another execution since it was shown"),
    ] {
        let [record, executed] = fields;
        let (status, refused) = answer(settle(&[record, executed, ("attempt", "0")])).await;
        assert!(
            status == 409 && refused["message"].as_str().unwrap().contains(named),
            "{fields:?}: {refused}"
        );
    }
    let provider = form(cloud.post("/local/provider"), &[("provider", "asleep")]);
    assert_eq!(answer(provider).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(cloud.get("/?timeline=9").send().await.unwrap().status(), 200, "there is no such timeline");
    assert_eq!(cloud.get("/?timeline=x").send().await.unwrap().status(), 400);
}

// A function's callers could never read an HTTP answer.
#[tokio::test]
async fn a_functions_outcome_is_settled_with_its_result() {
    let (endpoint, prefix) = (embedded::endpoint(), format!("t{}-", Uuid::new_v4().simple()));
    let cloud = LocalCloud::start(&[
        ("DYNAMODB_ENDPOINT", endpoint),
        ("TABLE_PREFIX", &prefix),
        ("POLL_MS", "86400000"),
        ("SWEEP_MS", "86400000"),
    ])
    .await;
    let store = DynamoDbStore::from_client(client(endpoint), format!("{prefix}idempotency"));
    let guard = Guard::new(store.clone(), Operation::new("ship"), Tenant::parse("acme").expect("a tenant"));
    let call = async || {
        let lost =
            async |_, _: u8| -> Result<String, Failure> { Err(std::io::Error::other("no answer").into()) };
        guard.returns(&["order-1"], 1, lost).await
    };
    assert!(matches!(call().await, Err(RunError::Unknown { .. })));
    let (tenant, operation) = (Tenant::parse("acme"), OperationName::parse("ship"));
    let key = IdempotencyKey::of(&["order-1"]).expect("a key");
    let key = RecordKey::new(tenant.expect("a tenant"), operation.expect("a name"), key);
    let attempt = store.load(&key).await.expect("the store answers").expect("a record").attempt.to_string();
    let name = key.partition_key();
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let report = |expression: &'static str| {
        let update = client(endpoint).update_item().table_name(format!("{prefix}idempotency"));
        update.key("pk", text(&name)).key("sk", text("record")).update_expression(expression)
    };
    report("SET reported = :effect")
        .expression_attribute_values(":effect", text("effect"))
        .send()
        .await
        .expect("it is written");
    let fields = [("record", &*name), ("attempt", &*attempt), ("executed", "no")];
    let (status, refused) = answer(form(cloud.post("/local/settle"), &fields)).await;
    assert!(
        status == 409 && refused["message"].as_str().unwrap().contains("an effect was reported"),
        "{refused}"
    );
    report("REMOVE reported").send().await.expect("it is written");
    let settle = async |result: &str| {
        let fields = [("record", &*name), ("attempt", &*attempt), ("executed", "yes"), ("answer", result)];
        answer(form(cloud.post("/local/settle"), &fields)).await
    };
    for no_json in ["label 7", "", "{", "1 2"] {
        let (status, refused) = settle(no_json).await;
        assert!(status == 409 && refused["message"].as_str().unwrap().contains("must be JSON"), "{refused}");
    }
    assert_eq!(settle("\"label 7\"").await.0, 200);
    assert_eq!(call().await.expect("a result"), "label 7");
}

#[tokio::test]
async fn a_records_alarm_is_shown_and_cannot_mark_up_the_page() {
    let cloud = LocalCloud::start(&[]).await;
    let (_, sent) = answer(send(&cloud, &[])).await;
    page_with(&cloud, &sent["timeline"], &[">complete<"]).await;
    let printed = cloud.printed();
    let (_, endpoint) = printed.split_once("dynamodb    ").expect("its address is printed");
    let endpoint = endpoint.split_whitespace().next().expect("an address");
    let store = DynamoDbStore::from_client(client(endpoint), "local-idempotency");
    let key = RecordKey::from_partition_key("acme#create-payment#k-1").expect("a key");
    let seen = store.load(&key).await.expect("the store answers").expect("a record");
    let alarm = |kind| Alarm {
        kind,
        because: Note::new("<script>alert(1)</script>"),
        raised_at: seen.created_at,
        report: Some(fresh()),
        is_told: true,
    };
    let alarms = [AlarmKind::SecondExecution, AlarmKind::RefusedRows].map(alarm).to_vec();
    let alarmed = Record { revision: fresh(), effect_id: Some(Note::new("ch_<b>1")), alarms, ..seen.clone() };
    store.put(Some(seen.revision), &alarmed, &[]).await.expect("the store answers");
    let shown = [
        "second execution: &#60;script&#62;alert(1)",
        "refused rows: &#60;script&#62;alert(1)",
        "idempotency clear-alarms",
        "<dt>reports beside it</dt><dd>2</dd>",
        "<dt>would expire, were its alarms cleared</dt>",
        "ch_&#60;b&#62;1",
    ];
    let page = page_with(&cloud, &sent["timeline"], &shown).await;
    assert!(!page.contains("<script>alert") && !page.contains("<dt>expires</dt>"), "{page}");
    store.put(Some(alarmed.revision), &seen, &[]).await.expect("the store answers");
    let page = page_with(&cloud, &sent["timeline"], &["<dt>expires</dt>"]).await;
    assert!(!page.contains("clear-alarms"), "{page}");
}

#[tokio::test]
async fn the_form_sends_to_a_key_what_curl_sent() {
    let cloud = LocalCloud::start(&[]).await;
    let none = cloud.get("/").send().await.unwrap().text().await.unwrap();
    assert!(none.contains("Send a request, here or by curl") && none.contains("No request with a key yet"));
    let declined = ORDER.replace("tok_ok", "tok_declined");
    let by_curl = cloud.post("/payments?by=curl").bearer_auth("beta").header("idempotency-key", "from-curl");
    let by_curl = by_curl.header("content-type", "application/json").body(declined).send().await.unwrap();
    assert_eq!(by_curl.status(), 402);
    // Nobody has chosen a key: it is the newest.
    let page = cloud.get("/").send().await.unwrap().text().await.unwrap();
    for shown in [
        "value=\"POST /payments?by=curl\"",
        "value=\"beta\"",
        "value=\"from-curl\"",
        "&#34;source&#34;:&#34;tok_declined&#34;",
        "aria-current=\"true\">beta · from-curl</a>",
        "create-payment</span> <span class=\"state completed\">completed",
        "answers 402",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    // The form has another body by now.
    let (_, again) = answer(send(&cloud, &[("client", "beta"), ("key", "from-curl"), ("do", "again")])).await;
    page_with(&cloud, &again["timeline"], &["answers 402 card-declined, replayed"]).await;
    let (_, other) = answer(send(&cloud, &[("client", "beta"), ("key", "from-curl"), ("do", "other")])).await;
    page_with(&cloud, &other["timeline"], &["answers 422 key-reused"]).await;
    let (_, fresh) = answer(send(&cloud, &[("key", "from-curl"), ("do", "fresh")])).await;
    assert_ne!(fresh["key"], "from-curl");
    page_with(&cloud, &fresh["timeline"], &["answers 201"]).await;

    // A long body stays with its client.
    let long = format!("{{\"long\":\"{}\"}}", "x".repeat(100_000));
    let request = cloud.post("/payments").bearer_auth("acme").header("idempotency-key", "long").body(long);
    request.send().await.unwrap();
    let (status, refused) = answer(send(&cloud, &[("key", "long"), ("do", "again")])).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(status == 400 && message.contains("too long"), "{status} {refused}");
}

/// The ports of all addresses that the local cloud prints, and that of a Runtime API.
async fn ports(cloud: &LocalCloud) -> BTreeSet<u16> {
    let environments: Value = cloud.get("/environments").send().await.unwrap().json().await.unwrap();
    let process = &environments["environments"][0]["pid"];
    let variables = fs::read(format!("/proc/{process}/environ")).expect("it runs");
    let variables = String::from_utf8_lossy(&variables).into_owned();
    let (_, runtime) = variables.split_once("AWS_LAMBDA_RUNTIME_API=").expect("it has one");
    let printed = cloud.printed();
    let printed =
        printed.split("http://").chain([runtime]).filter_map(|rest| rest.strip_prefix("127.0.0.1:"));
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    printed.map(|rest| digits(rest).parse().expect("a port")).collect()
}

#[tokio::test]
async fn each_address_refuses_names_that_lead_to_it() {
    let cloud = LocalCloud::start(&[]).await;
    let ports = ports(&cloud).await;
    assert_eq!(ports.len(), 6, "gateway, provider, DynamoDB, SQS, bus, a Runtime API: {ports:?}");
    for port in ports {
        for path in ["/", "/payments", "/2018-06-01/runtime/invocation/next"] {
            let url = format!("http://127.0.0.1:{port}{path}");
            let request = |host: &str| reqwest::Client::new().post(&url).header("host", host).body("{}");
            for host in ["evil.example".to_owned(), format!("evil.example:{port}")] {
                let refused = request(&host).send().await.expect("an answer");
                assert_eq!(refused.status(), 403, "{url} {host}");
                assert!(refused.text().await.unwrap().contains("the local cloud takes requests"));
            }
            let taken = request(&format!("localhost:{port}")).send().await.expect("an answer");
            assert_ne!(taken.status(), 403, "{url}");
        }
    }
}

#[tokio::test]
async fn another_site_changes_nothing() {
    let cloud = LocalCloud::start(&[]).await;
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("host", "evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
    ] {
        for path in [
            "/provider/away",
            "/dynamodb/away",
            "/local/send",
            "/local/tenants",
            "/local/environments/payments/1",
            "/bus",
            "/queues/orders",
        ] {
            let refused = cloud.post(path).header(name, value).send().await.unwrap();
            assert_eq!(refused.status(), 403, "{path} {name}: {value}");
        }
        let page = cloud.get("/").header(name, value).send().await.unwrap();
        assert_eq!(page.status(), 403, "{name}: {value}");
    }
    let page = cloud.get("/").header("sec-fetch-site", "none").send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    // A function answers to whom it wants.
    let function = cloud.post("/payments").header("sec-fetch-site", "cross-site").send().await.unwrap();
    assert_eq!(function.status(), 401);
}

#[tokio::test]
async fn the_page_shows_the_routes_of_a_template_and_hides_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = folder.path().join("template.yaml");
    let text = "
Transform: AWS::Serverless-2016-10-31
Globals: { Function: { Runtime: provided.al2023 } }
Resources:
  Idempotency: { Type: AWS::Serverless::Application, Properties: { Location: idempotency.yaml } }
  PayFunction:
    Type: AWS::Serverless::Function
    Properties:
      Events:
        Home: { Type: HttpApi, Properties: { Method: GET, Path: / } }
        Pay: { Type: HttpApi, Properties: { Method: POST, Path: /pay } }
        Rest: { Type: HttpApi, Properties: { Method: POST, Path: '/{proxy+}' } }
        Tenants: { Type: HttpApi, Properties: { Method: GET, Path: '/{tenant}/{id}' } }
        Own: { Type: HttpApi, Properties: { Method: GET, Path: /local/own } }
";
    fs::write(&template, text).expect("a template");
    let example = folder.path().join("pay.json");
    fs::write(&example, "{\"amount\":1}\n").expect("an example");
    // It becomes a function of the sample, which knows none of these paths.
    let function =
        format!("pay={}", crate::cloud::own_functions::built(folder.path(), "pay", "reports").display());
    let configure = |command: &mut Command| {
        command.arg("--template").arg(&template).args(["--function", &function]);
        command.args(["--env", "ORDERS_TABLE=local-idempotency"]);
        command.args(["--body", &format!("POST /pay={}", example.display())]);
    };
    let cloud = LocalCloud::configured(&[], configure).await;
    let home = cloud.get("/").send().await.unwrap();
    assert_eq!(home.status(), 404, "its own route comes first");
    let page = cloud.get("/local").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("POST /pay") && page.contains("deferred-reports"), "{page}");
    let (status, refused) = answer(send(&cloud, &[("route", "none")])).await;
    assert!(status == 400 && refused["message"].is_string(), "the page takes its forms: {refused}");
    assert_eq!(cloud.get("/local/style.css").send().await.unwrap().status(), 200);
    assert_eq!(
        cloud.get("/local/own").send().await.unwrap().status(),
        404,
        "it is the function's, which knows no such path"
    );
    assert_eq!(cloud.post("/provider/away").send().await.unwrap().status(), 404, "it is the function's");
    let killed = form(cloud.post("/local/environments/pay/1"), &[("do", "kill")]);
    assert_eq!(answer(killed).await.0, 200);
    for of_the_sample in ["tok_", "in its ledger"] {
        assert!(!page.contains(of_the_sample), "{of_the_sample}: {page}");
    }
    assert!(page.contains(">{&#34;amount&#34;:1}</textarea>"), "the example: {page}");
    let hint = format!("-H 'Content-Type: application/json' --data-binary '@{}'", example.display());
    let any = "Bearer acme' -H 'Idempotency-Key: k-1' -H 'Content-Type: application/json' -d '{}'";
    for hint in [&*hint, any, "/local/own' -H 'Authorization: Bearer acme'\n"] {
        assert!(cloud.printed().contains(hint), "{hint}: {}", cloud.printed());
    }
    // Another route has what was sent to it last.
    let sent = cloud.post("/other/1").bearer_auth("beta").header("idempotency-key", "k-2");
    sent.header("content-type", "text/plain").body("some text").send().await.unwrap();
    let page = cloud.get("/local").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("<option value=\"POST /other/1\" data-body=\"some text\">"), "{page}");
    assert!(page.contains(">some text</textarea>") && page.contains("value=\"k-2\""), "{page}");
}
