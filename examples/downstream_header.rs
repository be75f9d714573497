//! A `reqwest` client that sends the downstream key of a phase as `Idempotency-Key`: `cargo run --example downstream_header`.
//!
//! A phase makes one call, and has one key. So the middleware refuses another call: the provider would take it for the first one.

use std::{
    collections::BTreeMap,
    error::Error,
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use axum::http::Extensions;
use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, async_trait, key::Tenant};
use reqwest::{
    Client, Method, Request, Response, Url,
    header::{HeaderValue, InvalidHeaderValue},
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Sends the key of one phase with each try of its call.
struct SendsKey {
    key: HeaderValue,
    call: OnceLock<(Method, Url)>,
}

#[async_trait]
impl Middleware for SendsKey {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let call = (request.method().clone(), request.url().clone());
        if !call.0.is_safe() && *self.call.get_or_init(|| call.clone()) != call {
            let error = io::Error::other(format!(
                "a phase makes one call, and this is another: {} {}",
                call.0, call.1
            ));
            return Err(reqwest_middleware::Error::middleware(error));
        }
        request.headers_mut().insert("idempotency-key", self.key.clone());
        next.run(request, extensions).await
    }
}

/// The client of one phase. It shares the connections of `client`. A middleware that repeats requests comes before or after it.
fn of_phase(client: &Client, key: &str) -> Result<ClientBuilder, InvalidHeaderValue> {
    let sends = SendsKey { key: HeaderValue::from_str(key)?, call: OnceLock::new() };
    Ok(ClientBuilder::new(client.clone()).with(sends))
}

/// A provider, in place of the network: it charges once for each key, and its first answer is lost. Counts the requests of each key.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<BTreeMap<String, u32>>>);

#[async_trait]
impl Middleware for Provider {
    async fn handle(
        &self,
        request: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok());
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = requests.entry(key.unwrap_or("no key").to_owned()).or_default();
        *count += 1;
        match count {
            1 => Err(reqwest_middleware::Error::middleware(io::Error::from(io::ErrorKind::TimedOut))),
            _ => Ok(axum::http::Response::new("ch_1").into()),
        }
    }
}

async fn charge(client: &ClientWithMiddleware, path: &str) -> Result<String, Box<dyn Error + Send + Sync>> {
    let request = client.post(format!("https://provider.example{path}")).body("1999");
    Ok(request.send().await?.error_for_status()?.text().await?)
}

async fn order(execution: Execution, client: Client, provider: Provider) -> Result<String, Failure> {
    let call = async |key: String| {
        let client = of_phase(&client, &key)?.with(provider.clone()).build();
        Ok(charge(&client, "/charges").await?)
    };
    Ok(execution.phase("charge").keys_live(DAY).call(call).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (client, provider) = (Client::new(), Provider::default());
    let operation = Operation::new("order").resumes(["charge"], DAY);
    let guard = Guard::new(MemoryStore::new(), operation, Tenant::parse("shop")?);
    let order = {
        let (client, provider) = (client.clone(), provider.clone());
        move |execution, _: String| order(execution, client, provider)
    };
    for _ in 0..2 {
        match guard.run(&["order-1"], "tea".to_owned(), order.clone()).await {
            Ok(ran) => println!("charged: {}", ran.value),
            Err(error) => println!("{error}"),
        }
    }
    let requests = provider.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("keys: {}, requests: {}", requests.len(), requests.values().sum::<u32>());

    let client = of_phase(&client, "another-phase")?.with(provider).build();
    for path in ["/charges", "/charges", "/refunds"] {
        match charge(&client, path).await {
            Ok(charge) => println!("{path}: {charge}"),
            Err(error) => println!("{path}: {error}"),
        }
    }
    Ok(())
}
