//! Settings of a guard of webhooks that would lose events, or do nothing, are found at start-up.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use lambda_idempotency::{
    Idempotency, Operation,
    fingerprint::FingerprintRule,
    http::Profile,
    key::age::KeyTime,
    operation::{ServerErrors, WhileInFlight},
    store::memory::MemoryStore,
    time_budget::{
        GITHUB_PATIENCE, GITHUB_REDELIVERY, SHOPIFY_PATIENCE, SHOPIFY_REDELIVERY, STANDARD_WEBHOOKS_PATIENCE,
        STANDARD_WEBHOOKS_REDELIVERY, STRIPE_REDELIVERY, SVIX_PATIENCE, SVIX_REDELIVERY,
    },
};

use crate::support::webhooks::{RECEIVE, SECRET, SENDERS, Sender};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Starts a guard of this sender; as an error, what it says if it does not start.
fn start(sender: Sender, operation: Operation, profile: Profile) -> Result<(), String> {
    let webhook = sender.webhook(&[SECRET]).unwrap();
    let built = catch_unwind(AssertUnwindSafe(|| {
        let guard = Idempotency::new(MemoryStore::new(), operation);
        drop(guard.profile(profile).webhook(webhook));
    }));
    built.map_err(|panic| panic.downcast_ref::<String>().cloned().expect("a message"))
}

#[test]
fn a_setting_that_would_lose_an_event_is_found_at_start_up() {
    let op = |retain| Operation::new(RECEIVE).retain(retain);
    let second = Duration::from_secs(1);
    let long = 30 * DAY;
    for sender in SENDERS {
        let (least, constant) = match sender {
            Sender::Stripe => (STRIPE_REDELIVERY, "STRIPE_REDELIVERY"),
            Sender::GitHub => (GITHUB_REDELIVERY, "GITHUB_REDELIVERY"),
            Sender::Shopify => (SHOPIFY_REDELIVERY, "SHOPIFY_REDELIVERY"),
            Sender::Standard => (STANDARD_WEBHOOKS_REDELIVERY, "STANDARD_WEBHOOKS_REDELIVERY"),
            Sender::Svix => (SVIX_REDELIVERY, "SVIX_REDELIVERY"),
        };
        let refused = |operation, profile| start(sender, operation, profile).expect_err("a panic");
        let waiting = |retain| op(retain).while_in_flight(WhileInFlight::Wait(4 * second));
        let later = |retain| op(retain).asynchronous(DAY);
        for ok in [waiting(least), later(least)] {
            assert_eq!(start(sender, ok, Profile::ietf_draft()), Ok(()), "{sender:?}");
        }
        assert_eq!(start(sender, op(least), Profile::ietf_draft()).is_ok(), sender != Sender::GitHub);
        for (text, panic) in [
            (constant, refused(waiting(least - second), Profile::ietf_draft())),
            (constant, refused(later(least - second), Profile::ietf_draft())),
            (
                "WhileInFlight::Accept",
                refused(op(long).while_in_flight(WhileInFlight::Accept), Profile::default()),
            ),
            ("ServerErrors::Keep", refused(waiting(long), Profile::stripe())),
            (
                "ServerErrors::Keep",
                refused(waiting(long).server_errors(ServerErrors::Keep), Profile::default()),
            ),
            ("ServerErrors::Keep", refused(later(long), Profile::stripe())),
        ] {
            assert!(panic.contains(text) && panic.contains(RECEIVE), "{sender:?} {text}: {panic}");
        }
        let kept = Profile::stripe();
        assert_eq!(start(sender, waiting(long).server_errors(ServerErrors::Reconcile), kept), Ok(()));
    }
    let github = start(Sender::GitHub, op(long), Profile::default()).expect_err("a panic");
    assert!(github.contains("WhileInFlight::Wait") && github.contains("Operation::asynchronous"), "{github}");
    // In a single transaction, nothing is in flight.
    let webhook = Sender::GitHub.webhook(&[SECRET]).unwrap();
    drop(Idempotency::new(MemoryStore::new(), op(long)).single_transaction().webhook(webhook));
}

// GitHub gives up after 10 s: the event would be lost, and the environment of the function held for nothing.
#[test]
fn a_wait_is_shorter_than_its_sender_waits() {
    let waits = |sender, wait| {
        let operation = Operation::new(RECEIVE).retain(30 * DAY).while_in_flight(WhileInFlight::Wait(wait));
        start(sender, operation, Profile::default())
    };
    let millisecond = Duration::from_millis(1);
    for (sender, patience) in [
        (Sender::GitHub, GITHUB_PATIENCE),
        (Sender::Shopify, SHOPIFY_PATIENCE),
        (Sender::Standard, STANDARD_WEBHOOKS_PATIENCE),
        (Sender::Svix, SVIX_PATIENCE),
    ] {
        assert_eq!(waits(sender, patience - millisecond), Ok(()), "{sender:?}");
        let panic = waits(sender, patience).expect_err("a panic");
        assert!(panic.contains(&format!("{patience:?}")) && panic.contains(RECEIVE), "{panic}");
    }
    // How long it waits is not documented.
    assert_eq!(waits(Sender::Stripe, DAY), Ok(()));
}

// The sender chooses its ids, and the id says what an event is.
#[test]
fn settings_for_the_keys_of_clients_are_refused() {
    let operation = || {
        Operation::new(RECEIVE).retain(30 * DAY).while_in_flight(WhileInFlight::Wait(Duration::from_secs(4)))
    };
    let custom = FingerprintRule::custom(1, |content| content.body.to_vec());
    for sender in SENDERS {
        for (setting, operation) in [
            ("refuse_older_than", operation().refuse_older_than(DAY, KeyTime::UuidV7)),
            ("min_key_length", operation().min_key_length(2)),
            ("fingerprint()", operation().fingerprint(FingerprintRule::new().leave_out("/pending_webhooks"))),
            ("fingerprint()", operation().fingerprint(custom.clone())),
        ] {
            let panic = start(sender, operation, Profile::default()).expect_err(setting);
            assert!(panic.contains(setting) && panic.contains(RECEIVE), "{sender:?}: {panic}");
        }
        let same = operation().min_key_length(1).fingerprint(FingerprintRule::new());
        assert_eq!(start(sender, same.formerly(custom.clone()), Profile::default()), Ok(()));
    }
}
