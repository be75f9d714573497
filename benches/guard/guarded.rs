//! One guarded operation, by each front: reserved, run, completed.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use lambda_http::Body;
use lambda_idempotency::{
    engine::{self, Ending, Executor, FinishOutcome, ReserveOutcome},
    fingerprint::{Content, FingerprintRule, Fingerprints},
    http::{IDEMPOTENCY_KEY, Idempotency, SingleTenant},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    operation::Operation,
    record::Answer,
    store::Store,
};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;

use crate::meter::{Spent, spent};

const TENANT: &str = "8f14e45f-ceea-467f-a0e6-7f1f2d3c4b5a";
const OPERATION: &str = "create-payment";
const TARGET: &str = "/payments";
const JSON: &str = "application/json";
const REQUEST: &str = r#"{"customerId":"c-20391","amountCents":1999,"currency":"EUR","source":"tok_ok",
    "items":[{"sku":"A-1001","quantity":2},{"sku":"B-2002","quantity":1}]}"#;

/// A guarded operation. Each number is a key of its own, and its call the first with that key.
pub type Guarded = Box<dyn Fn(u64) -> LocalBoxFuture<'static, Spent>>;

/// What the guard is put around.
#[derive(Clone, Copy, Debug)]
pub enum Front {
    /// The executor alone: the request is parsed already.
    Executor,
    /// The whole `tower` layer, around a handler for `lambda_http`.
    Http,
}

impl Front {
    pub const ALL: [Self; 2] = [Self::Executor, Self::Http];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Http => "http",
        }
    }

    /// An operation on `store` that answers with `body`, and does nothing.
    pub fn guard(self, store: impl Store, body: Bytes) -> Guarded {
        match self {
            Self::Executor => by_executor(store, body),
            Self::Http => by_http(store, body),
        }
    }
}

/// As many characters as a UUID has.
pub fn key(number: u64) -> String {
    format!("{number:036}")
}

fn by_executor(store: impl Store, body: Bytes) -> Guarded {
    let executor = Executor::new(store, Operation::new(OPERATION));
    let content = Content::new("POST", "/payments", REQUEST.as_bytes()).json();
    let fingerprints = Fingerprints::of(OPERATION, &content, &FingerprintRule::new(), &[]);
    let (tenant, operation) = (Tenant::parse(TENANT).unwrap(), OperationName::parse(OPERATION).unwrap());
    Box::new(move |number| {
        let (executor, body) = (executor.clone(), body.clone());
        let key = IdempotencyKey::parse(&key(number)).unwrap();
        let request = engine::Request {
            key: RecordKey::new(tenant.clone(), operation.clone(), key),
            fingerprints: fingerprints.clone(),
            may_begin: true,
            deadline: None,
            origin: None,
        };
        Box::pin(async move {
            let call = async {
                let ReserveOutcome::Owned(owned) = executor.reserve(&request).await else {
                    panic!("a fresh key was not reserved");
                };
                let headers = vec![("content-type".to_owned(), JSON.to_owned())];
                executor.finish(owned, Ending::Completed(Answer::http(201, headers, body))).await
            };
            let (ended, spent) = spent(call).await;
            assert!(matches!(ended, FinishOutcome::Written { .. }), "{ended:?}");
            spent
        })
    })
}

fn by_http(store: impl Store, body: Bytes) -> Guarded {
    let handler = service_fn(move |_: Request<Body>| {
        let mut response = Response::new(Full::new(body.clone()));
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert(CONTENT_TYPE, JSON.parse().unwrap());
        async { Ok::<_, Infallible>(response) }
    });
    let guard = Idempotency::new(store, Operation::new(OPERATION)).tenant(SingleTenant::new(TENANT));
    let service = guard.layer(handler);
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
