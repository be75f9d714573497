//! How often a tenant may look operations up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use protocol::bucket::{self, Level};

use super::{Problem, ProblemType};
use crate::{
    bounds::Rate,
    key::{RecordKey, Tenant},
    telemetry::{self, LOOK_UP_OVER_BOUND},
    time::Timestamp,
};
#[cfg(any(feature = "dynamodb", feature = "sqs"))]
use crate::{bounds::per_second, config::ConfigError};

/// How many tenants a process remembers.
const MAX_TENANTS: usize = 10_000;

/// Bounds how often each tenant may look up the [status](super::operation_status) of operations: who guesses keys becomes slow. It bounds
/// nothing else: a retry of a guarded request is no look-up.
///
/// Each process counts for itself, in memory, so N processes admit N times as many. If there are more than 10,000 tenants in a process, it begins
/// again. Cheap to clone: clones count together.
///
/// ```
/// use http::Response;
/// use lambda_idempotency::{
///     Store, World,
///     bounds::Rate,
///     http::{LookUps, Profile, operation_status},
///     key::RecordKey,
///     world::SystemWorld,
/// };
///
/// # async fn status(look_ups: LookUps, store: &dyn Store, key: &RecordKey, profile: &Profile) -> Response<http_body_util::Full<bytes::Bytes>> {
/// let now = SystemWorld.now();
/// match look_ups.admit(key, now) {
///     Ok(()) => operation_status(store, key, now, profile).await,
///     Err(problem) => problem.into_response(profile),
/// }
/// # }
/// # let look_ups = LookUps::at_most(Rate::per_second(20));
/// ```
#[derive(Clone, Debug)]
pub struct LookUps {
    rate: Option<Rate>,
    levels: Arc<Mutex<HashMap<Tenant, Level>>>,
}

impl LookUps {
    /// Without a bound.
    pub fn unbounded() -> Self {
        Self { rate: None, levels: Arc::default() }
    }

    /// So many of each tenant, of all operations. A client that polls asks once a second or less for each operation, because of `Retry-After`.
    ///
    /// # Panics
    /// If the rate is of nothing, or bounds nothing.
    pub fn at_most(rate: Rate) -> Self {
        if let Err(error) = rate.check() {
            panic!("a bound of look-ups: {error}");
        }
        Self { rate: Some(rate), ..Self::unbounded() }
    }

    /// As many as `TENANT_LOOK_UPS_PER_SECOND` says, and at once as many as in two minutes; if it is not set, without a bound.
    ///
    /// # Errors
    /// If it is malformed.
    #[cfg(any(feature = "dynamodb", feature = "sqs"))]
    pub fn from_env() -> Result<Self, ConfigError> {
        Ok(per_second("TENANT_LOOK_UPS_PER_SECOND")?.map_or_else(Self::unbounded, Self::at_most))
    }

    /// Counts that the tenant of this record looks it up now.
    ///
    /// # Errors
    /// If it looks up too many: 429 [`too-many-look-ups`](ProblemType::TooManyLookUps), with `Retry-After`. What is refused does not count.
    pub fn admit(&self, key: &RecordKey, now: Timestamp) -> Result<(), Problem> {
        let Some(rate) = self.rate else { return Ok(()) };
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.len() >= MAX_TENANTS && !levels.contains_key(key.tenant()) {
            levels.clear();
        }
        let (empty, one) = (bucket::empty(rate, now), bucket::cost(rate, 1));
        let level = levels.entry(key.tenant().clone()).or_insert(empty);
        // It is never higher than one above the burst. If it is, the clock was set back.
        *level = (*level).clamp(empty, bucket::risen(bucket::full(now), one));
        if let Some(over) = bucket::over(*level, now) {
            drop(levels);
            telemetry::request_span(key).in_scope(|| {
                telemetry::count(LOOK_UP_OVER_BOUND);
                tracing::warn!("a tenant looks up too many operations");
            });
            return Err(Problem { retry_after: Some(over), ..Problem::new(ProblemType::TooManyLookUps) });
        }
        *level = bucket::risen(*level, one);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::key::{IdempotencyKey, OperationName};

    const NOW: Timestamp = Timestamp::from_secs(2_000_000_000);

    fn key(tenant: &str) -> RecordKey {
        let operation = OperationName::parse("pay").expect("a name");
        let tenant = Tenant::parse(tenant).expect("a tenant");
        RecordKey::new(tenant, operation, IdempotencyKey::parse("k-1").expect("a key"))
    }

    fn admitted(look_ups: &LookUps, tenant: &str, now: Timestamp) -> usize {
        (0..100).take_while(|_| look_ups.admit(&key(tenant), now).is_ok()).count()
    }

    #[test]
    fn each_tenant_looks_up_as_many_as_its_rate() {
        let look_ups = LookUps::at_most(Rate::per_second(2).burst(10));
        assert_eq!(admitted(&look_ups, "acme", NOW), 11);
        assert_eq!(admitted(&look_ups, "acme", NOW), 0, "what is refused does not count");
        let wait = look_ups.admit(&key("acme"), NOW).expect_err("too many").retry_after;
        assert_eq!(wait, Some(Duration::from_millis(500)));
        assert_eq!(admitted(&look_ups.clone(), "globex", NOW), 11);
        assert_eq!(admitted(&look_ups, "acme", NOW.plus(Duration::from_secs(2))), 4);
        assert_eq!(admitted(&look_ups, "acme", NOW.plus(Duration::from_secs(3600))), 11);
        assert_eq!(admitted(&LookUps::unbounded(), "acme", NOW), 100);
    }

    #[test]
    fn a_clock_that_is_set_back_refuses_for_a_moment() {
        let look_ups = LookUps::at_most(Rate::per_second(1).burst(5));
        assert_eq!(admitted(&look_ups, "acme", NOW), 6);
        let before = Timestamp::from_secs(1_000_000_000);
        assert_eq!(admitted(&look_ups, "acme", before), 0);
        assert_eq!(admitted(&look_ups, "acme", before.plus(Duration::from_secs(1))), 1);
    }

    #[test]
    fn many_tenants_take_no_more_memory() {
        let look_ups = LookUps::at_most(Rate::per_second(1).burst(1));
        for number in 0..2 * MAX_TENANTS {
            assert!(look_ups.admit(&key(&format!("t-{number}")), NOW).is_ok());
            assert!(look_ups.levels.lock().unwrap().len() <= MAX_TENANTS);
        }
    }
}
