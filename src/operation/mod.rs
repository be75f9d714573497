//! Per-operation settings.
//!
//! 1. An operation has a name and the defaults of [`time_budget`](crate::time_budget); each method changes one setting.
//! 2. A setting that would guard nothing panics at once. Settings that contradict each other panic when the guard is built.
//! 3. Guard and reconciliation take the same settings, so that both keep the same headers for the same time.
//!
//! It does not choose a client's statuses and codes: the contract profile does.

mod declared;
mod derived;
mod observed;
#[cfg(test)]
mod tests;

use std::{mem, sync::Arc, time::Duration};

pub(crate) use observed::Observer;
pub use observed::{How, Observed};

use self::declared::Declared;
use crate::{
    fingerprint::{FingerprintRule, is_header_name},
    headers::may_be_kept,
    key::{
        OperationName,
        age::{KeyTime, OldestKey},
    },
    record::{Effects, Keeps},
    time_budget::{
        CLOCK_SKEW, DEFAULT_COMPLETION_TIMEOUT, DEFAULT_GRACE, DEFAULT_LEASE, DEFAULT_MAX_ATTEMPTS,
        DEFAULT_MAX_LEASE, DEFAULT_NOT_FOUND_WINDOW, DEFAULT_RETENTION, DEFAULT_RETRY_AFTER,
    },
};

/// What happens to a record whose worker's lease has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLeaseExpiry {
    /// It becomes `unknown`, and is reconciled. Always safe.
    #[default]
    Unknown,
    /// The next caller runs it again. For effects that are naturally idempotent only: the first worker may still live.
    RunAgain,
}

/// What a duplicate of an operation in flight gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhileInFlight {
    /// A conflict with a `Retry-After`.
    #[default]
    Refuse,
    /// 202 with a `Retry-After` and the URL of the operation's status.
    Accept,
    /// The answer, if it comes within this time; else as [`Refuse`](Self::Refuse). Each that waits holds one environment of the function: let it be
    /// a few seconds, or a tenant that repeats a slow request takes the account's concurrency.
    Wait(Duration),
}

/// What a handler's 5xx means for its effect, if the response has no `Outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerErrors {
    /// Perhaps executed: `unknown`, and reconciled. Always safe.
    Reconcile,
    /// It is the answer: kept and replayed, as Stripe does.
    Keep,
    /// Certainly not executed: a retry runs. Only if that is true of every 5xx of the handler.
    RetryFresh,
}

/// One guarded operation: its name and its settings.
///
/// ```
/// use std::{mem, time::Duration};
/// use lambda_idempotency::operation::{Operation, WhileInFlight};
///
/// let payment = Operation::new("create-payment")
///     .retain(Duration::from_secs(7 * 24 * 3600))
///     .min_key_length(16)
///     .while_in_flight(WhileInFlight::Wait(Duration::from_secs(5)));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Operation {
    name: OperationName,
    pub(crate) retain: Duration,
    pub(crate) lease: Duration,
    grace: Duration,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) max_lease: Duration,
    min_time: Option<Duration>,
    pub(crate) not_found_window: Duration,
    pub(crate) completion_timeout: Duration,
    retry_after: Duration,
    lease_expired: OnLeaseExpiry,
    effects: Effects<Declared>,
    pub(crate) while_in_flight: WhileInFlight,
    pub(crate) server_errors: Option<ServerErrors>,
    pub(crate) min_key_length: usize,
    pub(crate) oldest_key: Option<OldestKey>,
    pub(crate) rule: FingerprintRule,
    pub(crate) former_rules: Vec<FingerprintRule>,
    pub(crate) keeps: Keeps,
    pub(crate) asynchronous: Option<Duration>,
    pub(crate) max_attempts: u32,
    pub(crate) observer: Option<Observer>,
}

