//! A request's target, which is the same through every front of Lambda, and what its status resource shows.

use aws_smithy_types::base64;
use axum::{Router, body::Body, routing::get};
use lambda_http::{Request, service_fn};
use lambda_idempotency::{
    engine::Execution,
    http::{Idempotency, Profile, SingleTenant, operation_key, operation_status},
    key::{OperationName, Tenant},
    operation::{Operation, WhileInFlight},
    store::{Store, memory::MemoryStore},
    time::Timestamp,
    world::{SystemWorld, World},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tower::Layer;

use crate::support::{
    http::{Counter, Gate, PAY, clock, record_key},
    lambda::{Function, deliver, function},
    random::{Random, Seed},
};

/// A request as its client intends it.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    method: &'static str,
    path: Vec<String>,
    query: Vec<(String, String)>,
    content_type: Option<&'static str>,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Front {
    RestApi,
    /// With a named stage, called through the API's own domain or a custom one.
    HttpApi {
        stage: &'static str,
        custom_domain: bool,
    },
    /// In payload format 1.0.
    HttpApiOne {
        stage: &'static str,
    },
    FunctionUrl,
    LoadBalancer,
}

const FRONTS: [Front; 8] = [
    Front::RestApi,
    Front::HttpApi { stage: "$default", custom_domain: false },
    Front::HttpApi { stage: "prod", custom_domain: false },
    Front::HttpApi { stage: "prod", custom_domain: true },
    Front::HttpApiOne { stage: "$default" },
    Front::HttpApiOne { stage: "prod" },
    Front::FunctionUrl,
    Front::LoadBalancer,
];

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Sent {
    fn encoded_path(&self) -> String {
        self.path.iter().map(|segment| format!("/{}", encode(segment))).collect()
    }

    fn decoded_path(&self) -> String {
        self.path.iter().map(|segment| format!("/{segment}")).collect()
    }

    fn raw_query(&self) -> String {
        let pair = |(name, value): &(String, String)| format!("{}={}", encode(name), encode(value));
        self.query.iter().map(pair).collect::<Vec<_>>().join("&")
    }

    /// Several values of each name, from fronts that send all values. The order of the names is lost.
    fn multi_value(&self, shown: impl Fn(&str) -> String) -> Value {
        let mut values: std::collections::BTreeMap<String, Vec<String>> = Default::default();
        for (name, value) in &self.query {
            values.entry(shown(name)).or_default().push(shown(value));
        }
        if values.is_empty() { Value::Null } else { json!(values) }
    }

    /// The event that this front sends. The forms of REST APIs, HTTP APIs in format 2.0, function URLs and load balancers were captured
    /// from live services. Format 1.0 follows AWS's documentation.
    fn event(&self, front: Front, key: &str) -> Value {
        let mut headers = json!({ "host": "api.example.com", "idempotency-key": key });
        if let Some(content_type) = self.content_type {
            headers["content-type"] = content_type.into();
        }
        let multi: Value =
            headers.as_object().unwrap().iter().map(|(name, value)| (name.clone(), json!([value]))).collect();
        let mut event = match front {
            Front::RestApi => json!({
                "resource": "/{proxy+}", "path": self.encoded_path(), "httpMethod": self.method,
                "headers": headers, "multiValueHeaders": multi, "queryStringParameters": null,
                "multiValueQueryStringParameters": self.multi_value(str::to_owned),
                "requestContext": {
                    "resourceId": "al6gqb", "resourcePath": "/{proxy+}", "stage": "prod", "httpMethod": self.method,
                    "path": format!("/prod{}", self.encoded_path()), "identity": {}, "requestTimeEpoch": 0,
                },
            }),
            Front::HttpApiOne { stage } => {
                let prefix = if stage == "$default" { String::new() } else { format!("/{stage}") };
                let path = prefix + &self.decoded_path();
                json!({
                    "version": "1.0", "resource": "$default", "path": path, "httpMethod": self.method,
                    "headers": headers, "multiValueHeaders": multi, "queryStringParameters": null,
                    "multiValueQueryStringParameters": self.multi_value(str::to_owned),
                    "requestContext": {
                        "resourceId": null, "resourcePath": "$default", "stage": stage, "httpMethod": self.method,
                        "path": path, "identity": {}, "requestTimeEpoch": 0,
                    },
                })
            }
            Front::LoadBalancer => json!({
                "path": self.encoded_path(), "httpMethod": self.method, "multiValueHeaders": multi,
                "multiValueQueryStringParameters": match self.multi_value(encode) {
                    Value::Null => json!({}),
                    values => values,
                },
                "requestContext": { "elb": { "targetGroupArn": "arn:aws:elasticloadbalancing:eu-central-1:1:targetgroup/a/1" } },
            }),
            Front::HttpApi { .. } | Front::FunctionUrl => {
                let (stage, domain, prefix) = match front {
                    Front::HttpApi { stage, custom_domain: true } => {
                        (stage, "api.example.com", String::new())
                    }
                    Front::HttpApi { stage: "$default", .. } => {
                        ("$default", "a.execute-api.eu-central-1.amazonaws.com", String::new())
                    }
                    Front::HttpApi { stage, .. } => {
                        (stage, "a.execute-api.eu-central-1.amazonaws.com", format!("/{stage}"))
                    }
                    _ => ("$default", "a.lambda-url.eu-central-1.on.aws", String::new()),
                };
                let decoded = prefix.clone() + &self.decoded_path();
                let raw = if front == Front::FunctionUrl { self.encoded_path() } else { decoded.clone() };
                json!({
                    "version": "2.0", "routeKey": "$default", "rawPath": raw, "rawQueryString": self.raw_query(),
                    "headers": headers,
                    "requestContext": {
                        "stage": stage, "domainName": domain, "routeKey": "$default", "timeEpoch": 0,
                        "http": { "method": self.method, "path": decoded },
                    },
                })
            }
        };
        (event["body"], event["isBase64Encoded"]) = match std::str::from_utf8(&self.body) {
            Ok(text) => (text.into(), false.into()),
            Err(_) => (base64::encode(&self.body).into(), true.into()),
        };
        event
    }
}

