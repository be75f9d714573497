//! The contract profiles and their problem documents.

use axum::{Router, http::StatusCode};
use lambda_idempotency::{
    engine::{Execution, SingleTransaction},
    http::{Outcome, ProblemType, Profile},
    operation::{Operation, ServerErrors},
    record::Record,
    store::{Store, conformance::samples, memory::MemoryStore},
};
use macro_rules_attribute::apply;

use serde_json::json;

use crate::support::{
    embedded,
    faults::{ANY, Fault},
    guarded::{Guarded, fingerprints},
    http::{
        Answer, Counter, Gate, Guard, PAY, TENANT, api, dynamodb, guard, guard_of, order, pay, pay_other,
        record, record_key, send, state, unkeyed,
    },
    logs::Logs,
    on_each_store,
};

/// Answers with the status that the request asks for, and counts the runs.
fn echo(guard: Guard) -> (Router, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let app = api(guard, move |parts, _| {
        let run = counter.add();
        let status = parts.headers.get("x-status").map_or("201", |status| status.to_str().unwrap());
        let status = StatusCode::from_bytes(status.as_bytes()).unwrap();
        async move { (status, format!("run {run}")) }
    });
    (app, runs)
}

// Clients would take the refusal for a success.
#[test]
fn a_problem_has_no_status_of_a_success() {
    for status in [100, 200, 202, 204, 302, 399, 600, 999] {
        let status = StatusCode::from_u16(status).expect("a status");
        let chosen = std::panic::catch_unwind(|| Profile::stripe().status(ProblemType::InFlight, status));
        assert!(chosen.is_err(), "{status}");
    }
    for status in [StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE, StatusCode::from_u16(599).unwrap()]
    {
        let _ = Profile::stripe().status(ProblemType::InFlight, status);
    }
}

fn profiles() -> [(Profile, u16, &'static str, &'static str); 3] {
    [
        (Profile::ietf_draft(), 422, "key-reused", "in-flight"),
        (Profile::stripe(), 400, "idempotency_error", "idempotency_key_in_use"),
        (Profile::acp(), 422, "idempotency_conflict", "idempotency_in_flight"),
    ]
}

// T14
#[apply(on_each_store)]
async fn another_request_under_the_same_key_is_a_mismatch_in_every_state(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    for (number, (profile, mismatch, reused, _)) in profiles().into_iter().enumerate() {
        let profile = profile.scope_keys_by_path(false);
        let gate = Gate::closed();
        let (held, runs) = (gate.clone(), Counter::default());
        let counter = runs.clone();
        let app = api(guard(store.clone()).profile(profile), move |parts, _| {
            counter.add();
            let held = held.clone();
            async move {
                let key = parts.headers["idempotency-key"].to_str().unwrap().to_owned();
                let outcome = match key.split('-').next().unwrap() {
                    "in_progress" => {
                        held.pass().await;
                        Outcome::Completed
                    }
                    "completed" => Outcome::Completed,
                    "unknown" => Outcome::PerhapsExecuted,
                    _ => Outcome::NotExecuted,
                };
                axum::Extension(outcome)
            }
        });
        let key = |state: &str| format!("{state}-{number}");
        let first = tokio::spawn({
            let (app, request) = (app.clone(), pay(&key("in_progress")));
            async move { send(&app, request).await }
        });
        gate.reached(1).await;
        for state in ["completed", "unknown", "failed_retryable"] {
            send(&app, pay(&key(state))).await;
        }
        for name in ["in_progress", "completed", "unknown", "failed_retryable"] {
            assert_eq!(state(&store, &key(name)).await, name);
            let before = record(&store, &key(name)).await;
            send(&app, pay_other(&key(name))).await.assert_code(mismatch, reused);
            assert_eq!(record(&store, &key(name)).await, before, "a mismatch changes nothing");
        }
        // A pending operation is accepted but not begun; its record is written here as a front would write it. One between workers was
        // interrupted behind a phase.
        let pending = pending(&store, &key("in_progress"), &key("pending")).await;
        let mut begun = record(&store, &key("in_progress")).await.unwrap();
        begun.key = record_key(TENANT, PAY, &key("between_workers"));
        let interrupted = samples::between_workers(&begun, &[("charge", "1")], begun.created_at);
        for record in [pending, interrupted] {
            store.put(None, &record, &[]).await.unwrap();
            let key = record.key.idempotency_key().as_str();
            send(&app, pay_other(key)).await.assert_code(mismatch, reused);
        }
        assert_eq!(runs.count(), 4);
        gate.open();
        assert_eq!(first.await.unwrap().status, 200);
    }
}

