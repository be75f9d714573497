//! Domain writes as actions of a transaction.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    error::BuildError,
    types::{ConditionCheck, Delete, Put, TransactWriteItem, Update},
};

use super::{Result, StoreError, conditions::Attributes};
use crate::domain::{Action, DomainWrite};

/// The action of this write. Needs `dynamodb:PutItem`, `UpdateItem`, `DeleteItem` or `ConditionCheckItem` on its table.
pub(super) fn action(write: &DomainWrite) -> Result<TransactWriteItem> {
    build(write).map_err(StoreError::refused)
}

fn build(write: &DomainWrite) -> Result<TransactWriteItem, BuildError> {
    let item = Some(Attributes::from(write.item.clone()));
    let names: HashMap<_, _> = write.names.clone().into_iter().collect();
    let values = write.values.clone().into_iter().map(|(name, value)| (name, value.into()));
    let values: Attributes = values.collect();
    // The four builders have no trait in common. DynamoDB refuses empty maps.
    macro_rules! build {
        ($builder:expr) => {
            $builder
                .table_name(&write.table)
                .set_condition_expression(write.condition.clone())
                .set_expression_attribute_names(Some(names).filter(|names| !names.is_empty()))
                .set_expression_attribute_values(Some(values).filter(|values| !values.is_empty()))
                .build()?
        };
    }
    let action = TransactWriteItem::builder();
    let action = match &write.action {
        Action::Put => action.put(build!(Put::builder().set_item(item))),
        Action::Update(expression) => {
            action.update(build!(Update::builder().set_key(item).update_expression(expression)))
        }
        Action::Delete => action.delete(build!(Delete::builder().set_key(item))),
        Action::Publish => return Err(BuildError::other("a message is not a row")),
        Action::Check => action.condition_check(build!(ConditionCheck::builder().set_key(item))),
    };
    Ok(action.build())
}
