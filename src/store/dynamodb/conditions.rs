//! The conditional put, alone and in a transaction, and its two conditions.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    Client,
    error::SdkError,
    operation::put_item::PutItemError,
    primitives::Blob,
    types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure},
};

use super::{Result, StoreError};
use crate::record::Revision;

/// An item's attributes.
pub(super) type Attributes = HashMap<String, AttributeValue>;

/// The condition of a write, and the values of its placeholders: the item still has the revision `seen`, or there is no item.
fn condition(seen: Option<Revision>) -> (&'static str, Option<Attributes>) {
    let Some(seen) = seen else { return ("attribute_not_exists(pk)", None) };
    let seen = AttributeValue::B(Blob::new(*seen.as_bytes()));
    ("revision = :seen", Some(Attributes::from([(":seen".to_owned(), seen)])))
}

/// Puts `item` if the current one has the revision `seen`, or if both are absent. Otherwise returns the current one as the inner error.
/// Both take one round trip.
///
/// `ALL_OLD` on a failed condition costs no read capacity
/// ([PutItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PutItem.html)).
pub(super) async fn put(
    client: &Client,
    table: &str,
    seen: Option<Revision>,
    item: Attributes,
) -> Result<Result<(), Option<Attributes>>> {
    let (expression, values) = condition(seen);
    let request = client
        .put_item()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression(expression)
        .set_expression_attribute_values(values)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    match request.send().await {
        Ok(_) => Ok(Ok(())),
        Err(SdkError::ServiceError(refused))
            if matches!(refused.err(), PutItemError::ConditionalCheckFailedException(_)) =>
        {
            match refused.into_err() {
                PutItemError::ConditionalCheckFailedException(failed) => Ok(Err(failed.item)),
                other => Err(StoreError::refused(other)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// The same put, as part of a transaction. The current item is returned in the reason why the transaction was cancelled.
pub(super) fn put_in_transaction(table: &str, seen: Option<Revision>, item: Attributes) -> Result<Put> {
    let (expression, values) = condition(seen);
    Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression(expression)
        .set_expression_attribute_values(values)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .map_err(StoreError::refused)
}
