//! What the clients of an operation that resumes are answered, in each contract.

use std::{io, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::IntoResponse,
};
use lambda_idempotency::{
    NotBegun,
    engine::{CallError, PhaseError},
    http::{Profile, operation_status},
    operation::Operation,
    store::memory::MemoryStore,
    world::World,
};
use macro_rules_attribute::apply;

use crate::support::{
    http::{
        Answer, Counter, Guard, ORDER, PAY, TENANT, api, clock, dynamodb, execution, guard_of, order, pay,
        pay_other, record_key, send, state,
    },
    on_each_store,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn resuming() -> Operation {
    Operation::new(PAY).resumes(["charge", "shipment"], DAY)
}

/// An API that charges, and then ships. Its first shipment fails as the header `x-ship` says.
fn shop(guard: Guard) -> (Router, Counter, Counter) {
    let (charges, shipments) = (Counter::default(), Counter::default());
    let (charged, shipped) = (charges.clone(), shipments.clone());
    let app = api(guard, move |parts, _| {
        let (charged, shipped) = (charged.clone(), shipped.clone());
        async move {
            let execution = execution(&parts);
            let charge = execution.phase("charge").keys_live(DAY).call(async |_| Ok(charged.add())).await?;
            let fails = parts.headers.get("x-ship").filter(|_| shipped.count() == 0);
            let phase = execution.phase("shipment").keys_live(DAY);
            let shipment = phase.call(async |_| {
                shipped.add();
                match fails.map(|fails| fails.to_str().expect("text")) {
                    Some("refused") => Err(CallError::not_executed(io::Error::other("refused"))),
                    Some("panics") => panic!("in a call"),
                    Some(_) => Err(io::Error::other("no answer").into()),
                    None => Ok(shipped.count()),
                }
            });
            Ok::<_, PhaseError>((StatusCode::CREATED, format!("{charge} {}", shipment.await?)))
        }
    });
    (app, charges, shipments)
}

fn failing(key: &str, how: &str) -> Request<Body> {
    order(key).header("x-ship", how).body(ORDER.into()).expect("a request")
}

#[apply(on_each_store)]
async fn an_interrupted_operation_is_503_and_its_retry_resumes(endpoint: &str) {
    for how in ["refused", "lost", "panics"] {
        let store = dynamodb(endpoint).await;
        let (app, charges, shipments) = shop(guard_of(store.clone(), resuming()));
        let interrupted = send(&app, failing("order-1", how)).await;
        interrupted.assert_problem(503, "interrupted");
        assert_eq!(interrupted.header("retry-after"), Some("1"), "{how}");
        assert_eq!(state(&store, "order-1").await, "between_workers", "{how}");
        send(&app, pay_other("order-1")).await.assert_problem(422, "key-reused");
        let resumed = send(&app, pay("order-1")).await;
        assert_eq!((resumed.status, &resumed.body[..]), (201, &b"1 2"[..]), "{how}");
        assert_eq!((charges.count(), shipments.count()), (1, 2), "{how}");
        send(&app, pay("order-1")).await.assert_replay_of(&resumed);
    }
}

#[tokio::test]
async fn each_contract_has_its_words_for_an_interrupted_operation() {
    for (profile, member, kind) in [
        (Profile::ietf_draft(), "/type", "urn:lambda-idempotency:interrupted"),
        (Profile::stripe(), "/error/type", "api_error"),
        (Profile::acp(), "/type", "service_unavailable"),
    ] {
        let (app, ..) = shop(guard_of(MemoryStore::new(), resuming()).profile(profile));
        let interrupted = send(&app, failing("order-1", "lost")).await;
        interrupted.assert_code(503, "interrupted");
        assert_eq!(interrupted.json().pointer(member), Some(&kind.into()));
        assert_eq!(interrupted.header("retry-after"), Some("1"));
    }
}

#[tokio::test]
async fn the_status_of_an_interrupted_operation_says_that_it_waits() {
    let (store, clock) = (MemoryStore::new(), clock());
    let (app, ..) = shop(guard_of(store.clone(), resuming()).world(clock.clone()));
    send(&app, failing("order-1", "lost")).await;
    let key = record_key(TENANT, PAY, "order-1");
    for now in [clock.now(), clock.now().plus(2 * DAY)] {
        let asked = Answer::of(operation_status(&store, &key, now, &Profile::default()).await).await;
        assert_eq!((asked.status, &asked.json()["state"]), (200, &"between_workers".into()));
        assert_eq!(asked.header("retry-after"), Some("1"));
        assert_eq!(asked.json().get("responseStatus"), None, "what is kept is not shown: {asked:?}");
    }
}

// T61, T76: its shipment was perhaps made, and another version would make it under another key, or not at all.
#[tokio::test]
async fn a_deployment_with_other_phases_answers_interrupted_and_runs_nothing() {
    let store = MemoryStore::new();
    let (app, charges, _) = shop(guard_of(store.clone(), resuming()));
    send(&app, failing("order-1", "lost")).await.assert_problem(503, "interrupted");
    let others = || Operation::new(PAY).resumes(["charge", "parcel", "shipment"], DAY);
    let (newer, ..) = shop(guard_of(store.clone(), others()));
    let refused = send(&newer, pay("order-1")).await;
    refused.assert_problem(503, "interrupted");
    assert_eq!((charges.count(), state(&store, "order-1").await), (1, "between_workers"));
    let answer = send(&app, pay("order-1")).await;
    assert_eq!((answer.status, charges.count()), (201, 1));
    let replay = send(&newer, pay("order-1")).await;
    assert_eq!((replay.status, replay.body), (201, answer.body));
}

#[tokio::test]
async fn a_deployment_that_no_longer_resumes_says_that_the_outcome_is_unknown() {
    let store = MemoryStore::new();
    let (app, ..) = shop(guard_of(store.clone(), resuming()));
    send(&app, failing("order-1", "lost")).await;
    let (older, charges, _) = shop(guard_of(store.clone(), Operation::new(PAY)));
    send(&older, pay("order-1")).await.assert_problem(409, "outcome-unknown");
    assert_eq!((charges.count(), state(&store, "order-1").await), (0, "between_workers"));
}

// T43, T44: the charge is made, so no status of what follows may lead the client to a new key.
#[apply(on_each_store)]
async fn no_answer_that_frees_a_key_follows_a_kept_phase(endpoint: &str) {
    for status in [401, 403, 422, 429, 500] {
        let store = dynamodb(endpoint).await;
        let (charges, runs) = (Counter::default(), Counter::default());
        let (charged, counted) = (charges.clone(), runs.clone());
        let app = api(guard_of(store.clone(), resuming()), move |parts, _| {
            let (charged, counted) = (charged.clone(), counted.clone());
            async move {
                let charge = execution(&parts).phase("charge").keys_live(DAY);
                let charge = charge.call(async |_| Ok(charged.add())).await?;
                let refused = StatusCode::from_u16(status).expect("a status");
                Ok::<_, PhaseError>(match (counted.add(), status) {
                    (1, 422) => NotBegun((refused, "refused")).into_response(),
                    (1, _) => (refused, "refused").into_response(),
                    (run, _) => (StatusCode::CREATED, format!("{charge} {run}")).into_response(),
                })
            }
        });
        send(&app, pay("order-1")).await.assert_problem(503, "interrupted");
        assert_eq!(state(&store, "order-1").await, "between_workers", "{status}");
        send(&app, pay_other("order-1")).await.assert_problem(422, "key-reused");
        let resumed = send(&app, pay("order-1")).await;
        assert_eq!((resumed.status, &resumed.body[..]), (201, &b"1 2"[..]), "{status}");
        assert_eq!((charges.count(), runs.count()), (1, 2));
    }
}
