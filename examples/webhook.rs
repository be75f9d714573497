//! A route that receives Stripe's webhooks: `cargo run --example webhook`.
//!
//! In memory. The secret is that of the endpoint, from Stripe's dashboard: `config::text("STRIPE_SECRET")` reads it from the environment.

use std::{error::Error, time::SystemTime};

use axum::{Json, Router, body::Body, extract::Request, routing::post};
use lambda_idempotency::{
    Execution, Idempotency, MemoryStore, Operation, http::Webhook, key::signature::Secrets,
    time_budget::STRIPE_REDELIVERY,
};
use serde_json::{Value, json};
use tower::ServiceExt;

const SECRET: &str = "whsec_of_the_endpoint";

async fn receive(execution: Execution, Json(event): Json<Value>) {
    println!("  {} is handled: {}", execution.idempotency_key().as_str(), event["type"]);
}

fn app(secret: &str) -> Result<Router, Box<dyn Error>> {
    let operation = Operation::new("stripe-event").retain(STRIPE_REDELIVERY);
    let guard = Idempotency::new(MemoryStore::new(), operation).webhook(Webhook::stripe([secret])?);
    Ok(Router::new().route("/stripe", post(receive).route_layer(guard)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (app, stripe) = (app(SECRET)?, Secrets::new([SECRET])?);
    // Two deliveries of one event, of which Stripe changes a member, and one that is another's.
    for (pending, signed_by) in
        [(2, &stripe), (1, &stripe), (1, &Secrets::new(["whsec_of_another_endpoint"])?)]
    {
        let event =
            json!({ "id": "evt_1", "type": "charge.succeeded", "pending_webhooks": pending }).to_string();
        let request = Request::post("/stripe")
            .header("stripe-signature", signed_by.sign(SystemTime::now().into(), event.as_bytes()))
            .header("content-type", "application/json")
            .body(Body::from(event))?;
        println!("pending_webhooks {pending}:");
        let response = app.clone().oneshot(request).await?;
        println!("  {}, replayed: {:?}", response.status(), response.headers().get("idempotent-replayed"));
    }
    Ok(())
}
