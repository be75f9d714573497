//! A change of what operators have set is written with its audit line, over the rules that the operator has seen, or not at all.

use lambda_idempotency::{
    MemoryStore,
    operator::{TenantChange, TenantChangeError, TenantOperator},
};
use macro_rules_attribute::apply;

use super::*;
use crate::support::{faults::Fault, on_each_store};

const STOP: TenantChange = TenantChange::Stop(Stop::New);

/// What was done to the caller, oldest first.
async fn done(operator: &TenantOperator) -> Vec<String> {
    let lines = operator.lines(&tenant(TENANT)).await.expect("the store answers");
    lines.into_iter().map(|line| line.what).collect()
}

async fn change(
    operator: &TenantOperator,
    seen: Option<&TenantRules>,
    name: &str,
    change: &TenantChange,
) -> Result<TenantRule, TenantChangeError> {
    operator.change(seen, &tenant(name), change, "olga", "INC-17").await
}

/// Two operators have seen the same rules: none, and then the first ones.
async fn the_second_of_two_writes_nothing(store: impl Tenants + Clone) {
    let operator = TenantOperator::new(store);
    for (first, second, what) in [
        (STOP, TenantChange::Stop(Stop::NewAndWork), "stop \"acme\""),
        (TenantChange::Resume, TenantChange::Stop(Stop::NewAndWork), "resume \"acme\""),
    ] {
        let seen = operator.rules().await.expect("the store answers");
        let written = change(&operator, seen.as_ref(), TENANT, &first).await.expect("it is written");
        for name in [TENANT, "other"] {
            let refused = change(&operator, seen.as_ref(), name, &second).await;
            assert!(matches!(refused, Err(TenantChangeError::Changed)), "{refused:?}");
        }
        let rules = operator.rules().await.expect("the store answers").expect("they are set");
        assert_eq!(rules.of(&tenant(TENANT)).cloned().unwrap_or_default(), written);
        assert_eq!(rules.of(&tenant("other")), None);
        assert_eq!(done(&operator).await.last().map(String::as_str), Some(what));
    }
    assert_eq!(done(&operator).await.len(), 2);
}

#[apply(on_each_store)]
async fn of_two_changes_of_the_same_rules_one_is_written(endpoint: &str) {
    the_second_of_two_writes_nothing(Guarded::on(endpoint).await.undisturbed_store()).await;
}

#[tokio::test]
async fn of_two_changes_of_the_same_rules_in_memory_one_is_written() {
    the_second_of_two_writes_nothing(MemoryStore::new()).await;
}

// T2
#[apply(on_each_store)]
async fn a_change_whose_answer_was_lost_is_written_once(endpoint: &str) {
    for fault in [Fault::DropAnswer, Fault::Twice, Fault::TwiceUnderAnotherToken] {
        let guarded = Guarded::on(endpoint).await;
        let operator = TenantOperator::new(guarded.store()).world(guarded.clock.clone());
        guarded.faults.script("TransactWriteItems", [fault.clone()]);
        let written = guarded.clock.passing(change(&operator, None, TENANT, &STOP)).await;
        assert_eq!(written.expect("it is written"), stopped(Stop::New), "{fault:?}");
        assert_eq!((guarded.faults.left(), done(&operator).await), (0, vec!["stop \"acme\"".to_owned()]));
    }
}

#[apply(on_each_store)]
async fn a_change_that_does_not_reach_the_store_leaves_no_line(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let operator = TenantOperator::new(guarded.store()).world(guarded.clock.clone());
    guarded.faults.for_all("TransactWriteItems", Fault::DropRequest);
    let failed = guarded.clock.passing(change(&operator, None, TENANT, &STOP)).await;
    assert!(matches!(failed, Err(TenantChangeError::Store(_))), "{failed:?}");
    guarded.faults.clear();
    assert_eq!((operator.rules().await.expect("the store answers"), done(&operator).await.len()), (None, 0));
    change(&operator, None, TENANT, &STOP).await.expect("it is written");
}
