//! Keys that are too old to begin an operation. They get the answer of their record. If the table has forgotten them, nothing runs.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use lambda_idempotency::{
    http::{IDEMPOTENCY_TIMESTAMP, Idempotency, Profile},
    key::RecordKey,
    key::age::KeyTime,
    key::signature::Secrets,
    operation::{OnLeaseExpiry, Operation, WhileInFlight},
    record::{Answer, State, UnknownCause},
    store::{Store, WriteOutcome, conformance::samples, memory::MemoryStore},
    time::Timestamp,
    time_budget::{CLOCK_SKEW, MAX_SENDING_TIME},
    world::World,
};
use macro_rules_attribute::apply;
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::support::{
    embedded,
    faults::{Fault, Late},
    guarded::{Guarded, RETENTION, fresh},
    http::{Counter, PAY, Resolver, TENANT, api, caller, order, pay, record_key, send, unkeyed, until},
    on_each_store,
};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
/// An earlier request's execution may begin for this long after its key has become too old: two clocks are apart, it begins within as long,
/// and arrives after as long.
const LATELY: Duration = CLOCK_SKEW.saturating_mul(3);
const SECRET: &str = "a-secret-that-client-and-service-share";

fn secrets() -> Secrets {
    Secrets::parse(SECRET).expect("a secret")
}

fn each_key_time() -> [KeyTime; 3] {
    [KeyTime::UuidV7, KeyTime::Ulid, KeyTime::Signed(secrets())]
}

/// A guarded route that counts its runs.
fn counting(guarded: &Guarded, operation: Operation) -> (Router, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let guard = Idempotency::new(guarded.store(), operation).tenant(caller as Resolver);
    let app = api(guard.world(guarded.clock.clone()), move |_, _| {
        let run = counter.add();
        async move { format!("run {run}") }
    });
    (app, runs)
}

fn uuid_v7(made_at: Timestamp) -> String {
    let random: [u8; 10] = Uuid::new_v4().as_bytes()[6..].try_into().expect("ten bytes");
    uuid::Builder::from_unix_timestamp_millis(made_at.as_millis(), &random).into_uuid().to_string()
}

fn ulid(made_at: Timestamp) -> String {
    let number = u128::from(made_at.as_millis()) << 80 | Uuid::new_v4().as_u128() >> 48;
    let digit = |place: u32| {
        let value = (number >> (5 * place)) as usize % 32;
        char::from(b"0123456789abcdefghjkmnpqrstvwxyz"[value])
    };
    (0..26).rev().map(digit).collect()
}

/// A client's request whose key was made at that time: the key, and a function that repeats the request.
fn made_at(time: &KeyTime, made_at: Timestamp) -> (RecordKey, impl Fn() -> Request<Body> + use<>) {
    let (key, timestamp) = match time {
        KeyTime::UuidV7 => (uuid_v7(made_at), None),
        KeyTime::Ulid => (ulid(made_at), None),
        _ => {
            let key = Uuid::new_v4().to_string();
            let timestamp = secrets().sign(made_at, key.as_bytes());
            (key, Some(timestamp))
        }
    };
    let record_key = record_key(TENANT, PAY, &key);
    let request = move || {
        let mut request = pay(&key);
        if let Some(timestamp) = &timestamp {
            request.headers_mut().insert(IDEMPOTENCY_TIMESTAMP, timestamp.parse().expect("a header"));
        }
        request
    };
    (record_key, request)
}

// T29
#[apply(on_each_store)]
async fn a_restored_table_refuses_an_old_key_it_has_forgotten(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for time in each_key_time() {
        let (app, runs) = counting(&guarded, Operation::new(PAY).refuse_older_than(HOUR, time.clone()));
        let (key, request) = made_at(&time, guarded.now());
        let paid = send(&app, request()).await;
        assert_eq!((paid.status, &paid.body[..]), (200, &b"run 1"[..]));

        guarded.delete(&key).await;
        guarded.clock.advance(HOUR + LATELY + SECOND);
        send(&app, request()).await.assert_problem(400, "key-too-old");
        assert_eq!((runs.count(), guarded.item(&key).await), (1, None), "{time:?}");
    }
}