fn guarded(store: &(impl Store + Clone)) -> (Function, Counter) {
    guarded_by(Idempotency::new(store.clone(), Operation::new(PAY)))
}

fn guarded_by(guard: Idempotency) -> (Function, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let handler = move |request: Request| {
        counter.add();
        async move {
            let execution = request.extensions().get::<Execution>().expect("an execution");
            Ok::<_, lambda_http::Error>(lambda_http::Response::new(execution.downstream_key("charge")))
        }
    };
    (function(guard.tenant(SingleTenant::new("all")).layer(service_fn(handler))), runs)
}

/// Text of characters that are special somewhere. It never contains a `?`, at which HTTP APIs cut the path.
fn text(random: &mut Random) -> String {
    const CHARS: [char; 22] = [
        'a', 'b', '1', '#', '/', '%', '&', '=', '+', ' ', ';', ',', '.', '~', '"', '\\', '{', '|', '<', 'ä',
        '😀', ':',
    ];
    let length = 1 + random.below(4);
    (0..length).map(|_| random.of(&CHARS)).collect()
}

fn sent(random: &mut Random) -> Sent {
    let methods = ["POST", "PATCH"];
    let types = [
        None,
        Some("application/json"),
        Some("application/merge-patch+json; charset=utf-8"),
        Some("application/x-www-form-urlencoded"),
        Some("text/plain; charset=utf-8"),
    ];
    // Two names that have no order, or one that is special somewhere.
    let special = text(random);
    let names = match random.below(2) {
        0 => ["a".to_owned(), "b-1".to_owned()],
        _ => [special.clone(), special],
    };
    Sent {
        method: random.of(&methods),
        path: (0..1 + random.below(3)).map(|_| format!("p{}", text(random))).collect(),
        query: (0..random.below(4)).map(|_| (names[random.below(2)].clone(), text(random))).collect(),
        content_type: random.of(&types),
        body: match random.below(3) {
            0 => Vec::new(),
            1 => format!("{{\"a\":{:?}}}", text(random)).into_bytes(),
            _ => vec![0xff, random.below(256) as u8],
        },
    }
}

/// The same request with one difference.
fn other(sent: &Sent, random: &mut Random) -> Sent {
    let mut other = sent.clone();
    match random.below(5) {
        0 => other.method = if sent.method == "POST" { "PATCH" } else { "POST" },
        1 => other.path.last_mut().expect("a segment").push('x'),
        2 => other.query.push(("amount".to_owned(), "1".to_owned())),
        3 => other.content_type = Some("application/json-patch+json"),
        _ => other.body.push(b'!'),
    }
    other
}

