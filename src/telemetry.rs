//! What is counted and logged, through the facades of the crates `metrics` and `tracing`: install the recorder of your choice. Each counter has
//! the label `operation`.

use crate::{key::OperationName, record::Record, time::Timestamp};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Created,
    Replay,
    InProgress,
    KeyMisuse,
    TooOld,
    TooLate,
    Unguarded,
    SaysNothing,
    FailedRetry,
    Unknown,
    StoreError,
    ZombieKey,
    TtlPruned,
    Unwritten,
    HandedOver,
    DoubleExecution,
    ReconcileScheduled,
    ReconcileResolved,
    ReconcileFailed,
    Contradicted,
    SweepCompleted,
}

impl Count {
    const fn name(self) -> &'static str {
        match self {
            Self::Created => RESERVE_CREATED,
            Self::Replay => RESERVE_REPLAY,
            Self::InProgress => RESERVE_IN_PROGRESS,
            Self::KeyMisuse => RESERVE_KEY_MISUSE,
            Self::TooOld => RESERVE_TOO_OLD,
            Self::TooLate => RESERVE_TOO_LATE,
            Self::Unguarded => UNGUARDED,
            Self::SaysNothing => COMPLETION_SAYS_NOTHING,
            Self::FailedRetry => RESERVE_FAILED_RETRY,
            Self::Unknown => RESERVE_UNKNOWN,
            Self::StoreError => STORE_ERROR,
            Self::ZombieKey => ZOMBIE_KEY,
            Self::TtlPruned => TTL_PRUNED,
            Self::Unwritten => COMPLETION_UNWRITTEN,
            Self::HandedOver => COMPLETION_HANDED_OVER,
            Self::DoubleExecution => DOUBLE_EXECUTION,
            Self::ReconcileScheduled => RECONCILE_SCHEDULED,
            Self::ReconcileResolved => RECONCILE_RESOLVED,
            Self::ReconcileFailed => RECONCILE_FAILED,
            Self::Contradicted => RECONCILE_CONTRADICTED,
            Self::SweepCompleted => SWEEP_COMPLETED,
        }
    }

    pub(crate) fn add(self, operation: &OperationName) {
        self.add_many(operation, 1);
    }

    /// Counts what is of all operations, under the name of the job that did it.
    pub(crate) fn add_of_job(self, job: &'static str) {
        metrics::counter!(self.name(), "operation" => job).increment(1);
    }

    pub(crate) fn add_many(self, operation: &OperationName, number: u64) {
        metrics::counter!(self.name(), "operation" => operation.shared()).increment(number);
    }
}

/// Logs and counts a worker that was given up, whoever found it dead: each stands for a crash.
pub(crate) fn given_up(record: &Record, now: Timestamp) {
    let (key, operation) = (record.key.hash(), record.key.operation());
    let age_ms = age_ms(record, now);
    tracing::warn!(%key, %operation, age_ms, "a worker's lease is over: the outcome is unknown");
    Count::ZombieKey.add(operation);
}

/// How long ago the execution began.
pub(crate) fn age_ms(record: &Record, now: Timestamp) -> u64 {
    u64::try_from(now.since(record.began_at).as_millis()).unwrap_or(u64::MAX)
}

/// First executions.
pub const RESERVE_CREATED: &str = "api.idempotency.reserve.created.count";

/// Duplicates that were given the kept answer.
pub const RESERVE_REPLAY: &str = "api.idempotency.reserve.replay.count";

/// Duplicates of operations in flight.
pub const RESERVE_IN_PROGRESS: &str = "api.idempotency.reserve.in_progress.count";

/// Keys that came back with another request: a client's mistake, or an attack.
pub const RESERVE_KEY_MISUSE: &str = "api.idempotency.reserve.key_misuse.count";

/// Keys that are too old to begin an execution, or do not say how old they are, and have no record to tell of.
pub const RESERVE_TOO_OLD: &str = "api.idempotency.reserve.too_old.count";

/// Reservations that came with too little time left to run anything, and were given back.
pub const RESERVE_TOO_LATE: &str = "api.idempotency.reserve.too_late.count";

/// Requests without a key that ran unguarded, where the contract lets clients choose.
pub const UNGUARDED: &str = "api.idempotency.unguarded.count";

/// Answers with a status that does not say whether the operation was executed, such as 403 or 429: each leaves an unknown outcome.
pub const COMPLETION_SAYS_NOTHING: &str = "api.idempotency.completion.says_nothing.count";

/// Executions after one that certainly did nothing.
pub const RESERVE_FAILED_RETRY: &str = "api.idempotency.reserve.failed_retry.count";

/// Duplicates of operations whose outcome is not known.
pub const RESERVE_UNKNOWN: &str = "api.idempotency.reserve.unknown.count";

/// Calls of the store that failed.
pub const STORE_ERROR: &str = "api.idempotency.store.error.count";

/// Records whose worker was given up for dead: each stands for a crash.
pub const ZOMBIE_KEY: &str = "api.idempotency.zombie_key.count";

/// Records that time to live has deleted.
pub const TTL_PRUNED: &str = "api.idempotency.ttl_pruned.count";

/// Outcomes that could not be written down in time, and went to the queue of the reconcile function.
pub const COMPLETION_HANDED_OVER: &str = "api.idempotency.completion.handed_over.count";

/// Operations that were executed by two workers, as far as one of them knows. Each needs an operator.
pub const DOUBLE_EXECUTION: &str = "api.idempotency.double_execution.count";

/// Questions about unknown outcomes that were put off.
pub const RECONCILE_SCHEDULED: &str = "api.idempotency.reconcile.scheduled.count";

/// Unknown outcomes that were settled.
pub const RECONCILE_RESOLVED: &str = "api.idempotency.reconcile.resolved.count";

/// Unknown outcomes that nobody could settle: they are escalated.
pub const RECONCILE_FAILED: &str = "api.idempotency.reconcile.failed.count";

/// Words of a provider that a record contradicts, or that have no record. Each needs an operator.
pub const RECONCILE_CONTRADICTED: &str = "api.idempotency.reconcile.contradicted.count";

/// Outcomes that could not be written down in time; their callers got their answer.
pub const COMPLETION_UNWRITTEN: &str = "api.idempotency.completion.unwritten.count";

/// Sweeps that have looked at every record. The operation is `sweep`.
pub const SWEEP_COMPLETED: &str = "api.idempotency.sweep.completed.count";
