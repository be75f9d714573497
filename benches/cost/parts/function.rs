//! The guard for functions.

use std::time::Duration;

use lambda_idempotency::{
    Execution, Failure, Guard, Operation, Ran as Returned, RunError, engine::SingleTransaction, store::Store,
};

use super::{Guarded, OPERATION, Order, Payment, Ran, key, row, tenant};
use crate::meter::spent;

const PHASE: &str = "charge";
const DAY: Duration = Duration::from_secs(24 * 3600);

pub fn run(store: impl Store) -> Guarded {
    let guard = Guard::new(store, Operation::new(OPERATION), tenant());
    call(async move |key: String| {
        guard.run(&[&key], Order::new(), async |_: Execution, order: Order| Ok(order.paid())).await
    })
}

pub fn run_phase(store: impl Store) -> Guarded {
    let guard = Guard::new(store, Operation::new(OPERATION).resumes([PHASE], DAY), tenant());
    call(async move |key: String| {
        let function = async |execution: Execution, order: Order| {
            let charge = execution.phase(PHASE).keys_live(DAY);
            let id: String = charge.call(async |key| Ok(key)).await?;
            Ok::<_, Failure>(Payment { id, ..order.paid() })
        };
        guard.run(&[&key], Order::new(), function).await
    })
}

pub fn run_single_transaction(store: impl Store) -> Guarded {
    let guard = Guard::new(store, Operation::new(OPERATION), tenant());
    call(async move |key: String| {
        let function = |transaction: SingleTransaction, order: Order| {
            let written = transaction.write(row(transaction.idempotency_key()));
            async move {
                written.expect("a row that can be written");
                Ok(order.paid())
            }
        };
        guard.run_single_transaction(&[&key], Order::new(), function).await
    })
}

fn call(run: impl AsyncFn(String) -> Result<Returned<Payment>, RunError> + Clone + 'static) -> Guarded {
    Box::new(move |number| {
        let (run, key) = (run.clone(), key(number));
        Box::pin(async move {
            let (returned, spent) = spent(run(key)).await;
            let returned = returned.expect("a payment");
            Ran { spent, is_replay: returned.how.is_replay() }
        })
    })
}