// T45
#[tokio::test]
async fn one_request_through_four_fronts_is_one_request() {
    let (function, runs) = guarded(&MemoryStore::new());
    let seed = Seed::find();
    let mut random = Random::new(seed.0);
    for number in 1..=40 {
        let (sent, key) = (sent(&mut random), format!("order-{number}"));
        let other = other(&sent, &mut random);
        let first_front = random.of(&FRONTS);
        let first = deliver(&function, &sent.event(first_front, &key)).await;
        assert_eq!((first.status(), first.header("idempotent-replayed")), (200, None), "{sent:?}");
        for front in FRONTS {
            let what = || format!("first {first_front:?}, then {front:?}: {sent:?}");
            let replay = deliver(&function, &sent.event(front, &key)).await;
            assert_eq!(replay.header("idempotent-replayed"), Some("true"), "{}: {}", replay.text(), what());
            assert_eq!(replay.text(), first.text());
            let refused = deliver(&function, &other.event(front, &key)).await;
            assert_eq!(refused.status(), 422, "{}: {other:?}", what());
        }
        assert_eq!(runs.count(), number);
    }
}

fn order_to(path: &[&str], query: &[(&str, &str)]) -> Sent {
    Sent {
        method: "POST",
        path: path.iter().map(|segment| (*segment).to_owned()).collect(),
        query: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        content_type: Some("application/json"),
        body: b"{}".to_vec(),
    }
}

// T45: the URI that is built from such a path ends at the `#`, and loses its query.
#[tokio::test]
async fn the_target_after_a_decoded_number_sign_counts() {
    for front in FRONTS {
        let (function, runs) = guarded(&MemoryStore::new());
        let first = order_to(&["orders", "a#b"], &[("amount", "1")]);
        assert_eq!(deliver(&function, &first.event(front, "k")).await.status(), 200);
        for other in [
            order_to(&["orders", "a#b"], &[("amount", "2")]),
            order_to(&["orders", "a#c"], &[("amount", "1")]),
            order_to(&["orders", "a"], &[("amount", "1")]),
        ] {
            assert_eq!(
                deliver(&function, &other.event(front, "k")).await.status(),
                422,
                "{front:?} {other:?}"
            );
        }
        assert_eq!(runs.count(), 1);
    }
}

// T45: a segment of a custom domain's path is never a stage, even if it has the name of one. `$default` is never a stage either.
#[tokio::test]
async fn only_the_stage_itself_is_stripped_from_a_path() {
    let custom = Front::HttpApi { stage: "prod", custom_domain: true };
    for (front, first) in [
        (custom, "prod"),
        (Front::FunctionUrl, "$default"),
        (FRONTS[1], "$default"),
        (Front::RestApi, "prod"),
    ] {
        let (function, runs) = guarded(&MemoryStore::new());
        assert_eq!(
            deliver(&function, &order_to(&[first, "orders"], &[]).event(front, "k")).await.status(),
            200
        );
        let other = deliver(&function, &order_to(&["orders"], &[]).event(front, "k")).await;
        assert_eq!((other.status(), runs.count()), (422, 1), "{front:?}");
    }
    // An event that does not name its domain. If it has a route, the route decides.
    for (route, path, same) in [
        ("POST /prod/{id}", ["prod", "prod"], ["prod", "prod"].as_slice()),
        ("POST /orders", ["prod", "orders"], &["orders"]),
        ("POST /{proxy+}", ["prod", "orders"], &["orders"]),
        ("$default", ["prod", "orders"], &["orders"]),
    ] {
        let (function, _) = guarded(&MemoryStore::new());
        let mut event = order_to(&path, &[]).event(custom, "k");
        event["requestContext"].as_object_mut().unwrap().remove("domainName");
        event["requestContext"]["routeKey"] = route.into();
        assert_eq!(deliver(&function, &event).await.status(), 200);
        let replay = deliver(&function, &order_to(same, &[]).event(Front::FunctionUrl, "k")).await;
        assert_eq!(replay.header("idempotent-replayed"), Some("true"), "{route}");
    }
}

