//! What a run of the model allows to happen.

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// It has its effect at a provider.
    Calls,
    /// All its effects are rows that commit with its answer.
    Commits,
    /// Its effect may be repeated.
    RunsAgain,
    /// Its effects are phases, whose results are kept.
    Resumes,
}

/// What the new version of a handler does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    /// It has another phase first.
    Inserted,
    /// It calls the charge otherwise.
    Renamed,
    /// It refunds nothing.
    Removed,
    /// It takes the stock before it charges.
    Reordered,
}

/// The environment of one run. Times are in ticks of five minutes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, for reports.
    pub name: &'static str,
    pub handler: Handler,
    /// How many executions may begin, at most three.
    pub workers: u8,
    /// When time ends.
    pub horizon: u8,
    /// How long the answer is kept.
    pub retention: u8,
    /// How long "not found" is proof, from the beginning of the execution.
    pub window: u8,
    /// How often it is asked what became of a record.
    pub max_questions: u32,
    /// Whether handlers give rows, or messages, that commit with their answers.
    pub rows: bool,
    /// Whether writes may get no answer: applied, lost, or applied later.
    pub store_faults: bool,
    /// Whether there is a queue of reports.
    pub queue: bool,
    /// Whether messages of the queue of reports are delivered more than once.
    pub duplicates: bool,
    /// Whether heartbeats extend leases.
    pub heartbeats: bool,
    /// Whether the provider reports effects unprompted.
    pub webhook: bool,
    /// Whether the provider denies, or does not find, what it did.
    pub provider_lies: bool,
    /// Whether reconcilers answer in other words than the handler.
    pub own_words: bool,
    /// Whether an operator holds records, and settles or resumes them.
    pub operator: bool,
    /// Whether somebody deletes the record by hand, or restores an earlier one, once.
    pub meddles: bool,
    /// By how many ticks a clock may be ahead.
    pub skew: u8,
    /// Whether the tenant comes over its bound, is stopped, and then is within its bounds for good.
    pub bounds: bool,

    /// How often accepted work is executed.
    pub max_attempts: u32,
    /// How long a worker may claim what is accepted.
    pub claim: u8,
    /// How often the key may be accepted.
    pub lives: u8,
    /// Whether messages of the queue of work are lost.
    pub losses: bool,
    /// Whether the handler publishes messages: one with its phase, and two with its answer.
    pub messages: bool,

    /// For how long the provider remembers the key of a call.
    pub keys_live: u8,
    /// Whether the handler asks the provider once a key may be forgotten.
    pub asks: bool,
    /// What a deployment changes, whose workers run beside those of the version before.
    pub change: Change,
}

impl Setting {
    /// Two workers that crash, and nothing else goes wrong.
    pub const QUIET: Self = Self {
        name: "",
        handler: Handler::Calls,
        workers: 2,
        horizon: 6,
        retention: 100,
        window: 4,
        max_questions: 2,
        rows: false,
        store_faults: false,
        queue: true,
        duplicates: false,
        heartbeats: false,
        webhook: false,
        provider_lies: false,
        own_words: false,
        operator: false,
        meddles: false,
        skew: 0,
        bounds: false,
        max_attempts: 1,
        claim: 0,
        lives: 0,
        losses: false,
        messages: false,
        keys_live: 0,
        asks: false,
        change: Change::None,
    };

    /// The same, if from now on nothing goes wrong, and time does not end.
    pub const fn calm(self) -> Self {
        let calm = Self { store_faults: false, duplicates: false, losses: false, ..self };
        Self {
            provider_lies: false,
            meddles: false,
            bounds: false,
            skew: 0,
            lives: 0,
            horizon: u8::MAX,
            ..calm
        }
    }

    /// Whether an execution may begin although another perhaps had its effect.
    pub const fn may_run_again(&self) -> bool {
        matches!(self.handler, Handler::RunsAgain)
    }
}