impl Operation {
    /// An operation of this name, with the defaults of [`time_budget`](crate::time_budget).
    ///
    /// # Panics
    /// If the name is not 1 to 128 letters, digits, `-`, `_` or `.`: a mistake in the program, found at start-up.
    pub fn new(name: &str) -> Self {
        let name = OperationName::parse(name).unwrap_or_else(|error| panic!("operation {name:?}: {error}"));
        Self {
            name,
            retain: DEFAULT_RETENTION,
            lease: DEFAULT_LEASE,
            grace: DEFAULT_GRACE,
            heartbeat: None,
            max_lease: DEFAULT_MAX_LEASE,
            min_time: None,
            not_found_window: DEFAULT_NOT_FOUND_WINDOW,
            completion_timeout: DEFAULT_COMPLETION_TIMEOUT,
            retry_after: DEFAULT_RETRY_AFTER,
            lease_expired: OnLeaseExpiry::default(),
            effects: Effects::Anywhere,
            while_in_flight: WhileInFlight::default(),
            server_errors: None,
            min_key_length: 1,
            oldest_key: None,
            rule: FingerprintRule::new(),
            former_rules: Vec::new(),
            keeps: Keeps::default(),
            asynchronous: None,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            observer: None,
        }
    }

    /// How long an answer is replayed, counted from completion. The record has this time too, so that reconciliation and
    /// operators keep answers as long.
    ///
    /// # Panics
    /// If `retain` is shorter than [`CLOCK_SKEW`]: by a clock that far ahead, nothing would be a duplicate.
    pub fn retain(mut self, retain: Duration) -> Self {
        assert!(
            retain >= CLOCK_SKEW,
            "operation {:?}: retain({retain:?}) guards nothing: it is shorter than clocks may be apart ({CLOCK_SKEW:?})",
            self.name.as_str()
        );
        self.retain = retain;
        self
    }

    /// How long a worker owns the record if there is no Lambda deadline.
    ///
    /// # Panics
    /// If `lease` is zero: no worker would own a record.
    pub fn lease(mut self, lease: Duration) -> Self {
        assert!(!lease.is_zero(), "operation {:?}: lease(0) would guard nothing", self.name.as_str());
        self.lease = lease;
        self
    }

    /// How long after deadline or lease a worker still counts as alive.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Extends the lease this often while the handler runs, up to the [`max_lease`](Self::max_lease): for work of unknown length. An
    /// execution with a Lambda deadline has no heartbeats: its lease lasts until then. Must be shorter than the lease, which would
    /// otherwise expire between two heartbeats: [`Idempotency::new`](crate::http::Idempotency::new) panics otherwise.
    ///
    /// # Panics
    /// If `every` is zero.
    pub fn heartbeat(mut self, every: Duration) -> Self {
        assert!(
            !every.is_zero(),
            "operation {:?}: heartbeat(0) would write without a pause",
            self.name.as_str()
        );
        self.heartbeat = Some(every);
        self
    }

    /// How long heartbeats keep a record, from the beginning of its execution: a handler that hangs would otherwise never
    /// be found. Default: [`DEFAULT_MAX_LEASE`].
    pub fn max_lease(mut self, max: Duration) -> Self {
        self.max_lease = max;
        self
    }

    /// How much time must be left of the invocation, or of the lease if there is no deadline, for an execution to begin.
    /// With less, the key is released and the client asked to retry. At most the lease:
    /// [`Idempotency::new`](crate::http::Idempotency::new) panics otherwise. A function whose time-out is shorter begins
    /// nothing. Default: [`MIN_TIME_TO_RUN`](crate::time_budget::MIN_TIME_TO_RUN), or a quarter of what the invocation
    /// has left when the request comes, if that is less.
    pub fn min_time_to_run(mut self, min: Duration) -> Self {
        self.min_time = Some(min);
        self
    }

    /// How long after an execution began a reconciler's "not found" is proof that nothing was done: no longer than its
    /// provider remembers keys, and longer than lease, grace and
    /// [`not_found_grace`](crate::reconcile::Reconciliation::not_found_grace) together. Later, the outcome is escalated.
    /// Set it on the operation that is passed to the reconciliation. Default: [`DEFAULT_NOT_FOUND_WINDOW`].
    pub fn not_found_within(mut self, window: Duration) -> Self {
        self.not_found_window = window;
        self
    }

    /// Keeps one more header of answers besides [`SAFE_HEADERS`](crate::record::SAFE_HEADERS), whether they come from the
    /// handler, a reconciler or a deferred report.
    ///
    /// # Panics
    /// If `name` is one that must not be replayed, or not a valid header name.
    pub fn keep_header(mut self, name: &str) -> Self {
        let (header, operation) = (name.to_ascii_lowercase(), self.name.as_str());
        for (is_valid, wrong) in [
            (is_header_name(&header), "this is not a header name"),
            (may_be_kept(&header), "this header must never be replayed"),
        ] {
            assert!(is_valid, "operation {operation:?}: keep_header({name:?}): {wrong}");
        }
        self.keeps.headers.push(header);
        self
    }

