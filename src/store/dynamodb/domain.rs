//! Domain writes as actions of a transaction.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    error::BuildError,
    types::{ConditionCheck, Delete, Put, TransactWriteItem, Update},
};

use super::{StoreError, StoreErrorKind, conditions::Attributes};
use crate::domain::{Action, DomainWrite};

/// The action of this write. Needs `dynamodb:PutItem`, `UpdateItem`, `DeleteItem` or `ConditionCheckItem` on its table.
pub(super) fn action(write: &DomainWrite) -> Result<TransactWriteItem, StoreError> {
    build(write).map_err(|error| StoreError::new(StoreErrorKind::Refused, error))
}

fn build(write: &DomainWrite) -> Result<TransactWriteItem, BuildError> {
    let (table, condition) = (&write.table, write.condition.clone());
    let item = || Attributes::from(write.item.clone());
    let names = Some(&write.names).filter(|names| !names.is_empty());
    let names = names.map(|names| names.clone().into_iter().collect::<HashMap<_, _>>());
    let values = Some(&write.values).filter(|values| !values.is_empty());
    let values: Option<Attributes> =
        values.map(|values| values.clone().into_iter().map(|(name, value)| (name, value.into())).collect());
    let action = TransactWriteItem::builder();
    Ok(match &write.action {
        Action::Put => action.put(
            Put::builder()
                .table_name(table)
                .set_item(Some(item()))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .build()?,
        ),
        Action::Update(expression) => action.update(
            Update::builder()
                .table_name(table)
                .set_key(Some(item()))
                .update_expression(expression)
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .build()?,
        ),
        Action::Delete => action.delete(
            Delete::builder()
                .table_name(table)
                .set_key(Some(item()))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .build()?,
        ),
        Action::Check => action.condition_check(
            ConditionCheck::builder()
                .table_name(table)
                .set_key(Some(item()))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .build()?,
        ),
    }
    .build())
}
