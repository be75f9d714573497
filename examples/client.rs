//! A client of a guarded API: `cargo run --example client`, while the local cloud runs (`cargo run -p local`).
//!
//! Arguments: URL, token, body. `docs/clients.md` has the rules and the reasons. A real client stores key and request before it sends them.

use std::{env, time::Duration};

use reqwest::{Client, RequestBuilder, StatusCode, header::HeaderMap, redirect::Policy};
use tokio::time::{Instant, sleep};

const ORDER: &str = r#"{"customerId":"c-1","amountCents":1999,"currency":"EUR","source":"tok_ok"}"#;

async fn send(request: RequestBuilder) -> reqwest::Result<(StatusCode, HeaderMap, String)> {
    let response = request.send().await?;
    Ok((response.status(), response.headers().clone(), response.text().await?))
}

/// The least time until a retry. None if the answer is final, or if the attempt before got this status too.
fn retry_after(code: u16, headers: &HeaderMap, last: Option<u16>) -> Option<Duration> {
    let stops =
        headers.contains_key("idempotency-expires") || matches!(code, 200 | 201 | 203..300 | 401 | 403);
    let may_change = matches!(code, 202 | 408 | 409 | 425 | 429 | 500..);
    let wait = headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    (!stops && (may_change || last != Some(code))).then(|| Duration::from_secs(wait.unwrap_or(0).into()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> reqwest::Result<()> {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (url, token, order) = (argument("http://127.0.0.1:9000/payments"), argument("acme"), argument(ORDER));
    let (key, stop_at) = (uuid::Uuid::now_v7().to_string(), Instant::now() + Duration::from_secs(120));
    println!("{key}");
    let client = Client::builder().timeout(Duration::from_secs(35)).redirect(Policy::none()).build()?;
    let (mut backoff, mut last) = (Duration::from_secs(1), None);
    loop {
        let request = client.post(&url).bearer_auth(&token).header("idempotency-key", &key);
        let answer = send(request.header("content-type", "application/json").body(order.clone())).await;
        let wait = match &answer {
            Ok((status, headers, _)) => retry_after(status.as_u16(), headers, last.replace(status.as_u16())),
            Err(error) => (!error.is_builder()).then_some(Duration::ZERO),
        };
        let wait = wait.map(|wait| wait + backoff.mul_f64(fastrand::f64())); // full jitter
        let Some(wait) = wait.filter(|wait| Instant::now() + *wait < stop_at) else {
            let (status, headers, body) = answer?;
            println!("{status}, replayed: {}\n{body}", headers.contains_key("idempotent-replayed"));
            return Ok(());
        };
        sleep(wait).await;
        backoff = Duration::from_secs(30).min(backoff * 2);
    }
}
