//! The page at `/`: what happens to each idempotency key, and what to do to it.
//!
//! | module | what |
//! | --- | --- |
//! | `parts` | the parts of the page, as they are now |
//! | `record` | a record, with what its state means |
//! | `send` | requests |
//! | `act` | the provider, the environments, an operator's word |
//!
//! It is made here, from `local/templates`. A change is sent as the parts that have changed.

mod act;
mod parts;
mod record;
mod send;

use crate::{cloud::Cloud, gateway, journal::Sent};
use askama::Template;
use axum::{
    Router,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{
        Html, IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
    routing::{get, post},
};
use futures_util::{Stream, stream};
use parts::Parts;
use serde::Deserialize;
use serde_json::{Map, json};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::time;

/// The least time between two events.
const PAUSE: Duration = Duration::from_millis(200);
/// The most: environments, queues and the ledger change without the journal.
const LONGEST: Duration = Duration::from_millis(800);
/// Nothing from elsewhere runs in the page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// The page's routes.
pub fn router() -> Router<Arc<Cloud>> {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    Router::new()
        .route("/", get(page))
        .route("/local", get(page))
        .route("/local/live", get(live))
        .route("/local/style.css", text("text/css", include_str!("../../templates/style.css")))
        .route("/local/script.js", text("text/javascript", include_str!("../../templates/script.js")))
        .route("/local/send", post(send::send))
        .route("/local/settle", post(act::settle))
        .route("/local/provider", post(act::provider))
        .route("/local/environments/{function}/{number}", post(act::environment))
}

/// Refuses what another site makes a browser send to this one.
pub async fn from_here(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = text(headers, "host").unwrap_or("localhost");
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let site = text(headers, "sec-fetch-site").unwrap_or("none");
    let is_own = text(headers, "origin").is_none_or(|origin| origin.strip_prefix("http://") == Some(host));
    match is_own && ["127.0.0.1", "localhost"].contains(&name) && ["same-origin", "none"].contains(&site) {
        true => next.run(request).await,
        false => gateway::message(
            StatusCode::FORBIDDEN,
            "the local cloud takes requests from its own page, and from no other site",
        ),
    }
}

#[derive(Deserialize)]
struct Shown {
    timeline: Option<u64>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    routes: &'a [(String, String)],
    key: &'a str,
    sent: &'a Sent,
    cards: &'a [(&'static str, &'static str)],
    parts: Parts,
}

async fn page(State(cloud): State<Arc<Cloud>>, Query(shown): Query<Shown>) -> Response {
    let routes = send::routes(&cloud);
    let (route, body) = routes.first().cloned().unwrap_or_default();
    let first = Sent { route, client: "acme".to_owned(), body };
    let timeline = shown.timeline.and_then(|id| cloud.journal.timeline(id));
    let page = Page {
        routes: &routes,
        key: timeline.as_ref().map(|timeline| &*timeline.key).unwrap_or_default(),
        sent: timeline.as_ref().and_then(|timeline| timeline.sent.as_ref()).unwrap_or(&first),
        cards: &send::cards(&cloud),
        parts: Parts::now(&cloud, shown.timeline).await,
    };
    match page.render() {
        Ok(html) => {
            let policy = HeaderValue::from_static(POLICY);
            ([(header::CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response()
        }
        Err(error) => gateway::message(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// The parts of the page that change, as they change.
async fn live(
    State(cloud): State<Arc<Cloud>>,
    Query(shown): Query<Shown>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (changes, sent) = (cloud.journal.changes(), Parts::default());
    let events = stream::unfold((cloud, changes, sent), move |(cloud, mut changes, sent)| async move {
        loop {
            let parts = Parts::now(&cloud, shown.timeline).await;
            let changed: Map<_, _> =
                parts.since(&sent).map(|(name, html)| (name.to_owned(), json!(html))).collect();
            if !changed.is_empty() {
                let event = Event::default().data(json!(changed).to_string());
                return Some((Ok(event), (cloud, changes, parts)));
            }
            time::sleep(PAUSE).await;
            let _ = time::timeout(LONGEST, changes.changed()).await;
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
