//! A plain `lambda_http` handler behind the guard: `cargo run --example lambda_handler`.
//!
//! The tenant is a claim of the token that API Gateway has verified. The event has API Gateway's form.

use lambda_http::{Body, Error, Request, Response, request, service_fn, tower::ServiceExt};
use lambda_idempotency::{Execution, Idempotency, JwtClaim, MemoryStore, Operation};
use tower::ServiceBuilder;

const EVENT: &str = include_str!("../functions/payments/events/create-payment.json");

async fn send(request: Request) -> Result<Response<Body>, Error> {
    let execution = request.extensions().get::<Execution>().ok_or("this handler needs its guard")?;
    println!("the handler runs, attempt {}", execution.attempts());
    Ok(Response::builder().status(202).body(Body::from(execution.downstream_key("send")))?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let guard = Idempotency::new(MemoryStore::new(), Operation::new("send-message")).tenant(JwtClaim("sub"));
    let service = ServiceBuilder::new().layer(guard).service(service_fn(send));
    // As Lambda does, in a function: `lambda::run_http(service).await`.
    for _ in 0..2 {
        let response = service.clone().oneshot(request::from_str(EVENT)?).await?;
        println!("{}, replayed: {:?}", response.status(), response.headers().get("idempotent-replayed"));
    }
    Ok(())
}
