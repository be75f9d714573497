//! Metrics and logs, through the facades of the crates `metrics` and `tracing`.
//!
//! 1. Install the recorder of your choice; a function that `lambda::run` runs has one, for CloudWatch.
//! 2. An operation's metrics have the label `operation`. Tenants and keys are not labels: there are too many.
//! 3. Log lines about a record are in a span `idempotency`, which has the operation, and the key as its hash. What `lambda::run`
//!    writes has the tenant beside its metrics, as a property.
use std::time::Duration;

use tracing::{Span, field::Empty};

use crate::{
    key::{OperationName, RecordKey},
    record::{Record, State},
    store::Survey,
    time::Timestamp,
};

/// What is counted, by operation.
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
    Denied,
    Transacted,
    Unconfirmed,
    FailedRetry,
    Unknown,
    StoreError,
    ZombieKey,
    TtlPruned,
    Unwritten,
    Deferred,
    DoubleExecution,
    ReconcileScheduled,
    ReconcileResolved,
    ReconcileFailed,
    Contradicted,
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
            Self::SaysNothing => COMPLETION_INCONCLUSIVE,
            Self::Denied => COMPLETION_DENIED,
            Self::Transacted => TRANSACTION_COMMITTED,
            Self::Unconfirmed => TRANSACTION_UNCONFIRMED,
            Self::FailedRetry => RESERVE_FAILED_RETRY,
            Self::Unknown => RESERVE_UNKNOWN,
            Self::StoreError => STORE_ERROR,
            Self::ZombieKey => ZOMBIE_KEY,
            Self::TtlPruned => TTL_PRUNED,
            Self::Unwritten => COMPLETION_UNWRITTEN,
            Self::Deferred => COMPLETION_DEFERRED,
            Self::DoubleExecution => DOUBLE_EXECUTION,
            Self::ReconcileScheduled => RECONCILE_SCHEDULED,
            Self::ReconcileResolved => RECONCILE_RESOLVED,
            Self::ReconcileFailed => RECONCILE_FAILED,
            Self::Contradicted => RECONCILE_CONTRADICTED,
        }
    }

    pub(crate) fn add(self, operation: &OperationName) {
        self.add_many(operation, 1);
    }

    pub(crate) fn add_many(self, operation: &OperationName, number: u64) {
        metrics::counter!(self.name(), "operation" => operation.shared()).increment(number);
    }
}

/// Counts what belongs to no operation.
pub(crate) fn count(name: &'static str) {
    metrics::counter!(name).increment(1);
}

/// Records how long something took.
pub(crate) fn took(name: &'static str, operation: &OperationName, span: Duration) {
    // In whole microseconds: what is beyond them is noise.
    let millis = u32::try_from(span.as_micros()).map_or(f64::MAX, f64::from) / 1e3;
    metrics::histogram!(name, "operation" => operation.shared()).record(millis);
}

/// Records a survey of all unknown outcomes: how many there are, how long the oldest has been in doubt, and how many need
/// an operator.
///
/// As samples, not gauges: a gauge lasts until it is set anew, and a process that no longer polls would go on reporting
/// outcomes that were settled long ago.
pub(crate) fn surveyed(survey: &Survey, now: Timestamp) {
    let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let oldest = survey.oldest.map_or(Duration::ZERO, |since| now.since(since));
    metrics::histogram!(UNKNOWN_COUNT).record(number(survey.unknown));
    metrics::histogram!(UNKNOWN_OLDEST).record(oldest);
    metrics::histogram!(UNKNOWN_ESCALATED).record(number(survey.escalated));
    if survey.escalated > 0 {
        // At each poll, until somebody has settled them: a dead letter is deleted in the end.
        let (escalated, oldest_s) = (survey.escalated, oldest.as_secs());
        tracing::warn!(
            escalated,
            oldest_s,
            "outcomes wait for an operator: `idempotency list --escalated` names them"
        );
    }
    if !survey.whole {
        tracing::warn!(
            "the survey missed unknown outcomes: there are more than it counts, or some cannot be read"
        );
    }
}

