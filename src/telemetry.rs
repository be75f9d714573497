//! Metrics and logs, through the facades of the crates `metrics` and `tracing`.
//!
//! 1. Install the recorder of your choice. A function that `lambda::run` runs has one for CloudWatch.
//! 2. An operation's metrics have the label `operation`, those of messages the label `queue`. Tenants and keys are not labels: there are too many.
//! 3. Log lines about a record are in a span `idempotency`, which has the operation and the hash of the key. `lambda::run` writes
//!    the tenant as a property of the lines that carry metrics.
use std::{
    env, fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tracing::{Span, field::Empty};

pub use crate::error_chain::error_chain;
use crate::{
    key::{OperationName, RecordKey},
    record::{Alarm, AlarmKind, Record, State},
    store::{StoreErrorKind, Survey},
    time::Timestamp,
};

/// Declares the metrics that are counted by operation.
macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident: $name:ident = $metric:literal;)*) => {
        /// What is counted, by operation.
        #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "some happen to requests only"))]
        #[derive(Clone, Copy)]
        pub(crate) enum Count { $($count),* }

        impl Count {
            const fn name(self) -> &'static str {
                match self { $(Self::$count => $name),* }
            }
        }

        $($(#[$doc])* pub const $name: &str = $metric;)*
    };
}

counts! {
    /// First executions.
    Created: RESERVE_CREATED = "api.idempotency.reserve.created.count";
    /// Requests that were accepted, to be executed later.
    Accepted: RESERVE_ACCEPTED = "api.idempotency.reserve.accepted.count";
    /// Accepted requests that ended with 408: no worker began them in time, or all their executions did nothing.
    Abandoned: WORK_ABANDONED = "api.idempotency.work.abandoned.count";
    /// Duplicates that got the kept answer.
    Replay: RESERVE_REPLAY = "api.idempotency.reserve.replay.count";
    /// Duplicates of operations in flight.
    InProgress: RESERVE_IN_PROGRESS = "api.idempotency.reserve.in_progress.count";
    /// Keys that were reused for another request: a client's mistake, or an attack.
    KeyMisuse: RESERVE_KEY_MISUSE = "api.idempotency.reserve.key_misuse.count";
    /// Keys without a record that are too old to begin an execution, or do not say how old they are.
    TooOld: RESERVE_TOO_OLD = "api.idempotency.reserve.too_old.count";
    /// Reservations that were taken back, because too little time was left to run the handler.
    TooLate: RESERVE_TOO_LATE = "api.idempotency.reserve.too_late.count";
    /// Requests without a record that were refused, because their tenant is over a bound.
    OverBound: RESERVE_OVER_BOUND = "api.idempotency.reserve.over_bound.count";
    /// Requests that were refused, because operators have stopped their tenant.
    Stopped: RESERVE_STOPPED = "api.idempotency.reserve.stopped.count";
    /// Executions after one that certainly did nothing.
    FailedRetry: RESERVE_FAILED_RETRY = "api.idempotency.reserve.failed_retry.count";
    /// Duplicates of operations whose outcome is unknown.
    Unknown: RESERVE_UNKNOWN = "api.idempotency.reserve.unknown.count";
    /// Requests without a key that ran unguarded, because the profile makes keys optional.
    Unguarded: UNGUARDED = "api.idempotency.unguarded.count";
    /// Answers such as 403 or 429, which do not say whether the operation was executed. Each leaves an unknown outcome.
    Inconclusive: COMPLETION_INCONCLUSIVE = "api.idempotency.completion.inconclusive.count";
    /// Kept phases that do not fit the handler, because it was changed: each execution ends with 503.
    PhaseMismatch: PHASE_MISMATCH = "api.idempotency.phase.mismatch.count";
    /// Completions whose domain writes were refused, if no answer is set for the refusal.
    Denied: COMPLETION_DENIED = "api.idempotency.completion.denied.count";
    /// Reports that could neither be written in time nor be deferred. Their callers got their answers.
    Unwritten: COMPLETION_UNWRITTEN = "api.idempotency.completion.unwritten.count";
    /// Reports that could not be written in time, or that their record did not take, and were sent to the queue of deferred reports.
    Deferred: COMPLETION_DEFERRED = "api.idempotency.completion.deferred.count";
    /// Operations that were committed in a single transaction.
    Transacted: TRANSACTION_COMMITTED = "api.idempotency.transaction.committed.count";
    /// Single transactions that the store did not confirm. A retry finds out whether they were committed.
    Unconfirmed: TRANSACTION_UNCONFIRMED = "api.idempotency.transaction.unconfirmed.count";
    /// Failed calls of the store. That others write the same item is no failure of it, nor that one key is asked for too often.
    StoreError: STORE_ERROR = "api.idempotency.store.error.count";
    /// Calls that the store throttled, and that were given up or are tried later: of one hot key, or of all.
    Throttled: STORE_THROTTLED = "api.idempotency.store.throttled.count";
    /// Workers whose lease has expired: each stands for a crash.
    ZombieKey: ZOMBIE_KEY = "api.idempotency.zombie_key.count";
    /// Records that time to live has deleted.
    TtlPruned: TTL_PRUNED = "api.idempotency.ttl_pruned.count";
    /// Operations that two workers executed, or may have executed. Each needs an operator.
    DoubleExecution: DOUBLE_EXECUTION = "api.idempotency.double_execution.count";
    /// Questions about unknown outcomes that are asked again later.
    ReconcileScheduled: RECONCILE_SCHEDULED = "api.idempotency.reconcile.scheduled.count";
    /// Unknown outcomes that were settled.
    ReconcileResolved: RECONCILE_RESOLVED = "api.idempotency.reconcile.resolved.count";
    /// Unknown outcomes that were released because the provider did not find them for long enough. During its incident, that proves
    /// nothing.
    Assumed: RECONCILE_ASSUMED = "api.idempotency.reconcile.assumed.count";
    /// Records that began to wait for an operator: they were escalated, or got one more alarm.
    Escalated: ESCALATED = "api.idempotency.escalated.count";
    /// Messages that were committed.
    Published: OUTBOX_PUBLISHED = "api.idempotency.outbox.published.count";
    /// Messages of the outbox that were delivered.
    Delivered: OUTBOX_DELIVERED = "api.idempotency.outbox.delivered.count";
    /// Deliveries of the outbox that failed: each is tried again.
    NotDelivered: OUTBOX_NOT_DELIVERED = "api.idempotency.outbox.not_delivered.count";
    /// Contradictions that a worker could not send to operators. Only its log names them.
    ContradictionUnsent: CONTRADICTION_UNSENT = "api.idempotency.contradiction.unsent.count";
}

