//! A call of DynamoDB about records, in the words of this project.

use super::timeline::{Kind, Step};
use lambda_idempotency::key::RecordKey;
use serde_json::Value;

/// The sort key of a record.
const RECORD: &str = "record";

/// A call, and what came of it.
#[derive(Debug, PartialEq)]
pub struct Call {
    pub operation: String,
    /// The partition keys of the records that it is about.
    pub records: Vec<String>,
    /// The record that it has written.
    pub item: Option<Value>,
    /// What it does, if it does not write the record.
    does: &'static str,
    /// Why it was refused; with the record's state, if the answer has it.
    refused: Option<String>,
    /// Capacity units. Of what is refused, the answer has none: as AWS counts it for records of 1 KB.
    units: f64,
}

impl Call {
    /// Reads a request and its answer. `None` if it is not about records.
    pub fn of(operation: &str, request: &Value, is_accepted: bool, answer: &Value) -> Option<Self> {
        let parts = match operation {
            "TransactWriteItems" => {
                request["TransactItems"].as_array().map(Vec::as_slice).unwrap_or_default()
            }
            "PutItem" | "UpdateItem" | "DeleteItem" | "GetItem" => std::slice::from_ref(request),
            _ => return None,
        };
        let parts = parts.iter().flat_map(|part| match operation {
            "TransactWriteItems" => part.as_object().map(|part| part.values().collect()).unwrap_or_default(),
            _ => vec![part],
        });
        let (mut records, mut written, mut does, mut count) = (Vec::new(), None, "writes beside it", 0);
        for part in parts {
            count += 1;
            let place = if part["Item"].is_null() { &part["Key"] } else { &part["Item"] };
            let Some(pk) = place["pk"]["S"].as_str().filter(|pk| RecordKey::from_partition_key(pk).is_some())
            else {
                continue;
            };
            if !records.iter().any(|record| record == pk) {
                records.push(pk.to_owned());
            }
            match place["sk"]["S"].as_str() {
                Some(RECORD) if part["Item"].is_object() => written = Some(part["Item"].clone()),
                Some(RECORD) if operation == "GetItem" => does = "reads the record",
                _ if operation == "GetItem" => does = "reads beside it",
                _ => {}
            }
        }
        if records.is_empty() {
            return None;
        }
        let item = written.clone().filter(|_| is_accepted);
        let refused = (!is_accepted).then(|| refusal(answer));
        let units = match is_accepted {
            true => capacity(&answer["ConsumedCapacity"]),
            false if operation == "TransactWriteItems" => f64::from(2 * count),
            false => 1.0,
        };
        Some(Self { operation: operation.to_owned(), records, item, does, refused, units })
    }

    /// Its step in a timeline of a record that was `before`.
    pub fn step(&self, who: &str, before: &Value) -> Step {
        let (kind, what) = match (&self.refused, &self.item) {
            (Some(refused), _) => (Kind::Look, refused.clone()),
            (None, Some(item)) => (Kind::Change, change(before, item)),
            (None, None) => (Kind::Look, self.does.to_owned()),
        };
        Step { round_trips: 1, units: self.units, ..Step::new(who, kind, &what) }
    }
}

fn capacity(consumed: &Value) -> f64 {
    match consumed {
        Value::Array(tables) => tables.iter().map(capacity).sum(),
        one => one["CapacityUnits"].as_f64().unwrap_or_default(),
    }
}

/// Why a write was refused.
fn refusal(answer: &Value) -> String {
    let kind = answer["__type"].as_str().unwrap_or_default();
    let kind = kind.rsplit('#').next().unwrap_or_default();
    let found = match answer["CancellationReasons"].as_array() {
        Some(reasons) => reasons.iter().map(|reason| &reason["Item"]).find(|item| item.is_object()),
        None => Some(&answer["Item"]),
    };
    let state = found.and_then(|item| item["state"]["S"].as_str()).map(spoken);
    match (kind, state) {
        ("ConditionalCheckFailedException" | "TransactionCanceledException", Some(state)) => {
            format!("finds it {state}")
        }
        ("ConditionalCheckFailedException" | "TransactionCanceledException", None) => {
            "is refused: the record has changed".to_owned()
        }
        (kind, _) => format!("is refused: {kind}"),
    }
}

/// What a write makes of a record.
fn change(before: &Value, after: &Value) -> String {
    let text = |item: &Value, name: &str| item[name]["S"].as_str().unwrap_or_default().to_owned();
    let number = |item: &Value, name: &str| item[name]["N"].as_str().unwrap_or("1").to_owned();
    let (was, is) = (text(before, "state"), text(after, "state"));
    let by = match &*text(after, "settled_by") {
        "" | "worker" => String::new(),
        by => format!(", by {by}"),
    };
    let is_same = was == is && before["attempt"] == after["attempt"];
    match &*is {
        "in_progress" if is_same && before["phases"] != after["phases"] => {
            "keeps a recovery point".to_owned()
        }
        "in_progress" if is_same => "extends the lease".to_owned(),
        "in_progress" => match &*number(after, "attempts") {
            "1" => "reserve: in progress".to_owned(),
            attempts => format!("takes over: in progress, execution {attempts}"),
        },
        "completed" => format!("complete{by}"),
        "failed_retryable" => format!("release{by}: the next retry runs it"),
        "unknown" if is_same => format!("stays unknown: asked {} times", number(after, "asked")),
        "unknown" => format!("unknown: {}", spoken(&text(after, "cause"))),
        other => spoken(other),
    }
}

