//! One guarded operation by each front: reserved, run and completed, or all of it in a single transaction.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt, future::LocalBoxFuture};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use lambda_http::Body;
use lambda_idempotency::{
    domain::{DomainWrite, Table},
    engine::{self, Computed, Executor, Replied, Report, SingleTransaction},
    fingerprint::{Content, FingerprintRule},
    http::{IDEMPOTENCY_KEY, Idempotency, SingleTenant},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    operation::Operation,
    record::{Answer, AnswerKind, Says},
    store::Store,
};
use serde_json::json;
use tower::{Service, ServiceExt, service_fn};
use tower_layer::Layer;

use crate::meter::{Spent, spent};

/// The table into which an operation in a single transaction books.
pub const PAYMENTS: &str = "payments";

const TENANT: &str = "8f14e45f-ceea-467f-a0e6-7f1f2d3c4b5a";
const OPERATION: &str = "create-payment";
const TARGET: &str = "/payments";
const JSON: &str = "application/json";
const REQUEST: &str = r#"{"customerId":"c-20391","amountCents":1999,"currency":"EUR","source":"tok_ok",
    "items":[{"sku":"A-1001","quantity":2},{"sku":"B-2002","quantity":1}]}"#;

/// A guarded operation. Each number is a fresh key.
pub type Guarded = Box<dyn Fn(u64) -> LocalBoxFuture<'static, Spent>>;

/// The layers of the guard that are measured.
#[derive(Clone, Copy, Debug)]
pub enum Front {
    /// The executor alone: the request is parsed already.
    Executor,
    /// The whole `tower` layer, around a handler for `lambda_http`.
    Http,
    /// The executor, with one domain write in a single transaction.
    SingleTransaction,
    /// The layer, with the same.
    HttpSingleTransaction,
}

impl Front {
    pub const ALL: [Self; 4] =
        [Self::Executor, Self::Http, Self::SingleTransaction, Self::HttpSingleTransaction];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Http => "http",
            Self::SingleTransaction => "single transaction",
            Self::HttpSingleTransaction => "http, single transaction",
        }
    }

    /// Whether it is a single transaction.
    pub const fn is_single_transaction(self) -> bool {
        matches!(self, Self::SingleTransaction | Self::HttpSingleTransaction)
    }

    /// An operation on `store` that answers with `body`. In a single transaction it books a payment; otherwise it does nothing.
    pub fn guard(self, store: impl Store, body: Bytes) -> Guarded {
        match self {
            Self::Executor => by_executor(store, body),
            Self::Http => by_http(store, body),
            Self::SingleTransaction => by_single_transaction(store, body),
            Self::HttpSingleTransaction => by_http_single_transaction(store, body),
        }
    }
}

/// As many characters as a UUID has.
pub fn key(number: u64) -> String {
    format!("{number:036}")
}

/// The answer of the operation.
fn answer(body: Bytes) -> Answer {
    Answer::http(201, vec![("content-type".to_owned(), JSON.to_owned())], body)
}

/// The payment that an operation in a single transaction books.
fn payment(key: &IdempotencyKey) -> DomainWrite {
    let payments = Table::new(PAYMENTS, "pk").sort_key("sk");
    payments
        .put(json!({ "pk": key.as_str(), "sk": "payment", "amountCents": 1999, "currency": "EUR" }))
        .if_absent()
}

/// The parsed requests: one under each number.
fn requests() -> impl Fn(u64) -> engine::Request {
    let content = Content::new("POST", "/payments", REQUEST.as_bytes()).json();
    let fingerprints = content.fingerprints(OPERATION, &FingerprintRule::new(), &[]);
    let (tenant, operation) = (Tenant::parse(TENANT).unwrap(), OperationName::parse(OPERATION).unwrap());
    move |number| {
        let key = IdempotencyKey::parse(&key(number)).unwrap();
        engine::Request {
            key: RecordKey::new(tenant.clone(), operation.clone(), key),
            fingerprints: fingerprints.clone(),
            answer_kind: AnswerKind::Http,
            admission: lambda_idempotency::record::Admission::ALWAYS,
            work: lambda_idempotency::record::Work::Now,
            deadline: None,
            origin: None,
        }
    }
}

fn by_executor(store: impl Store, body: Bytes) -> Guarded {
    let (executor, requests) = (Executor::new(store, Operation::new(OPERATION)), requests());
    Box::new(move |number| {
        let (executor, body, request) = (executor.clone(), body.clone(), requests(number));
        Box::pin(async move {
            let call = async {
                let Ok(owned) = executor.reserve(&request).await else {
                    panic!("a fresh key was not reserved");
                };
                executor.finish(owned, Report::Completed(answer(body))).await
            };
            let (ended, spent) = spent(call).await;
            assert!(matches!(ended, Says::Own { expires_at: Some(_) }), "{ended:?}");
            spent
        })
    })
}

fn by_single_transaction(store: impl Store, body: Bytes) -> Guarded {
    let (executor, requests) = (Executor::new(store, Operation::new(OPERATION)), requests());
    Box::new(move |number| {
        let (executor, body, request) = (executor.clone(), body.clone(), requests(number));
        let compute = move |transaction: SingleTransaction| {
            transaction.write(payment(transaction.idempotency_key())).unwrap();
            let answer = answer(body.clone());
            async move { Computed::Answer(answer, ()) }.boxed()
        };
        Box::pin(async move {
            let (outcome, spent) = spent(executor.run_single_transaction(&request, compute)).await;
            assert!(matches!(outcome, Replied { says: Says::Own { .. }, .. }), "{outcome:?}");
            spent
        })
    })
}

fn by_http(store: impl Store, body: Bytes) -> Guarded {
    let guard = Idempotency::new(store, Operation::new(OPERATION)).tenant(SingleTenant::new(TENANT));
    by_service(guard.layer(service_fn(move |_: Request<Body>| {
        let response = created(body.clone());
        async { Ok::<_, Infallible>(response) }
    })))
}

fn by_http_single_transaction(store: impl Store, body: Bytes) -> Guarded {
    let guard = Idempotency::new(store, Operation::new(OPERATION)).tenant(SingleTenant::new(TENANT));
    by_service(guard.single_transaction().layer(service_fn(move |request: Request<Body>| {
        let transaction = request.extensions().get::<SingleTransaction>().unwrap();
        transaction.write(payment(transaction.idempotency_key())).unwrap();
        let response = created(body.clone());
        async { Ok::<_, Infallible>(response) }
    })))
}

fn created(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, JSON.parse().unwrap());
    response
}

fn by_service<S, R>(service: S) -> Guarded
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + 'static,
{
    Box::new(move |number| {
        let service = service.clone();
        let request = Request::post(TARGET)
            .header(CONTENT_TYPE, JSON)
            .header(IDEMPOTENCY_KEY, key(number))
            .body(Body::from(REQUEST))
            .unwrap();
        Box::pin(async move {
            let (response, spent) = spent(service.oneshot(request)).await;
            let response = response.unwrap();
            assert_eq!(response.status(), StatusCode::CREATED);
            assert!(response.headers().contains_key("idempotency-expires"), "the completion was not written");
            spent
        })
    })
}
