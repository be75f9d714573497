//! Webhooks through every front of Lambda: the signature is over the body as its sender wrote it.

use std::time::Duration;

use aws_smithy_types::base64;
use lambda_http::{Body, Request, service_fn};
use lambda_idempotency::{
    Idempotency, Operation,
    operation::WhileInFlight,
    store::memory::MemoryStore,
    world::{ManualWorld, World},
};
use serde_json::{Value, json};
use tower::Layer;

use crate::support::{
    http::{Counter, clock},
    lambda::{Function, deliver, function},
    webhooks::{Headers, OTHER_SECRET, RECEIVE, SECRET, SENDERS, Sender},
};

const FRONTS: [&str; 5] = [
    include_str!("../fixtures/rest_api_iam.json"),
    include_str!("../fixtures/http_api_jwt.json"),
    include_str!("../fixtures/function_url.json"),
    include_str!("../fixtures/load_balancer.json"),
    include_str!("../fixtures/load_balancer_multi_value.json"),
];

/// A delivery through this front.
fn event(front: &str, headers: &Headers, body: &str, encoded: bool) -> Value {
    let mut event: Value = serde_json::from_str(front).expect("a fixture is JSON");
    for (name, value) in headers {
        if let Some(single) = event.get_mut("headers") {
            single[*name] = value.as_str().into();
        }
        if let Some(several) = event.get_mut("multiValueHeaders") {
            several[*name] = json!([value]);
        }
    }
    event["body"] = if encoded { base64::encode(body).into() } else { body.into() };
    event["isBase64Encoded"] = encoded.into();
    event
}

fn receiver(sender: Sender, clock: &ManualWorld, runs: &Counter) -> Function {
    let operation = Operation::new(RECEIVE).retain(Duration::from_secs(4 * 24 * 3600));
    let operation = operation.while_in_flight(WhileInFlight::Wait(Duration::from_secs(4)));
    let webhook = sender.webhook(&[SECRET]).expect("a webhook");
    let guard = Idempotency::new(MemoryStore::new(), operation).webhook(webhook).world(clock.clone());
    let runs = runs.clone();
    let receive = move |request: Request| {
        runs.add();
        let body = String::from_utf8(request.body().as_ref().to_vec());
        async move { Ok::<_, lambda_http::Error>(lambda_http::Response::new(Body::Text(body?))) }
    };
    function(guard.layer(service_fn(receive)))
}

#[tokio::test]
async fn each_front_delivers_an_event_once_whether_encoded_or_not() {
    for sender in SENDERS {
        for front in FRONTS {
            let (clock, runs) = (clock(), Counter::default());
            let receiver = receiver(sender, &clock, &runs);
            let body = sender.body("evt_1", 1);
            let signed =
                |secret, id: &str, body: &str| sender.headers(secret, id, body.as_bytes(), clock.now());
            let headers = signed(SECRET, "evt_1", &body);

            let wrong = event(front, &signed(OTHER_SECRET, "evt_1", &body), &body, true);
            let refused = deliver(&receiver, &wrong).await;
            assert_eq!(refused.json()["type"], "urn:lambda-idempotency:signature-refused", "{front}");
            assert_eq!((refused.status(), refused.header("www-authenticate")), (401, Some("Signature")));
            // The text in Base64 is not what was signed.
            let undecoded = event(front, &headers, &base64::encode(&body), false);
            assert_eq!(deliver(&receiver, &undecoded).await.status(), 401);
            assert_eq!(runs.count(), 0);

            let first = deliver(&receiver, &event(front, &headers, &body, true)).await;
            assert_eq!((first.status(), first.text()), (200, &*body), "{sender:?} {front}");
            let next = sender.body("evt_1", 2);
            let again = event(front, &signed(SECRET, "evt_1", &next), &next, false);
            let again = deliver(&receiver, &again).await;
            assert_eq!((again.text(), again.header("idempotent-replayed")), (&*body, Some("true")));
            assert_eq!(runs.count(), 1, "{sender:?} {front}");
        }
    }
}

// jenkinsci/github-plugin#134: what is signed is the form, as it is encoded. A REST API passes names on as they were sent.
#[tokio::test]
async fn a_form_is_signed_as_it_was_sent_whatever_its_names_case() {
    for front in FRONTS {
        let (clock, runs) = (clock(), Counter::default());
        let receiver = receiver(Sender::GitHub, &clock, &runs);
        let form = "payload=%7B%22title%22%3A%22Pla%C3%A7a+Pau%22%7D&a=%20b+c&empty=";
        let signed = Sender::GitHub.headers(SECRET, "id-1", form.as_bytes(), clock.now());
        let [signature, id] = [&signed[0].1, &signed[1].1];
        let headers = vec![
            ("X-Hub-Signature-256", signature.clone()),
            ("X-GitHub-Delivery", id.clone()),
            ("Content-Type", "application/x-www-form-urlencoded".to_owned()),
        ];
        let mut sent = event(front, &headers, form, false);
        for headers in ["headers", "multiValueHeaders"] {
            sent.get_mut(headers)
                .and_then(Value::as_object_mut)
                .map(|headers| headers.remove("content-type"));
        }
        for _ in 0..2 {
            let answer = deliver(&receiver, &sent).await;
            assert_eq!((answer.status(), answer.text()), (200, form), "{front}");
        }
        assert_eq!(runs.count(), 1);
    }
}

// A gateway that keeps the lines of a header, or joins them with a comma.
#[tokio::test]
async fn a_signature_that_is_there_twice_is_refused_behind_each_front() {
    for sender in SENDERS {
        for front in FRONTS {
            let (clock, runs) = (clock(), Counter::default());
            let receiver = receiver(sender, &clock, &runs);
            let body = sender.body("evt_1", 1);
            let headers = sender.headers(SECRET, "evt_1", body.as_bytes(), clock.now());
            let mut event = event(front, &headers, &body, false);
            // Of Standard Webhooks and Svix the time: its signature is a list, of which one must match.
            let (name, value) = &headers[usize::from(sender.is_standard())];
            match (event.get("headers").is_some(), event.get("multiValueHeaders").is_some()) {
                (false, _) => event["multiValueHeaders"][*name] = json!([value, value]),
                (true, false) => event["headers"][*name] = format!("{value},{value}").into(),
                // The last line counts, which `lambda_http` takes.
                (true, true) => continue,
            }
            assert_eq!(deliver(&receiver, &event).await.status(), 401, "{sender:?} {front}");
            assert_eq!(runs.count(), 0);
        }
    }
}