impl Count {
    pub(crate) fn add(self, operation: &OperationName) {
        self.add_many(operation, 1);
    }

    pub(crate) fn add_many(self, operation: &OperationName, number: u64) {
        metrics::counter!(self.name(), "operation" => operation.shared()).increment(number);
    }
}

/// Counts messages of a queue.
#[cfg(feature = "lambda")]
pub(crate) fn count_message(name: &'static str, queue: &std::sync::Arc<str>) {
    metrics::counter!(name, "queue" => queue.clone()).increment(1);
}

/// Counts what belongs to no operation.
pub(crate) fn count(name: &'static str) {
    metrics::counter!(name).increment(1);
}

/// Counts several of what belongs to no operation.
pub(crate) fn count_many(name: &'static str, number: u64) {
    if number > 0 {
        metrics::counter!(name).increment(number);
    }
}

/// Records how long something took, in whole microseconds.
pub(crate) fn took(name: &'static str, operation: &OperationName, elapsed: Duration) {
    let millis = u32::try_from(elapsed.as_micros()).map_or(f64::MAX, f64::from) / 1e3;
    metrics::histogram!(name, "operation" => operation.shared()).record(millis);
}

/// Records a survey of all unknown outcomes, operations between workers and records with an alarm: how many there are, how old the oldest
/// unknown outcome is, and how many need an operator.
///
/// They are samples, not gauges. A gauge keeps its value until it is set again, so a process that no longer polls would go on
/// reporting outcomes that were settled long ago.
pub(crate) fn record_survey(survey: &Survey, now: Timestamp) {
    let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let oldest = survey.oldest.map_or(Duration::ZERO, |since| now.since(since));
    metrics::histogram!(UNKNOWN_COUNT).record(number(survey.unknown));
    metrics::histogram!(UNKNOWN_OLDEST).record(oldest);
    metrics::histogram!(BETWEEN_WORKERS_COUNT).record(number(survey.between_workers));
    metrics::histogram!(ALARMED_COUNT).record(number(survey.alarmed));
    metrics::histogram!(UNKNOWN_ESCALATED).record(number(survey.escalated));
    if survey.escalated > 0 {
        // At each poll until they are settled, because a log line is deleted in the end.
        let (escalated, oldest_s) = (survey.escalated, oldest.as_secs());
        tracing::warn!(
            escalated,
            oldest_s,
            "records wait for an operator: `idempotency list --escalated` names them"
        );
    }
    if !survey.whole {
        tracing::warn!(
            "the survey missed records of the index: there are more than it counts, or some cannot be read"
        );
    }
}

