//! No data of a message or of a direct invocation is logged, or shown by `Debug`.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_http::{Context, LambdaEvent};
use lambda_idempotency::{
    Execution, Failure, Guard, Operation, RunError,
    event::{Consumer, Envelope, KeyFrom, Message, invocation},
    key::Tenant,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json, value::to_raw_value};
use tower::ServiceExt;

use super::secrecy::Secrets;
use crate::support::returns::Returns;
use crate::{
    event::queue,
    support::{
        faults::{ANY, Fault},
        guarded::Guarded,
        http::record_key,
        logs::Logs,
        messages::{deliver, message},
        on_each_store,
    },
};

const SHIP: &str = "ship";

/// Does what the parcel says. Only its errors are for logs, and say nothing of the parcel.
async fn ship(_: Execution, parcel: Value) -> Result<String, Failure> {
    match parcel["does"].as_str() {
        Some("nothing") => Err(Failure::not_executed("no connection")),
        Some("fails") => Err(io::Error::other("no answer").into()),
        Some("refuses") => Err(Failure::permanent(parcel.to_string())),
        Some("panics") => panic!("{parcel}"),
        _ => Ok(parcel.to_string()),
    }
}

const DOES: [&str; 5] = ["ships", "nothing", "fails", "refuses", "panics"];

fn guard(guarded: &Guarded, secrets: &Secrets) -> Guard {
    let tenant = Tenant::parse(&secrets.tenant).expect("a tenant");
    Guard::new(guarded.store(), Operation::new(SHIP), tenant).world(guarded.clock.clone())
}

/// One for each thing that can be done, one that is another parcel under the first one's key, and some that cannot be read.
fn bodies(secrets: &Secrets, front: &str) -> Vec<String> {
    let parcel = |does: &str, to: &str| {
        let parcel = json!({ "id": secrets.key(&format!("{front}-{does}")), "does": does, "to": to });
        parcel.to_string()
    };
    let mut bodies: Vec<_> = DOES.iter().map(|does| parcel(does, &secrets.marker)).collect();
    let marker = &secrets.marker;
    bodies.extend([
        parcel("ships", &format!("{marker} elsewhere")),
        json!({ "id": marker.repeat(9), marker: marker }).to_string(),
        json!({ "no id": marker }).to_string(),
        json!({ "id": [marker] }).to_string(),
        json!(marker).to_string(),
    ]);
    bodies
}

fn assert_found(logs: &Logs, secrets: &Secrets, front: &str) {
    for does in ["nothing", "fails", "panics"] {
        let key = record_key(&secrets.tenant, SHIP, &secrets.key(&format!("{front}-{does}")));
        assert!(logs.contains(&key.hash().to_string()), "the hash of `{does}` is not logged");
    }
}

#[apply(on_each_store)]
async fn a_consumer_logs_and_debugs_no_data_of_its_messages(endpoint: &str) {
    let (logs, secrets, guarded) = (Logs::capture(), Secrets::new(), Guarded::on(endpoint).await);
    let (queue, printed) = (queue(), Arc::new(Mutex::new(Vec::new())));
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).world(guarded.clock.clone());
    printed.lock().unwrap().push(format!("{consumer:?}"));
    let (seen, tenant) = (printed.clone(), secrets.tenant.clone());
    let resolve = move |message: &Message| {
        seen.lock().unwrap().push(format!("{message:?}"));
        Tenant::parse(&tenant).ok()
    };
    let opened = consumer.clone().envelopes([Envelope::Sns]);
    let consumer = consumer.max_attempts(1).each_of_tenants(resolve, guard(&guarded, &secrets), ship);
    let opened = opened.each(guard(&guarded, &secrets), ship);
    let mut bodies = bodies(&secrets, "message");
    bodies.push(secrets.marker.clone());
    let messages = bodies.iter().enumerate().map(|(n, body)| {
        let mut message = message(&n.to_string(), body);
        message["messageAttributes"]["secret"] =
            json!({ "stringValue": secrets.marker, "dataType": "String" });
        message["messageAttributes"]["bytes"] = json!({ "binaryValue": "c2VjcmV0", "dataType": "Binary" });
        message
    });
    let messages: Vec<_> = messages.collect();
    for _ in 0..2 {
        deliver(&consumer, &messages).await.expect("each has an id");
        deliver(&opened, &messages).await.expect("each has an id");
    }
    guarded.faults.for_all(ANY, Fault::DropRequest);
    guarded.clock.passing(deliver(&consumer, &messages)).await.expect("each has an id");

    let dead = queue.take_dead();
    assert!(dead.iter().any(|dead| dead.reason.contains(&secrets.marker)), "a refusal says why");
    let mut printed = std::mem::take(&mut *printed.lock().unwrap());
    assert!(printed.len() > DOES.len(), "{printed:?}");
    printed.extend(dead.iter().map(|dead| format!("{dead:?}")));
    for text in printed {
        assert!(!text.contains(&secrets.marker), "{text}");
    }
    assert_found(&logs, &secrets, "message");
    secrets.assert_kept(logs);
}

