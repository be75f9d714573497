//! The guard of one operation, as a layer.

use std::{fmt, sync::Arc};

use http::{HeaderName, Method};
use tower_layer::Layer;

use super::{Profile, Service, TenantResolver, replay};
use crate::{executor::Executor, policy::Operation, queue::Queue, store::Store, time::Clock};

/// Guards the POST and PATCH requests of what it wraps: the effect of each idempotency key happens once.
///
/// The decision, in order:
/// 1. GET, HEAD, PUT, DELETE and the like pass untouched.
/// 2. No verified tenant: 401. No key: 400. A key that is none: 400. A key that is too old: 400.
/// 3. The key is reserved. What is known is answered: a replay, a mismatch, in flight, unknown, the store unavailable.
/// 4. The handler runs, to its end even if the client has gone, with an [`Execution`](crate::executor::Execution)
///    in the request's extensions.
/// 5. Its answer is kept, or its failure is written down as what it is.
///
/// ```
/// use axum::{Router, routing::post};
/// use lambda_idempotency::{
///     executor::Execution,
///     http::{Idempotency, JwtClaim},
///     policy::Operation,
///     store::memory::MemoryStore,
/// };
///
/// async fn create(execution: Execution) -> String {
///     execution.downstream_key("charge")
/// }
///
/// let guard = Idempotency::new(MemoryStore::new(), Operation::new("create-payment")).tenant(JwtClaim("sub"));
/// let app: Router = Router::new().route("/payments", post(create).layer(guard));
/// ```
///
/// Without a tenant resolver it is no layer: that is a compile error, not an open door.
///
/// Clones share one circuit breaker.
pub struct Idempotency<S, T = NoTenant> {
    /// Behind an `Arc`, because axum asks a layer for a new service at each request.
    settings: Arc<Settings<S>>,
    tenant: Arc<T>,
}

/// What was chosen for one guard.
pub(super) struct Settings<S> {
    pub(super) executor: Executor<S>,
    pub(super) profile: Profile,
    pub(super) methods: Vec<Method>,
    pub(super) kept_headers: Vec<HeaderName>,
    pub(super) status_path: String,
}

/// Nobody has said yet who the tenant is.
#[derive(Clone, Copy, Debug)]
pub struct NoTenant;

impl<S: Store> Idempotency<S> {
    /// A guard of `operation`, whose records are in `store`. Say next who the [`tenant`](Self::tenant) is.
    ///
    /// # Panics
    /// Where the operation's answers are kept shorter than [`Operation::refuse_older_than`] needs: a mistake in the program,
    /// found at start-up.
    pub fn new(store: S, operation: Operation) -> Self {
        // Not before all choices are made, so that their order does not matter.
        if let Some(oldest) = operation.oldest_key() {
            oldest.assert_answers_kept(&operation);
        }
        let settings = Settings {
            executor: Executor::new(store, operation),
            profile: Profile::default(),
            methods: vec![Method::POST, Method::PATCH],
            kept_headers: Vec::new(),
            status_path: "/operations".to_owned(),
        };
        Self { settings: Arc::new(settings), tenant: Arc::new(NoTenant) }
    }

    /// Says how the caller's tenant is found.
    #[must_use]
    pub fn tenant<T: TenantResolver>(self, tenant: T) -> Idempotency<S, T> {
        Idempotency { settings: self.settings, tenant: Arc::new(tenant) }
    }
}

impl<S, T> Idempotency<S, T> {
    /// Speaks another contract than the IETF draft's.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        Arc::make_mut(&mut self.settings).profile = profile;
        self
    }

    /// Guards these methods in place of POST and PATCH.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        Arc::make_mut(&mut self.settings).methods = methods.into_iter().collect();
        self
    }

    /// Keeps one more header of responses than [`SAFE_HEADERS`](super::SAFE_HEADERS).
    ///
    /// # Panics
    /// Where `name` is no header name, or one that must not be replayed: a mistake in the program, found at start-up.
    #[must_use]
    pub fn keep_header(mut self, name: &str) -> Self {
        let parsed =
            HeaderName::try_from(name).unwrap_or_else(|error| panic!("keep_header({name:?}): {error}"));
        assert!(replay::may_be_kept(&parsed), "keep_header({name:?}): this header must not be replayed");
        Arc::make_mut(&mut self.settings).kept_headers.push(parsed);
        self
    }

    /// Where your API serves the status of operations, for [`WhileInFlight::Accept`](crate::policy::WhileInFlight):
    /// `<path>/<key>?operation=<name>`. Default: `/operations`.
    #[must_use]
    pub fn status_path(mut self, path: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.settings).status_path = path.into();
        self
    }

    /// Hands endings that cannot be written in time to this queue, from which the reconcile function applies them; without
    /// one they are logged and counted, and the record becomes `unknown` when its lease is over.
    #[must_use]
    pub fn lost_endings_to(mut self, queue: impl Queue) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.executor = settings.executor.clone().lost_endings_to(Arc::new(queue));
        self
    }

    /// Goes by another clock: for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.executor = settings.executor.clone().on(Arc::new(clock));
        self
    }
}

/// What the guard's service goes by.
impl<S: Store, T> Idempotency<S, T> {
    pub(super) fn settings(&self) -> &Settings<S> {
        &self.settings
    }

    pub(super) fn operation(&self) -> &Operation {
        self.settings.executor.operation()
    }

    pub(super) fn resolver(&self) -> &T {
        &self.tenant
    }
}

impl<S> Clone for Settings<S> {
    fn clone(&self) -> Self {
        Self {
            executor: self.executor.clone(),
            profile: self.profile.clone(),
            methods: self.methods.clone(),
            kept_headers: self.kept_headers.clone(),
            status_path: self.status_path.clone(),
        }
    }
}

impl<S, T> Clone for Idempotency<S, T> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), tenant: self.tenant.clone() }
    }
}

impl<S, T> fmt::Debug for Idempotency<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("executor", &self.settings.executor).finish_non_exhaustive()
    }
}

impl<S: Store, T: TenantResolver, I> Layer<I> for Idempotency<S, T> {
    type Service = Service<S, T, I>;

    fn layer(&self, inner: I) -> Self::Service {
        Service::new(self.clone(), inner)
    }
}
