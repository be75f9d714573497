//! Bounds of each tenant, and the operators' brake: how much that is new a tenant may begin, and whether it may at all.
//!
//! 1. A bound is asked **only where there is no record**: a retry, a replay and what is resumed are never refused (T86).
//! 2. New keys are *counted* after they are admitted, while their handler runs: so a bound costs no round trip, and a tenant that is over it
//!    has admitted somewhat more. What is too much stays as a debt, so that over time the rate holds. See [`Bounds`] for how much.
//! 3. What operators set, [rules](crate::store::TenantRules), is one item of the table. A process reads it every few seconds, beside its next
//!    reservation; a handler begins only if the rules are that fresh.
//! 4. What a process remembers of a tenant only saves it questions. If it forgets, a bound admits a few more.
//!
//! The decision itself is [`Standing`], a part of the reservation.

mod known;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync;

use protocol::bucket;
pub use protocol::{
    bucket::Level,
    limits::{Limits, Rate},
};

use self::known::{Counted, Known};
#[cfg(any(feature = "dynamodb", feature = "sqs"))]
use crate::config::{ConfigError, optional};
use crate::{
    key::{OperationName, RecordKey, Tenant},
    record::Standing,
    store::{Bucket, Fill, StoreError, StoreErrorKind, Tenants},
    telemetry::{self, STORE_ERROR},
    time_budget::{RULES_AGAIN, RULES_FOR, STORE_TIMEOUT, STORE_TRY},
    world::{Term, World},
};

/// The bounds of each tenant of a guard. Cheap to clone: clones share what they know, so give one to all guards of a process.
///
/// ```
/// use axum::{Router, routing::post};
/// use lambda_idempotency::{
///     Idempotency, JwtClaim, MemoryStore, Operation,
///     bounds::{Bounds, Rate},
/// };
///
/// # async fn create() {}
/// let store = MemoryStore::new();
/// let bounds = Bounds::of(store.clone()).new_keys(Rate::per_second(10)).open_records(1_000);
/// let guard = Idempotency::new(store, Operation::new("create-payment")).tenant(JwtClaim("sub")).bounds(bounds);
/// let app: Router = Router::new().route("/payments", post(create).route_layer(guard));
/// ```
///
/// # How exact they are
///
/// - *New keys*, and the bytes of accepted requests: a tenant's rate holds over time. Beyond its burst, it gets what each process admits
///   before its first count: up to ten keys in each (one, if the burst is less than 40). Of a large burst only each tenth key is counted, for ten.
/// - *Open records*: those with an unknown outcome and those between workers, of all operations of the tenant, as the index shows them; looked
///   at every half minute in each process, and so too late by what begins until then. What is in progress is bounded by the function's concurrency;
///   accepted work by the rate of new keys and the time in which it must be claimed.
/// - *Clocks* that are apart by less than a burst lasts change nothing.
///
/// If the store cannot be asked how much a tenant uses, the tenant counts as it did before: a fault of the store is not the tenant's. If the
/// rules cannot be read for ten seconds, nothing new begins, because operators may have stopped it; rules that this version cannot read are
/// logged, and those before them apply, in a process that has read none no rules.
///
/// Needs `dynamodb:UpdateItem` on the table, and for open records `dynamodb:Query` on its index. Without, an error is logged once.
#[derive(Clone, derive_more::Debug)]
#[debug("Bounds({limits:?})")]
pub struct Bounds {
    shared: Arc<Shared>,
    limits: Limits,
}

/// The rate that this variable sets, in a second, with the default burst; `None` if it is not set.
#[cfg(any(feature = "dynamodb", feature = "sqs"))]
pub(crate) fn per_second(variable: &'static str) -> Result<Option<Rate>, ConfigError> {
    let number = optional(variable, "a number from 1 to 1000000000", |number| {
        Rate::per_second(*number).burst(1).check().is_ok()
    })?;
    Ok(number.map(Rate::per_second))
}

struct Shared {
    store: Arc<dyn Tenants>,
    known: Mutex<Known>,
    /// Held while the rules are read: one read is enough for all that wait.
    reading: sync::Mutex<()>,
    /// Whether it was logged that counts are refused.
    refused: OnceLock<()>,
}

impl Bounds {
    /// No bounds but those that operators set, and their brake. Add limits for tenants of which they have set none.
    pub fn of(store: impl Tenants) -> Self {
        let (known, reading) = (Mutex::default(), sync::Mutex::default());
        let shared = Shared { store: Arc::new(store), known, reading, refused: OnceLock::new() };
        Self { shared: Arc::new(shared), limits: Limits::default() }
    }

