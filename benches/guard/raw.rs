//! What the guard is measured against: the SDK calls that it makes, and nothing around them.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::{
    Client,
    config::{
        ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeSerializationInterceptorContextRef,
    },
    error::BoxError,
    operation::put_item::{PutItemInput, builders::PutItemFluentBuilder},
    primitives::Blob,
    types::AttributeValue,
};
use bytes::Bytes;
use lambda_idempotency::store::dynamodb::DynamoDbStore;

use crate::{
    guarded::{self, Front},
    meter::{Spent, spent},
};

/// The puts of one guarded operation, to be sent again under other keys.
#[derive(Clone, Debug)]
pub struct Puts(Vec<PutItemInput>);

impl Puts {
    /// Those that a guarded operation with this answer really sends: two, or three if the body is kept beside its record.
    pub async fn recorded(client: &Client, table: &str, front: Front, body: &Bytes) -> Self {
        let recorder = Recorder::default();
        let config = client.config().to_builder().interceptor(recorder.clone()).build();
        let store = DynamoDbStore::from_client(Client::from_conf(config), table);
        front.guard(store, body.clone())(u64::MAX).await;
        let puts = recorder.0.lock().unwrap().split_off(0);
        assert!(matches!(puts.len(), 2 | 3), "{puts:?}");
        Self(puts)
    }

    /// Two puts, the body as it is in the second: what one would write by hand.
    pub fn with_body_in_record(&self, body: &Bytes) -> Self {
        let (first, last) = (self.0.first().unwrap(), self.0.last().unwrap());
        let mut last = last.clone();
        let item = last.item.as_mut().unwrap();
        item.retain(|name, _| name != "body_id");
        item.insert("body".to_owned(), AttributeValue::B(Blob::new(body.as_ref())));
        Self(vec![first.clone(), last])
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Sends them under a key of its own for each number. Copying the items and passing them to the SDK is part of a call;
    /// filling them in is not.
    pub async fn send(&self, client: &Client, number: u64) -> Spent {
        let keyed: Vec<_> = self.0.iter().map(|put| keyed(put.clone(), number)).collect();
        let (_, spent) = spent(async {
            for put in &keyed {
                request(client, put).send().await.expect("a put whose condition holds");
            }
        })
        .await;
        spent
    }
}

fn keyed(mut put: PutItemInput, number: u64) -> PutItemInput {
    if let Some(AttributeValue::S(pk)) = put.item.as_mut().and_then(|item| item.get_mut("pk")) {
        let key = guarded::key(number);
        pk.replace_range(pk.len() - key.len().., &key);
    }
    put
}

fn request(client: &Client, put: &PutItemInput) -> PutItemFluentBuilder {
    client
        .put_item()
        .set_table_name(put.table_name.clone())
        .set_item(put.item.clone())
        .set_condition_expression(put.condition_expression.clone())
        .set_expression_attribute_values(put.expression_attribute_values.clone())
        .set_return_values_on_condition_check_failure(put.return_values_on_condition_check_failure.clone())
}

#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Vec<PutItemInput>>>);

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
        let put = context.input().downcast_ref::<PutItemInput>().ok_or("the guard sent no PutItem")?;
        self.0.lock().unwrap().push(put.clone());
        Ok(())
    }
}
