//! Writes a report, page by page.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use lambda_idempotency::{
    domain::Table,
    engine::{CallError, Execution, PhaseError},
    record::Answer,
};
use serde::Deserialize;
use serde_json::json;

use crate::row;

/// How many pages a report has.
const PAGES: u32 = 10;

/// The phases of a report: its pages.
pub(crate) fn phases() -> impl Iterator<Item = String> {
    (1..=PAGES).map(phase)
}

/// The phase that writes this page.
fn phase(page: u32) -> String {
    format!("page-{page}")
}

/// The longest report, in seconds.
const MAX_SECONDS: u32 = 600;

/// How long before its deadline a worker begins no page.
const TIME_FOR_A_PAGE: Duration = Duration::from_secs(2);

/// What a client asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReport {
    /// How long it takes.
    pub(crate) seconds: u32,
    /// A test token: `tok_crash_claim`, `tok_crash_page_<n>`.
    #[serde(default)]
    source: Option<String>,
}

impl NewReport {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let report: Self = serde_json::from_slice(body).ok()?;
        (1..=MAX_SECONDS).contains(&report.seconds).then_some(report)
    }

    /// Aborts the process at this point of its first execution, if the client asked for that.
    fn at(&self, execution: &Execution, point: &str) {
        let asked = self.source.as_deref().and_then(|source| source.strip_prefix("tok_crash_"));
        if cfg!(feature = "test-cards") && asked == Some(point) && execution.attempts() == 1 {
            std::process::abort();
        }
    }
}

pub(crate) async fn create(State(reports): State<Table>, execution: Execution, body: Bytes) -> Response {
    match NewReport::parse(&body) {
        Some(report) => write(&reports, &execution, &report).await.into_response(),
        // It was accepted by an older version.
        None => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
    }
}

async fn write(reports: &Table, execution: &Execution, report: &NewReport) -> Result<Answer, PhaseError> {
    report.at(execution, "claim");
    let took = Duration::from_secs(report.seconds.into()) / PAGES;
    for page in 1..=PAGES {
        let name = phase(page);
        let call = execution.phase(&name).keys_live(Duration::MAX);
        call.call(|_| async move {
            if is_late(execution, took) {
                // Another worker goes on here.
                return Err(CallError::not_executed("the worker's time is up"));
            }
            tokio::time::sleep(took).await;
            Ok(page)
        })
        .await?;
        report.at(execution, &format!("page_{page}"));
    }
    let (tenant, id) = (execution.tenant().as_str(), execution.record_key().hash().to_string());
    execution.write(row::written(reports, tenant, &id))?;
    let body = json!({ "id": id, "seconds": report.seconds, "pages": PAGES }).to_string();
    Ok(Answer::json(201, body))
}

fn is_late(execution: &Execution, took: Duration) -> bool {
    let Some(deadline) = execution.deadline() else { return false };
    let now = lambda_idempotency::time::Timestamp::from(std::time::SystemTime::now());
    deadline.since(now) < took + TIME_FOR_A_PAGE
}
