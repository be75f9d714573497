//! What an operation costs: round trips and capacity units, counted between the SDK and the wire.
//!
//! A store reports the units of successful operations. A write whose condition fails is billed by the size of the existing item, but its
//! units are not reported. They are computed here from the item that `ALL_OLD` returns.

use super::faults::operation_of;
use aws_sdk_dynamodb::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextMut,
    BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::delete_item::{DeleteItemError, DeleteItemInput, DeleteItemOutput};
use aws_sdk_dynamodb::operation::get_item::{GetItemInput, GetItemOutput};
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemInput, PutItemOutput};
use aws_sdk_dynamodb::operation::query::{QueryInput, QueryOutput};
use aws_sdk_dynamodb::operation::transact_write_items::{
    TransactWriteItemsError, TransactWriteItemsInput, TransactWriteItemsOutput,
};
use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, UpdateItemInput, UpdateItemOutput};
use aws_sdk_dynamodb::types::{AttributeValue, ConsumedCapacity, ReturnConsumedCapacity};
use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

type Item = HashMap<String, AttributeValue>;

/// Counts for every client that uses it. Clones share the meter.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    used: Arc<Mutex<BTreeMap<String, Used>>>,
}

impl Meter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn reading(&self) -> Reading {
        let used = self.used.lock().unwrap().clone();
        for (operation, used) in &used {
            assert_eq!(
                used.unmetered, 0,
                "the store answered {operation} without the capacity that was asked for"
            );
        }
        Reading(used)
    }

    pub fn reset(&self) {
        self.used.lock().unwrap().clear();
    }

    fn add(&self, operation: &str, used: Used) {
        *self.used.lock().unwrap().entry(operation.to_owned()).or_default() += used;
    }
}

/// The usage since the meter was created or reset, by operation (`"PutItem"`).
#[derive(Clone, Debug, PartialEq)]
pub struct Reading(BTreeMap<String, Used>);

impl Reading {
    pub fn of(&self, operation: &str) -> Used {
        self.0.get(operation).copied().unwrap_or_default()
    }

    pub fn total(&self) -> Used {
        let mut total = Used::default();
        self.0.values().for_each(|used| total += *used);
        total
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Requests on the wire, retries included.
    pub round_trips: u32,
    /// Units of writes that succeeded.
    pub write_units: f64,
    pub read_units: f64,
    /// Failed conditions, in single writes and in transactions.
    pub failed_conditional_writes: u32,
    /// Units of writes whose condition failed, computed. Those of transactions are not included.
    pub failed_write_units: f64,
    unmetered: u32,
}

impl Used {
    /// All write units that are billed.
    pub fn billed_write_units(&self) -> f64 {
        self.write_units + self.failed_write_units
    }

    fn written(capacity: &[ConsumedCapacity]) -> Self {
        Self { write_units: units(capacity), unmetered: u32::from(capacity.is_empty()), ..Self::default() }
    }

    fn read(capacity: &[ConsumedCapacity]) -> Self {
        Self { read_units: units(capacity), unmetered: u32::from(capacity.is_empty()), ..Self::default() }
    }

    fn failed_condition(item: Option<&Item>) -> Self {
        Self { failed_conditional_writes: 1, failed_write_units: write_units(item), ..Self::default() }
    }
}

impl AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        self.round_trips += other.round_trips;
        self.write_units += other.write_units;
        self.read_units += other.read_units;
        self.failed_conditional_writes += other.failed_conditional_writes;
        self.failed_write_units += other.failed_write_units;
        self.unmetered += other.unmetered;
    }
}

impl Intercept for Meter {
    fn name(&self) -> &'static str {
        "Meter"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let input = context.input_mut();
        macro_rules! ask {
            ($($kind:ty),+) => {
                $(if let Some(input) = input.downcast_mut::<$kind>() {
                    input.return_consumed_capacity = Some(ReturnConsumedCapacity::Total);
                })+
            };
        }
        ask!(
            PutItemInput,
            UpdateItemInput,
            DeleteItemInput,
            GetItemInput,
            QueryInput,
            TransactWriteItemsInput
        );
        Ok(())
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.add(&operation_of(context.request()), Used { round_trips: 1, ..Used::default() });
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        match context.output_or_error() {
            Ok(output) => {
                macro_rules! add {
                    ($($kind:ty: $operation:literal => $used:path),+) => {
                        $(if let Some(output) = output.downcast_ref::<$kind>() {
                            self.add($operation, $used(as_slice(&output.consumed_capacity)));
                        })+
                    };
                }
                add!(
                    PutItemOutput: "PutItem" => Used::written,
                    UpdateItemOutput: "UpdateItem" => Used::written,
                    DeleteItemOutput: "DeleteItem" => Used::written,
                    GetItemOutput: "GetItem" => Used::read,
                    QueryOutput: "Query" => Used::read
                );
                if let Some(output) = output.downcast_ref::<TransactWriteItemsOutput>() {
                    self.add("TransactWriteItems", Used::written(output.consumed_capacity()));
                }
            }
            Err(error) => {
                let Some(error) = error.as_operation_error() else { return Ok(()) };
                macro_rules! add {
                    ($($kind:ident: $operation:literal),+) => {
                        $(if let Some($kind::ConditionalCheckFailedException(failed)) = error.downcast_ref() {
                            self.add($operation, Used::failed_condition(failed.item()));
                        })+
                    };
                }
                add!(PutItemError: "PutItem", UpdateItemError: "UpdateItem", DeleteItemError: "DeleteItem");
                if let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
                    error.downcast_ref()
                {
                    let failed = cancelled
                        .cancellation_reasons()
                        .iter()
                        .filter(|reason| reason.code() == Some("ConditionalCheckFailed"))
                        .count();
                    let failed = u32::try_from(failed).expect("a transaction has at most 100 items");
                    self.add(
                        "TransactWriteItems",
                        Used { failed_conditional_writes: failed, ..Used::default() },
                    );
                }
            }
        }
        Ok(())
    }
}

fn as_slice(capacity: &Option<ConsumedCapacity>) -> &[ConsumedCapacity] {
    capacity.as_slice()
}

fn units(capacity: &[ConsumedCapacity]) -> f64 {
    capacity.iter().filter_map(ConsumedCapacity::capacity_units).sum()
}

/// One unit for each started kilobyte, at least one.
fn write_units(item: Option<&Item>) -> f64 {
    let bytes = item.map_or(0, size);
    bytes.div_ceil(1024).max(1) as f64
}

/// An item's size by DynamoDB's published rules.
pub fn size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    /// The overhead of a list or map, and of each of its members.
    const DOCUMENT: usize = 3;
    const MEMBER: usize = 1;
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number_size(number),
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Bool(_) | AttributeValue::Null(_) => 1,
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::Ns(numbers) => numbers.iter().map(|number| number_size(number)).sum(),
        AttributeValue::Bs(blobs) => blobs.iter().map(|bytes| bytes.as_ref().len()).sum(),
        AttributeValue::L(values) => {
            DOCUMENT + values.iter().map(|value| value_size(value) + MEMBER).sum::<usize>()
        }
        AttributeValue::M(members) => DOCUMENT + size(members) + members.len() * MEMBER,
        other => panic!("an attribute of a kind without a size: {other:?}"),
    }
}

/// One byte for every two significant digits, and one more.
fn number_size(number: &str) -> usize {
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    digits.trim_start_matches('0').trim_end_matches('0').len().div_ceil(2) + 1
}
