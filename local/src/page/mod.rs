//! The page at `/`: what happens to each idempotency key, and what to do to it.
//!
//! | module | what |
//! | --- | --- |
//! | `parts` | the parts of the page, as they are now |
//! | `record` | a record, with what its state means |
//! | `tables` | rows of the functions' own tables |
//! | `outbox` | what operations have published, and what of it waits |
//! | `links` | what else this cloud has |
//! | `send` | requests |
//! | `tenants` | what each tenant uses, and the operators' brake |
//! | `act` | the provider, the environments, an operator's word |
//!
//! It is made here, from `local/templates`. A change is sent as the parts that have changed.

mod act;
mod links;
mod outbox;
mod parts;
mod record;
mod send;
mod tables;
mod tenants;

use crate::{cloud::Cloud, gateway};
use askama::Template;
use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{
        Html, IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
    routing::{get, post},
};
use futures_util::{Stream, stream};
use links::Link;
use parts::Parts;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::time;

/// The least time between two events.
const PAUSE: Duration = Duration::from_millis(200);
/// The most: queues and tables change without the journal.
const LONGEST: Duration = Duration::from_secs(2);
/// A browser shows this, and would download Markdown.
const DOCUMENT: &str = "text/plain; charset=utf-8";
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
        .route("/local/docs/walkthrough", text(DOCUMENT, include_str!("../../docs/walkthrough.md")))
        .route("/local/docs/guide", text(DOCUMENT, include_str!("../../docs/guide.md")))
        .route("/local/docs/states", text(DOCUMENT, include_str!("../../docs/states.md")))
        .route("/local/send", post(send::send))
        .route("/local/settle", post(act::settle))
        .route("/local/tenants", post(tenants::act))
        .route("/local/provider", post(act::provider))
        .route("/local/environments/{function}/{number}", post(act::environment))
}

#[derive(Deserialize)]
struct Shown {
    timeline: Option<u64>,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    links: Vec<Link>,
    form: Form,
    cards: &'static [(&'static str, &'static str)],
    parts: Parts,
}

/// What the form has.
#[derive(Default, Serialize)]
struct Form {
    route: String,
    client: String,
    key: String,
    body: String,
}

impl Form {
    /// What was sent with the key of this timeline, so that it can be sent again; an example, if no client sends that key.
    fn of(cloud: &Cloud, timeline: Option<u64>) -> Self {
        let timeline = timeline.and_then(|id| cloud.journal.timeline(id));
        let sent = timeline.and_then(|timeline| Some((timeline.key, timeline.sent?)));
        let example = || send::routes(cloud).into_iter().next().unwrap_or_default();
        let (key, sent) = sent.unwrap_or_else(|| (String::new(), example()));
        let body = sent.text().unwrap_or_default().to_owned();
        Self { key, body, route: sent.route, client: sent.client }
    }
}

async fn page(State(cloud): State<Arc<Cloud>>, Query(shown): Query<Shown>) -> Response {
    let selected = shown.timeline.or_else(|| cloud.journal.newest());
    let page = Page {
        links: links::all(&cloud),
        form: Form::of(&cloud, selected),
        cards: send::cards(&cloud),
        parts: Parts::now(&cloud, selected).await,
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
    let begin = (cloud.journal.changes(), Parts::default(), None);
    let events = stream::unfold((cloud, begin), move |(cloud, (mut changes, sent, before))| async move {
        loop {
            // Without a timeline, that of the newest key, whose request gets into the form.
            let selected = shown.timeline.or_else(|| cloud.journal.newest());
            let parts = Parts::now(&cloud, selected).await;
            let mut changed: Map<_, _> =
                parts.since(&sent).map(|(name, html)| (name.to_owned(), json!(html))).collect();
            if selected != before && shown.timeline.is_none() {
                changed.insert("form".to_owned(), json!(Form::of(&cloud, selected)));
            }
            if !changed.is_empty() {
                let event = Event::default().data(json!(changed).to_string());
                return Some((Ok(event), (cloud, (changes, parts, selected))));
            }
            time::sleep(PAUSE).await;
            let _ = time::timeout(LONGEST, changes.changed()).await;
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
