//! A report's row, in the table of orders: partition key tenant, sort key `report#` and the report's id.

use std::fmt::Display;

use lambda_idempotency::domain::{DomainWrite, Table};
use serde_json::{Value, json};

fn key(tenant: &str, id: &impl Display) -> Value {
    json!({ "pk": tenant, "sk": format!("report#{id}") })
}

/// What commits with the acceptance.
pub(crate) fn accepted(reports: &Table, tenant: &str, id: &impl Display, seconds: u32) -> DomainWrite {
    let row = reports.update(key(tenant, id), "SET seconds = :seconds, #state = :accepted");
    row.name("#state", "state").value(":seconds", seconds).value(":accepted", "accepted")
}

/// What commits with the end: how often it was written shows that this happens once.
pub(crate) fn written(reports: &Table, tenant: &str, id: &impl Display) -> DomainWrite {
    let row = reports.update(key(tenant, id), "SET #state = :written ADD times :one");
    row.name("#state", "state").value(":written", "written").value(":one", 1)
}
