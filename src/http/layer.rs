//! The guard of one operation, as a layer.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Method, Response, request::Parts};
use tower_layer::Layer;

use super::{
    MAX_BODY, MAX_RESPONSE, Profile, Service, TenantResolver, Webhook,
    settings::{Accept, Executes, Guard, Longest, Settings},
};
use crate::{
    bounds::Bounds,
    engine::{Executor, SingleTransaction},
    key::Tenant,
    operation::Operation,
    queue::Queue,
    store::Store,
    world::World,
};

/// Guards what it wraps: the effect of each idempotency key happens once.
///
/// The decision, in order:
/// 1. GET, HEAD, OPTIONS, TRACE, PUT and DELETE pass untouched, because they are idempotent. Every other method is guarded. A
///    request without a key passes if the profile makes keys optional ([`Profile::key_optional`]).
/// 2. No verified tenant: 401. No key: 400. A malformed key: 400.
/// 3. The key is reserved. If that fails, the client gets a replay, or the reason: a mismatch, in flight, unknown, the store
///    unavailable. A key that is too old or too short reserves nothing. If it has no record, the client gets 400.
/// 4. The handler runs with an [`Execution`](crate::engine::Execution) in the request's extensions, to its end even if the
///    client has gone.
/// 5. Its answer is kept, or its failure is recorded. An inconclusive answer is not kept: see [`Outcome`](super::Outcome).
///
/// Put layers that answer for other reasons than the operation outside the guard: authentication, rate limits, CORS, and the
/// router's 404 and 405 (in axum: `route_layer`, not `layer`).
///
/// ```
/// use axum::{Router, routing::post};
/// use lambda_idempotency::{
///     engine::Execution,
///     http::{Idempotency, JwtClaim},
///     operation::Operation,
///     store::memory::MemoryStore,
/// };
///
/// async fn create(execution: Execution) -> String {
///     execution.downstream_key("charge")
/// }
///
/// let guard = Idempotency::new(MemoryStore::new(), Operation::new("create-payment")).tenant(JwtClaim("sub"));
/// let app: Router = Router::new().route("/payments", post(create).route_layer(guard));
/// ```
///
/// Without a tenant resolver it is not a layer: that is a compile error.
///
/// A client that goes away ends no execution: it goes on as a task of its own. So a handler must not need the task-locals of what is around the
/// guard, nor `spawn_local`. A service that neither polls nor drops a request's future runs nothing of it.
///
/// Clones share one circuit breaker.
#[derive(Clone, derive_more::Debug)]
#[debug("Idempotency {{ executor: {:?}, .. }}", settings.executor)]
#[must_use]
pub struct Idempotency<T = ()> {
    /// Behind an `Arc`, because axum asks a layer for a new service for each request.
    settings: Arc<Settings>,
    tenant: T,
}

impl Idempotency {
    /// A guard of `operation` that keeps its records in `store`. Call [`tenant`](Self::tenant) next, or [`webhook`](Self::webhook).
    ///
    /// # Panics
    /// If the operation's settings contradict each other, such as a retention shorter than [`Operation::refuse_older_than`]
    /// needs: a mistake in the program, found at start-up.
    pub fn new(store: impl Store, operation: Operation) -> Self {
        let executes = match operation.asynchronous {
            Some(_) => Executes::Later(None),
            None => Executes::Reserved,
        };
        let retention = HeaderValue::from(operation.retain.as_secs());
        let settings = Settings {
            retention,
            executor: Executor::new(store, operation),
            executes,
            profile: Profile::default(),
            webhook: None,
            also: Vec::new(),
            status_path: "/operations".to_owned(),
            longest: Longest { request: MAX_BODY, response: MAX_RESPONSE },
            any_size: false,
            logged: Arc::default(),
        };
        Self { settings: Arc::new(settings), tenant: () }
    }