// T45
#[tokio::test]
async fn different_queries_that_are_not_utf_8_are_different_requests() {
    // An HTTP API decodes the path, so that a URI would end there.
    for (front, path) in [(FRONTS[1], "orders"), (FRONTS[1], "a#b?"), (Front::FunctionUrl, "orders")] {
        let (function, runs) = guarded(&MemoryStore::new());
        let named = |query: &str| {
            let mut event = order_to(&[path], &[]).event(front, "k");
            event["rawQueryString"] = query.into();
            event
        };
        assert_eq!(deliver(&function, &named("name=M%FCller")).await.status(), 200);
        let replay = deliver(&function, &named("name=M%FCller")).await;
        assert_eq!(replay.header("idempotent-replayed"), Some("true"));
        assert_eq!(deliver(&function, &named("name=M%F6ller")).await.status(), 422, "{front:?}");
        assert_eq!(runs.count(), 1);
    }
}

// T45
#[tokio::test]
async fn a_route_named_like_the_stage_is_not_stripped() {
    let (function, runs) = guarded(&MemoryStore::new());
    let (own, custom) = (
        Front::HttpApi { stage: "prod", custom_domain: false },
        Front::HttpApi { stage: "prod", custom_domain: true },
    );
    let event = |sent: Sent, front, route: &str| {
        let mut event = sent.event(front, "k");
        event["requestContext"]["routeKey"] = route.into();
        event
    };
    let (inner, outer) = (order_to(&["prod", "orders"], &[]), order_to(&["orders"], &[]));
    assert_eq!(deliver(&function, &event(inner.clone(), own, "POST /prod/orders")).await.status(), 200);
    let replay = deliver(&function, &event(inner, custom, "POST /prod/orders")).await;
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    for front in [own, custom] {
        let refused = deliver(&function, &event(outer.clone(), front, "POST /orders")).await;
        assert_eq!(refused.status(), 422, "{front:?}");
    }
    // A path that is only a stage, and a path whose first segment merely starts like the stage.
    for (path, same) in [(vec![], vec![""]), (vec!["production"], vec!["production"])] {
        let (function, _) = guarded(&MemoryStore::new());
        assert_eq!(deliver(&function, &order_to(&path, &[]).event(own, "k")).await.status(), 200);
        let replay = deliver(&function, &order_to(&same, &[]).event(custom, "k")).await;
        assert_eq!(replay.header("idempotent-replayed"), Some("true"), "{path:?}");
    }
    assert_eq!(runs.count(), 1);
}

/// A function that serves the states of operations, with a router like the sample's.
fn states(store: &MemoryStore, now: Timestamp) -> Function {
    let store = store.clone();
    let show = move |request: axum::extract::Request| {
        let store = store.clone();
        async move {
            let (parts, _) = request.into_parts();
            let (all, pay) = (Tenant::parse("all").unwrap(), OperationName::parse(PAY).unwrap());
            match operation_key(&parts, all, "/operations", &pay) {
                Some(key) => {
                    let answer = operation_status(&store, &key, now, &Profile::default()).await;
                    let mut answer = answer.map(Body::new);
                    let key = key.idempotency_key().as_str();
                    answer.headers_mut().insert("x-key", encode(key).parse().unwrap());
                    answer
                }
                None => axum::http::Response::new(Body::from("no key")),
            }
        }
    };
    let routes = get(show);
    let routes = Router::new().route("/operations", routes.clone()).route("/operations/{*key}", routes);
    // `lambda_http` puts the stage before the path.
    function(Router::new().nest("/prod", routes.clone()).merge(routes))
}