/// Counts a failed call of the store by what its error means.
pub(crate) fn store_failed(operation: &OperationName, kind: StoreErrorKind) {
    match kind {
        // The store answers that others write the same item: one hot row would look like an outage.
        StoreErrorKind::Contended | StoreErrorKind::InProgress => {}
        StoreErrorKind::Throttled => Count::Throttled.add(operation),
        StoreErrorKind::Unavailable
        | StoreErrorKind::Unauthenticated
        | StoreErrorKind::Refused
        | StoreErrorKind::Unreadable => Count::StoreError.add(operation),
    }
}

/// Records how long ago a deferred report was sent.
#[cfg(feature = "lambda")]
pub(crate) fn record_deferred_age(age: Duration) {
    metrics::histogram!(DEFERRED_AGE).record(age.as_secs_f64());
}

/// Tells the recorder the units of latencies and ages.
#[cfg(feature = "lambda")]
pub(crate) fn describe() {
    for latency in [RESERVE_LATENCY, HANDLER_LATENCY, COMPLETE_LATENCY, DELIVERY_AGE] {
        metrics::describe_histogram!(latency, metrics::Unit::Milliseconds, "");
    }
    for age in [UNKNOWN_OLDEST, DEFERRED_AGE] {
        metrics::describe_histogram!(age, metrics::Unit::Seconds, "");
    }
}

/// Logs once, in a process on Lambda, if no recorder is installed: then nothing that it guards is counted, and no alarm can fire. A
/// function that is run by another crate's `run` has none.
fn warn_if_uncounted() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if ASKED.load(Ordering::Relaxed) || ASKED.swap(true, Ordering::Relaxed) {
        return;
    }
    // The recorder that drops everything has no state, and nothing else tells it from others.
    let is_counted = metrics::with_recorder(|recorder| size_of_val(recorder) > 0);
    if !is_counted && env::var_os("AWS_LAMBDA_FUNCTION_NAME").is_some() {
        tracing::error!(
            "no metrics recorder is installed, or one without a state: what this function guards is counted nowhere, and no alarm can fire. \
             Run it by lambda_idempotency::lambda::run or run_http, or install a recorder before its first request"
        );
    }
}

/// The target of spans, for filters: a filter that disables it takes key and operation from the log lines.
pub(crate) const SPAN: &str = "lambda_idempotency::span";

/// The span of one request.
pub(crate) fn request_span(key: &RecordKey) -> Span {
    warn_if_uncounted();
    #[cfg(feature = "lambda")]
    callers::note(key.tenant());
    record_span(key)
}

/// The span of work on one record, from which its log lines get the operation and the hash of the key. Code that begins such
/// work enters the span once. A task that is spawned must be given it.
///
/// Its level is `error`, so that a filter for errors alone does not remove it.
pub(crate) fn record_span(key: &RecordKey) -> Span {
    let (operation, key) = (key.operation(), hash_of(key));
    tracing::error_span!(target: SPAN, "idempotency", %operation, %key, outcome = Empty, attempts = Empty)
}

/// The same for a task that may outlive the request which spawns it, and must not hold the request's span open.
pub(crate) fn task_span(key: &RecordKey) -> Span {
    let (operation, key) = (key.operation(), hash_of(key));
    tracing::error_span!(target: SPAN, parent: None, "idempotency", %operation, %key)
}

/// The hash of the key, computed only if a subscriber wants it.
fn hash_of(key: &RecordKey) -> impl fmt::Display {
    fmt::from_fn(|f| write!(f, "{}", key.hash()))
}

/// Adds to the request's span how the request ended.
pub(crate) fn ended(outcome: &'static str) {
    Span::current().record("outcome", outcome);
}

/// Logs that an execution ended, and adds it to the request's span.
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

/// Logs and counts a worker whose lease has expired: each stands for a crash.
pub(crate) fn lease_expired(record: &Record, now: Timestamp) {
    let age_ms = age_ms(record, now);
    let now = match record.state {
        State::Unknown { .. } => "the outcome is unknown",
        State::BetweenWorkers { .. } => "a retry resumes the operation",
        _ => "its transaction can no longer commit, and a retry may run",
    };
    tracing::warn!(age_ms, "a worker's lease has expired: {now}");
    Count::ZombieKey.add(record.key.operation());
}