async fn pending(store: &impl Store, like: &str, key: &str) -> Record {
    let mut record = record(store, like).await.unwrap();
    record.key = record_key(TENANT, PAY, key);
    let accepted = samples::pending(record.key.clone(), fingerprints("{}"), record.created_at);
    (record.state, record.accepted) = (accepted.state, accepted.accepted);
    record
}

#[tokio::test]
async fn each_profile_speaks_its_own_codes() {
    let missing = ["key-missing", "key-missing", "idempotency_key_required"];
    for ((profile, mismatch, reused, in_flight), missing) in profiles().into_iter().zip(missing) {
        let gate = Gate::closed();
        let held = gate.clone();
        let app = api(guard(MemoryStore::new()).profile(profile), move |_, _| {
            let held = held.clone();
            async move { held.pass().await }
        });
        let first = tokio::spawn({
            let app = app.clone();
            async move { send(&app, pay("order-1")).await }
        });
        gate.reached(1).await;
        let busy = send(&app, pay("order-1")).await;
        busy.assert_code(409, in_flight);
        assert_eq!(busy.header("retry-after"), Some("1"));
        send(&app, pay_other("order-1")).await.assert_code(mismatch, reused);
        let keyless = unkeyed().body("{}".into()).unwrap();
        send(&app, keyless).await.assert_code(400, missing);
        gate.open();
        first.await.unwrap();
    }
}

#[apply(on_each_store)]
async fn each_profile_has_its_own_rule_for_a_5xx(endpoint: &str) {
    let store = dynamodb(endpoint).await;
    let fails = |key: &str| order(key).header("x-status", "503").body("{}".into()).unwrap();
    for (name, profile, operation, kept, runs_in_all) in [
        ("ietf", Profile::ietf_draft(), Operation::new(PAY), "unknown", 1),
        ("acp", Profile::acp(), Operation::new(PAY), "unknown", 1),
        ("stripe", Profile::stripe(), Operation::new(PAY), "completed", 1),
        ("keep", Profile::acp(), Operation::new(PAY).server_errors(ServerErrors::Keep), "completed", 1),
        (
            "fresh",
            Profile::stripe(),
            Operation::new(PAY).server_errors(ServerErrors::RetryFresh),
            "failed_retryable",
            2,
        ),
        (
            "reconcile",
            Profile::stripe(),
            Operation::new(PAY).server_errors(ServerErrors::Reconcile),
            "unknown",
            1,
        ),
    ] {
        let profile = profile.scope_keys_by_path(false);
        let (app, runs) = echo(guard_of(store.clone(), operation).profile(profile));
        let first = send(&app, fails(name)).await;
        assert_eq!(
            (first.status, &first.body[..]),
            (503, &b"run 1"[..]),
            "{name}: the caller gets the answer"
        );
        assert_eq!(state(&store, name).await, kept, "{name}");
        let retry = send(&app, fails(name)).await;
        match kept {
            "completed" => retry.assert_replay_of(&first),
            "unknown" => retry.assert_code(409, "outcome-unknown"),
            _ => assert_eq!((retry.status, &retry.body[..]), (503, &b"run 2"[..])),
        }
        assert_eq!(runs.count(), runs_in_all, "{name}");
    }
}

#[tokio::test]
async fn every_status_of_a_profile_can_be_replaced() {
    let profile = Profile::acp()
        .status(ProblemType::KeyReused, StatusCode::CONFLICT)
        .status(ProblemType::InFlight, StatusCode::TOO_EARLY)
        .status(ProblemType::OutcomeUnknown, StatusCode::LOCKED);
    let gate = Gate::closed();
    let held = gate.clone();
    let app = api(guard(MemoryStore::new()).profile(profile), move |parts, _| {
        let held = held.clone();
        async move {
            if parts.headers["idempotency-key"] == "order-1" {
                held.pass().await;
            }
            StatusCode::BAD_GATEWAY
        }
    });
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, pay("order-1")).await }
    });
    gate.reached(1).await;
    send(&app, pay("order-1")).await.assert_code(425, "idempotency_in_flight");
    send(&app, pay_other("order-1")).await.assert_code(409, "idempotency_conflict");
    send(&app, pay("order-2")).await;
    send(&app, pay("order-2")).await.assert_code(423, "outcome-unknown");
    gate.open();
    first.await.unwrap();
}

