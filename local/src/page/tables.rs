//! Rows of the functions' own tables, as they are now. They can only be read here.

use super::record::plain;
use crate::{cloud::Cloud, template::Table};
use askama::Template;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::telemetry::error_chain;
use serde_json::Value;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Rows of a table that are shown.
const MAX_ROWS: usize = 20;
/// How many characters of a value are shown.
const MAX_TEXT: usize = 200;
/// How long what was read is shown. All open pages share it.
const READ_FOR: Duration = Duration::from_secs(1);

#[derive(Template)]
#[template(path = "tables.html")]
struct Part {
    tables: Vec<Shown>,
}

struct Shown {
    name: String,
    rows: Vec<Row>,
    has_more: bool,
    /// Why it cannot be read.
    failed: Option<String>,
}

struct Row {
    key: Vec<String>,
    rest: Vec<(String, String)>,
}

/// The part of the page. Nothing, if the functions have no table of their own, or if another DynamoDB has it: an open page would scan it all the
/// time.
pub async fn part(cloud: &Cloud) -> String {
    if !cloud.sees_writes {
        return String::new();
    }
    let mut seen = cloud.tables.lock().await;
    if let Some((_, part)) = seen.as_ref().filter(|(at, _)| at.elapsed() < READ_FOR) {
        return part.clone();
    }
    let records = cloud.journal.table();
    let mut tables = Vec::new();
    for table in cloud.stack.tables.iter().filter(|table| Some(&*table.full_name) != records) {
        tables.push(Shown::read(cloud, table).await);
    }
    let part = match tables.is_empty() {
        true => String::new(),
        false => Part { tables }.render().unwrap_or_else(|error| error.to_string()),
    };
    *seen = Some((Instant::now(), part.clone()));
    part
}

impl Shown {
    async fn read(cloud: &Cloud, table: &Table) -> Self {
        let name = table.full_name.clone();
        let limit = i32::try_from(MAX_ROWS + 1).expect("it is small");
        let answer = cloud.events.client.scan().table_name(&name).limit(limit).send().await;
        let (items, failed) = match answer {
            Ok(answer) => (answer.items.unwrap_or_default(), None),
            Err(error) => (Vec::new(), Some(format!("it cannot be read: {}", error_chain(&error)))),
        };
        let has_more = items.len() > MAX_ROWS;
        let keys = key_attributes(&table.properties);
        let mut rows: Vec<_> = items.iter().take(MAX_ROWS).map(|item| Row::of(item, &keys)).collect();
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        Self { name, rows, has_more, failed }
    }
}

/// The names of the key's attributes: first of the partition, then of the order in it.
fn key_attributes(properties: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = properties["KeySchema"].as_array().into_iter().flatten().collect();
    keys.sort_by_key(|key| key["KeyType"] != "HASH");
    keys.iter().filter_map(|key| key["AttributeName"].as_str()).collect()
}

impl Row {
    fn of(item: &HashMap<String, AttributeValue>, keys: &[&str]) -> Self {
        let key = keys.iter().map(|name| item.get(*name).map(text).unwrap_or_default()).collect();
        let rest = item.iter().filter(|(name, _)| !keys.contains(&&***name));
        let mut rest: Vec<_> = rest.map(|(name, value)| (name.clone(), text(value))).collect();
        rest.sort();
        Self { key, rest }
    }
}

fn text(value: &AttributeValue) -> String {
    let whole = match plain(value) {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match whole.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_has_its_key_first_and_no_long_value() {
        let properties = json!({ "KeySchema": [
            { "AttributeName": "sk", "KeyType": "RANGE" }, { "AttributeName": "pk", "KeyType": "HASH" },
        ] });
        let keys = key_attributes(&properties);
        assert_eq!(keys, ["pk", "sk"]);
        let string = |text: &str| AttributeValue::S(text.to_owned());
        let item = [
            ("b", AttributeValue::N("1".to_owned())),
            ("pk", string("acme")),
            ("a", string(&"é".repeat(500))),
            ("sk", string("seat")),
        ];
        let item = item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let Row { key, rest } = Row::of(&item, &keys);
        assert_eq!(key, ["acme", "seat"]);
        let names: Vec<_> = rest.iter().map(|(name, value)| (&**name, value.chars().count())).collect();
        assert_eq!(names, [("a", MAX_TEXT + 1), ("b", 1)]);
    }
}
