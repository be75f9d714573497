//! Headers that a front, or the runtime, cannot send as a handler sets them (T73).

use axum::{
    Router,
    http::{HeaderMap, HeaderName, HeaderValue},
    routing::post,
};
use lambda_idempotency::{Idempotency, MemoryStore, Operation, SingleTenant};
use serde_json::{Value, json};

use crate::support::{
    function::Function,
    http::PAY,
    lambda::{Answer, deliver, function},
    logs::Logs,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_suite-http");
const HTTP_API: &str = include_str!("../fixtures/http_api_jwt.json");
const FUNCTION_URL: &str = include_str!("../fixtures/function_url.json");
const REST_API: &str = include_str!("../fixtures/rest_api_iam.json");
const LOAD_BALANCER: &str = include_str!("../fixtures/load_balancer.json");

const HEADERS: [(&str, &[u8]); 11] = [
    ("content-type", b"text/plain"),
    ("content-disposition", b"attachment; filename=\"caf\xe9.txt\""),
    ("link", b"</1>; rel=\"self\""),
    ("link", b"</2>; rel=\"next\""),
    ("link", b"</3>; title=\"caf\xe9\""),
    ("set-cookie", b"a=1"),
    ("set-cookie", b"b=2"),
    ("vary", b"accept"),
    ("vary", b"prefer"),
    ("x-note", "caf\u{e9}".as_bytes()),
    ("trailer", b"x-checksum"),
];

async fn answer() -> (HeaderMap, &'static str) {
    let mut headers = HeaderMap::new();
    for (name, value) in HEADERS {
        let value = HeaderValue::from_bytes(value).expect("a value");
        headers.append(HeaderName::from_static(name), value);
    }
    (headers, "done")
}

/// All values of a header, as the front passes them on.
fn lines(answer: &Value, name: &str) -> Vec<String> {
    let of = |value: &Value| value.as_str().expect("text").to_owned();
    let all = answer["multiValueHeaders"].get(name).map(|all| all.as_array().expect("a list").iter().map(of));
    all.map(Iterator::collect).unwrap_or_else(|| answer["headers"].get(name).map(of).into_iter().collect())
}

fn event(front: &str, method: &str, path: &str) -> Value {
    let mut event: Value = serde_json::from_str(front).expect("JSON");
    match event["version"] == "2.0" {
        true => {
            event["requestContext"]["http"]["method"] = method.into();
            event["rawPath"] = path.into();
        }
        false => {
            event["httpMethod"] = method.into();
            event["path"] = path.into();
        }
    }
    event
}

#[tokio::test]
async fn header_lines_of_one_name_arrive_in_first_answer_and_replay() {
    let logs = Logs::capture();
    for front in [HTTP_API, FUNCTION_URL, REST_API, LOAD_BALANCER] {
        let guard =
            Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(SingleTenant::new("all"));
        let route = post(answer).route_layer(guard).get(answer);
        let app = Router::new().route("/payments", route.clone()).route("/prod/payments", route);
        let function = function(app);
        let joins = front != REST_API;
        let link = match joins {
            true => vec!["</1>; rel=\"self\", </2>; rel=\"next\""],
            false => vec!["</1>; rel=\"self\"", "</2>; rel=\"next\""],
        };
        let vary = if joins { vec!["accept, prefer"] } else { vec!["accept", "prefer"] };
        let of = |answer: &Answer| [lines(&answer.0, "link"), lines(&answer.0, "vary")];
        let first = deliver(&function, &event(front, "POST", "/payments")).await;
        let unguarded = deliver(&function, &event(front, "GET", "/payments")).await;
        for answer in [&first, &unguarded] {
            assert_eq!(answer.status(), 200);
            assert_eq!(of(answer), [link.clone(), vary.clone()], "{front}");
            assert_eq!(answer.header("content-disposition"), None, "no front can send it");
            assert_eq!(answer.header("trailer"), None, "there are no trailers");
            assert_eq!(lines(&answer.0, "x-note"), ["caf\u{e9}"]);
            // In format 2.0 they have a list of their own.
            let cookies = match answer.0["cookies"].as_array() {
                Some(cookies) => cookies.iter().map(|cookie| cookie.as_str().unwrap().to_owned()).collect(),
                None => lines(&answer.0, "set-cookie"),
            };
            assert_eq!(cookies, ["a=1", "b=2"]);
        }
        let replay = deliver(&function, &event(front, "POST", "/payments")).await;
        assert_eq!((replay.header("idempotent-replayed"), of(&replay)), (Some("true"), of(&first)));
        assert_eq!((replay.header("content-disposition"), replay.text()), (None, "done"));
    }
    assert!(!logs.lines_with("content-disposition").is_empty(), "it is logged");
}

// The real runtime: a header that it cannot send would end the process.
#[tokio::test]
async fn a_header_that_cannot_be_sent_ends_no_process() {
    let mut function = Function::of(PROGRAM, "http", &[]).await;
    let mut answers = Vec::new();
    for (method, path) in
        [("POST", "/payments"), ("POST", "/payments"), ("GET", "/payments"), ("GET", "/plain")]
    {
        let answer = function.invoke(&event(HTTP_API, method, path)).await.expect("an answer");
        assert_eq!((&answer["statusCode"], &answer["body"]), (&json!(200), &json!("done")));
        assert_eq!(lines(&answer, "link"), ["</1>; rel=\"self\", </2>; rel=\"next\""]);
        answers.push(answer);
    }
    assert_eq!(answers[1]["headers"]["idempotent-replayed"], "true");
    assert_eq!(answers[0]["cookies"], json!(["a=1", "b=2"]));
    assert_eq!(answers[3]["cookies"], json!(["a=1", "b=2"]));
}

// T19, T74
#[tokio::test]
async fn a_foreign_event_is_refused_in_one_line_and_ends_no_process() {
    let mut function = Function::of(PROGRAM, "http", &[]).await;
    let mut errors = 0;
    for event in [
        json!({}),
        json!(null),
        json!([]),
        json!("text"),
        json!({ "Records": [{ "eventSource": "aws:sqs", "messageId": "1", "body": "{}" }] }),
        json!({ "version": "0", "id": "1", "detail-type": "order.placed", "source": "orders", "detail": {} }),
        json!({ "requestContext": {} }),
        json!({ "requestContext": { "stage": "prod", "connectionId": "1" } }),
    ] {
        let refused = function.invoke(&event).await.expect_err("it is refused");
        assert!(refused.to_string().contains("no request of an API"), "{event} {refused}");
        errors += 1;
        let log = function.log();
        assert_eq!(log.lines().filter(|line| line.contains("ERROR")).count(), errors, "{event} {log}");
    }
    for (odd, status) in [("note=two words", 200), ("note=<", 422)] {
        let mut odd_event = event(FUNCTION_URL, "POST", "/payments");
        odd_event["rawQueryString"] = odd.into();
        let answer = function.invoke(&odd_event).await.expect("an answer");
        assert_eq!(answer["statusCode"], status);
    }
    let mut odd = event(FUNCTION_URL, "POST", "/payments");
    odd["headers"]["host"] = "x:99999".into();
    assert_eq!(function.invoke(&odd).await.expect("an answer")["statusCode"], 400);
    let answer = function.invoke(&event(HTTP_API, "GET", "/plain")).await.expect("an answer");
    assert_eq!(answer["statusCode"], 200);
    assert!(!function.log().contains("panicked"), "{}", function.log());
}
