//! Runs guarded and raw calls in turn, so that other work of the machine affects both.

use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use lambda_idempotency::store::{Tenants, dynamodb::DynamoDbStore};

use crate::{
    case::Case,
    client::with_time_outs,
    meter::Spent,
    parts::Guarded,
    random::Random,
    raw::Calls,
    system_calls::{Kinds, SystemCalls},
};

/// Rounds before the measurement, which warm up connections, caches and the allocator.
const WARM_UP: u64 = 50;

/// The number of the key that is repeated, and of the one whose calls are recorded. Rounds have smaller ones.
const REPEATED: u64 = 1 << 40;
const RECORDED: u64 = REPEATED + 1;

/// The guarded calls of a case.
pub struct Calling {
    guarded: Guarded,
    is_replay: bool,
}

impl Calling {
    pub async fn new(case: &Case, store: impl Tenants + Clone) -> Self {
        let calling = Self { guarded: case.part.on(store, &case.body()), is_replay: case.is_replay };
        if case.is_replay {
            assert!(!(calling.guarded)(REPEATED).await.is_replay);
        }
        calling
    }

    /// Makes a call. Each number is a fresh key, unless replays are measured.
    pub async fn call(&self, number: u64) -> Spent {
        let ran = (self.guarded)(if self.is_replay { REPEATED } else { number }).await;
        assert_eq!(ran.is_replay, self.is_replay);
        ran.spent
    }

    /// What each of so many calls used, after some to warm up.
    pub async fn rounds(&self, rounds: u64) -> Vec<Spent> {
        let mut spent = Vec::new();
        for number in 0..WARM_UP + rounds {
            spent.push(self.call(number).await);
        }
        spent.split_off(WARM_UP as usize)
    }

    /// The system calls of each of so many calls.
    pub async fn count(&self, rounds: u64) -> Vec<Kinds> {
        let (system_calls, mut counted) = (SystemCalls::of_this_thread(), Vec::new());
        // After the numbers of `rounds`.
        for number in REPEATED - rounds..REPEATED {
            let before = system_calls.until_now();
            self.call(number).await;
            counted.push(system_calls.until_now().since(&before));
        }
        counted
    }
}

/// The guarded calls of a case, and the calls of the SDK that they make.
pub struct Pair {
    /// With the settings of the store's own client, and with those that the SDK has by default.
    client: Client,
    plain: Client,
    guarded: Calling,
    raw: Calls,
    next: u64,
}

/// The measurements, one of each kind a round.
#[derive(Debug, Default)]
pub struct Rounds {
    pub guarded: Vec<Spent>,
    pub raw: Vec<Spent>,
    /// The same once more: the difference between these two is noise.
    pub raw_again: Vec<Spent>,
    /// The same by a client without time-outs.
    pub plain: Vec<Spent>,
}

/// The system calls of each round, by kind.
#[derive(Debug, Default)]
pub struct Counted {
    pub guarded: Vec<Kinds>,
    pub raw: Vec<Kinds>,
    pub plain: Vec<Kinds>,
}

impl Pair {
    pub async fn new(case: &Case, config: &SdkConfig, table: &str) -> Self {
        let (client, plain) = (with_time_outs(config), Client::new(config));
        let guarded = Calling::new(case, DynamoDbStore::new(config, table)).await;
        let number = if case.is_replay { REPEATED } else { RECORDED };
        let raw = Calls::recorded(case, &client, table, number).await;
        Self { client, plain, guarded, raw, next: 0 }
    }

    /// How many calls of the SDK a guarded call makes.
    pub fn calls(&self) -> usize {
        self.raw.count()
    }

    pub async fn measure(&mut self, rounds: u64) -> Rounds {
        let (mut measured, mut random) = (Rounds::default(), Random(3));
        for round in 0..WARM_UP + rounds {
            // The order changes each time, because a call affects the next one.
            let mut order = [0, 1, 2, 3];
            (1..4).for_each(|last| order.swap(last, random.below(last + 1)));
            for which in order {
                let number = self.number();
                let (spent, kept) = match which {
                    0 => (self.guarded.call(number).await, &mut measured.guarded),
                    1 => (self.raw.send(&self.client, number).await, &mut measured.raw),
                    2 => (self.raw.send(&self.client, number).await, &mut measured.raw_again),
                    _ => (self.raw.send(&self.plain, number).await, &mut measured.plain),
                };
                if round >= WARM_UP {
                    kept.push(spent);
                }
            }
        }
        measured
    }

    /// Counts system calls instead, which slows all down.
    pub async fn count(&mut self, rounds: u64) -> Counted {
        for _ in 0..WARM_UP {
            let (guarded, raw) = (self.number(), self.number());
            self.guarded.call(guarded).await;
            self.raw.send(&self.client, raw).await;
        }
        let (system_calls, mut counted) = (SystemCalls::of_this_thread(), Counted::default());
        for _ in 0..rounds {
            let (guarded, raw, plain) = (self.number(), self.number(), self.number());
            let before = system_calls.until_now();
            self.guarded.call(guarded).await;
            let between = system_calls.until_now();
            self.raw.send(&self.client, raw).await;
            let after = system_calls.until_now();
            self.raw.send(&self.plain, plain).await;
            counted.plain.push(system_calls.until_now().since(&after));
            counted.raw.push(after.since(&between));
            counted.guarded.push(between.since(&before));
        }
        counted
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
