//! What a drill does to records: what an operator does, and what time does.

use super::{
    client::TENANT,
    stage::{PATIENCE, Stage},
};
use crate::faults::TableFault;
use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveSpecification};
use lambda_idempotency::{
    DynamoDbStore, Store,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    operator::{Correction, Operator},
    record::Record,
    telemetry::error_chain,
};
use std::time::Duration;
use tokio::time::Instant;

const WHO: &str = "the drill";
const WHY: &str = "a drill";

impl Stage {
    /// The key of a drill's record.
    pub fn record_key(operation: &str, key: &str) -> Result<RecordKey, String> {
        let tenant = Tenant::parse(TENANT).map_err(|error| error.to_string())?;
        let operation = OperationName::parse(operation).map_err(|error| error.to_string())?;
        let key = IdempotencyKey::parse(key).map_err(|error| error.to_string())?;
        Ok(RecordKey::new(tenant, operation, key))
    }

    pub fn records_table(&self) -> Result<&str, String> {
        self.cloud.journal.table().ok_or_else(|| "there is no table of records".to_owned())
    }

    async fn seen(&self, key: &RecordKey) -> Result<(DynamoDbStore, Record), String> {
        let store = DynamoDbStore::from_client(self.cloud.events.client.clone(), self.records_table()?);
        let seen = store.load(key).await.map_err(|error| error_chain(&error))?;
        Ok((store, seen.ok_or("the record is gone")?))
    }

    /// Corrects a record, as an operator.
    pub async fn correct(&self, key: &RecordKey, correction: &Correction) -> Result<(), String> {
        let (store, seen) = self.seen(key).await?;
        let corrected = Operator::new(store).correct(&seen, correction, WHO, WHY).await;
        corrected.map(drop).map_err(|error| error_chain(&error))
    }

    /// Waits until the record is in one of these states.
    pub async fn until_state(&mut self, key: &RecordKey, states: &[&str]) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            // It may not be there yet.
            let seen = self.seen(key).await;
            let state = seen.as_ref().map_or("absent", |(_, seen)| seen.state.name());
            if states.contains(&state) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the record stays {state}, and is never {}", states.join(" or ")));
            }
            self.wait().await;
        }
    }

    /// Waits until the record is settled.
    pub async fn until_settled(&mut self, key: &RecordKey) -> Result<(), String> {
        self.until_state(key, &["completed", "failed_retryable"]).await
    }

    /// Deletes the record, as a restored table does that is older.
    pub async fn delete(&self, key: &RecordKey) -> Result<(), String> {
        let delete = self.cloud.events.client.delete_item().table_name(self.records_table()?);
        let delete = delete.key("pk", AttributeValue::S(key.partition_key()));
        let delete = delete.key("sk", AttributeValue::S("record".to_owned()));
        delete.send().await.map(drop).map_err(|error| error_chain(&error))
    }

    /// Moves times of all items of the record back, as if so much time had passed. They are in milliseconds.
    pub async fn age(&self, key: &RecordKey, times: &[&str], by: Duration) -> Result<(), String> {
        let (client, table) = (&self.cloud.events.client, self.records_table()?);
        let query = client.query().table_name(table).key_condition_expression("pk = :pk");
        let query = query.expression_attribute_values(":pk", AttributeValue::S(key.partition_key()));
        let items = query.send().await.map_err(|error| error_chain(&error))?.items.unwrap_or_default();
        for mut item in items {
            for time in times {
                let Some(AttributeValue::N(millis)) = item.get(*time) else { continue };
                let millis = millis.parse::<u64>().map_err(|error| error.to_string())?;
                let earlier = millis.saturating_sub(by.as_millis() as u64).to_string();
                item.insert((*time).to_owned(), AttributeValue::N(earlier));
            }
            let put = client.put_item().table_name(table).set_item(Some(item)).send().await;
            put.map_err(|error| error_chain(&error))?;
        }
        Ok(())
    }

    /// Switches the time to live of the table of records.
    pub async fn switch_time_to_live(&self, on: bool) -> Result<(), String> {
        let switched = TimeToLiveSpecification::builder().enabled(on).attribute_name("expires_at").build();
        let switched = switched.map_err(|error| error.to_string())?;
        let update = self.cloud.events.client.update_time_to_live().table_name(self.records_table()?);
        let update = update.time_to_live_specification(switched).send().await;
        update.map(drop).map_err(|error| error_chain(&error))
    }

    /// Lets the tables answer nothing, or again.
    pub fn table_is_away(&self, is_away: bool) {
        self.cloud.queues.faults.break_table(is_away.then_some(TableFault::Away));
    }

    /// Gives another name to the phase that the record keeps.
    pub async fn rename_phase(&self, key: &RecordKey, name: &str) -> Result<(), String> {
        let update = self.cloud.events.client.update_item().table_name(self.records_table()?);
        let update = update.key("pk", AttributeValue::S(key.partition_key()));
        let update = update.key("sk", AttributeValue::S("record".to_owned()));
        let update = update.update_expression("SET phases[0].#name = :name");
        let update = update.expression_attribute_names("#name", "name");
        let update = update.expression_attribute_values(":name", AttributeValue::S(name.to_owned()));
        update.send().await.map(drop).map_err(|error| error_chain(&error))
    }

    /// Waits until no message of the record waits for its delivery.
    pub async fn until_delivered(&mut self, key: &RecordKey) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let query = self.cloud.events.client.query().table_name(self.records_table()?);
            let query = query.key_condition_expression("pk = :pk AND begins_with(sk, :message)");
            let query = query.expression_attribute_values(":pk", AttributeValue::S(key.partition_key()));
            let query =
                query.expression_attribute_values(":message", AttributeValue::S("message#".to_owned()));
            let found = query.send().await.map_err(|error| error_chain(&error))?;
            if found.count == 0 {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err("a message of the outbox is never delivered".to_owned());
            }
            self.wait().await;
        }
    }

    /// Changes the charges of all payments in our ledger.
    pub async fn change_charges(&self, change: impl Fn(&str) -> String) -> Result<(), String> {
        let table = self.cloud.stack.tables.iter().find(|table| table.name == "payments");
        let table = &table.ok_or("there is no table of payments")?.full_name;
        let client = &self.cloud.events.client;
        let scan = client.scan().table_name(table).into_paginator().items().send();
        let items = scan.collect::<Result<Vec<_>, _>>().await.map_err(|error| error_chain(&error))?;
        for mut item in items {
            let Some(AttributeValue::S(charge)) = item.get("chargeId") else { continue };
            let charge = AttributeValue::S(change(charge));
            item.insert("chargeId".to_owned(), charge);
            let put = client.put_item().table_name(table).set_item(Some(item)).send().await;
            put.map_err(|error| error_chain(&error))?;
        }
        Ok(())
    }
}