/// Logs and counts accepted work that ended with 408.
pub(crate) fn abandoned(record: &Record, now: Timestamp) {
    let age_ms = age_ms(record, now);
    let why = match record.attempts_are_over() {
        true => "all executions of accepted work did nothing",
        false => "no worker took accepted work in time",
    };
    tracing::warn!(age_ms, "{why}: it ends with 408");
    Count::Abandoned.add(record.key.operation());
}

/// Counts that `record`, which is written in place of `before`, begins to wait for an operator, and logs the alarms that it raises.
pub(crate) fn escalated(record: &Record, before: Option<&Record>) {
    let known =
        |alarm: &&Alarm| before.is_some_and(|before| before.alarms.iter().any(|one| one.is_same(alarm)));
    // A retry of what is escalated takes it from operators, and gives it back if it fails.
    let waited = before.is_some_and(|before| before.is_escalated() || before.is_left_to_operators());
    let mut begins = record.is_escalated() && !waited;
    for Alarm { kind, because, is_told, .. } in record.alarms.iter().filter(|alarm| !known(alarm)) {
        let (kind_name, state, attempt) = (kind.name(), record.state.name(), &record.attempt);
        tracing::error!(kind = kind_name, %because, is_told, state, %attempt, "a record has an alarm: it needs an operator");
        if *kind == AlarmKind::SecondExecution {
            Count::DoubleExecution.add(record.key.operation());
        }
        begins = true;
    }
    if begins {
        Count::Escalated.add(record.key.operation());
    }
}

/// How long ago the execution began.
pub(crate) fn age_ms(record: &Record, now: Timestamp) -> u64 {
    u64::try_from(now.since(record.began_at).as_millis()).unwrap_or(u64::MAX)
}

/// The tenants whose requests the present invocation guards. Unknown while invocations overlap, as on Lambda Managed Instances.
#[cfg(feature = "lambda")]
pub(crate) mod callers {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use crate::key::Tenant;

    static CALLERS: Mutex<Callers> =
        Mutex::new(Callers { invocations: 0, overlap: false, tenants: Vec::new() });

    struct Callers {
        /// How many invocations are under way.
        invocations: usize,
        /// Whether several were since there was none.
        overlap: bool,
        /// At most two: only one alone is named.
        tenants: Vec<Tenant>,
    }

    fn callers() -> MutexGuard<'static, Callers> {
        // A panic cannot leave it half-written.
        CALLERS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An invocation begins.
    pub(crate) fn begin() {
        let mut callers = callers();
        if callers.invocations == 0 {
            *callers = Callers { invocations: 0, overlap: false, tenants: Vec::new() };
        }
        callers.overlap |= callers.invocations > 0;
        callers.invocations += 1;
    }

    /// An invocation is over.
    pub(crate) fn end() {
        let mut callers = callers();
        callers.invocations = callers.invocations.saturating_sub(1);
    }

    pub(super) fn note(tenant: &Tenant) {
        let tenants = &mut callers().tenants;
        if tenants.len() < 2 && !tenants.contains(tenant) {
            tenants.push(tenant.clone());
        }
    }

    /// The tenant, if there is exactly one.
    pub(crate) fn one() -> Option<Tenant> {
        let callers = callers();
        match &*callers.tenants {
            [tenant] if !callers.overlap => Some(tenant.clone()),
            _ => None,
        }
    }
}

/// Messages that were handed back to their queue, to come again. By queue.
pub const MESSAGE_HANDED_BACK: &str = "api.idempotency.message.handed_back.count";

/// Messages that were held, because their outcome is unknown. By queue.
pub const MESSAGE_HELD: &str = "api.idempotency.message.held.count";

/// Messages that could not be sent to the dead letters of their queue: they come again. By queue.
pub const MESSAGE_NOT_BURIED: &str = "api.idempotency.message.not_buried.count";

/// Dead letters that have the beginning of their message alone, because it is too long for the queue. By source.
pub const MESSAGE_CUT: &str = "api.idempotency.message.cut.count";

/// Batches of which messages could not be hidden: these come again when the queue's own time-out is over. By queue.
pub const MESSAGE_NOT_HIDDEN: &str = "api.idempotency.message.not_hidden.count";