    /// Whether the bodies of answers are kept. `false` is for answers that must not be stored, such as a secret that is shown once: a replay is
    /// the status and the kept headers, with `Idempotent-Replayed-Body: omitted`. Set it on the operation that is passed to the
    /// reconciliation too. An operator's answer is kept. Default: `true`.
    ///
    /// For HTTP only, and not with [`asynchronous`](Self::asynchronous), whose clients get no other answer than the kept one: a guard of either
    /// panics.
    pub fn keep_body(mut self, keep: bool) -> Self {
        self.keeps.body = keep;
        self
    }

    /// How long a worker keeps trying to write its completion while the store is unavailable. At most
    /// [`MAX_SENDING_TIME`](crate::time_budget::MAX_SENDING_TIME) for a
    /// [single transaction](crate::http::Idempotency::single_transaction), which panics otherwise.
    pub fn completion_timeout(mut self, completion_timeout: Duration) -> Self {
        self.completion_timeout = completion_timeout;
        self
    }

    /// The shortest `Retry-After`, rounded up to seconds. In flight, clients wait as long as the execution has already run,
    /// and at most until its lease has expired; while the outcome is unknown, until the next question; never longer than
    /// [`MAX_RETRY_AFTER`](crate::time_budget::MAX_RETRY_AFTER). Default: [`DEFAULT_RETRY_AFTER`].
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Declares that all effects of the operation are domain writes ([`Execution::write`](crate::Execution::write)). Then its
    /// outcome is never unknown: an execution that does not commit did nothing, and a retry runs. Once its lease has expired, the
    /// next write of the record makes sure that it can never commit.
    ///
    /// Not for a handler that calls another service, even an idempotent one.
    ///
    /// # Panics
    /// If it [resumes](Self::resumes).
    pub fn effects_in_transaction(self) -> Self {
        self.with_effects(Effects::InTransaction)
    }

    /// Executes the operation later, by a [worker](crate::event::Consumer::work): for work that takes longer than a client waits. A request is
    /// accepted with 202 and the URL of the operation's status. For HTTP only: see
    /// [`Idempotency::accept`](crate::http::Idempotency::accept).
    ///
    /// If it waits for a worker once `bound` is over, or all [attempts](Self::max_attempts) did nothing, it ends with 408. If one of them
    /// perhaps did something, it is escalated instead.
    ///
    /// # Panics
    /// If `bound` is zero: no worker could begin.
    pub fn asynchronous(mut self, bound: Duration) -> Self {
        assert!(
            !bound.is_zero(),
            "operation {:?}: asynchronous(0) would execute nothing",
            self.name.as_str()
        );
        self.asynchronous = Some(bound);
        self
    }