// T45
#[tokio::test]
async fn the_status_of_one_key_never_shows_anothers() {
    let store = MemoryStore::new();
    let (function, _) = guarded(&store);
    let short = order_to(&["orders"], &[]);
    for key in ["order-1", "a", "a b", "1"] {
        assert_eq!(
            deliver(&function, &short.event(Front::FunctionUrl, &format!("\"{key}\""))).await.status(),
            200
        );
    }
    let states = states(&store, SystemWorld.now());
    let ask =
        |path: &[&str], query: &[(&str, &str)]| Sent { method: "GET", body: vec![], ..order_to(path, query) };
    let keys = [
        "order-1#2",
        "order-1?2",
        "a/b",
        "a%2Fb",
        "a+b",
        "a&b",
        "a=b",
        "a#",
        "#",
        "..",
        "a%20b",
        "1%00",
        "order-1;x",
    ];
    for front in FRONTS {
        for key in keys {
            // Both as the guard returns it and as clients build it by hand. The query arrives unchanged.
            let by_query = deliver(&states, &ask(&["operations"], &[("key", key)]).event(front, "k")).await;
            let found = (by_query.status(), by_query.header("x-key").map(str::to_owned));
            assert_eq!(found, (404, Some(encode(key))), "{front:?} {key}");
            if !key.contains('?') && !key.starts_with('#') && key != ".." {
                let by_path = deliver(&states, &ask(&["operations", key], &[]).event(front, "k")).await;
                let found = (by_path.status(), by_path.header("x-key").map(str::to_owned));
                assert_eq!(found, (404, Some(encode(key))), "{front:?} {key}");
            }
        }
        for asked in [ask(&["operations"], &[("key", "a b")]), ask(&["operations", "a b"], &[])] {
            let known = deliver(&states, &asked.event(front, "k")).await;
            assert_eq!((known.status(), known.header("x-key")), (200, Some("a%20b")), "{front:?}");
        }
        for nothing in [ask(&["operations"], &[]), ask(&["operations", "a"], &[("key", "b")])] {
            assert_eq!(deliver(&states, &nothing.event(front, "k")).await.text(), "no key", "{front:?}");
        }
    }
}

// T45
#[tokio::test]
async fn a_duplicates_status_url_works_through_every_front() {
    let key = "order-1?a=b&c#d/e+f%2Fg h";
    for front in FRONTS {
        let (store, gate, clock) = (MemoryStore::new(), Gate::closed(), clock());
        let held = gate.clone();
        let handler = move |_: Request| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok::<_, lambda_http::Error>(lambda_http::Response::new("done".to_owned()))
            }
        };
        let operation = Operation::new(PAY).while_in_flight(WhileInFlight::Accept);
        let guard =
            Idempotency::new(store.clone(), operation).tenant(SingleTenant::new("all")).world(clock.clone());
        let function = function(guard.layer(service_fn(handler)));
        let event = order_to(&["orders"], &[]).event(front, &format!("\"{key}\""));
        let duplicate = async {
            gate.reached(1).await;
            let accepted = deliver(&function, &event).await;
            let url: axum::http::Uri = accepted.header("location").expect("a URL").parse().unwrap();
            // As its client resolves it: the stage is part of the path on the API's own domain.
            let staged = [Front::RestApi, FRONTS[2], Front::HttpApiOne { stage: "prod" }].contains(&front);
            let path = url.path().strip_prefix(if staged { "/prod" } else { "" }).expect("the stage");
            let query = form(url.query().unwrap());
            let query: Vec<_> = query.iter().map(|(name, value)| (&**name, &**value)).collect();
            let asked = Sent { method: "GET", body: vec![], ..order_to(&[&path[1..]], &query) };
            let state = deliver(&states(&store, clock.now()), &asked.event(front, "k")).await;
            assert_eq!((state.status(), &state.json()["state"]), (200, &json!("in_progress")), "{front:?}");
            assert_eq!(state.header("retry-after"), Some("1"));
            gate.open();
        };
        let (first, ()) = tokio::join!(deliver(&function, &event), duplicate);
        assert_eq!(first.status(), 200);
        assert!(store.load(&record_key("all", PAY, key)).await.unwrap().is_some());
    }
}

/// The decoded pairs of a query, as a client's URL library reads them.
fn form(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text).decode_utf8().unwrap().into_owned()
    };
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (decoded(name), decoded(value)));
    query.split('&').filter_map(pair).collect()
}

// T45: another path would be another execution.
#[tokio::test]
async fn keys_by_path_count_the_path_alike_through_every_front() {
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY)).profile(Profile::acp());
    let (function, runs) = guarded_by(guard);
    let seed = Seed::find();
    let mut random = Random::new(seed.0);
    for number in 1..=20 {
        let (sent, key) = (sent(&mut random), format!("order-{number}"));
        for (index, front) in FRONTS.into_iter().enumerate() {
            let answer = deliver(&function, &sent.event(front, &key)).await;
            let replayed = (index > 0).then_some("true");
            assert_eq!(answer.header("idempotent-replayed"), replayed, "{front:?}: {sent:?}");
            assert_eq!(answer.header("idempotency-key"), Some(&*key));
        }
        assert_eq!(runs.count(), number);
    }
}

