//! Events that `lambda_http` alone fails on, or panics at, through each front (T74).

use std::convert::Infallible;

use axum::{
    Router,
    http::Uri,
    routing::{get, post},
};
use lambda_http::{Context, LambdaEvent, service_fn};
use lambda_idempotency::{
    Execution, Idempotency, JwtClaim, MemoryStore, Operation, SingleTenant, lambda::http_event,
};
use serde_json::{Value, json};

use crate::support::{
    http::{Counter, PAY},
    lambda::{Function, deliver, function},
    random::{Random, Seed},
};

const HTTP_API: &str = include_str!("../fixtures/http_api_jwt.json");
const FUNCTION_URL: &str = include_str!("../fixtures/function_url.json");
const REST_API: &str = include_str!("../fixtures/rest_api_iam.json");
const LOAD_BALANCER: &str = include_str!("../fixtures/load_balancer.json");
const FRONTS: [&str; 4] = [HTTP_API, FUNCTION_URL, REST_API, LOAD_BALANCER];

fn event(front: &str) -> Value {
    serde_json::from_str(front).expect("a fixture is JSON")
}

/// A guarded API, whose answer is the query.
fn api() -> (Function, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(SingleTenant::new("all"));
    let pay = move |uri: Uri| async move {
        counter.add();
        uri.query().unwrap_or_default().to_owned()
    };
    let pay = post(pay).route_layer(guard);
    let up = get(async || "up");
    (
        function(Router::new().route("/payments", pay.clone()).route("/prod/payments", pay).route("/", up)),
        runs,
    )
}

/// An API that says whose request it serves.
fn of_tenants() -> Function {
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).tenant(JwtClaim("sub"));
    let pay = async |execution: Execution| execution.tenant().as_str().to_owned();
    function(Router::new().route("/payments", post(pay).route_layer(guard)))
}

/// The value of a header, by its lower-case name.
fn header<'e>(event: &'e mut Value, name: &str) -> &'e mut Value {
    let headers = event["headers"].as_object_mut().expect("headers");
    let name = headers.keys().find(|key| key.eq_ignore_ascii_case(name)).cloned().unwrap_or(name.to_owned());
    headers.entry(name).or_insert(Value::Null)
}

fn query(event: &mut Value, raw: &str) {
    event["rawQueryString"] = raw.into();
}

#[tokio::test]
async fn a_claim_that_is_no_text_fails_no_request() {
    let api = of_tenants();
    for (claim, tenant) in [
        (json!("acme"), Some("acme")),
        (json!(42), Some("42")),
        (json!(u64::MAX), Some("18446744073709551615")),
        (json!(-5), Some("-5")),
        (json!(true), Some("true")),
        (json!(null), None),
        (json!({ "id": "acme" }), None),
        // As text, two large numbers could be one.
        (json!(1.5), None),
        (json!(1e30), None),
        // As text, another caller could have it as a name.
        (json!(["acme"]), None),
        (json!("[\"acme\"]"), Some("[\"acme\"]")),
        (json!("[acme]"), Some("[acme]")),
    ] {
        let mut event = event(HTTP_API);
        let jwt = &mut event["requestContext"]["authorizer"]["jwt"];
        *jwt = json!({ "claims": {
            "sub": claim, "exp": 1_764_223_200, "email_verified": true, "cognito:groups": ["a", "b"], "zone": null, "ratio": 0.5,
        } });
        for scopes in [json!(null), json!(["pay"]), json!("pay"), json!([1])] {
            event["requestContext"]["authorizer"]["jwt"]["scopes"] = scopes.clone();
            let answer = deliver(&api, &event).await;
            match tenant {
                Some(tenant) => {
                    assert_eq!((answer.status(), answer.text()), (200, tenant), "{claim} {scopes}")
                }
                None => {
                    assert_eq!((answer.status(), &answer.json()["code"]), (401, &json!("tenant-missing")))
                }
            }
        }
    }
}

// T45: a function URL hands `two+words` over with a space.
#[tokio::test]
async fn a_query_that_no_uri_holds_is_served_as_it_was_meant() {
    for (raw, encoded) in [
        ("note=two words", "note=two%20words"),
        ("note=\"a\"<b>", "note=%22a%22%3Cb%3E"),
        ("note=a\u{7}b\u{7f}", "note=a%07b%7F"),
        ("note=\u{fc}ber", "note=%C3%BCber"),
        ("note=a#b", "note=a%23b"),
        ("note=a%20b+c&x=100%", "note=a%20b+c&x=100%"),
        (r"note=a|b\c`{d}^", r"note=a|b\c`{d}^"),
    ] {
        for front in [HTTP_API, FUNCTION_URL] {
            let ((api, runs), mut event) = (api(), event(front));
            query(&mut event, raw);
            let first = deliver(&api, &event).await;
            assert_eq!((first.status(), first.text()), (200, encoded), "{raw}");
            query(&mut event, encoded);
            let replay = deliver(&api, &event).await;
            assert_eq!((replay.header("idempotent-replayed"), replay.text()), (Some("true"), encoded));
            assert_eq!(runs.count(), 1);
        }
    }
}

