//! The conditional put, alone and in a transaction, and its two conditions.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    Client,
    operation::put_item::PutItemError,
    primitives::Blob,
    types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure},
};

use super::{StoreError, StoreErrorKind};
use crate::record::Revision;

/// An item's attributes.
pub(super) type Attributes = HashMap<String, AttributeValue>;

/// The condition of a write.
#[derive(Clone, Copy)]
pub(super) enum Condition {
    /// There is no item.
    Absent,
    /// The item still has this revision.
    Revision(Revision),
}

impl Condition {
    /// The expression, and the values of its placeholders.
    fn expression(self) -> (&'static str, Option<Attributes>) {
        match self {
            Self::Absent => ("attribute_not_exists(pk)", None),
            Self::Revision(seen) => {
                let seen = AttributeValue::B(Blob::new(*seen.as_bytes()));
                ("revision = :seen", Some(Attributes::from([(":seen".to_owned(), seen)])))
            }
        }
    }
}

/// What became of a put.
pub(super) enum PutOutcome {
    Applied,
    /// Its condition does not hold; this is the current item.
    Refused(Option<Attributes>),
}

/// Puts `item` if `condition` holds, and otherwise returns the current one. Both take one round trip.
///
/// `ALL_OLD` on a failed condition costs no read capacity
/// ([PutItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PutItem.html)).
pub(super) async fn put(
    client: &Client,
    table: &str,
    condition: Condition,
    item: Attributes,
) -> Result<PutOutcome, StoreError> {
    let (expression, values) = condition.expression();
    let request = client
        .put_item()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression(expression)
        .set_expression_attribute_values(values)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    match request.send().await {
        Ok(_) => Ok(PutOutcome::Applied),
        Err(error) => match error.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(failed)) => {
                Ok(PutOutcome::Refused(failed.item().cloned()))
            }
            _ => Err(error.into()),
        },
    }
}

/// The same put, as part of a transaction. The current item is returned in the reason why the transaction was cancelled.
pub(super) fn put_in_transaction(
    table: &str,
    condition: Condition,
    item: Attributes,
) -> Result<Put, StoreError> {
    let (expression, values) = condition.expression();
    Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression(expression)
        .set_expression_attribute_values(values)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .map_err(|error| StoreError::new(StoreErrorKind::Refused, error))
}
