//! Tests of the settings.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::{
    key::{FoundKey, refusal::KeyRefusal},
    record::Admission,
    time::Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);

fn pay() -> Operation {
    Operation::new("pay")
}

/// Fails unless `choose` panics with a message that holds the operation's name and `setting`.
fn refused(setting: &str, choose: impl FnOnce() -> Operation) {
    let panic = catch_unwind(AssertUnwindSafe(choose)).expect_err(setting);
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("\"pay\"") && message.contains(setting), "{message}");
}

fn consistent(operation: Operation) -> Operation {
    operation.assert_consistent();
    operation
}

// T42
#[test]
fn settings_that_guard_nothing_are_refused_at_start_up() {
    refused("retain(0ns)", || pay().retain(Duration::ZERO));
    refused("retain(299.999s)", || pay().retain(CLOCK_SKEW - Duration::from_millis(1)));
    assert_eq!(pay().retain(CLOCK_SKEW).retain, CLOCK_SKEW);
    refused("lease(0)", || pay().lease(Duration::ZERO));
    refused("heartbeat(0)", || pay().heartbeat(Duration::ZERO));
    refused("keep_header(\"Set-Cookie\"): this header must never be", || pay().keep_header("Set-Cookie"));
    refused("keep_header(\"no name\"): this is not a header name", || pay().keep_header("no name"));
}

#[test]
fn a_lease_ending_before_the_next_heartbeat_is_refused_at_start_up() {
    refused("heartbeat(60s)", || consistent(pay().heartbeat(60 * SECOND)));
    refused("heartbeat(60s)", || consistent(pay().lease(60 * SECOND).heartbeat(60 * SECOND)));
    refused("max_lease(59s)", || consistent(pay().heartbeat(SECOND).max_lease(59 * SECOND)));
    pay().heartbeat(59 * SECOND).max_lease(60 * SECOND).assert_consistent();
    refused("min_time_to_run(61s)", || consistent(pay().min_time_to_run(61 * SECOND)));
    pay().min_time_to_run(60 * SECOND).assert_consistent();
    refused("refuse_older_than(0)", || pay().refuse_older_than(Duration::ZERO, KeyTime::Ulid));
    refused("retain(86400s)", || consistent(pay().refuse_older_than(24 * 3600 * SECOND, KeyTime::Ulid)));
    // Without heartbeats the longest lease does not count.
    pay().max_lease(SECOND).assert_consistent();
}

// T39
#[test]
fn least_time_to_run_defaults_to_two_seconds_or_a_quarter() {
    let min = |whole| pay().min_time_of(whole);
    assert_eq!((min(60 * SECOND), min(8 * SECOND), min(4 * SECOND)), (2 * SECOND, 2 * SECOND, SECOND));
    assert_eq!(pay().min_time_to_run(5 * SECOND).min_time_of(SECOND), 5 * SECOND);
}

#[test]
fn an_operation_runs_again_only_if_it_chose_to() {
    assert!(!pay().may_run_again());
    assert!(!pay().on_lease_expiry(OnLeaseExpiry::Unknown).may_run_again());
    assert!(pay().on_lease_expiry(OnLeaseExpiry::RunAgain).may_run_again());
}

#[test]
fn each_setting_is_the_one_that_was_chosen() {
    let chosen = pay()
        .retain(3600 * SECOND)
        .lease(40 * SECOND)
        .grace(5 * SECOND)
        .heartbeat(10 * SECOND)
        .max_lease(80 * SECOND)
        .not_found_within(7 * SECOND)
        .completion_timeout(8 * SECOND)
        .retry_after(9 * SECOND)
        .min_key_length(16)
        .keep_header("X-Request-Id")
        .server_errors(ServerErrors::Keep)
        .while_in_flight(WhileInFlight::Wait(SECOND));
    let now = Timestamp::from_secs(1_000);
    assert_eq!(chosen.lease_until(None, now), now.plus(45 * SECOND));
    assert_eq!(chosen.lease_until(Some(now.plus(SECOND)), now), now.plus(6 * SECOND));
    assert_eq!(chosen.heartbeat, Some(10 * SECOND));
    let spans = [
        chosen.retain,
        chosen.lease,
        chosen.max_lease,
        chosen.not_found_window,
        chosen.completion_timeout,
        chosen.retry_after_of(Duration::ZERO),
    ];
    assert_eq!(spans, [3600, 40, 80, 7, 8, 9].map(Duration::from_secs));
    assert_eq!((chosen.min_key_length, &chosen.keeps.headers[..]), (16, &["x-request-id".to_owned()][..]));
    assert_eq!(chosen.server_errors, Some(ServerErrors::Keep));
    assert_eq!(chosen.while_in_flight, WhileInFlight::Wait(SECOND));
    let (rule, former) = (FingerprintRule::new().leave_out("/a"), FingerprintRule::new().leave_out("/b"));
    let chosen = pay().fingerprint(rule.clone()).formerly(former.clone());
    let shown = |rule: &FingerprintRule| format!("{rule:?}");
    assert_eq!(shown(&chosen.rule), shown(&rule));
    assert_eq!(chosen.former_rules.iter().map(shown).collect::<Vec<_>>(), [shown(&former)]);
}

#[test]
fn a_key_shorter_than_the_operations_minimum_begins_nothing() {
    let admission = |parts: &[&str], shortest| {
        let key = FoundKey::of(parts).unwrap();
        Operation::new("pay").min_key_length(shortest).admission_of(&key, None, Timestamp::default())
    };
    assert_eq!(admission(&["ab"], 3), KeyRefusal::too_short(3, false).admission(false));
    assert_eq!(KeyRefusal::too_short(3, false).reason, "too-short");
    assert_eq!((admission(&["äbc"], 3), admission(&["a"], 1)), (Admission::ALWAYS, Admission::ALWAYS));
    // Its hash is longer.
    assert_eq!(admission(&["abc", "ab"], 3), KeyRefusal::too_short(3, true).admission(false));
    assert_eq!(admission(&["abc", "abc"], 3), Admission::ALWAYS);
}

// T61
#[test]
fn phases_that_no_operation_can_have_are_refused_at_start_up() {
    let resumes = |names: &[&str]| pay().resumes(names.iter().copied(), SECOND);
    let many: Vec<_> = (0..=64).map(|place| format!("page-{place}")).collect();
    refused("resumes(): 0 phases are not 1 to 64", || resumes(&[]));
    refused("resumes(): 65 phases are not 1 to 64", || pay().resumes(many.clone(), SECOND));
    let _ = pay().resumes(many[1..].to_vec(), SECOND);
    refused("resumes(): two phases have the name \"charge\"", || resumes(&["charge", "ship", "charge"]));
    for wrong in ["", "a b", &"x".repeat(65)] {
        refused(&format!("resumes(): {wrong:?} is not 1 to 64 letters"), || resumes(&["charge", wrong]));
    }
    let both = || pay().on_lease_expiry(OnLeaseExpiry::RunAgain).resumes(["charge"], SECOND);
    refused("on_lease_expiry(RunAgain) would begin anew", || consistent(both()));
    refused("effects_in_transaction()", || resumes(&["charge"]).effects_in_transaction());
    refused("effects_in_transaction()", || pay().effects_in_transaction().resumes(["charge"], SECOND));
    // The order counts, and so does where a name ends.
    let list = |names: &[&str]| resumes(names).effects().phases().unwrap().list;
    assert_eq!(list(&["a", "b"]), list(&["a", "b"]));
    assert!(list(&["a", "b"]) != list(&["b", "a"]) && list(&["a", "b"]) != list(&["ab"]));
}