    /// Sets how the caller's tenant is found.
    pub fn tenant(self, tenant: impl TenantResolver) -> Idempotency<Arc<dyn TenantResolver>> {
        Idempotency { settings: self.settings, tenant: Arc::new(tenant) }
    }

    /// Guards a route that receives the events of this sender: see [`Webhook`].
    ///
    /// # Panics
    /// If a setting of the operation could lose an event, or let it have its effect twice: if it
    /// - [retains](Operation::retain) answers for less time than the sender delivers events again;
    /// - keeps a handler's 5xx as its answer ([`ServerErrors::Keep`](crate::operation::ServerErrors), as [`Profile::stripe`] does);
    /// - answers 202 while an event is in flight ([`WhileInFlight::Accept`](crate::operation::WhileInFlight)), unless it is
    ///   [asynchronous](Operation::asynchronous);
    /// - is of GitHub, which delivers nothing again by itself, and neither asynchronous nor in a [single transaction](Self::single_transaction), nor
    ///   waits for what is in flight;
    /// - [waits](crate::operation::WhileInFlight::Wait) for what is in flight no shorter than the sender waits for an answer, if its documentation says
    ///   how long that is: [GitHub](crate::time_budget::GITHUB_PATIENCE), [Shopify](crate::time_budget::SHOPIFY_PATIENCE), [Standard
    ///   Webhooks](crate::time_budget::STANDARD_WEBHOOKS_PATIENCE), [Svix](crate::time_budget::SVIX_PATIENCE);
    /// - [refuses old keys](Operation::refuse_older_than) or [short ones](Operation::min_key_length), because the sender chooses its ids, and they have
    ///   no time;
    /// - has a [rule of its own](Operation::fingerprint) for fingerprints, because the id says what an event is.
    pub fn webhook(mut self, webhook: Webhook) -> Idempotency<Arc<dyn TenantResolver>> {
        Arc::make_mut(&mut self.settings).receive(webhook);
        // Its signature verifies the sender, and nothing else.
        let of_no_caller = |_: &Parts| -> Option<Tenant> { None };
        Idempotency { settings: self.settings, tenant: Arc::new(of_no_caller) }
    }
}

impl<T> Idempotency<T> {
    /// Sets the contract profile. Default: the IETF draft's.
    ///
    /// # Panics
    /// If the profile's key is a hash, as with [`KeyFrom::all`](crate::KeyFrom::all), and the operation
    /// [refuses old keys](Operation::refuse_older_than).
    pub fn profile(mut self, profile: Profile) -> Self {
        Arc::make_mut(&mut self.settings).set_profile(profile);
        self
    }

    /// Guards this method too, although it is idempotent.
    pub fn guard_also(mut self, method: Method) -> Self {
        Arc::make_mut(&mut self.settings).also.push(method);
        self
    }

