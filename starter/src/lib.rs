//! One route whose effect happens once, however often its request is sent: `POST /charges`.

use std::time::Duration;

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use lambda_idempotency::{
    Answer, Execution, Finding, Idempotency, JwtClaim, Operation, Outcome, Question, Reconciler, Store,
    async_trait, http::OrNotBegun, queue::Queue,
};
use reqwest::{Client, redirect::Policy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What is guarded. The reconciler gets the same.
pub fn operation() -> Operation {
    // No longer than the provider remembers an idempotency key: after that, "no such charge" proves nothing, and an operator decides.
    Operation::new("create-charge").not_found_within(Duration::from_secs(23 * 3600))
}

/// The router. The claim `sub` of a token, which API Gateway has verified, names the caller.
pub fn app(store: impl Store, provider: Provider, deferred: impl Queue) -> Router {
    let guard = Idempotency::new(store, operation()).tenant(JwtClaim("sub")).defer_reports_to(deferred);
    Router::new().route("/charges", post(create).route_layer(guard)).with_state(provider)
}

/// What the caller orders.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    amount_cents: u64,
    currency: String,
    /// The card's token.
    source: String,
}

async fn create(
    State(provider): State<Provider>,
    execution: Execution,
    // A body that cannot be read begins nothing: the caller may correct it under the same key.
    OrNotBegun(Json(order)): OrNotBegun<Json<Order>>,
) -> Response {
    // The provider's idempotency key: the same for each try of this operation.
    let key = execution.downstream_key("charge");
    match provider.charge(&key, execution.tenant().as_str(), &order).await {
        Ok(decision) => answer(&decision).into_response(),
        Err(NotCharged::NeverSent) => {
            (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response()
        }
        Err(NotCharged::Refused) => {
            (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "error": "refused" }))).into_response()
        }
        // A 5xx makes the outcome unknown: no retry charges again before the provider has been asked.
        Err(NotCharged::Perhaps) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// What the provider decided.
#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum Decision {
    Succeeded { charge: Charge },
    Declined,
}

#[derive(Deserialize)]
struct Charge {
    id: String,
}

enum NotCharged {
    /// No connection was made: certainly not charged.
    NeverSent,
    /// The provider refuses the order, and knows of no charge under its key. Final.
    Refused,
    /// The request may have arrived.
    Perhaps,
}

/// The caller's answer: the handler's, and the reconciler's, must be the same.
fn answer(decision: &Decision) -> (StatusCode, Json<Value>) {
    match decision {
        Decision::Succeeded { charge } => (StatusCode::CREATED, Json(json!({ "charge": charge.id }))),
        Decision::Declined => (StatusCode::PAYMENT_REQUIRED, Json(json!({ "error": "declined" }))),
    }
}

/// A client of the provider.
#[derive(Clone)]
pub struct Provider {
    client: Client,
    url: String,
}

impl Provider {
    /// # Errors
    /// If no client can be made.
    pub fn new(url: &str) -> Result<Self, Error> {
        // A connection that the provider has closed, or a redirect, could hide that a request arrived.
        let client = Client::builder()
            .timeout(Duration::from_secs(5))
            .pool_max_idle_per_host(0)
            .redirect(Policy::none());
        Ok(Self { client: client.build()?, url: url.trim_end_matches('/').to_owned() })
    }

    async fn charge(&self, key: &str, tenant: &str, order: &Order) -> Result<Decision, NotCharged> {
        let Order { amount_cents, currency, source } = order;
        let body =
            json!({ "amountCents": amount_cents, "currency": currency, "source": source, "tenant": tenant });
        let request =
            self.client.post(format!("{}/charges", self.url)).header("idempotency-key", key).json(&body);
        match request.send().await {
            Err(error) if error.is_connect() => Err(NotCharged::NeverSent),
            Err(_) => Err(NotCharged::Perhaps),
            Ok(response) => match response.status().as_u16() {
                201 => match response.json().await {
                    Ok(charge) => Ok(Decision::Succeeded { charge }),
                    Err(_) => Err(NotCharged::Perhaps),
                },
                402 => Ok(Decision::Declined),
                // An earlier try under the same key may have charged.
                400 | 422 => match self.decision(key).await {
                    Ok(Some(decision)) => Ok(decision),
                    Ok(None) => Err(NotCharged::Refused),
                    Err(_) => Err(NotCharged::Perhaps),
                },
                _ => Err(NotCharged::Perhaps),
            },
        }
    }

    /// What the provider has decided under this key; `None` if it knows of no charge.
    async fn decision(&self, key: &str) -> Result<Option<Decision>, Error> {
        let response = self.client.get(format!("{}/charges/{key}", self.url)).send().await?;
        if response.status() == 404 {
            let refusal: Value = response.json().await?;
            // A proxy's 404, or that of a wrong address, says nothing about the charge.
            return match refusal["error"].as_str() {
                Some("no_such_charge") => Ok(None),
                _ => Err("a 404 that is not the provider's".into()),
            };
        }
        Ok(Some(response.error_for_status()?.json().await?))
    }
}

#[async_trait]
impl Reconciler for Provider {
    async fn ask(&self, question: &Question) -> Result<Finding, Error> {
        // An error is asked again.
        Ok(match self.decision(&question.downstream_key("charge")).await? {
            Some(decision) => {
                let (status, Json(body)) = answer(&decision);
                Finding::Executed(Answer::json(status.as_u16(), body.to_string()))
            }
            None => Finding::NotFound,
        })
    }
}