    /// The same, with the limits of the environment: `TENANT_NEW_KEYS_PER_SECOND` and `TENANT_OPEN_RECORDS`. What is not set is not bounded.
    ///
    /// # Errors
    /// If a variable is malformed.
    #[cfg(any(feature = "dynamodb", feature = "sqs"))]
    pub fn from_env(store: impl Tenants) -> Result<Self, ConfigError> {
        let new_keys = per_second("TENANT_NEW_KEYS_PER_SECOND")?;
        let is_valid =
            |number: &usize| Limits { open_records: Some(*number), ..Limits::default() }.check().is_ok();
        let open_records = optional("TENANT_OPEN_RECORDS", "a number from 1 to 100000", is_valid)?;
        Ok(Self { limits: Limits { new_keys, accepted_bytes: None, open_records }, ..Self::of(store) })
    }

    /// How many new keys each tenant may begin with.
    ///
    /// # Panics
    /// If the rate is of nothing, or bounds nothing.
    #[must_use]
    pub fn new_keys(self, rate: Rate) -> Self {
        let limits = Limits { new_keys: Some(rate), ..self.limits };
        self.limits(limits)
    }

    /// How many bytes of requests each tenant may have accepted.
    ///
    /// # Panics
    /// As [`new_keys`](Self::new_keys).
    #[must_use]
    pub fn accepted_bytes(self, rate: Rate) -> Self {
        let limits = Limits { accepted_bytes: Some(rate), ..self.limits };
        self.limits(limits)
    }

    /// How many records of each tenant may be open, of all operations, before it begins no more. From 1 to 100,000.
    ///
    /// # Panics
    /// If it is none of these.
    #[must_use]
    pub fn open_records(self, number: usize) -> Self {
        let limits = Limits { open_records: Some(number), ..self.limits };
        self.limits(limits)
    }

    fn limits(mut self, limits: Limits) -> Self {
        if let Err(error) = limits.check() {
            panic!("a bound of tenants: {error}");
        }
        self.limits = limits;
        self
    }

    /// How this tenant stands, as far as this process knows.
    pub(crate) fn standing(&self, key: &RecordKey, world: &dyn World) -> Standing {
        self.shared.known().standing(key, world.now())
    }

    /// Whether the rules are as fresh as a new execution needs them.
    pub(crate) fn are_fresh(&self, world: &dyn World) -> bool {
        self.shared.known().are_fresh(world)
    }

    /// Whether reading the rules has failed so lately that it is not tried again.
    pub(crate) fn have_failed(&self, world: &dyn World) -> bool {
        self.shared.known().failed(world).is_some()
    }

    /// Until when an execution may begin by the rules that are known; `None` if there are none.
    pub(crate) fn usable_until(&self) -> Option<Term> {
        self.shared.known().usable_until()
    }

    /// Reads the rules, unless they are fresh.
    ///
    /// # Errors
    /// If they cannot be read, and those before are too old.
    pub(crate) async fn refresh(&self, world: &dyn World) -> Result<(), StoreError> {
        let _one = self.shared.reading.lock().await;
        if self.are_fresh(world) {
            return Ok(());
        }
        if let Some(kind) = self.shared.known().failed(world) {
            return Err(StoreError::new(kind, "the tenants' rules could not be read a moment ago"));
        }
        let (fresh_until, usable_until) = (world.term(RULES_FOR), world.term(2 * RULES_FOR));
        let read = world.within(STORE_TIMEOUT, self.shared.store.rules()).await;
        let read = read.unwrap_or_else(|| Err(StoreError::no_answer_in_time(false)));
        let mut known = self.shared.known();
        match read {
            Ok(rules) => known.learn(rules, fresh_until, usable_until),
            // To refuse all tenants for that would be an outage that one wrong item makes.
            Err(error) if error.kind() == StoreErrorKind::Unreadable => {
                telemetry::count(STORE_ERROR);
                tracing::error!(
                    cause = error.cause(),
                    "the tenants' rules cannot be read by this version: those before them apply, or none"
                );
                known.keep(fresh_until, usable_until);
            }
            Err(error) => {
                tracing::warn!(cause = error.cause(), "the tenants' rules could not be read");
                known.fail(error.kind(), world.term(RULES_AGAIN));
                return if known.are_usable(world) { Ok(()) } else { Err(error) };
            }
        }
        if known.are_usable(world) {
            return Ok(());
        }
        // The process was frozen meanwhile: what was read is too old.
        Err(StoreError::no_answer_in_time(true))
    }

