//! Deployments that declare other phases than the one that began an operation.

use super::*;

const OLD: [&str; 2] = ["charge", "capture"];

/// Other phases: renamed, removed, reordered, one more in front, one more behind.
const OTHERS: [&[&str]; 5] = [
    &["charge", "capture-card"],
    &["charge"],
    &["capture", "charge"],
    &["check-fraud", "charge", "capture"],
    &["charge", "capture", "mail"],
];

fn old() -> Operation {
    operation().resumes(OLD, WITHIN)
}

/// How executions end whose call was perhaps made.
#[derive(Clone, Copy, Debug)]
enum Dies {
    /// It is killed, and its lease is over.
    Killed,
    /// The same, and the stale function has found it.
    Found,
    /// It has reported.
    Interrupted,
}

/// The charge is kept, and the capture is made, whose result no record knows.
async fn interrupted(store: &Faulty, provider: &Provider, dies: Dies) {
    let executor = store.executor(old());
    let ours = charging(&executor, provider).await;
    provider.makes(ours.execution().downstream_key("capture")).await.unwrap();
    match dies {
        Dies::Interrupted => {
            let lost = ours.execution().phase::<()>("capture").keys_live(DAY);
            assert!(lost.call(async |_| Err(CallError::Perhaps("time-out".into()))).await.is_err());
            executor.finish(ours, charged()).await;
        }
        Dies::Killed | Dies::Found => {
            drop(ours);
            store.lease_ends();
        }
    }
    if matches!(dies, Dies::Found) {
        let record = store.record().await.unwrap();
        let expired = record.expire(Revision::mint(), store.world.now()).unwrap();
        store.inner.put(Some(record.revision), &expired, &[]).await.unwrap();
    }
}

// T61: under another name it would be made under another key, and without it, be forgotten.
#[tokio::test]
async fn a_call_that_was_perhaps_made_is_left_to_who_declares_it() {
    for dies in [Dies::Killed, Dies::Found, Dies::Interrupted] {
        for other in OTHERS {
            let (store, provider) = (Faulty::new(), Provider::default());
            interrupted(&store, &provider, dies).await;
            let seen = store.record().await;
            let changed = store.executor(operation().resumes(other.iter().copied(), WITHIN));
            let found = changed.reserve(&request()).await;
            assert!(matches!(found, Err(Says::OtherPhases)), "{dies:?}, {other:?}: {found:?}");
            assert_eq!(store.record().await, seen);
            // The older version still resumes it.
            let executor = store.executor(old());
            let ours = charging(&executor, &provider).await;
            call(ours.execution(), "capture", &provider).await.unwrap();
            executor.finish(ours, charged()).await;
            assert_eq!((store.state().await, provider.effects()), ("completed", 2));
            let replay = changed.reserve(&request()).await;
            assert!(matches!(replay, Err(Says::Replay(_))), "{replay:?}");
        }
    }
}

// Not: "nothing is known" of it, so it begins as any other.
#[tokio::test]
async fn what_certainly_did_nothing_begins_with_other_phases() {
    let (store, provider) = (Faulty::new(), Provider::default());
    let executor = store.executor(old());
    executor.finish(begin(&executor).await, Report::NotExecuted(None)).await;
    let changed = store.executor(operation().resumes(["capture-card"], WITHIN));
    let ours = begin(&changed).await;
    call(ours.execution(), "capture-card", &provider).await.unwrap();
    drop(ours);
    store.lease_ends();
    let found = executor.reserve(&request()).await;
    assert!(matches!(found, Err(Says::OtherPhases)), "it is the other's now: {found:?}");
}

// T61: nothing is open any more, and what is kept is compared by its name.
#[tokio::test]
async fn an_operators_word_about_the_open_call_lets_any_deployment_resume() {
    for noted in [false, true] {
        let (store, provider) = (Faulty::new(), Provider::default());
        interrupted(&store, &provider, Dies::Interrupted).await;
        if noted {
            // Under its old name, which only the old version answers for.
            note(&store, "capture", Some("1")).await;
        }
        let record = store.record().await.unwrap();
        // The provider's search may only not have found it yet.
        let not_found = record.nothing_follows(Revision::mint(), store.world.now()).unwrap();
        assert!(not_found.phases().unwrap().declared.is_some());
        let denied = record.nothing_is_open(Revision::mint(), store.world.now()).unwrap();
        store.inner.put(Some(record.revision), &denied, &[]).await.unwrap();
        let changed = store.executor(operation().resumes(["charge", "capture-card"], WITHIN));
        match (noted, changed.reserve(&request()).await) {
            (false, Ok(ours)) => {
                call(ours.execution(), "charge", &provider).await.unwrap();
                call(ours.execution(), "capture-card", &provider).await.unwrap();
            }
            (true, Err(Says::OtherPhases)) => {}
            (_, found) => panic!("{noted}: {found:?}"),
        }
    }
}
