//! Audit lines: items `audit#<milliseconds>#<revision>` with the record's partition key, without a time to live.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    DynamoDbStore, StoreError, StoreErrorKind,
    conditions::{self, Attributes, Condition},
    error::Read,
    form, named,
};
use crate::{key::RecordKey, record::Revision, store::AuditLine};

/// The prefix of the sort keys of audit lines.
const AUDIT: &str = "audit#";

/// The line as an item. `id` is unique to its writer: a revision, or a nonce.
pub(super) fn to_item(key: &RecordKey, id: Revision, line: &AuditLine) -> Result<Attributes, StoreError> {
    let mut item = form(line)?;
    // The same number of digits until the year 2286, so that lines sort by time.
    item.extend(named(key, format!("{AUDIT}{:013}#{id}", line.at)));
    Ok(item)
}

impl DynamoDbStore {
    pub(super) async fn put_line(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Read<()> {
        let line = to_item(key, id, line)?;
        // The sort key is unique to its writer, so an existing item is the same line.
        conditions::put(&self.client, &self.table, Condition::Absent, line).await.map(|_| ())
    }

    /// Needs `dynamodb:Query`.
    pub(super) async fn lines(&self, key: &RecordKey) -> Read<Vec<AuditLine>> {
        let mut pages = self
            .client
            .query()
            .table_name(&*self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk AND begins_with(sk, :audit)")
            .expression_attribute_values(":pk", AttributeValue::S(key.partition_key()))
            .expression_attribute_values(":audit", AttributeValue::S(AUDIT.to_owned()))
            .into_paginator()
            .items()
            .send();
        let mut lines = Vec::new();
        while let Some(item) = pages.next().await {
            let line = serde_dynamo::from_item(item?);
            lines.push(line.map_err(|error| StoreError::new(StoreErrorKind::Unreadable, error))?);
        }
        Ok(lines)
    }
}