// T43: no client is advised to use a new key while the old one may have had an effect.
#[apply(on_each_store)]
async fn an_old_key_gets_its_record_and_fresh_keys_cost_nothing_extra(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    for time in each_key_time() {
        let operation = || Operation::new(PAY).refuse_older_than(HOUR, time.clone());
        let (app, runs) = counting(&guarded, operation());
        // A whole second, because signed times have whole seconds.
        guarded.clock.set(guarded.now().rounded_up_to_second());
        let (key, request) = made_at(&time, guarded.now());
        let first = send(&app, request()).await;
        guarded.clock.advance(HOUR);
        let reads = guarded.faults.sent("GetItem");
        send(&app, request()).await.assert_replay_of(&first);
        assert_eq!(guarded.faults.sent("GetItem"), reads, "a fresh key pays no read");
        guarded.clock.advance(Duration::from_millis(1));
        let writes = guarded.faults.sent("PutItem");
        send(&app, request()).await.assert_replay_of(&first);
        assert_eq!((guarded.faults.sent("PutItem"), guarded.faults.sent("GetItem")), (writes, reads + 1));

        let again = |body: &str| {
            let mut other = request();
            *other.body_mut() = Body::from(body.to_owned());
            other
        };
        let reused = send(&app, again(r#"{"amountCents":1}"#)).await;
        reused.assert_problem(422, "key-reused");
        let advice = reused.json()["detail"].as_str().expect("advice").to_owned();
        assert!(advice.contains("an earlier one with the same key may have"), "{advice}");

        let store = guarded.undisturbed_store();
        let seen = guarded.record(&key).await.expect("a record");
        let now = guarded.now();
        let state = |state| {
            let mut record = seen.clone();
            record.state = state;
            record
        };
        let live = state(State::InProgress { lease_until: now.plus(HOUR) });
        let dead = state(State::InProgress { lease_until: now });
        let unknown = samples::unknown(&seen, UnknownCause::PerhapsExecuted, now);
        let released = samples::released(&seen, now, RETENTION);
        let expired = samples::completed(&seen, Answer::json(201, "{}"), now.minus(RETENTION * 2), RETENTION);
        let mut current = seen;
        for (mut next, wait, status, problem) in [
            (live, Duration::ZERO, 409, "in-flight"),
            (dead, Duration::ZERO, 409, "outcome-unknown"),
            (unknown, Duration::ZERO, 409, "outcome-unknown"),
            // The client's earlier request may be about to take it over.
            (released.clone(), Duration::ZERO, 409, "in-flight"),
            (expired.clone(), Duration::ZERO, 409, "in-flight"),
            (released, LATELY, 400, "key-too-old"),
            (expired, Duration::ZERO, 400, "key-too-old"),
        ] {
            guarded.clock.advance(wait);
            next.revision = fresh();
            let put = store.put(Some(current.revision), &next, &[]).await.expect("the store answers");
            assert_eq!(put, WriteOutcome::Written);
            let refused = send(&app, request()).await;
            refused.assert_problem(status, problem);
            let advice = refused.json()["detail"].as_str().expect("advice").to_owned();
            let settled = problem == "key-too-old";
            assert!(
                settled || !advice.contains("new key") || advice.contains("Do not use a new key"),
                "{advice}"
            );
            if settled {
                assert_eq!(refused.json()["reason"], "too-old");
                assert!(advice.contains("an earlier one with the same key may have"), "{advice}");
            }
            current = guarded.record(&key).await.expect("a record");
        }
        assert_eq!(runs.count(), 1, "{time:?}");
    }
}

// T43: the key was young enough for its first request.
#[apply(on_each_store)]
async fn an_old_key_whose_transaction_may_still_land_stays_unconfirmed(endpoint: &str) {
    let guarded = Guarded::through(endpoint, |connect| connect.max_attempts(1)).await;
    guarded.clock.set(guarded.now().rounded_up_to_second());
    for time in each_key_time() {
        let operation =
            Operation::new(PAY).refuse_older_than(HOUR, time.clone()).completion_timeout(Duration::ZERO);
        let guard = Idempotency::new(guarded.store(), operation).tenant(caller as Resolver);
        let guard = guard.world(guarded.clock.clone()).single_transaction();
        let app = api(guard, |_, _| async { "done" });
        let (_, request) = made_at(&time, guarded.now().minus(HOUR));
        let (_, never_sent) = made_at(&time, guarded.now().minus(HOUR));
        let late = Late::timing_out();
        guarded.faults.for_all("PutItem", late.fault());
        send(&app, request()).await.assert_problem(503, "outcome-unknown");
        guarded.faults.clear();
        for wait in [SECOND, LATELY - SECOND] {
            guarded.clock.advance(wait);
            send(&app, request()).await.assert_problem(503, "outcome-unknown");
        }
        assert_eq!(late.release().await.status, 200);
        assert!(send(&app, request()).await.replayed());
        guarded.clock.advance(SECOND);
        send(&app, never_sent()).await.assert_problem(400, "key-too-old");
    }
}

// T43: its first request was in time, and its reservation is not in the table yet.
#[apply(on_each_store)]
async fn an_old_key_whose_reservation_may_still_land_is_in_flight(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    guarded.clock.set(guarded.now().rounded_up_to_second());
    for time in each_key_time() {
        let operation = Operation::new(PAY).refuse_older_than(HOUR, time.clone());
        // No 202 either: it would promise a status, which the operation has only once it has begun.
        let (app, runs) = counting(&guarded, operation.while_in_flight(WhileInFlight::Accept));
        let (_, request) = made_at(&time, guarded.now().minus(HOUR));
        let (_, never_sent) = made_at(&time, guarded.now().minus(HOUR));
        let gate = Arc::new(Barrier::new(2));
        guarded.faults.script("PutItem", [Fault::Meet(gate.clone())]);
        let asked = guarded.faults.asked("PutItem");
        let retry = async {
            until(|| guarded.faults.asked("PutItem") > asked).await;
            guarded.clock.advance(SECOND);
            let retry = send(&app, request()).await;
            gate.wait().await;
            retry
        };
        let (first, retry) = tokio::join!(send(&app, request()), retry);
        retry.assert_problem(409, "in-flight");
        assert_eq!((first.status, runs.count()), (200, 1), "{time:?}");
        send(&app, request()).await.assert_replay_of(&first);

        guarded.clock.advance(LATELY - SECOND);
        send(&app, never_sent()).await.assert_problem(409, "in-flight");
        guarded.clock.advance(SECOND);
        send(&app, never_sent()).await.assert_problem(400, "key-too-old");
        assert_eq!(runs.count(), 1, "{time:?}");
    }
}

// T43: by then, a retry may have been told that its key is too old, and its client may have made a new one.
#[apply(on_each_store)]
async fn what_was_admitted_long_ago_begins_nothing(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    guarded.clock.set(guarded.now().rounded_up_to_second());
    let late = MAX_SENDING_TIME + SECOND;
    for time in each_key_time() {
        // The lease is no reason.
        let operation =
            || Operation::new(PAY).refuse_older_than(HOUR, time.clone()).lease(3 * MAX_SENDING_TIME);
        let (app, runs) = counting(&guarded, operation());
        // The process stands still while its request is read: nothing is inserted.
        let (key, request) = made_at(&time, guarded.now().minus(HOUR));
        let clock = guarded.clock.clone();
        let body = futures_util::stream::once(async move {
            clock.set(clock.now().plus(late));
            Ok::<_, std::io::Error>("{}")
        });
        send(&app, request().map(|_| Body::from_stream(body))).await.assert_problem(503, "store-unavailable");
        assert_eq!((runs.count(), guarded.item(&key).await), (0, None), "{time:?}");

        // Or it stands still while it inserts: that is taken back.
        let (key, request) = made_at(&time, guarded.now().minus(HOUR));
        let gate = Arc::new(Barrier::new(2));
        guarded.faults.script("PutItem", [Fault::Meet(gate.clone())]);
        let asked = guarded.faults.asked("PutItem");
        let stands_still = async {
            until(|| guarded.faults.asked("PutItem") > asked).await;
            guarded.clock.set(guarded.now().plus(late));
            gate.wait().await;
        };
        let (refused, ()) = tokio::join!(send(&app, request()), stands_still);
        refused.assert_problem(503, "store-unavailable");
        assert_eq!(guarded.record(&key).await.map(|record| record.state.name()), Some("failed_retryable"));
        assert_eq!(runs.count(), 0, "{time:?}");

        // A single transaction too.
        let guard = Idempotency::new(guarded.store(), operation()).tenant(caller as Resolver);
        let app = api(guard.world(guarded.clock.clone()).single_transaction(), |_, _| async { "done" });
        let (key, request) = made_at(&time, guarded.now().minus(HOUR));
        let clock = guarded.clock.clone();
        let body = futures_util::stream::once(async move {
            clock.set(clock.now().plus(late));
            Ok::<_, std::io::Error>("{}")
        });
        send(&app, request().map(|_| Body::from_stream(body))).await.assert_problem(503, "outcome-unknown");
        assert_eq!(guarded.item(&key).await, None, "{time:?}");
    }
}

// T43
#[apply(on_each_store)]
async fn an_old_key_never_takes_over_a_record(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let time = KeyTime::UuidV7;
    let operation = Operation::new(PAY)
        .refuse_older_than(HOUR, time.clone())
        .on_lease_expiry(OnLeaseExpiry::RunAgain)
        .min_key_length(5);
    let (app, runs) = counting(&guarded, operation);
    let (key, request) = made_at(&time, guarded.now());
    send(&app, request()).await;
    let seen = guarded.record(&key).await.expect("a record");
    guarded.clock.advance(HOUR + SECOND);
    let mut dead = seen.clone();
    dead.state = State::InProgress { lease_until: guarded.now() };
    dead.revision = fresh();
    guarded.undisturbed_store().put(Some(seen.revision), &dead, &[]).await.expect("the store answers");
    for _ in 0..2 {
        send(&app, request()).await.assert_problem(409, "outcome-unknown");
    }
    assert_eq!(runs.count(), 1);

    // A key that is too short, or has no time, gets its record's answer too, because settings change while operations are in flight.
    let (before, _) = counting(&guarded, Operation::new(PAY));
    for (key, absent) in [("abc", "abd"), ("order-1", "order-2")] {
        let first = send(&before, pay(key)).await;
        send(&app, pay(key)).await.assert_replay_of(&first);
        let refused = send(&app, pay(absent)).await;
        refused.assert_problem(400, "key-malformed");
        let advice = refused.json()["detail"].as_str().expect("advice").to_owned();
        assert!(advice.contains("Look the resource itself up"), "{advice}");
    }
    assert_eq!(runs.count(), 1);
}

// T12, T28: the worst permitted clocks. The client's clock was ahead, the store deleted at once, and the clock of the retry's worker is
// behind.
#[tokio::test]
async fn an_expired_key_never_runs_again_at_the_longest_bound() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    for time in each_key_time() {
        let longest = Operation::new(PAY).refuse_older_than(RETENTION - 2 * CLOCK_SKEW, time.clone());
        let (app, runs) = counting(&guarded, longest);
        let (key, request) = made_at(&time, guarded.now().plus(CLOCK_SKEW));
        assert_eq!(send(&app, request()).await.status, 200);

        guarded.clock.advance(RETENTION + SECOND);
        guarded.delete(&key).await;
        guarded.clock.set(guarded.now().minus(CLOCK_SKEW));
        send(&app, request()).await.assert_problem(409, "in-flight");
        guarded.clock.advance(LATELY);
        send(&app, request()).await.assert_problem(400, "key-too-old");
        assert_eq!(runs.count(), 1, "{time:?}");
    }
}

#[tokio::test]
async fn a_key_dated_ahead_beyond_clock_skew_is_refused() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    guarded.clock.set(guarded.now().rounded_up_to_second());
    for time in each_key_time() {
        let (app, runs) = counting(&guarded, Operation::new(PAY).refuse_older_than(HOUR, time.clone()));
        // T43: by a clock that is ahead of ours, it may have begun.
        let (_, request) = made_at(&time, guarded.now().plus(CLOCK_SKEW + SECOND));
        send(&app, request()).await.assert_problem(409, "in-flight");
        let (_, request) = made_at(&time, guarded.now().plus(2 * CLOCK_SKEW + SECOND));
        let refused = send(&app, request()).await;
        refused.assert_problem(400, "key-malformed");
        assert_eq!((&refused.json()["reason"], runs.count()), (&"future".into(), 0), "{time:?}");

        let (_, request) = made_at(&time, guarded.now().plus(CLOCK_SKEW));
        assert_eq!(send(&app, request()).await.status, 200, "{time:?}");
    }
    assert_eq!(guarded.faults.sent("PutItem"), each_key_time().len() * 2);
}