    /// Whether the rules that are known may be used, after a caller could wait no longer for others. If it waited as long as an answer takes,
    /// they are not read again at once.
    pub(crate) fn are_usable_after(&self, waited: Duration, world: &dyn World) -> bool {
        let mut known = self.shared.known();
        if waited >= STORE_TRY {
            known.fail(StoreErrorKind::Unavailable, world.term(RULES_AGAIN));
        }
        known.are_usable(world)
    }

    /// Counts a new key, with this many bytes of an accepted request. Returns in time whatever the store does: what is not counted is
    /// admitted.
    pub(crate) async fn count(&self, key: &RecordKey, bytes: usize, time: Duration, world: &dyn World) {
        let limits = self.limits_of(key.tenant(), key.operation());
        if limits == Limits::default() {
            return;
        }
        let Some(counted) = self.shared.known().count(key, &limits, world) else { return };
        let of = (key.tenant(), key.operation());
        let fill = world.within(time, self.fill(of, &limits, bytes, counted, world));
        let look = world.within(time, self.look(key.tenant(), &limits, counted));
        // Each counts, whatever becomes of the other.
        let (level, open) = tokio::join!(fill, look);
        self.shared.known().see(key, counted, (level.flatten(), open.flatten()), world.now());
    }

    /// Fills the buckets of a tenant. Returns the highest level.
    async fn fill(
        &self,
        (tenant, operation): (&Tenant, &OperationName),
        limits: &Limits,
        bytes: usize,
        counted: Counted,
        world: &dyn World,
    ) -> Option<Level> {
        let now = world.now();
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(counted.keys);
        let used =
            [("new_keys", limits.new_keys, counted.keys), ("accepted_bytes", limits.accepted_bytes, bytes)];
        let used = used.into_iter().filter(|(.., number)| *number > 0);
        let filled: Vec<_> = used.filter_map(|(of, rate, number)| Some((of, rate?, number))).collect();
        if filled.is_empty() {
            return None;
        }
        let fill = |(of, rate, number): &(&str, Rate, u64)| Fill {
            bucket: Bucket::name_of(of, *rate),
            by: bucket::cost(*rate, *number),
            from: bucket::empty(*rate, now),
            expires_at: bucket::forgotten(*rate, *number, now),
        };
        let fills: Vec<_> = filled.iter().map(fill).collect();
        let levels = match self.shared.store.fill(tenant, operation, &fills).await {
            Ok(levels) => levels,
            Err(error) => {
                self.uncounted(&error);
                return None;
            }
        };
        for ((fill, (_, rate, _)), level) in fills.iter().zip(&filled).zip(&levels) {
            let Some(raised) = bucket::raised(*rate, *level, now) else { continue };
            // Another process that raises it does the same.
            let raised = self.shared.store.raise(tenant, operation, &fill.bucket, *level, raised).await;
            if let Err(error) = raised {
                tracing::debug!(cause = error.cause(), "a bucket was not raised");
            }
        }
        levels.into_iter().max()
    }

    /// Whether a tenant has too many open records; `None` if that was not looked at now.
    async fn look(&self, tenant: &Tenant, limits: &Limits, counted: Counted) -> Option<bool> {
        let most = limits.open_records.filter(|_| counted.looks)?;
        match self.shared.store.open_records(tenant, most).await {
            Ok(open) => Some(open >= most),
            Err(error) => {
                self.uncounted(&error);
                None
            }
        }
    }

    /// Logs that a tenant's use was not counted; once, if it never will be: a permission is missing.
    fn uncounted(&self, error: &StoreError) {
        match error.kind() {
            StoreErrorKind::Refused => {
                self.shared.refused.get_or_init(|| {
                    tracing::error!(
                        cause = error.cause(),
                        "what tenants use may not be counted: their bounds bound nothing. See the permissions of Bounds"
                    );
                });
            }
            _ => tracing::debug!(cause = error.cause(), "what a tenant uses was not counted"),
        }
    }

    /// The limits that apply to this tenant: those that operators have set, or else these.
    fn limits_of(&self, tenant: &Tenant, operation: &OperationName) -> Limits {
        let known = self.shared.known();
        let set = known.rule(tenant).and_then(|rule| rule.limits(operation)).copied().unwrap_or_default();
        Limits {
            new_keys: set.new_keys.or(self.limits.new_keys),
            accepted_bytes: set.accepted_bytes.or(self.limits.accepted_bytes),
            open_records: set.open_records.or(self.limits.open_records),
        }
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