#[tokio::test]
async fn a_problem_document_follows_rfc_9457_and_links_to_the_documentation() {
    let documented = Profile::ietf_draft().documentation("https://api.example.com/idempotency");
    let (app, _) = echo(guard(MemoryStore::new()).profile(documented));
    send(&app, pay("order-1")).await;
    let unknown = order("order-2").header("x-status", "500").body("{}".into()).unwrap();
    send(&app, unknown).await;
    let again = order("order-2").header("x-status", "500").body("{}".into()).unwrap();
    let mut anonymous = pay("order-3");
    anonymous.extensions_mut().clear();
    let problems: [Answer; 5] = [
        send(&app, pay_other("order-1")).await,
        send(&app, again).await,
        send(&app, anonymous).await,
        send(&app, pay("")).await,
        send(&app, unkeyed().body("{}".into()).unwrap()).await,
    ];
    for problem in &problems {
        let document = problem.json();
        assert!(document["type"].as_str().unwrap().starts_with("urn:lambda-idempotency:"));
        assert_eq!(document["status"], problem.status);
        for member in ["title", "detail", "code"] {
            assert!(document[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {document}");
        }
        let members = document.as_object().unwrap().keys();
        let known = ["type", "title", "status", "detail", "code", "reason"];
        assert!(members.into_iter().all(|member| known.contains(&member.as_str())), "{document}");
        assert_eq!(problem.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem.header("cache-control"), Some("no-store"));
        let link = r#"<https://api.example.com/idempotency>; rel="describedby"; type="text/html""#;
        assert_eq!(problem.header("link"), Some(link));
        assert_eq!(problem.headers.get("idempotent-replayed"), None);
    }
    let found: Vec<_> = problems.iter().map(Answer::problem).collect();
    let expected = [
        (422, "key-reused"),
        (409, "outcome-unknown"),
        (401, "tenant-missing"),
        (400, "key-malformed"),
        (400, "key-missing"),
    ];
    assert_eq!(found, expected.map(|(status, name)| (status, name.to_owned())));
    assert!(problems[1].header("retry-after").is_some(), "a retryable problem says when");
}

#[tokio::test]
async fn stripes_errors_have_stripes_shape() {
    let profile = Profile::stripe().documentation("https://api.example.com/idempotency");
    let (app, _) = echo(guard(MemoryStore::new()).profile(profile));
    send(&app, pay("order-1")).await;
    let reused = send(&app, pay_other("order-1")).await;
    let mut anonymous = pay("order-2");
    anonymous.extensions_mut().clear();
    for (refused, kind, code) in [
        (&reused, "idempotency_error", "idempotency_error"),
        (&send(&app, unkeyed().body("{}".into()).unwrap()).await, "invalid_request_error", "key-missing"),
        (&send(&app, anonymous).await, "invalid_request_error", "tenant-missing"),
    ] {
        let document = refused.json();
        let members: Vec<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!((members, refused.header("content-type")), (vec!["error"], Some("application/json")));
        let error = &document["error"];
        assert_eq!((&error["type"], &error["code"]), (&kind.into(), &code.into()));
        assert_eq!(
            refused.status,
            if kind == "idempotency_error" || code == "key-missing" { 400 } else { 401 }
        );
        assert!(error["message"].as_str().is_some_and(|message| message.ends_with('.')), "{error}");
        assert_eq!(error["doc_url"], "https://api.example.com/idempotency");
    }
}

#[tokio::test]
async fn acps_errors_are_flat_and_every_answer_echoes_its_key() {
    let (app, _) = echo(guard(MemoryStore::new()).profile(Profile::acp()));
    let quoted = || order("\"order-1\"").body("{}".into()).unwrap();
    let first = send(&app, quoted()).await;
    let replay = send(&app, quoted()).await;
    replay.assert_replay_of(&first);
    let reused = send(&app, pay_other("order-1")).await;
    let missing = send(&app, unkeyed().body("{}".into()).unwrap()).await;
    let fails = order("order-2").header("x-status", "500").body("{}".into()).unwrap();
    let failed = send(&app, fails).await;
    let unknown = send(&app, order("order-2").body("{}".into()).unwrap()).await;
    let mut twice = pay("order-3");
    twice.headers_mut().append("idempotency-key", "order-4".parse().unwrap());
    let mut anonymous = pay("order-3");
    anonymous.extensions_mut().clear();
    let malformed = order("a,b").body("{}".into()).unwrap();
    for (answer, echo) in [
        (&unknown, Some("order-2")),
        (&send(&app, twice).await, None),
        (&send(&app, anonymous).await, Some("order-3")),
        (&send(&app, malformed).await, Some("a,b")),
        (&first, Some("\"order-1\"")),
        (&replay, Some("\"order-1\"")),
        (&reused, Some("order-1")),
        (&failed, Some("order-2")),
        (&missing, None),
    ] {
        assert_eq!(answer.header("idempotency-key"), echo, "{answer:?}");
    }
    for (refused, kind, code) in [
        (&reused, "invalid_request", "idempotency_conflict"),
        (&missing, "invalid_request", "idempotency_key_required"),
        (&unknown, "processing_error", "outcome-unknown"),
    ] {
        let document = refused.json();
        let mut members: Vec<_> = document.as_object().unwrap().keys().collect();
        members.sort();
        assert_eq!(members, ["code", "message", "type"]);
        assert_eq!((&document["type"], &document["code"]), (&kind.into(), &code.into()));
        assert_eq!(refused.header("content-type"), Some("application/json"));
    }
    // Stripe echoes it too, the draft does not.
    for (profile, echoed) in [(Profile::stripe(), Some("order-1")), (Profile::ietf_draft(), None)] {
        let (others, _) = echo(guard(MemoryStore::new()).profile(profile));
        for _ in ["first", "replay"] {
            assert_eq!(send(&others, pay("order-1")).await.header("idempotency-key"), echoed);
        }
    }
}

#[tokio::test]
async fn an_api_chooses_where_problem_types_lead() {
    let profile = Profile::ietf_draft().problem_types("https://api.example.com/problems/");
    let (app, _) = echo(guard(MemoryStore::new()).profile(profile));
    let missing = send(&app, unkeyed().body("{}".into()).unwrap()).await;
    assert_eq!(missing.json()["type"], "https://api.example.com/problems/key-missing");
    assert_eq!(missing.json()["code"], "key-missing");
    for wrong in ["", "https://example.com/a b/", "\u{e4}:", "<urn:x>:", "https://example.com/problems"] {
        let chosen = std::panic::catch_unwind(|| Profile::acp().problem_types(wrong));
        assert!(chosen.is_err(), "{wrong:?}");
    }
}

// T34: the argument itself knows no profile; the guard around it does.
#[tokio::test]
async fn an_argument_that_no_guard_provides_is_refused_in_each_profiles_shape() {
    let keyless = || unkeyed().body("{}".into()).unwrap();
    let handler = async |_: Execution| "never";
    let computes = async |_: SingleTransaction| "never";
    for (profile, member, kind) in [
        (Profile::ietf_draft(), "/type", "urn:lambda-idempotency:not-guarded"),
        (Profile::stripe(), "/error/type", "api_error"),
        (Profile::acp(), "/type", "processing_error"),
    ] {
        let guard = guard(MemoryStore::new()).profile(profile.key_optional());
        let passed =
            Router::new().route("/payments", axum::routing::post(handler).route_layer(guard.clone()));
        let other = Router::new().route("/payments", axum::routing::post(computes).route_layer(guard));
        for (app, request) in [(&passed, keyless()), (&other, pay("order-1")), (&other, pay("order-1"))] {
            let refused = send(app, request).await;
            refused.assert_code(500, "not-guarded");
            assert_eq!(refused.json().pointer(member), Some(&kind.into()));
        }
    }
}

// Complete documents, without documentation, for a fault of the server.
#[tokio::test]
async fn an_unavailable_store_is_reported_in_each_profiles_shape() {
    let detail = "This request did nothing; an earlier one with the same key may have. Do not use a new key: send the same \
                  request with the same key after the time in Retry-After.";
    let title = "The service cannot guard this operation now";
    let message = format!("{title}. {detail}");
    for (profile, expected) in [
        (
            Profile::ietf_draft(),
            json!({
                "type": "urn:lambda-idempotency:store-unavailable", "title": title, "status": 503, "detail": detail,
                "code": "store-unavailable",
            }),
        ),
        (
            Profile::stripe(),
            json!({ "error": { "type": "api_error", "code": "store-unavailable", "message": message } }),
        ),
        (
            Profile::acp(),
            json!({ "type": "service_unavailable", "code": "store-unavailable", "message": message }),
        ),
    ] {
        let guarded = Guarded::through(embedded::endpoint(), |connect| connect.max_attempts(1)).await;
        guarded.faults.for_all(ANY, Fault::DropRequest);
        let (app, runs) = echo(guard(guarded.store()).profile(profile));
        let refused = send(&app, pay("order-1")).await;
        assert_eq!((refused.status, refused.json(), runs.count()), (503, expected, 0));
    }
}

#[apply(on_each_store)]
async fn acp_counts_one_key_on_two_paths_as_two_operations(endpoint: &str) {
    let (store, runs) = (dynamodb(endpoint).await, Counter::default());
    let counter = runs.clone();
    let handler = move |axum::extract::Path(id): axum::extract::Path<String>| async move {
        format!("{id}: run {}", counter.add())
    };
    let guarded = |profile| guard(store.clone()).profile(profile);
    let sessions = |guard: Guard| {
        Router::new().route("/sessions/{id}", axum::routing::post(handler.clone()).route_layer(guard))
    };
    let update = |session: &str, body: &'static str| {
        order("update-1").uri(format!("/sessions/{session}")).body(body.into()).unwrap()
    };
    let app = sessions(guarded(Profile::acp()));
    let (one, two) = (send(&app, update("1", "{}")).await, send(&app, update("2", "{}")).await);
    assert_eq!((&one.body[..], &two.body[..]), (&b"1: run 1"[..], &b"2: run 2"[..]));
    send(&app, update("1", "{}")).await.assert_replay_of(&one);
    send(&app, update("2", "{}")).await.assert_replay_of(&two);
    send(&app, update("2", "[]")).await.assert_code(422, "idempotency_conflict");
    // In every other profile it is one key that was reused for another request.
    let app = sessions(guarded(Profile::ietf_draft()));
    send(&app, update("3", "{}")).await;
    send(&app, update("4", "{}")).await.assert_problem(422, "key-reused");
    assert_eq!(runs.count(), 3);
}

// T34
#[tokio::test]
async fn a_keyless_request_runs_unguarded_only_if_the_profile_allows_it() {
    let runs = Counter::default();
    let counter = runs.clone();
    let handler = move |execution: Option<Execution>| async move {
        format!("{} guarded: {}", counter.add(), execution.is_some())
    };
    let keyless = || unkeyed().body("{}".into()).unwrap();
    let of = |profile: Profile| {
        let guard = guard_of(MemoryStore::new(), Operation::new("optionally-keyed")).profile(profile);
        Router::new().route("/payments", axum::routing::post(handler.clone()).route_layer(guard))
    };
    for profile in [Profile::ietf_draft(), Profile::stripe(), Profile::acp()] {
        assert_eq!(send(&of(profile), keyless()).await.status, 400);
    }
    let app = of(Profile::stripe().key_optional());
    for run in ["1 guarded: false", "2 guarded: false"] {
        assert_eq!(send(&app, keyless()).await.body, run);
    }
    let first = send(&app, pay("order-1")).await;
    assert_eq!(first.body, "3 guarded: true");
    send(&app, pay("order-1")).await.assert_replay_of(&first);
    // A header with an invalid key does not mean that the client chose to run unguarded.
    for invalid in ["", "a,b", "\"open"] {
        send(&app, order(invalid).body("{}".into()).unwrap()).await.assert_code(400, "key-malformed");
    }
    assert_eq!(runs.count(), 3);
}

#[tokio::test]
async fn a_draft_api_without_documentation_is_warned_of_once() {
    let logs = Logs::capture();
    for (name, profile, warned) in [
        ("undocumented-draft", Profile::ietf_draft(), 1),
        ("draft-with-a-link", Profile::ietf_draft().documentation("https://api.example.com"), 0),
        ("undocumented-stripe", Profile::stripe(), 0),
    ] {
        let (app, _) = echo(guard_of(MemoryStore::new(), Operation::new(name)).profile(profile));
        for _ in 0..3 {
            send(&app, pay("order-1")).await;
        }
        let mut found = logs.lines_with(name);
        found.retain(|line| line.text.contains("documentation"));
        assert_eq!(found.len(), warned, "{name}");
        assert!(found.iter().all(|line| line.level() == "WARN"));
    }
}