/// Tells the recorder the units of latencies and ages.
#[cfg(feature = "lambda")]
pub(crate) fn describe() {
    for latency in [RESERVE_LATENCY, HANDLER_LATENCY, COMPLETE_LATENCY] {
        metrics::describe_histogram!(latency, metrics::Unit::Milliseconds, "");
    }
    metrics::describe_histogram!(UNKNOWN_OLDEST, metrics::Unit::Seconds, "");
}

/// The span of one request, for the front that serves it.
pub(crate) fn request_span(key: &RecordKey) -> Span {
    #[cfg(feature = "lambda")]
    callers::note(key.tenant());
    record_span(key)
}

/// The span of work on one record. Each log line about the record is written in it, and has the operation and the key's hash
/// from there. So whatever begins such work enters it once, and a task that is spawned takes it along.
///
/// Its level is `error`, so that a filter which lets only errors through keeps it for them.
pub(crate) fn record_span(key: &RecordKey) -> Span {
    let operation = key.operation();
    tracing::error_span!("idempotency", %operation, key = %key.hash(), outcome = Empty, attempts = Empty)
}

/// Notes in the request's span how it ended.
pub(crate) fn ended(outcome: &'static str) {
    Span::current().record("outcome", outcome);
}

/// Logs that an execution ended, and notes it in the request's span.
pub(crate) fn executed(attempts: u32, outcome: &'static str) {
    tracing::info!(attempts, outcome, "executed");
    Span::current().record("attempts", attempts);
    ended(outcome);
}

/// Logs that a duplicate gets the kept answer.
pub(crate) fn replayed(attempts: u32) {
    tracing::info!(attempts, "replayed");
    Span::current().record("attempts", attempts);
}

/// Logs and counts a worker that was given up, whoever found it dead: each stands for a crash.
pub(crate) fn lease_expired(record: &Record, now: Timestamp) {
    let age_ms = age_ms(record, now);
    if let State::Unknown { .. } = record.state {
        tracing::warn!(age_ms, "a worker's lease has expired: the outcome is unknown");
    } else {
        tracing::warn!(
            age_ms,
            "a worker's lease has expired: its transaction can commit no more, and a retry may run"
        );
    }
    Count::ZombieKey.add(record.key.operation());
}

/// How long ago the execution began.
pub(crate) fn age_ms(record: &Record, now: Timestamp) -> u64 {
    u64::try_from(now.since(record.began_at).as_millis()).unwrap_or(u64::MAX)
}

/// Whose requests an invocation serves: a function has one invocation at a time.
#[cfg(feature = "lambda")]
pub(crate) mod callers {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use crate::key::Tenant;

    enum Callers {
        Nobody,
        One(Tenant),
        Several,
    }

    static CALLERS: Mutex<Callers> = Mutex::new(Callers::Nobody);

    fn callers() -> MutexGuard<'static, Callers> {
        // A panic cannot leave it half-written.
        CALLERS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An invocation begins.
    pub(crate) fn forget() {
        *callers() = Callers::Nobody;
    }

    pub(super) fn note(tenant: &Tenant) {
        let mut callers = callers();
        match &*callers {
            Callers::One(one) if one == tenant => {}
            Callers::Nobody => *callers = Callers::One(tenant.clone()),
            Callers::One(_) | Callers::Several => *callers = Callers::Several,
        }
    }

    /// The tenant whose requests were guarded since then, if there is exactly one.
    pub(crate) fn one() -> Option<Tenant> {
        match &*callers() {
            Callers::One(tenant) => Some(tenant.clone()),
            Callers::Nobody | Callers::Several => None,
        }
    }
}

/// First executions.
pub const RESERVE_CREATED: &str = "api.idempotency.reserve.created.count";

/// Duplicates that got the kept answer.
pub const RESERVE_REPLAY: &str = "api.idempotency.reserve.replay.count";

/// Duplicates of operations in flight.
pub const RESERVE_IN_PROGRESS: &str = "api.idempotency.reserve.in_progress.count";

/// Keys that were reused for another request: a client's mistake, or an attack.
pub const RESERVE_KEY_MISUSE: &str = "api.idempotency.reserve.key_misuse.count";

/// Keys that are too old to begin an execution, or do not say how old they are, and have no record.
pub const RESERVE_TOO_OLD: &str = "api.idempotency.reserve.too_old.count";