/// Messages that went to the dead letters of their queue. By queue.
pub const MESSAGE_DEAD: &str = "api.idempotency.message.dead.count";

/// How long reservations took, in milliseconds: until it was known whether the handler runs.
pub const RESERVE_LATENCY: &str = "api.idempotency.reserve.latency";

/// How long handlers took, in milliseconds.
pub const HANDLER_LATENCY: &str = "api.idempotency.handler.latency";

/// How long it took to write reports, in milliseconds.
pub const COMPLETE_LATENCY: &str = "api.idempotency.complete.latency";

/// How long after their commit messages of the outbox were delivered, in milliseconds.
pub const DELIVERY_AGE: &str = "api.idempotency.outbox.delivery_age";

/// How many messages of the outbox a sweep found that should have been delivered: at each sweep.
pub const OUTBOX_UNDELIVERED: &str = "api.idempotency.outbox.undelivered";

/// How many accepted requests a sweep found that wait for a worker, a quarter of an hour after they came: at each sweep.
pub const WORK_WAITING: &str = "api.idempotency.work.waiting";

/// Completed polls. If there are none for a while, no question about unknown outcomes is asked. Without label.
pub const RECONCILE_POLL: &str = "api.idempotency.reconcile.poll.count";

/// Completed sweeps. Without label.
pub const SWEEP_COMPLETED: &str = "api.idempotency.sweep.completed.count";

/// Look-ups of operations that have no record: of a request that never came, or of a guessed key. Without label, because the client names
/// the operation.
pub const LOOK_UP_EMPTY: &str = "api.idempotency.look_up.empty.count";

/// Look-ups that were refused, because their tenant makes too many. Without label.
pub const LOOK_UP_OVER_BOUND: &str = "api.idempotency.look_up.over_bound.count";

/// Settings of the table that a sweep found off: nothing else would notice it. Without label.
pub const TABLE_SETTING_OFF: &str = "api.idempotency.table.setting_off.count";

/// Batches of the table's stream that were processed completely. Without label.
pub const STREAM_BATCH: &str = "api.idempotency.stream.batch.count";

/// Executions that the table's stream shows to have begun, or to live. Without label: whether the functions that began them count is the question.
pub const STREAM_BEGAN: &str = "api.idempotency.stream.began.count";

/// Batches of the table's stream of which every delivery was asked for and all accepted work was queued. Without label.
pub const OUTBOX_BATCH: &str = "api.idempotency.outbox.batch.count";

/// What was sent to operators: reports of a provider or a worker that contradict their record or have none, and changes of the table that
/// cannot be read. Without label: some name no operation.
pub const CONTRADICTION_SENT: &str = "api.idempotency.contradiction.sent.count";

/// For how long the oldest unknown outcome has been unknown, in seconds. Without label.
pub const UNKNOWN_OLDEST: &str = "api.idempotency.unknown.oldest.seconds";

/// How long ago deferred reports were sent, in seconds, each time one is received. Without label.
pub const DEFERRED_AGE: &str = "api.idempotency.completion.deferred.age.seconds";

/// How many outcomes are unknown. Without label.
pub const UNKNOWN_COUNT: &str = "api.idempotency.unknown.outcomes";

/// How many operations wait between workers for a retry. Without label.
pub const BETWEEN_WORKERS_COUNT: &str = "api.idempotency.between_workers.operations";

/// How many records have an alarm, whatever their state. Without label.
pub const ALARMED_COUNT: &str = "api.idempotency.alarmed.records";

/// How many records need an operator: those that are escalated, and those with an alarm. Without label.
pub const UNKNOWN_ESCALATED: &str = "api.idempotency.unknown.escalated";

/// Requests to a webhook without a signature (401), also to a route that receives webhooks. Without label.
pub const WEBHOOK_UNSIGNED: &str = "api.idempotency.webhook.unsigned.count";

/// Requests to a webhook with a signature that is not valid (401), also to a route that receives webhooks. Without label.
pub const WEBHOOK_REFUSED: &str = "api.idempotency.webhook.refused.count";

/// Events of a provider that could not be read (400). Without label.
pub const WEBHOOK_UNREADABLE: &str = "api.idempotency.webhook.unreadable.count";

/// Events of a provider that come before their record can take them, and must be sent again (503). Without label.
pub const WEBHOOK_EARLY: &str = "api.idempotency.webhook.early.count";

/// Events of a provider that could not be processed, and must be sent again (503). Without label.
pub const WEBHOOK_AGAIN: &str = "api.idempotency.webhook.again.count";
