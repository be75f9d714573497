//! An operation with two calls to one provider, which makes one charge for each key that it gets (T33).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    engine::{Execution, Report},
    operation::Operation,
};
use macro_rules_attribute::apply;

use crate::support::{
    guarded::{GRACE, Guarded, LEASE, completed, operation, owned, request, written},
    on_each_store,
};

const DEPOSIT: (&str, u32) = ("deposit", 500);
const REST: (&str, u32) = ("rest", 1_499);

/// How long the provider remembers a key.
const KEYS_LIVE: Duration = Duration::from_secs(24 * 3600);

/// The cents that it charged, by the key. As providers do, it answers a key that it knows with the charge that it made.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<BTreeMap<String, u32>>>);

impl Ledger {
    fn charge(&self, key: &str, cents: u32) -> u32 {
        *self.0.lock().unwrap().entry(key.to_owned()).or_insert(cents)
    }

    fn charges(&self) -> Vec<u32> {
        let mut charges: Vec<_> = self.0.lock().unwrap().values().copied().collect();
        charges.sort_unstable();
        charges
    }

    async fn phase(&self, execution: &Execution, (name, cents): (&str, u32)) -> u32 {
        let call = execution.phase(name).keys_live(KEYS_LIVE).call(async |key| Ok(self.charge(&key, cents)));
        call.await.expect("the provider and the store answer")
    }
}

fn resuming() -> Operation {
    operation().resumes([DEPOSIT.0, REST.0], Duration::from_secs(3600))
}

// T33: the worker dies within the first call, the next one within the second. Each charge is made, and made once.
#[apply(on_each_store)]
async fn two_phases_that_charge_make_two_charges_and_no_third(endpoint: &str) {
    let (guarded, ledger, request) = (Guarded::on(endpoint).await, Ledger::default(), request());
    let executor = guarded.executor_of(resuming());
    let die = |execution: &Execution, (name, cents): (&str, u32)| {
        ledger.charge(&execution.downstream_key(name), cents);
        guarded.clock.advance(LEASE + GRACE);
    };
    let first = owned(executor.reserve(&request).await);
    die(first.execution(), DEPOSIT);
    drop(first);
    let second = owned(executor.reserve(&request).await);
    assert_eq!(ledger.phase(second.execution(), DEPOSIT).await, DEPOSIT.1);
    die(second.execution(), REST);
    drop(second);
    let third = owned(executor.reserve(&request).await);
    assert_eq!(ledger.phase(third.execution(), DEPOSIT).await, DEPOSIT.1);
    assert_eq!(ledger.phase(third.execution(), REST).await, REST.1);
    written(executor.finish(third, completed("{}")).await);
    assert_eq!(ledger.charges(), [DEPOSIT.1, REST.1]);
}

// T33: so it is without phases, when a later attempt makes both calls again.
#[apply(on_each_store)]
async fn two_calls_under_their_own_keys_take_effect_once_each(endpoint: &str) {
    let (guarded, ledger, request) = (Guarded::on(endpoint).await, Ledger::default(), request());
    let executor = guarded.executor();
    for ends in [Report::NotExecuted(None), completed("{}")] {
        let ours = owned(executor.reserve(&request).await);
        for (name, cents) in [DEPOSIT, REST] {
            assert_eq!(ledger.charge(&ours.execution().downstream_key(name), cents), cents);
        }
        written(executor.finish(ours, ends).await);
    }
    assert_eq!(ledger.charges(), [DEPOSIT.1, REST.1]);
}
