//! What a request addresses, the same through every front of Lambda, and what its status resource shows.

use aws_smithy_types::base64;
use axum::{Router, body::Body, routing::get};
use lambda_http::{Request, service_fn};
use lambda_idempotency::{
    engine::Execution,
    http::{Idempotency, Profile, SingleTenant, asked_about, operation_status},
    key::{OperationName, Tenant},
    operation::{Operation, WhileInFlight},
    store::{Store, memory::MemoryStore},
    world::{SystemWorld, World},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tower::Layer;

use crate::support::{
    http::{Counter, Gate, PAY, dynamodb, record_key},
    lambda::{Function, deliver, function},
    on_each_store,
    random::{Random, Seed},
};

on_each_store!(one_request_through_four_fronts_is_one_request);

/// A request as its client means it.
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
    /// With a named stage, called by the API's own domain, or by a custom one.
    HttpApi {
        stage: &'static str,
        custom_domain: bool,
    },
    /// In payload format 1.0.
    HttpApiOne,
    FunctionUrl,
    LoadBalancer,
}

const FRONTS: [Front; 7] = [
    Front::RestApi,
    Front::HttpApi { stage: "$default", custom_domain: false },
    Front::HttpApi { stage: "prod", custom_domain: false },
    Front::HttpApi { stage: "prod", custom_domain: true },
    Front::HttpApiOne,
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

    /// Several values of each name, as fronts that show all values have them; in no order of the names.
    fn multi_value(&self, shown: impl Fn(&str) -> String) -> Value {
        let mut values: std::collections::BTreeMap<String, Vec<String>> = Default::default();
        for (name, value) in &self.query {
            values.entry(shown(name)).or_default().push(shown(value));
        }
        if values.is_empty() { Value::Null } else { json!(values) }
    }

    /// The event that this front makes of it, as captured from live services.
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
            Front::HttpApiOne => json!({
                "version": "1.0", "resource": "$default", "path": self.decoded_path(), "httpMethod": self.method,
                "headers": headers, "multiValueHeaders": multi, "queryStringParameters": null,
                "multiValueQueryStringParameters": self.multi_value(str::to_owned),
                "requestContext": {
                    "resourceId": null, "resourcePath": "$default", "stage": "$default", "httpMethod": self.method,
                    "path": self.decoded_path(), "identity": {}, "requestTimeEpoch": 0,
                },
            }),
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
    let runs = Counter::default();
    let counter = runs.clone();
    let handler = move |request: Request| {
        counter.add();
        async move {
            let execution = request.extensions().get::<Execution>().expect("an execution");
            Ok::<_, lambda_http::Error>(lambda_http::Response::new(execution.downstream_key("charge")))
        }
    };
    let guard = Idempotency::new(store.clone(), Operation::new(PAY)).tenant(SingleTenant::new("all"));
    (function(guard.layer(service_fn(handler))), runs)
}

/// A text of characters that mean something somewhere; never a `?`, at which HTTP APIs cut the path.
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
        Some("text/plain"),
    ];
    let names = [text(random), text(random)];
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

/// The same in one thing differently.
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

// T45, R3
async fn one_request_through_four_fronts_is_one_request(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let (function, runs) = guarded(&store);
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

// T45: the URI that is made of such a path ends at the `#`, and has lost its query.
#[tokio::test]
async fn what_stands_behind_a_decoded_fragment_counts() {
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

// T45
#[tokio::test]
async fn a_route_that_is_named_like_the_stage_is_not_taken_for_it() {
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
    // A stage by itself, and one that only begins a segment.
    for (path, same) in [(vec![], vec![""]), (vec!["production"], vec!["production"])] {
        let (function, _) = guarded(&MemoryStore::new());
        assert_eq!(deliver(&function, &order_to(&path, &[]).event(own, "k")).await.status(), 200);
        let replay = deliver(&function, &order_to(&same, &[]).event(custom, "k")).await;
        assert_eq!(replay.header("idempotent-replayed"), Some("true"), "{path:?}");
    }
    assert_eq!(runs.count(), 1);
}

/// A function that serves the states of operations, on a router as the sample has it.
fn states(store: &MemoryStore) -> Function {
    let store = store.clone();
    let show = move |request: axum::extract::Request| {
        let store = store.clone();
        async move {
            let (parts, _) = request.into_parts();
            let (all, pay) = (Tenant::parse("all").unwrap(), OperationName::parse(PAY).unwrap());
            match asked_about(&parts, all, "/operations", &pay) {
                Some(key) => {
                    let answer = operation_status(&store, &key, SystemWorld.now(), &Profile::default()).await;
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
    // `lambda_http` puts a stage before the path.
    function(Router::new().nest("/prod", routes.clone()).merge(routes))
}

// T45, R20
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
    let states = states(&store);
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
            // As the guard hands it out, and as clients make it by hand: the query is handed over whole.
            let by_query = deliver(&states, &ask(&["operations"], &[("key", key)]).event(front, "k")).await;
            let told = (by_query.status(), by_query.header("x-key").map(str::to_owned));
            assert_eq!(told, (404, Some(encode(key))), "{front:?} {key}");
            if !key.contains('?') && !key.starts_with('#') && key != ".." {
                let by_path = deliver(&states, &ask(&["operations", key], &[]).event(front, "k")).await;
                let told = (by_path.status(), by_path.header("x-key").map(str::to_owned));
                assert_eq!(told, (404, Some(encode(key))), "{front:?} {key}");
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

// T45, R9
#[tokio::test]
async fn a_duplicate_is_told_a_url_that_shows_its_own_status_through_every_front() {
    let key = "order-1?a=b&c#d/e+f%2Fg h";
    for front in FRONTS {
        let (store, gate) = (MemoryStore::new(), Gate::closed());
        let held = gate.clone();
        let handler = move |_: Request| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok::<_, lambda_http::Error>(lambda_http::Response::new("done".to_owned()))
            }
        };
        let operation = Operation::new(PAY).while_in_flight(WhileInFlight::Accept);
        let guard = Idempotency::new(store.clone(), operation).tenant(SingleTenant::new("all"));
        let function = function(guard.layer(service_fn(handler)));
        let event = order_to(&["orders"], &[]).event(front, &format!("\"{key}\""));
        let duplicate = async {
            gate.reached(1).await;
            let accepted = deliver(&function, &event).await;
            let url: axum::http::Uri = accepted.header("location").expect("a URL").parse().unwrap();
            let query = form(url.query().unwrap());
            let query: Vec<_> = query.iter().map(|(name, value)| (&**name, &**value)).collect();
            let asked = Sent { method: "GET", body: vec![], ..order_to(&[&url.path()[1..]], &query) };
            let state = deliver(&states(&store), &asked.event(front, "k")).await;
            assert_eq!((state.status(), &state.json()["state"]), (200, &json!("in_progress")), "{front:?}");
            assert_eq!(state.header("retry-after"), Some("1"));
            gate.open();
        };
        let (first, ()) = tokio::join!(deliver(&function, &event), duplicate);
        assert_eq!(first.status(), 200);
        assert!(store.load(&record_key("all", PAY, key)).await.unwrap().is_some());
    }
}

/// What a client's URL library sends of a query: the pairs, decoded.
fn form(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text).decode_utf8().unwrap().into_owned()
    };
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (decoded(name), decoded(value)));
    query.split('&').filter_map(pair).collect()
}