#[tokio::test]
async fn a_key_without_a_creation_time_is_refused_with_a_reason() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (now, v4) = (guarded.now(), Uuid::new_v4().to_string());
    for (time, keys, reason) in [
        (KeyTime::UuidV7, ["order-1".to_owned(), v4.clone(), ulid(now)], "not-a-uuid-v7"),
        (KeyTime::Ulid, ["order-1".to_owned(), uuid_v7(now), format!("8{}", &ulid(now)[1..])], "not-a-ulid"),
        (KeyTime::Signed(secrets()), ["order-1".to_owned(), v4, uuid_v7(now)], "timestamp-missing"),
    ] {
        let (app, runs) = counting(&guarded, Operation::new(PAY).refuse_older_than(HOUR, time));
        for key in keys {
            let refused = send(&app, pay(&key)).await;
            refused.assert_problem(400, "key-malformed");
            assert_eq!((&refused.json()["reason"], runs.count()), (&reason.into(), 0), "{key}");
        }
        send(&app, unkeyed().body("{}".into()).unwrap()).await.assert_problem(400, "key-missing");
    }
    assert_eq!(guarded.faults.sent("PutItem"), 0);
}

#[tokio::test]
async fn only_the_time_that_was_signed_with_this_key_is_believed() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let operation = Operation::new(PAY).refuse_older_than(HOUR, KeyTime::Signed(secrets()));
    let (app, runs) = counting(&guarded, operation);
    let (then, now) = (guarded.now().minus(2 * HOUR), guarded.now());
    let old = secrets().sign(then, b"order-1");
    let seconds = |time: Timestamp| format!("t={}", time.as_millis() / 1000);
    let fresh = secrets().sign(now, b"order-1");
    let with = |lines: &[&str]| {
        let request = order("order-1");
        let request =
            lines.iter().fold(request, |request, line| request.header(IDEMPOTENCY_TIMESTAMP, *line));
        request.body(Body::from("{}")).unwrap()
    };
    let forged = old.replace(&seconds(then), &seconds(now));
    let of_another_key = secrets().sign(now, b"order-2");
    let of_another_secret = Secrets::parse("a-secret-that-is-not-shared").unwrap().sign(now, b"order-1");
    let joined = format!("{old}, {fresh}");
    for lines in [
        &[forged.as_str()][..],
        &[&of_another_key],
        &[&of_another_secret],
        &[&joined],
        &[&old, &fresh],
        &[&fresh, &fresh],
        &["now"],
        &[""],
        &["t=1,v1=ü"],
    ] {
        let refused = send(&app, with(lines)).await;
        refused.assert_problem(400, "key-malformed");
        assert_eq!(refused.json()["reason"], "timestamp-invalid", "{lines:?}");
    }
    send(&app, with(&[&old])).await.assert_problem(400, "key-too-old");
    assert_eq!((runs.count(), guarded.faults.sent("PutItem")), (0, 0));

    let first = send(&app, with(&[&fresh])).await;
    assert_eq!(first.status, 200);
    // The signature covers the key, in both of its forms.
    let mut quoted = with(&[&fresh]);
    quoted.headers_mut().insert("idempotency-key", "\"order-1\"".parse().unwrap());
    send(&app, quoted).await.assert_replay_of(&first);
}

