//! What a run of the model allows to happen.

/// The environment of one run. Times are in ticks of five minutes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its name, for reports.
    pub name: &'static str,
    /// How many executions may begin, at most three.
    pub workers: u8,
    /// When time ends.
    pub horizon: u8,
    /// Whether the operation may run again after a lease has expired.
    pub may_run_again: bool,
    /// Whether all effects are in the completing transaction.
    pub transactional: bool,
    /// Whether handlers give domain writes.
    pub rows: bool,
    /// Whether writes may get no answer: applied, lost, or applied later.
    pub store_faults: bool,
    /// Whether messages are delivered more than once.
    pub duplicates: bool,
    /// Whether heartbeats extend leases.
    pub heartbeats: bool,
    /// Whether the provider reports effects unprompted.
    pub webhook: bool,
    /// Whether the provider denies, or does not find, what it did.
    pub provider_lies: bool,
    /// Whether reconcilers answer in other words than the handler.
    pub own_words: bool,
    /// Whether an operator settles unknown outcomes.
    pub operator: bool,
    /// Whether the record may be deleted, or restored to an earlier state.
    pub meddling: bool,
    /// By how many ticks a clock may be ahead.
    pub skew: u8,
}

impl Config {
    /// Two workers, crashes, and a store that fails.
    const PLAIN: Self = Self {
        name: "plain",
        workers: 2,
        horizon: 5,
        may_run_again: false,
        transactional: false,
        rows: false,
        store_faults: true,
        duplicates: false,
        heartbeats: false,
        webhook: false,
        provider_lies: false,
        own_words: false,
        operator: false,
        meddling: false,
        skew: 0,
    };

    /// The environments whose every state the tests visit.
    pub const WHOLE: [Self; 7] = [
        Self::PLAIN,
        Self { name: "rows", rows: true, ..Self::PLAIN },
        Self { name: "transactional", rows: true, transactional: true, heartbeats: true, ..Self::PLAIN },
        Self { name: "webhook", webhook: true, duplicates: true, ..Self::PLAIN },
        Self { name: "operator", operator: true, duplicates: true, ..Self::PLAIN },
        Self { name: "run again", may_run_again: true, ..Self::PLAIN },
        Self { name: "another answer", own_words: true, ..Self::PLAIN },
    ];

    /// The environments that are too large for the tests, which visit their first states.
    pub const LARGE: [Self; 6] = [
        Self { name: "heartbeats and clocks", heartbeats: true, skew: 1, ..Self::PLAIN },
        Self { name: "a provider that lies", provider_lies: true, workers: 3, horizon: 6, ..Self::PLAIN },
        Self { name: "deletions and restores", meddling: true, workers: 3, ..Self::PLAIN },
        Self { name: "later generations", provider_lies: true, horizon: 10, ..Self::PLAIN },
        Self { name: "three workers", workers: 3, horizon: 6, duplicates: true, ..Self::PLAIN },
        Self {
            name: "everything",
            workers: 3,
            horizon: 6,
            rows: true,
            duplicates: true,
            heartbeats: true,
            webhook: true,
            provider_lies: true,
            operator: true,
            meddling: true,
            skew: 1,
            ..Self::PLAIN
        },
    ];
}
