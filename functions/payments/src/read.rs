//! The routes that only read.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, Path, Query, Request, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use lambda_idempotency::{
    http::{LookUps, Problem, ProblemType, TenantResolver, deliverable, operation_key, operation_status},
    key::{OperationName, Tenant},
    store::Store,
    world::{SystemWorld, World},
};
use serde::Deserialize;
use serde_json::json;

use crate::policy::{CREATE_PAYMENT, Services, TENANT, profile};

/// Longer than any payment's id, and shorter than DynamoDB's 1,024 bytes of sort key.
pub const MAX_ID: usize = 128;

/// The path of the states of operations.
pub(crate) const OPERATIONS: &str = "/operations";

/// The verified caller; 401 without one.
pub struct Caller(pub Tenant);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        TENANT.tenant(parts).map(Self).ok_or_else(|| respond(Problem::unverified(&TENANT)))
    }
}

pub(crate) async fn payment(
    State(services): State<Services>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
) -> Response {
    if id.len() > MAX_ID {
        return not_found();
    }
    match services.ledger.payment(tenant.as_str(), &id).await {
        Ok(Some(payment)) => Json(payment).into_response(),
        Ok(None) => not_found(),
        Err(error) => failed(&*error),
    }
}

#[derive(Deserialize)]
pub(crate) struct Page {
    after: Option<String>,
}

pub(crate) async fn payments(
    State(services): State<Services>,
    Caller(tenant): Caller,
    Query(page): Query<Page>,
) -> Response {
    // No id is empty or that long, so no payment comes after it.
    if page.after.as_ref().is_some_and(|after| after.is_empty() || after.len() > MAX_ID) {
        return Json(json!({ "payments": [] })).into_response();
    }
    match services.ledger.payments(tenant.as_str(), page.after.as_deref()).await {
        Ok(payments) => Json(json!({ "payments": payments })).into_response(),
        Err(error) => failed(&*error),
    }
}

pub(crate) async fn accounts(State(services): State<Services>, Caller(tenant): Caller) -> Response {
    match services.accounts.of(tenant.as_str()).await {
        Ok(accounts) => Json(json!({ "accounts": accounts })).into_response(),
        Err(error) => failed(&*error),
    }
}

pub(crate) async fn operation(
    State((store, look_ups)): State<(Arc<dyn Store>, LookUps)>,
    Caller(tenant): Caller,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let key = OperationName::parse(CREATE_PAYMENT)
        .ok()
        .and_then(|payment| operation_key(&parts, tenant, OPERATIONS, &payment));
    // An invalid operation or key was never seen.
    let Some(key) = key else { return problem(ProblemType::OperationNotFound) };
    let now = SystemWorld.now();
    if let Err(problem) = look_ups.admit(&key, now) {
        return respond(problem);
    }
    let status = operation_status(&*store, &key, now, &profile()).await;
    deliverable(&parts, status).map(axum::body::Body::new)
}

fn problem(problem: ProblemType) -> Response {
    respond(Problem::new(problem))
}

fn respond(problem: Problem) -> Response {
    problem.into_response(&profile()).map(axum::body::Body::new)
}

fn not_found() -> Response {
    let problem = json!({ "type": "urn:payments:not-found", "title": "No such payment", "status": 404 });
    (StatusCode::NOT_FOUND, [("content-type", "application/problem+json")], problem.to_string())
        .into_response()
}

/// The answer if a table does not answer.
pub fn failed(error: &(dyn std::error::Error + 'static)) -> Response {
    tracing::error!(error, "a table does not answer");
    let problem = json!({ "type": "urn:payments:unavailable", "title": "Try again later", "status": 503 });
    let headers = [("content-type", "application/problem+json"), ("retry-after", "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, problem.to_string()).into_response()
}