// While a secret is rotated, both are accepted.
#[tokio::test]
async fn a_time_signed_with_a_listed_former_secret_is_believed() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let newer = "a-newer-secret-that-they-share";
    for (listed, status) in [(format!("{newer},{SECRET}"), 200), (newer.to_owned(), 400)] {
        let time = KeyTime::Signed(Secrets::parse(&listed).unwrap());
        let (app, _) = counting(&guarded, Operation::new(PAY).refuse_older_than(HOUR, time));
        let (_, request) = made_at(&KeyTime::Signed(secrets()), guarded.now());
        assert_eq!(send(&app, request()).await.status, status);
    }
}

#[tokio::test]
async fn each_profile_has_its_own_code_for_an_old_key() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (_, request) = made_at(&KeyTime::UuidV7, guarded.now().minus(2 * HOUR));
    for (profile, code) in [
        (Profile::ietf_draft(), "key-too-old"),
        (Profile::stripe(), "idempotency_key_too_old"),
        (Profile::acp(), "idempotency_key_too_old"),
    ] {
        let operation = Operation::new(PAY).refuse_older_than(HOUR, KeyTime::UuidV7);
        let guard = Idempotency::new(guarded.store(), operation).tenant(caller as Resolver);
        let app = api(guard.world(guarded.clock.clone()).profile(profile), |_, _| async {});
        let refused = send(&app, request()).await;
        refused.assert_code(400, code);
    }
}