// T45: some fronts join several lines of one header, others keep them apart.
#[tokio::test]
async fn repeated_header_lines_count_alike_through_every_front_that_shows_both() {
    let rule = lambda_idempotency::fingerprint::FingerprintRule::new().header("prefer");
    let guard = Idempotency::new(MemoryStore::new(), Operation::new(PAY).fingerprint(rule));
    let (function, runs) = guarded_by(guard);
    let preferring = |lines: &[&str], front: Front| {
        let mut event = order_to(&["orders"], &[]).event(front, "k");
        if event["multiValueHeaders"].is_object() {
            event["multiValueHeaders"]["prefer"] = json!(lines);
        } else {
            event["headers"]["prefer"] = lines.join(",").into();
        }
        event
    };
    let balancer = Front::LoadBalancer;
    assert_eq!(deliver(&function, &preferring(&["a", " b "], balancer)).await.status(), 200);
    for front in [balancer, Front::FunctionUrl, FRONTS[1]] {
        let replay = deliver(&function, &preferring(&["a", "b"], front)).await;
        assert_eq!(replay.header("idempotent-replayed"), Some("true"), "{front:?}");
        for other in [&["a"][..], &["b"], &["a", "c"], &["b", "a"], &[]] {
            assert_eq!(
                deliver(&function, &preferring(other, front)).await.status(),
                422,
                "{front:?} {other:?}"
            );
        }
    }
    assert_eq!(runs.count(), 1);
}

// T45: a question mark in a path, through the fronts that pass it on.
#[tokio::test]
async fn a_question_mark_in_a_path_begins_no_query() {
    let (function, runs) = guarded(&MemoryStore::new());
    let (path, query) = (order_to(&["a?b=1"], &[]), order_to(&["a"], &[("b", "1")]));
    for front in FRONTS {
        let answer = deliver(&function, &path.event(front, "path")).await;
        assert_eq!((answer.status(), runs.count()), (200, 1), "{front:?}");
        assert_eq!(deliver(&function, &query.event(front, "path")).await.status(), 422, "{front:?}");
    }
    // In every query, a plus is a space.
    for front in [FRONTS[1], Front::FunctionUrl] {
        let mut event = order_to(&["a"], &[("x", "a b")]).event(front, "plus");
        event["rawQueryString"] = "x=a+b".into();
        assert_eq!(deliver(&function, &event).await.status(), 200);
    }
    let encoded = order_to(&["a"], &[("x", "a b")]).event(Front::RestApi, "plus");
    assert_eq!(deliver(&function, &encoded).await.header("idempotent-replayed"), Some("true"));
}

// T45
#[tokio::test]
async fn a_status_request_that_names_no_record_finds_none() {
    let states = states(&MemoryStore::new(), SystemWorld.now());
    let ask =
        |path: &[&str], query: &[(&str, &str)]| Sent { method: "GET", body: vec![], ..order_to(path, query) };
    let long = "k".repeat(256);
    let scope = "0123456789abcdef0123456789abcdef";
    for front in FRONTS {
        for (query, found) in [
            (vec![("key", "a"), ("operation", "pay")], true),
            (vec![("key", "a"), ("scope", scope)], true),
            (vec![("key", "a"), ("key", "b")], false),
            (vec![("key", "a"), ("operation", "pay"), ("operation", "refund")], false),
            (vec![("key", "")], false),
            (vec![("key", &*long)], false),
            (vec![("key", "a\u{7}")], false),
            (vec![("key", "a"), ("operation", "")], false),
            (vec![("key", "a"), ("operation", "a b")], false),
            (vec![("key", "a"), ("operation", "pay@x")], false),
            (vec![("key", "a"), ("scope", "")], false),
            (vec![("key", "a"), ("scope", &scope[1..])], false),
            (vec![("key", "a"), ("scope", "0123456789ABCDEF0123456789abcdef")], false),
        ] {
            let answer = deliver(&states, &ask(&["operations"], &query).event(front, "k")).await;
            assert_eq!(answer.header("x-key").is_some(), found, "{front:?} {query:?}");
        }
    }
    let (parts, ()) = axum::http::Request::get("/operations/%ff").body(()).unwrap().into_parts();
    let pay = OperationName::parse(PAY).unwrap();
    assert!(operation_key(&parts, Tenant::parse("all").unwrap(), "/operations", &pay).is_none());
    let (parts, ()) = axum::http::Request::get("/operationsX/k").body(()).unwrap().into_parts();
    assert!(operation_key(&parts, Tenant::parse("all").unwrap(), "/operations", &pay).is_none());
}