    /// Where your API serves the status of operations, for [`WhileInFlight::Accept`](crate::operation::WhileInFlight):
    /// `<path>?key=<key>&operation=<name>`. See [`operation_key`](super::operation_key). Default: `/operations`.
    pub fn status_path(mut self, path: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.settings).status_path = path.into();
        self
    }

    /// The longest bodies that are read, in bytes. A longer request is refused with 413. The outcome of an operation whose response is longer is
    /// unknown, because the response is lost. Default: 6 MiB and 16 MiB.
    ///
    /// On Lambda, a response whose encoded body the API's front cannot deliver (6 MiB; 1 MB behind a load balancer) is delivered without it, with
    /// [`Idempotent-Replayed-Body: omitted`](super::IDEMPOTENT_REPLAYED_BODY), unless [any size](Self::deliver_any_size) can be delivered.
    pub fn longest_bodies(mut self, request: usize, response: usize) -> Self {
        Arc::make_mut(&mut self.settings).longest = Longest { request, response };
        self
    }

    /// Delivers answers of any size: if a layer outside the guard compresses them, or the function streams its responses
    /// (`lambda_http::run_with_streaming_response`).
    pub fn deliver_any_size(mut self) -> Self {
        Arc::make_mut(&mut self.settings).any_size = true;
        self
    }

    /// Sends reports that cannot be written in time to this queue, from which the reconcile function applies them. Without
    /// a queue they are logged and counted, and the record becomes `unknown` when its lease has expired.
    ///
    /// That function must [know the operation](crate::reconcile::Reconciliation::operation), and may make its domain writes. Otherwise the
    /// reports become dead letters.
    pub fn defer_reports_to(mut self, queue: impl Queue) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.executor = settings.executor.clone().defer_reports_to(queue);
        self
    }

    /// Bounds how much that is new each tenant begins, and heeds the operators' brake: see [`Bounds`]. Without it there is neither.
    ///
    /// # Panics
    /// If it receives [webhooks](Self::webhook) of GitHub, which delivers nothing again by itself: a refused event would be lost.
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.executor = settings.executor.clone().bounds(bounds);
        settings.assert_loses_no_event();
        self
    }

    /// Guards in one round trip: the handler's answer and its [domain writes](crate::domain) commit together, and nothing is
    /// reserved before. For an operation whose effects are all domain writes; a handler that calls another service needs the
    /// reservation.
    ///
    /// 1. The handler runs first, with a [`SingleTransaction`](crate::engine::SingleTransaction) in place of an
    ///    [`Execution`](crate::engine::Execution). It **may run more than once** for a key: at once, again after a stale read,
    ///    and again for a duplicate. It must have no other effect than its domain writes.
    /// 2. Its answer is kept if it is conclusive. Otherwise nothing is written.
    /// 3. Of several requests at once, one commits. The others get its answer, as every retry does.
    /// 4. If the store does not answer, the client gets 503 and may send the same request again; the record is never unknown.
    ///
    /// ```
    /// use axum::{Json, Router, body::Body, http::{Request, StatusCode}, routing::post};
    /// use lambda_idempotency::{Answer, Idempotency, MemoryStore, Operation, SingleTenant};
    /// use lambda_idempotency::{SingleTransaction, domain::Table, http::OrNotBegun};
    /// use serde_json::{Value, json};
    /// use tower::ServiceExt;
    ///
    /// fn accounts() -> Table {
    ///     Table::new("accounts", "id")
    /// }
    ///
    /// async fn transfer(transaction: SingleTransaction, OrNotBegun(Json(cents)): OrNotBegun<Json<u64>>) -> StatusCode {
    ///     let refusal = |status: u16, title: &str| Answer::json(status, json!({ "title": title }).to_string());
    ///     let take = accounts().update(json!({ "id": "a" }), "SET cents = cents - :cents").condition("cents >= :cents");
    ///     let give = accounts().update(json!({ "id": "b" }), "SET cents = cents + :cents").if_present();
    ///     for write in [take.or_answer(refusal(409, "Not enough money")), give.or_answer(refusal(404, "No such account"))] {
    ///         if transaction.write(write.value(":cents", cents)).is_err() {
    ///             return StatusCode::INTERNAL_SERVER_ERROR; // a mistake in the program: nothing is written
    ///         }
    ///     }
    ///     StatusCode::CREATED
    /// }
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() {
    ///     let store = MemoryStore::new();
    ///     for (id, cents) in [("a", 100), ("b", 0)] {
    ///         store.put_item(&accounts(), json!({ "id": id, "cents": cents }));
    ///     }
    ///     let guard = Idempotency::new(store.clone(), Operation::new("transfer")).tenant(SingleTenant::new("bank"));
    ///     let app: Router = Router::new().route("/transfers", post(transfer).route_layer(guard.single_transaction()));
    ///     let send = async |key: &str| {
    ///         let request = Request::post("/transfers").header("idempotency-key", key).header("content-type", "application/json");
    ///         app.clone().oneshot(request.body(Body::from("60")).unwrap()).await.unwrap().status().as_u16()
    ///     };
    ///     let statuses = [send("k-1").await, send("k-1").await, send("k-2").await];
    ///     assert_eq!(statuses, [201, 201, 409]); // a replay; and only 40 cents are left
    ///     let row: Option<Value> = store.item(&accounts(), json!({ "id": "b" })).unwrap();
    ///     assert_eq!(row, Some(json!({ "id": "b", "cents": 60 })));
    /// }
    /// ```
    ///
    /// # Panics
    /// If [`Operation::completion_timeout`] is longer than [`MAX_SENDING_TIME`](crate::time_budget::MAX_SENDING_TIME): nothing is
    /// sent after that.
    pub fn single_transaction(mut self) -> Self {
        self.settings.executor.operation().assert_single_transaction();
        Arc::make_mut(&mut self.settings).executes = Executes::InOneTransaction;
        self
    }

    /// Decides whether a request of an [asynchronous](Operation::asynchronous) operation is accepted. Without it, each request is.
    ///
    /// `accept` gets the request and its whole body. A response of class 2xx accepts: its client gets 202 with its headers and its body. Without a
    /// body, it is the operation's status; without a `Location`, that status's URL. Neither is kept: **a retry gets the status and its URL**, so a
    /// client must need nothing else. Any other response is the client's answer: nothing is written, and the key is free.
    ///
    /// What it [writes](crate::engine::SingleTransaction::write) commits with the acceptance. It **may run more than once** for a key, also for
    /// a duplicate: it must have no other effect than its writes. If the operation ends with 408 later, they stay.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use lambda_idempotency::{Idempotency, MemoryStore, Operation, SingleTransaction, http::Parts};
    ///
    /// async fn valid(_: SingleTransaction, _: Parts, body: Bytes) -> Response<Bytes> {
    ///     let status = if body.is_empty() { 422 } else { 202 };
    ///     Response::builder().status(status).body(Bytes::new()).unwrap()
    /// }
    ///
    /// let report = Operation::new("create-report").asynchronous(std::time::Duration::from_secs(3600));
    /// let guard = Idempotency::new(MemoryStore::new(), report).accept(valid);
    /// ```
    ///
    /// # Panics
    /// If the operation is not asynchronous.
    pub fn accept<F>(
        mut self,
        accept: impl Fn(SingleTransaction, Parts, Bytes) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Bytes>> + Send + 'static,
    {
        let operation = self.settings.executor.operation();
        assert!(
            operation.asynchronous.is_some(),
            "operation {:?}: accept() needs Operation::asynchronous",
            operation.name().as_str()
        );
        let accept: Accept =
            Arc::new(move |transaction, parts, body| accept(transaction, parts, body).boxed());
        Arc::make_mut(&mut self.settings).executes = Executes::Later(Some(accept));
        self
    }

    /// Takes clocks, randomness and tasks from `world`: for tests.
    pub fn world(mut self, world: impl World) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.executor = settings.executor.clone().world(world);
        self
    }
}

/// A guard that has a tenant resolver. Sealed: only [`Idempotency::tenant`] and [`Idempotency::webhook`] make one.
#[diagnostic::on_unimplemented(
    message = "this guard does not know who its callers are",
    label = "call `.tenant(…)` on it",
    note = "say how the caller's tenant is found, such as `.tenant(JwtClaim(\"sub\"))`; `.tenant(SingleTenant::new(…))` if all \
            callers share one space of keys; `.webhook(…)` if it receives webhooks"
)]
pub trait KnowsTenants {
    /// The resolver.
    fn resolver(&self) -> Arc<dyn TenantResolver>;
}

impl KnowsTenants for Arc<dyn TenantResolver> {
    fn resolver(&self) -> Self {
        self.clone()
    }
}

impl<I, T: KnowsTenants> Layer<I> for Idempotency<T> {
    type Service = Service<I>;

    fn layer(&self, inner: I) -> Self::Service {
        self.settings.check();
        Service { guard: Guard { settings: self.settings.clone(), tenant: self.tenant.resolver() }, inner }
    }
}