/// `in_progress` as it is spoken.
fn spoken(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(state: &str, attempt: &str, attempts: &str) -> Value {
        json!({
            "pk": { "S": "acme#pay#k" }, "sk": { "S": "record" },
            "state": { "S": state }, "attempt": { "B": attempt }, "attempts": { "N": attempts },
        })
    }

    fn said(before: &Value, after: Value) -> String {
        let request = json!({ "TableName": "t", "Item": after });
        let answer = json!({ "ConsumedCapacity": { "CapacityUnits": 2.0 } });
        let call = Call::of("PutItem", &request, true, &answer).expect("it is about a record");
        assert_eq!((call.records.clone(), call.item.as_ref()), (vec!["acme#pay#k".to_owned()], Some(&after)));
        let step = call.step("pay", before);
        assert_eq!((step.kind, step.round_trips, step.units), (Kind::Change, 1, 2.0));
        step.what
    }

    #[test]
    fn a_write_is_named_by_what_it_makes_of_the_record() {
        let first = item("in_progress", "a", "1");
        let with = |mut item: Value, name: &str, value: Value| {
            item[name] = value;
            item
        };
        let unknown = with(item("unknown", "a", "1"), "cause", json!({ "S": "lease_expired" }));
        for (before, after, expected) in [
            (&Value::Null, first.clone(), "reserve: in progress"),
            (&first, first.clone(), "extends the lease"),
            (&first, with(first.clone(), "phases", json!({ "L": [] })), "keeps a recovery point"),
            (&first, unknown.clone(), "unknown: lease expired"),
            (&unknown, with(unknown.clone(), "asked", json!({ "N": "2" })), "stays unknown: asked 2 times"),
            (&unknown, item("in_progress", "b", "2"), "takes over: in progress, execution 2"),
            (&first, with(item("completed", "a", "1"), "settled_by", json!({ "S": "worker" })), "complete"),
            (
                &unknown,
                with(item("failed_retryable", "a", "1"), "settled_by", json!({ "S": "provider" })),
                "release, by provider: the next retry runs it",
            ),
        ] {
            assert_eq!(said(before, after), expected);
        }
    }

    #[test]
    fn what_is_refused_shows_what_was_found() {
        let put = json!({ "TableName": "t", "Item": item("in_progress", "b", "1") });
        let failed = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException";
        let answer = json!({ "__type": failed, "Item": item("completed", "a", "1") });
        let call = Call::of("PutItem", &put, false, &answer).unwrap();
        let step = call.step("pay", &Value::Null);
        assert_eq!((step.kind, &*step.what, step.units), (Kind::Look, "finds it completed", 1.0));
        assert_eq!(call.item, None, "nothing was written");

        let row = json!({ "Put": { "TableName": "rows", "Item": { "pk": { "S": "acme" } } } });
        let transaction = json!({ "TransactItems": [{ "Put": put }, row] });
        let cancelled =
            json!({ "__type": "a#TransactionCanceledException", "CancellationReasons": [{}, {}] });
        let call = Call::of("TransactWriteItems", &transaction, false, &cancelled).unwrap();
        let step = call.step("pay", &Value::Null);
        assert_eq!((&*step.what, step.units), ("is refused: the record has changed", 4.0));
        let used = json!({ "ConsumedCapacity": [{ "CapacityUnits": 2.0 }, { "CapacityUnits": 4.0 }] });
        let call = Call::of("TransactWriteItems", &transaction, true, &used).unwrap();
        assert_eq!((call.records.len(), call.step("pay", &Value::Null).units), (1, 6.0));
    }

    #[test]
    fn other_calls_are_not_told() {
        let row = json!({ "TableName": "rows", "Item": { "pk": { "S": "acme" } } });
        for (operation, request) in [("PutItem", row), ("Query", json!({})), ("PutItem", json!(1))] {
            assert_eq!(Call::of(operation, &request, true, &json!({})), None);
        }
        let read = json!({ "Key": { "pk": { "S": "acme#pay#k" }, "sk": { "S": "record" } } });
        let call = Call::of("GetItem", &read, true, &json!({ "ConsumedCapacity": { "CapacityUnits": 1.0 } }));
        assert_eq!(call.unwrap().step("pay", &Value::Null).what, "reads the record");
    }
}
