//! The SDK calls that the guard makes, alone: the guard is compared with them.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex},
};

use aws_sdk_dynamodb::{
    Client,
    config::{
        ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeSerializationInterceptorContextRef,
    },
    error::{BoxError, SdkError},
    operation::{
        get_item::GetItemInput,
        put_item::{PutItemError, PutItemInput},
        transact_write_items::TransactWriteItemsInput,
    },
    types::AttributeValue,
};
use futures_util::future::join_all;
use lambda_idempotency::store::dynamodb::DynamoDbStore;

use crate::{
    case::Case,
    meter::{Spent, spent},
    parts,
};

/// The calls of one guarded call, to be sent again under other keys: in turn for each key, and at once for several.
#[derive(Clone, Debug)]
pub struct Calls {
    of_keys: Vec<Vec<Call>>,
    /// Whether they are repeated under their own key, and refused.
    are_refused: bool,
}

#[derive(Clone, Debug)]
enum Call {
    Get(GetItemInput),
    Put(PutItemInput),
    Transaction(TransactWriteItemsInput),
}

type Item = HashMap<String, AttributeValue>;

impl Calls {
    /// The calls that a guarded call with this number makes.
    pub async fn recorded(case: &Case, client: &Client, table: &str, number: u64) -> Self {
        let recorder = Recorder::default();
        let config = client.config().to_builder().interceptor(recorder.clone()).build();
        let store = DynamoDbStore::from_client(Client::from_conf(config), table);
        case.part.on(store, &case.body())(number).await;
        let mut of_keys: Vec<(Option<String>, Vec<Call>)> = Vec::new();
        for mut call in mem::take(&mut *recorder.0.lock().unwrap()) {
            let key = call.items().next().and_then(|item| item["pk"].as_s().ok().cloned());
            // Bodies lie beside their record, under keys of their own.
            match of_keys.iter_mut().find(|of_key| of_key.0 == key || case.part.keys() == 1) {
                Some(of_key) => of_key.1.push(call),
                None => of_keys.push((key, vec![call])),
            }
        }
        assert_eq!(of_keys.len() as u64, case.part.keys(), "{of_keys:?}");
        let of_keys = of_keys.into_iter().map(|(_, calls)| calls).collect();
        Self { of_keys, are_refused: case.is_replay }
    }

    pub fn count(&self) -> usize {
        self.of_keys.iter().map(Vec::len).sum()
    }

    /// Makes them under a fresh key for each number. Copying the items and passing them to the SDK is part of a call;
    /// filling them in is not.
    pub async fn send(&self, client: &Client, number: u64) -> Spent {
        let mut keyed = self.of_keys.clone();
        if !self.are_refused {
            let keys = number * keyed.len() as u64..;
            keyed
                .iter_mut()
                .zip(keys)
                .for_each(|(calls, key)| calls.iter_mut().for_each(|call| call.key(key)));
        }
        let of_key = async |calls: &Vec<Call>| {
            for call in calls {
                let is_refused = call.send(client).await;
                assert_eq!(is_refused, self.are_refused);
            }
        };
        let (_, spent) = match &*keyed {
            [calls] => spent(async { of_key(calls).await }).await,
            several => spent(async { drop(join_all(several.iter().map(of_key)).await) }).await,
        };
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

    fn key(&mut self, number: u64) {
        let key = parts::key(number);
        for item in self.items() {
            if let Some(AttributeValue::S(pk)) = item.get_mut("pk") {
                pk.replace_range(pk.len() - key.len().., &key);
            }
        }
        if let Self::Transaction(transaction) = self {
            // As long as the keys of the guard.
            transaction.client_request_token = Some(key);
        }
    }

    /// Whether its condition does not hold.
    async fn send(&self, client: &Client) -> bool {
        match self {
            Self::Get(get) => {
                let get = client
                    .get_item()
                    .set_table_name(get.table_name.clone())
                    .set_key(get.key.clone())
                    .set_consistent_read(get.consistent_read);
                get.send().await.expect("a table that is there");
                false
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
                match put.send().await.map_err(SdkError::into_service_error) {
                    Ok(_) => false,
                    Err(PutItemError::ConditionalCheckFailedException(refused)) => {
                        assert!(refused.item.is_some());
                        true
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
            Self::Transaction(transaction) => {
                let transaction = client
                    .transact_write_items()
                    .set_client_request_token(transaction.client_request_token.clone())
                    .set_transact_items(transaction.transact_items.clone());
                transaction.send().await.expect("a transaction whose conditions hold");
                false
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
