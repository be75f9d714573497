//! Services that are not DynamoDB in all respects.

use lambda_idempotency::operation::Operation;
use macro_rules_attribute::apply;

use crate::support::{
    faults::Fault,
    guarded::Guarded,
    http::{Counter, PAY, api, guard_of, pay, pay_other, send},
    on_each_store,
};

// T1: each duplicate would count as the first request, until its time is up.
#[apply(on_each_store)]
async fn an_item_that_a_refused_insert_does_not_return_is_read(endpoint: &str) {
    for in_one_transaction in [false, true] {
        let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
        let counted = runs.clone();
        let guard = guard_of(guarded.store(), Operation::new(PAY)).world(guarded.clock.clone());
        let guard = if in_one_transaction { guard.single_transaction() } else { guard };
        let app = api(guard, move |_, _| {
            counted.add();
            async { "paid" }
        });
        guarded.faults.for_all("PutItem", Fault::WithoutItem);
        guarded.faults.for_all("TransactWriteItems", Fault::WithoutItem);
        let first = send(&app, pay("k")).await;
        assert_eq!((first.status, runs.count()), (200, 1));
        send(&app, pay("k")).await.assert_replay_of(&first);
        send(&app, pay_other("k")).await.assert_problem(422, "key-reused");
        // A single transaction runs first, and looks then.
        assert!(in_one_transaction || runs.count() == 1);
    }
}