#[apply(on_each_store)]
async fn a_direct_invocation_logs_and_debugs_no_data_of_its_payload(endpoint: &str) {
    let (logs, secrets, guarded) = (Logs::capture(), Secrets::new(), Guarded::on(endpoint).await);
    let service = invocation(guard(&guarded, &secrets), KeyFrom::body("/id"), ship);
    let invoke = async |payload: &str| {
        let payload: Value = serde_json::from_str(payload).expect("JSON");
        let mut context = Context::default();
        context.deadline = guarded.now().plus(Duration::from_secs(20)).as_millis();
        let event = LambdaEvent::new(to_raw_value(&payload).expect("JSON"), context);
        service.clone().oneshot(event).await
    };
    let payloads = bodies(&secrets, "payload");
    for _ in 0..2 {
        for payload in &payloads {
            match invoke(payload).await {
                Err(error) if error.error_type != "Refused" => {
                    assert!(!format!("{error:?}").contains(&secrets.marker), "{error:?}");
                }
                // A result, or the function's own reason.
                _ => {}
            }
        }
    }
    guarded.faults.for_all(ANY, Fault::DropRequest);
    for payload in &payloads {
        let _ = guarded.clock.passing(invoke(payload)).await;
    }
    assert_found(&logs, &secrets, "payload");
    secrets.assert_kept(logs);
}

#[apply(on_each_store)]
async fn the_debug_output_of_a_functions_error_shows_no_input(endpoint: &str) {
    let (secrets, guarded) = (Secrets::new(), Guarded::on(endpoint).await);
    let guard = guard(&guarded, &secrets);
    let mut printed = vec![format!("{guard:?} {:?}", Failure::permanent(secrets.order(1)))];
    let mut refusals = 0;
    for _ in 0..2 {
        for does in DOES {
            let key = secrets.key(does);
            for to in ["here", "elsewhere"] {
                let parcel = json!({ "id": key, "does": does, "to": to, "of": secrets.marker });
                let ran: Result<String, RunError> = guard.returns(&[&key], parcel, ship).await;
                refusals += usize::from(matches!(ran, Err(RunError::Refused(_))));
                printed.extend(ran.err().map(|error| format!("{error:?}")));
            }
        }
        let key = secrets.key("ships");
        let other: Result<u32, RunError> = guard.returns(&[&key], secrets.order(1), async |_, _| Ok(1)).await;
        printed.extend(other.err().map(|error| format!("{error:?}")));
    }
    let parcel = json!({ "id": secrets.key("ships"), "does": "ships", "to": "here", "of": secrets.marker });
    let of_another_type: Result<u32, RunError> =
        guard.returns(&[&secrets.key("ships")], parcel, async |_, _: Value| Ok(1)).await;
    let error = of_another_type.expect_err("the kept result is a text");
    assert!(matches!(error, RunError::ResultUnreadable(_)), "{error:?}");
    printed.push(format!("{error:?}"));
    let invalid: Result<u32, RunError> = guard.returns(&["", &secrets.marker], 1, async |_, _| Ok(1)).await;
    printed.push(format!("{:?}", invalid.expect_err("a part is empty")));
    assert_eq!(refusals, 2, "{printed:?}");
    for text in printed {
        assert!(!text.contains(&secrets.marker), "{text}");
    }
}
