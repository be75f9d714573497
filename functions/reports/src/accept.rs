//! Decides whether a report is accepted, before its client hears anything.

use bytes::Bytes;
use http::{Response, header::CONTENT_TYPE};
use lambda_idempotency::{domain::Table, engine::SingleTransaction, record::Answer};
use payments::problem;

use crate::{report::NewReport, row};

/// Accepts a report that can be written, together with its row.
pub(crate) async fn accept(reports: Table, transaction: SingleTransaction, body: Bytes) -> Response<Bytes> {
    let Some(report) = NewReport::parse(&body) else { return refused() };
    let id = transaction.record_key().hash();
    let row = row::accepted(&reports, transaction.tenant().as_str(), &id, report.seconds);
    match transaction.write(row) {
        // The client gets the status of the operation.
        Ok(()) => response(202, Bytes::new()),
        Err(_) => response(500, Bytes::new()),
    }
}

fn refused() -> Response<Bytes> {
    let detail = "The body must be an object with seconds, a whole number from 1 to 600. Correct it and send it again.";
    let Answer { body, .. } = problem(422, "urn:reports:invalid-report", "The report is invalid", detail);
    response(422, body)
}

fn response(status: u16, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status.try_into().unwrap_or_default();
    let problem = http::HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, problem);
    response
}