// T45
#[tokio::test]
async fn a_mended_query_is_the_same_request_through_every_front() {
    let (api, runs) = api();
    let first = deliver(&api, &event(FUNCTION_URL)).await;
    assert_eq!((first.status(), first.text()), (200, "note=two%20words"));
    // REST APIs have the stage in the path that handlers see, and not in the event's.
    for front in FRONTS {
        let replay = deliver(&api, &event(front)).await;
        assert_eq!(
            (replay.header("idempotent-replayed"), replay.text()),
            (Some("true"), first.text()),
            "{front}"
        );
    }
    let mut other = event(FUNCTION_URL);
    query(&mut other, "note=twowords");
    assert_eq!(deliver(&api, &other).await.status(), 422);
    assert_eq!(runs.count(), 1);
}

// T45: HTTP APIs pass `+` and `[` on as clients write them, function URLs and clients escape them in their own ways.
#[tokio::test]
async fn a_query_whose_order_counts_is_one_however_it_is_escaped() {
    let (api, runs) = api();
    let sent = async |front: &str, raw: &str| {
        let mut event = event(front);
        query(&mut event, raw);
        deliver(&api, &event).await
    };
    assert_eq!(sent(HTTP_API, "user.name=A+B&a[]=1").await.status(), 200);
    for raw in ["user.name=A B&a[]=1", "user.name=A%20B&a%5B%5D=1", "user%2Ename=%41+B&a%5b]=1"] {
        for front in [HTTP_API, FUNCTION_URL] {
            let replay = sent(front, raw).await;
            assert_eq!(replay.header("idempotent-replayed"), Some("true"), "{raw}");
        }
    }
    for raw in ["a[]=1&user.name=A+B", "user.name=A+B&a[]=1&a[]=1", "user.name=A%2BB&a[]=1"] {
        assert_eq!(sent(FUNCTION_URL, raw).await.status(), 422, "{raw}");
    }
    assert_eq!(runs.count(), 1);
}

// T45
#[tokio::test]
async fn queries_that_parsers_read_differently_are_two() {
    for (first, other) in [("x.y=1&dry", "x.y=1&dry="), ("x.y=1&z=2", "x.y=1&&z=2")] {
        let (api, runs) = api();
        let sent = async |raw: &str| {
            let mut event = event(HTTP_API);
            query(&mut event, raw);
            deliver(&api, &event).await.status()
        };
        assert_eq!((sent(first).await, sent(first).await, sent(other).await), (200, 200, 422));
        assert_eq!(runs.count(), 1, "{first}");
    }
}