#[test]
fn a_key_age_limit_beyond_the_retention_is_refused_at_start_up() {
    let start = |operation: Operation| {
        let started =
            catch_unwind(AssertUnwindSafe(|| drop(Idempotency::new(MemoryStore::new(), operation))));
        started.err().map(|panic| *panic.downcast::<String>().expect("a message"))
    };
    let longest = HOUR - 2 * CLOCK_SKEW;
    for (bound, starts) in [(longest, true), (longest + Duration::from_millis(1), false), (HOUR, false)] {
        for operation in [
            Operation::new(PAY).retain(HOUR).refuse_older_than(bound, KeyTime::Ulid),
            Operation::new(PAY).refuse_older_than(bound, KeyTime::Ulid).retain(HOUR),
        ] {
            let message = start(operation);
            assert_eq!(message.is_none(), starts, "{bound:?}");
            let named = |message: &String| {
                [PAY, "refuse_older_than", "retain(3600s)"].iter().all(|name| message.contains(name))
            };
            assert!(message.as_ref().is_none_or(named), "{message:?}");
        }
    }
    assert_eq!(start(Operation::new(PAY)), None);
    let endless = Operation::new(PAY).retain(Duration::MAX).refuse_older_than(Duration::MAX, KeyTime::Ulid);
    assert_eq!(start(endless), None);
    let nothing = || drop(Operation::new(PAY).refuse_older_than(Duration::ZERO, KeyTime::Ulid));
    assert!(catch_unwind(nothing).is_err());
}