/// Reservations with too little time left to run anything, which were released.
pub const RESERVE_TOO_LATE: &str = "api.idempotency.reserve.too_late.count";

/// Requests without a key that ran unguarded, because the profile makes keys optional.
pub const UNGUARDED: &str = "api.idempotency.unguarded.count";

/// Answers with a status that does not say whether the operation was executed, such as 403 or 429: each leaves an unknown outcome.
pub const COMPLETION_INCONCLUSIVE: &str = "api.idempotency.completion.inconclusive.count";
/// Completions whose domain writes were refused, without a word of what that means.
pub const COMPLETION_DENIED: &str = "api.idempotency.completion.denied.count";
/// Operations that were committed in one transaction, without a reservation.
pub const TRANSACTION_COMMITTED: &str = "api.idempotency.transaction.committed.count";
/// Transactions without a reservation that the store did not confirm: a retry finds out.
pub const TRANSACTION_UNCONFIRMED: &str = "api.idempotency.transaction.unconfirmed.count";

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

/// Outcomes that could not be written in time, and went to the queue of the reconcile function.
pub const COMPLETION_DEFERRED: &str = "api.idempotency.completion.deferred.count";

/// Operations that were executed by two workers, as far as one of them knows. Each needs an operator.
pub const DOUBLE_EXECUTION: &str = "api.idempotency.double_execution.count";

/// Questions about unknown outcomes that were put off.
pub const RECONCILE_SCHEDULED: &str = "api.idempotency.reconcile.scheduled.count";

/// Unknown outcomes that were settled.
pub const RECONCILE_RESOLVED: &str = "api.idempotency.reconcile.resolved.count";

/// Unknown outcomes that nobody could settle: they are escalated.
pub const RECONCILE_FAILED: &str = "api.idempotency.reconcile.failed.count";

/// Words of a provider, or of a worker, that a record contradicts or that have no record. Each needs an operator.
pub const RECONCILE_CONTRADICTED: &str = "api.idempotency.reconcile.contradicted.count";

/// Outcomes that could not be written in time; their callers got their answer.
pub const COMPLETION_UNWRITTEN: &str = "api.idempotency.completion.unwritten.count";

/// How long reservations took, in milliseconds: until it was known whether the handler runs.
pub const RESERVE_LATENCY: &str = "api.idempotency.reserve.latency";

/// How long handlers took, in milliseconds.
pub const HANDLER_LATENCY: &str = "api.idempotency.handler.latency";

/// How long it took to write how executions ended, in milliseconds.
pub const COMPLETE_LATENCY: &str = "api.idempotency.complete.latency";

/// Completed polls. None for a while means that nobody asks about unknown outcomes. Without label.
pub const RECONCILE_POLL: &str = "api.idempotency.reconcile.poll.count";

/// Completed sweeps. Without label.
pub const SWEEP_COMPLETED: &str = "api.idempotency.sweep.completed.count";

/// Batches of the table's stream that were processed completely. Without label.
pub const STREAM_BATCH: &str = "api.idempotency.stream.batch.count";

/// Dead letters that were sent. Without label: some name no operation.
pub const DEAD_LETTER: &str = "api.idempotency.dead_letter.count";

/// How long the oldest unknown outcome has been in doubt, in seconds. Without label.
pub const UNKNOWN_OLDEST: &str = "api.idempotency.unknown.oldest.seconds";

/// How many outcomes are unknown. Without label.
pub const UNKNOWN_COUNT: &str = "api.idempotency.unknown.outcomes";

/// How many of them need an operator. Without label.
pub const UNKNOWN_ESCALATED: &str = "api.idempotency.unknown.escalated";

/// Requests to a webhook that were not from its provider (401). Without label.
pub const WEBHOOK_REFUSED: &str = "api.idempotency.webhook.refused.count";

/// Events of a provider that could not be read (400). Without label.
pub const WEBHOOK_UNREADABLE: &str = "api.idempotency.webhook.unreadable.count";

/// Events of a provider that could not be processed, and must be sent again (503). Without label.
pub const WEBHOOK_AGAIN: &str = "api.idempotency.webhook.again.count";