    /// How often an [asynchronous](Self::asynchronous) operation is executed at most, if each execution certainly did nothing. Default:
    /// [`DEFAULT_MAX_ATTEMPTS`].
    ///
    /// # Panics
    /// If it is zero.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        assert!(attempts > 0, "operation {:?}: max_attempts(0) would execute nothing", self.name.as_str());
        self.max_attempts = attempts;
        self
    }

    /// Once the lease of its worker has expired, or an execution has ended within, the next caller runs the handler again, behind the
    /// [phases](crate::engine::Execution::phase) that are kept. For handlers whose effects are all in phases, or in the writes that commit
    /// with the answer: an execution that ends outside a call did nothing that is not kept. So a 5xx is never its answer, whatever
    /// [`server_errors`](Self::server_errors) says. If no retry comes `within` this time after the last recovery point, the record is
    /// escalated.
    ///
    /// `phases` are the names of all phases, each 1 to 64 letters, digits, `-`, `_` or `.`, in the order in which the handler comes to them. It may
    /// leave some out, but decides its way only from its request and from the results of its phases: each execution comes to the kept
    /// phases in the same order. A deployment that declares other phases, or another order, does not resume what this one has begun: a
    /// call that was perhaps made would be made again under another key.
    ///
    /// ```
    /// use std::{mem, time::Duration};
    /// use lambda_idempotency::Operation;
    ///
    /// let order = Operation::new("create-order").resumes(["intent", "charge", "refund"], Duration::from_secs(24 * 3600));
    /// ```
    ///
    /// # Panics
    /// If there are no phases, more than [`MAX_PHASES`](crate::record::MAX_PHASES), two of one name, or one whose name is none. If its
    /// [effects are in a transaction](Self::effects_in_transaction).
    pub fn resumes<N: Into<String>>(self, phases: impl IntoIterator<Item = N>, within: Duration) -> Self {
        let declared = Declared::new(phases.into_iter().map(Into::into).collect(), within);
        let operation = self.name.as_str();
        let declared = declared.unwrap_or_else(|wrong| panic!("operation {operation:?}: resumes(): {wrong}"));
        self.with_effects(Effects::InPhases(declared))
    }

    fn with_effects(mut self, effects: Effects<Declared>) -> Self {
        let is_same = mem::discriminant(&self.effects) == mem::discriminant(&effects);
        assert!(
            is_same || matches!(self.effects, Effects::Anywhere),
            "operation {:?}: effects_in_transaction() has no phases to resume behind: drop resumes()",
            self.name.as_str()
        );
        self.effects = effects;
        self
    }

    /// What happens when a worker's lease has expired, unless the operation [resumes](Self::resumes).
    pub fn on_lease_expiry(mut self, choice: OnLeaseExpiry) -> Self {
        self.lease_expired = choice;
        self
    }

    /// What a duplicate gets while the operation is in flight.
    pub fn while_in_flight(mut self, choice: WhileInFlight) -> Self {
        self.while_in_flight = choice;
        self
    }

    /// What a handler's 5xx says about its effect. Without this, the contract profile decides.
    pub fn server_errors(mut self, choice: ServerErrors) -> Self {
        self.server_errors = Some(choice);
        self
    }

    /// The shortest idempotency key accepted, in characters: 16 is advised for payments. Of a key that is made of several parts, each part is at
    /// least as long, because its hash always is.
    pub fn min_key_length(mut self, characters: usize) -> Self {
        self.min_key_length = characters;
        self
    }

    /// Begins nothing for keys older than `bound`. So a retry does not run again after its answer has expired, or after the table
    /// has lost it. If there still is a record, the retry gets that record's answer, as usual. This costs a request with an old key
    /// one read, and a request with a fresh key none.
    ///
    /// A key without a time begins nothing either. So set this only when all clients send keys that have a time. The hash of a key that is made of
    /// several parts has none: a guard of [`KeyFrom::all`](crate::KeyFrom::all) panics.
    ///
    /// Answers must be kept for at least `bound` plus twice [`CLOCK_SKEW`] ([`key::age`](crate::key::age) says why);
    /// [`Idempotency::new`](crate::http::Idempotency::new) panics otherwise.
    ///
    /// # Panics
    /// If `bound` is zero: every key would be too old.
    pub fn refuse_older_than(mut self, bound: Duration, time: KeyTime) -> Self {
        assert!(
            !bound.is_zero(),
            "operation {:?}: refuse_older_than(0) would take no key",
            self.name.as_str()
        );
        self.oldest_key = Some(OldestKey { bound, time });
        self
    }

    /// How requests become fingerprints.
    pub fn fingerprint(mut self, rule: FingerprintRule) -> Self {
        self.rule = rule;
        self
    }

    /// A former rule, for records that it made. So a deployment can change the rule while clients retry. Keep it for as long
    /// as those records are retained.
    pub fn formerly(mut self, rule: FingerprintRule) -> Self {
        self.former_rules.push(rule);
        self
    }

    /// Tells `observer` what became of each request with a valid key, once that is decided and written: for logs and metrics of your own,
    /// besides [`telemetry`](crate::telemetry). It is called before the caller gets its answer, in whatever front the request came: so it must
    /// not block. If the process dies, it is not called, and a retry is another request: nothing may depend on it.
    ///
    /// ```
    /// use lambda_idempotency::Operation;
    ///
    /// let payment = Operation::new("create-payment").observe(|observed| {
    ///     println!("{} {} {:?}", observed.key.hash(), observed.says, observed.took);
    /// });
    /// ```
    pub fn observe(mut self, observer: impl Fn(&Observed<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Observer(Arc::new(observer)));
        self
    }
}
