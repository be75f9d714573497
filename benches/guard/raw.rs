//! The SDK calls that the guard makes, alone: the guard is compared with them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use aws_sdk_dynamodb::{
    Client,
    config::{
        ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeSerializationInterceptorContextRef,
    },
    error::BoxError,
    operation::{
        get_item::GetItemInput, put_item::PutItemInput, transact_write_items::TransactWriteItemsInput,
    },
    primitives::Blob,
    types::AttributeValue,
};
use bytes::Bytes;
use lambda_idempotency::store::dynamodb::DynamoDbStore;

use crate::{
    guarded::{self, Front},
    meter::{Spent, spent},
};

/// The calls of one guarded operation, to be sent again under other keys.
#[derive(Clone, Debug)]
pub struct Calls(Vec<Call>);

#[derive(Clone, Debug)]
enum Call {
    Get(GetItemInput),
    Put(PutItemInput),
    Transaction(TransactWriteItemsInput),
}

type Item = HashMap<String, AttributeValue>;

impl Calls {
    /// The calls that a guarded operation with this answer makes: two, or one in a single transaction; more if the body is kept outside its record.
    pub async fn recorded(client: &Client, table: &str, front: Front, body: &Bytes) -> Self {
        let recorder = Recorder::default();
        let config = client.config().to_builder().interceptor(recorder.clone()).build();
        let store = DynamoDbStore::from_client(Client::from_conf(config), table);
        front.guard(store, body.clone())(u64::MAX).await;
        let calls = recorder.0.lock().unwrap().split_off(0);
        let expected = if front.is_single_transaction() { [1, 3] } else { [2, 3] };
        assert!(expected.contains(&calls.len()), "{calls:?}");
        Self(calls)
    }

    /// The calls with the uncompressed body in the record, as in code written by hand.
    pub fn with_body_in_record(&self, body: &Bytes) -> Self {
        let (first, mut last) = (self.0.first().unwrap(), self.0.last().unwrap().clone());
        let record = last.items().next().unwrap();
        record.retain(|name, _| name != "body_id");
        record.insert("body".to_owned(), AttributeValue::B(Blob::new(body.as_ref())));
        match last {
            Call::Transaction(_) => Self(vec![last]),
            _ => Self(vec![first.clone(), last]),
        }
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Makes them under a fresh key for each number. Copying the items and passing them to the SDK is part of a call;
    /// filling them in is not.
    pub async fn send(&self, client: &Client, number: u64) -> Spent {
        let keyed: Vec<_> = self.0.iter().map(|call| call.clone().keyed(number)).collect();
        let (_, spent) = spent(async {
            for call in &keyed {
                call.send(client).await;
            }
        })
        .await;
        spent
    }
}

impl Call {
    /// The items, or their keys; in a transaction the record's first.
    fn items(&mut self) -> Box<dyn Iterator<Item = &mut Item> + '_> {
        match self {
            Self::Get(get) => Box::new(get.key.iter_mut()),
            Self::Put(put) => Box::new(put.item.iter_mut()),
            Self::Transaction(transaction) => {
                let puts =
                    transaction.transact_items.iter_mut().flatten().filter_map(|part| part.put.as_mut());
                Box::new(puts.map(|put| &mut put.item))
            }
        }
    }

    fn keyed(mut self, number: u64) -> Self {
        let key = guarded::key(number);
        for item in self.items() {
            if let Some(AttributeValue::S(pk)) = item.get_mut("pk") {
                pk.replace_range(pk.len() - key.len().., &key);
            }
        }
        if let Self::Transaction(transaction) = &mut self {
            // As long as the keys of the guard.
            transaction.client_request_token = Some(format!("{number:036}"));
        }
        self
    }

    async fn send(&self, client: &Client) {
        match self {
            Self::Get(get) => {
                let get = client
                    .get_item()
                    .set_table_name(get.table_name.clone())
                    .set_key(get.key.clone())
                    .set_consistent_read(get.consistent_read);
                get.send().await.expect("a table that is there");
            }
            Self::Put(put) => {
                let put = client
                    .put_item()
                    .set_table_name(put.table_name.clone())
                    .set_item(put.item.clone())
                    .set_condition_expression(put.condition_expression.clone())
                    .set_expression_attribute_values(put.expression_attribute_values.clone())
                    .set_return_values_on_condition_check_failure(
                        put.return_values_on_condition_check_failure.clone(),
                    );
                put.send().await.expect("a put whose condition holds");
            }
            Self::Transaction(transaction) => {
                let transaction = client
                    .transact_write_items()
                    .set_client_request_token(transaction.client_request_token.clone())
                    .set_transact_items(transaction.transact_items.clone());
                transaction.send().await.expect("a transaction whose conditions hold");
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<Call>>>);

impl Intercept for Recorder {
    fn name(&self) -> &'static str {
        "Recorder"
    }

    fn read_before_serialization(
        &self,
        context: &BeforeSerializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let input = context.input();
        let get = || input.downcast_ref::<GetItemInput>().cloned().map(Call::Get);
        let put = || input.downcast_ref::<PutItemInput>().cloned().map(Call::Put);
        let transaction = || input.downcast_ref::<TransactWriteItemsInput>().cloned().map(Call::Transaction);
        let call = get().or_else(put).or_else(transaction).ok_or("the guard made another call")?;
        self.0.lock().unwrap().push(call);
        Ok(())
    }
}