// Emulators write them, and direct invocations.
#[tokio::test]
async fn a_member_that_is_null_is_as_one_that_is_missing() {
    for (front, members) in [
        (HTTP_API, ["isBase64Encoded", "cookies"]),
        (REST_API, ["isBase64Encoded", "queryStringParameters"]),
        (LOAD_BALANCER, ["queryStringParameters", "multiValueQueryStringParameters"]),
    ] {
        let ((api, runs), mut event) = (api(), event(front));
        for member in members {
            event[member] = Value::Null;
        }
        let answer = deliver(&api, &event).await;
        assert_eq!((answer.status(), runs.count()), (200, 1), "{front}");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_addressed_gets_400_and_begins_nothing() {
    let (api, runs) = api();
    let refused = async |event: &Value, what: &str| {
        let answer = deliver(&api, event).await;
        assert_eq!((answer.status(), &answer.json()["code"]), (400, &json!("request-malformed")), "{what}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
    };
    for front in FRONTS {
        for host in [
            "",
            " ",
            "x:99999",
            "x:port",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "a@b",
            "a\\b",
            "[::1",
            "999.999.999.999",
            "a\"b",
            "xn--",
        ] {
            let mut event = event(front);
            *header(&mut event, "host") = host.into();
            refused(&event, &format!("host {host:?} {front}")).await;
        }
        for (name, value) in [
            ("x-forwarded-proto", json!("1")),
            ("x-forwarded-proto", json!("file")),
            ("x-note", json!("a\u{1}b")),
            ("x-note", json!("a\r\nset-cookie: b")),
            ("two words", json!("a")),
            ("x-note", json!(["a", 1])),
        ] {
            let mut event = event(front);
            *header(&mut event, name) = value.clone();
            refused(&event, &format!("{name}: {value} {front}")).await;
        }
        let mut event = event(front);
        let v2 = event["version"] == "2.0";
        event[if v2 { "rawPath" } else { "path" }] = "payments".into();
        refused(&event, &format!("path {front}")).await;
        let long = "\u{fc}".repeat(30_000);
        event[if v2 { "rawPath" } else { "path" }] = format!("/{long}").into();
        refused(&event, &format!("long path {front}")).await;
        let mut event = self::event(front);
        event["body"] = "no base64".into();
        event["isBase64Encoded"] = true.into();
        refused(&event, &format!("body {front}")).await;
        let mut event = self::event(front);
        match v2 {
            true => event["requestContext"]["http"]["method"] = "P ST".into(),
            false => event["httpMethod"] = "P ST".into(),
        }
        refused(&event, &format!("method {front}")).await;
    }
    assert_eq!(runs.count(), 0);
}

// As 400s, every request would be refused, and no alarm would say so.
#[tokio::test]
async fn an_event_that_cannot_be_read_whatever_its_client_sent_fails() {
    for (front, member) in
        [(HTTP_API, "timeEpoch"), (FUNCTION_URL, "timeEpoch"), (REST_API, "requestTimeEpoch")]
    {
        for odd_header in [false, true] {
            let mut event = event(front);
            event["requestContext"][member] = "noon".into();
            if odd_header {
                *header(&mut event, "x-note") = "a\u{1}b".into();
            }
            let event = serde_json::from_str(&event.to_string()).expect("an event is JSON");
            let served = http_event(
                service_fn(async |_| Ok::<_, Infallible>("served")),
                LambdaEvent::new(event, Context::default()),
            );
            assert!(served.await.is_err(), "{front}");
        }
    }
}

#[tokio::test]
async fn what_proxies_and_probes_send_is_served() {
    for front in FRONTS {
        let (api, _) = api();
        for host in ["api.example.com", "API.example.com:8443", "[::1]:80", "192.0.2.1", "a_b"] {
            let mut event = event(front);
            *header(&mut event, "host") = host.into();
            assert_eq!(deliver(&api, &event).await.status(), 200, "{host}");
        }
        for proto in ["https,http", "HTTPS", "http, http"] {
            let mut event = event(front);
            *header(&mut event, "x-forwarded-proto") = proto.into();
            assert_eq!(deliver(&api, &event).await.status(), 200, "{proto}");
        }
    }
    // The health check of a load balancer has no host.
    let probe = json!({
        "requestContext": { "elb": { "targetGroupArn": "arn:aws:elasticloadbalancing:eu-central-1:1:targetgroup/a/1" } },
        "httpMethod": "GET", "path": "/", "queryStringParameters": {}, "headers": { "user-agent": "ELB-HealthChecker/2.0" },
        "body": "", "isBase64Encoded": false,
    });
    let answer = deliver(&api().0, &probe).await;
    assert_eq!((answer.status(), answer.text()), (200, "up"));
}

// Whatever a client sends, it gets an answer.
#[tokio::test]
async fn no_text_in_a_request_fails_its_invocation() {
    const PIECES: [&str; 24] = [
        "a",
        "%",
        "%2F",
        "%zz",
        "/",
        "//",
        "..",
        ":",
        "@",
        "[",
        "]",
        " ",
        "\"",
        "<",
        "#",
        "?",
        "&",
        "=",
        "+",
        "\u{7f}",
        "\u{1f980}",
        "\t",
        "99999",
        "{}",
    ];
    let seed = Seed::find();
    let mut random = Random::new(seed.0);
    let (api, _) = api();
    let mut text = |begin: &str| -> String {
        let length = random.below(6);
        std::iter::once(begin).chain((0..length).map(|_| PIECES[random.below(PIECES.len())])).collect()
    };
    let mut served = 0;
    for round in 0..400 {
        let mut event = event(FRONTS[round % 4]);
        if round % 3 != 0 {
            *header(&mut event, "host") = text("").into();
        }
        *header(&mut event, "x-forwarded-proto") = text("http").into();
        *header(&mut event, "idempotency-key") = text("k").into();
        let path = text(if round % 5 == 0 { "" } else { "/" });
        if event["version"] == "2.0" {
            query(&mut event, &text(""));
            event["requestContext"]["stage"] = "prod".into();
            event["rawPath"] = path.clone().into();
            event["requestContext"]["http"]["path"] = path.into();
        } else {
            event["path"] = path.into();
            event["queryStringParameters"] = json!({ text(""): text("") });
        }
        let status = deliver(&api, &event).await.status();
        assert!((200..500).contains(&status), "{status} {event}");
        served += u32::from(status != 400);
    }
    assert!(served > 10, "{served} of 400 reached a route");
}
