//! Audit lines: items `audit#<milliseconds>#<revision>` with the partition key of the record, or of the switch, without a time to live.

use aws_sdk_dynamodb::{Client, types::AttributeValue};

use super::{
    attributes::{beside, form},
    conditions::Attributes,
};
use crate::{
    record::Revision,
    store::{AuditLine, Result, StoreError},
};

/// The prefix of the sort keys of audit lines.
const AUDIT: &str = "audit#";

/// The line as an item. `id` is unique to its writer: a revision, or a nonce.
pub(super) fn to_item(pk: &str, id: Revision, line: &AuditLine) -> Result<Attributes> {
    let mut item = form(line)?;
    // The same number of digits until the year 2286, so that lines sort by time.
    item.extend(beside(pk.to_owned(), format!("{AUDIT}{:013}#{id}", line.at)));
    Ok(item)
}

/// The lines with this partition key, oldest first. Needs `dynamodb:Query`.
pub(super) async fn lines(client: &Client, table: &str, pk: &str) -> Result<Vec<AuditLine>> {
    let mut pages = client
        .query()
        .table_name(table)
        .consistent_read(true)
        .key_condition_expression("pk = :pk AND begins_with(sk, :audit)")
        .expression_attribute_values(":pk", AttributeValue::S(pk.to_owned()))
        .expression_attribute_values(":audit", AttributeValue::S(AUDIT.to_owned()))
        .into_paginator()
        .items()
        .send();
    let mut lines = Vec::new();
    while let Some(item) = pages.next().await {
        lines.push(serde_dynamo::from_item(item?).map_err(StoreError::unreadable)?);
    }
    Ok(lines)
}
