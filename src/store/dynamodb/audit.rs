//! Audit lines beside their record: items `audit#<milliseconds>#<revision>`, without a time to live.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    DynamoDbStore, StoreError, StoreErrorKind,
    conditions::{self, Attributes, Condition},
    error::Read,
};
use crate::{
    key::RecordKey,
    record::Revision,
    store::{
        AuditLine,
        item::{PK, SCHEMA, SCHEMA_ATTRIBUTE, SK},
    },
};

/// The prefix of the sort keys of audit lines.
const AUDIT: &str = "audit#";

/// The line as an item. `id` is unique to its writer: the revision that the line is about, or a nonce.
pub(super) fn to_item(key: &RecordKey, id: Revision, line: &AuditLine) -> Result<Attributes, StoreError> {
    let mut item: Attributes = serde_dynamo::to_item(line).map_err(unreadable)?;
    // The same number of digits until the year 2286, so that lines sort by time.
    let sk = format!("{AUDIT}{:013}#{id}", line.at);
    item.insert(PK.to_owned(), AttributeValue::S(key.partition_key()));
    item.insert(SK.to_owned(), AttributeValue::S(sk));
    item.insert(SCHEMA_ATTRIBUTE.to_owned(), AttributeValue::N(SCHEMA.to_string()));
    Ok(item)
}

impl DynamoDbStore {
    pub(super) async fn put_line(&self, key: &RecordKey, id: Revision, line: &AuditLine) -> Read<()> {
        let line = to_item(key, id, line)?;
        // Its sort key is unique to its writer: an existing item is this very line.
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
            lines.push(serde_dynamo::from_item(item?).map_err(unreadable)?);
        }
        Ok(lines)
    }
}

fn unreadable(error: serde_dynamo::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}
