//! A call of DynamoDB about records, in the words of this project.

use super::{
    outbox::Place,
    timeline::{Cost, Kind, Step},
};
use lambda_idempotency::key::RecordKey;
use serde_json::Value;

/// The sort key of a record.
const RECORD: &str = "record";
/// How the sort key of a message in the outbox begins.
const MESSAGE: &str = "message#";

/// A call, and what came of it.
#[derive(Debug, PartialEq)]
pub struct Call {
    /// The partition keys of the records that it is about.
    pub records: Vec<String>,
    /// The record that it has written.
    pub item: Option<Value>,
    /// The messages that it has published, with their topics.
    pub published: Vec<(Place, String)>,
    /// The messages that it has removed from the outbox.
    pub removed: Vec<Place>,
    /// What it does, if it does not write the record.
    does: &'static str,
    /// Why it was refused.
    refused: Option<String>,
    pub cost: Cost,
}

impl Call {
    /// Reads a request to this table of records, and its answer. `None` if it is not about records.
    pub fn of(
        table: &str,
        operation: &str,
        request: &Value,
        is_accepted: bool,
        answer: &Value,
    ) -> Option<Self> {
        let parts: Vec<_> = match operation {
            "TransactWriteItems" => {
                let parts = request["TransactItems"].as_array().map(Vec::as_slice).unwrap_or_default();
                parts.iter().filter_map(|part| part.as_object()?.values().next()).collect()
            }
            "PutItem" | "UpdateItem" | "DeleteItem" | "GetItem" => vec![request],
            _ => return None,
        };
        let reads = operation == "GetItem";
        let (mut records, mut written) = (Vec::new(), None);
        let (mut published, mut removed) = (Vec::new(), Vec::new());
        let mut does = if reads { "reads beside it" } else { "writes beside it" };
        for (place, part) in parts.iter().enumerate().filter(|(_, part)| part["TableName"] == table) {
            let key = if part["Item"].is_null() { &part["Key"] } else { &part["Item"] };
            let pk = key["pk"]["S"].as_str().filter(|pk| RecordKey::from_partition_key(pk).is_some());
            let Some(pk) = pk else { continue };
            if !records.iter().any(|record| record == pk) {
                records.push(pk.to_owned());
            }
            let sort_key = key["sk"]["S"].as_str().unwrap_or_default();
            if sort_key.starts_with(MESSAGE) && is_accepted && !reads {
                let place = (pk.to_owned(), sort_key.to_owned());
                match part["Item"]["topic"]["S"].as_str() {
                    Some(topic) => published.push((place, topic.to_owned())),
                    None => removed.push(place),
                }
            }
            if sort_key == RECORD {
                match part["Item"].is_object() {
                    true => written = Some((place, part["Item"].clone())),
                    false if reads => does = "reads the record",
                    false => {}
                }
            }
        }
        if records.is_empty() {
            return None;
        }
        let place = written.as_ref().map(|(place, _)| *place);
        let refused = (!is_accepted).then(|| refusal(answer, place));
        let used = match is_accepted {
            true => capacity(&answer["ConsumedCapacity"]),
            false => refused_capacity(answer, parts.len()),
        };
        let (reads, writes) = if reads { (used, 0.0) } else { (0.0, used) };
        let item = written.map(|(_, item)| item).filter(|_| is_accepted);
        let cost = Cost { round_trips: 1, reads, writes };
        Some(Self { records, item, published, removed, does, refused, cost })
    }

    /// Its step in a timeline of a record that was `before`.
    pub fn step(&self, who: &str, before: &Value) -> Step {
        let (kind, what) = match (&self.refused, &self.item) {
            (Some(refused), _) => (Kind::Look, refused.clone()),
            (None, Some(item)) => {
                let topics: Vec<_> = self.published.iter().map(|(_, topic)| &**topic).collect();
                let published = match topics.is_empty() {
                    true => String::new(),
                    false => format!("; publishes {}", topics.join(", ")),
                };
                (Kind::Change, change(before, item) + &published)
            }
            (None, None) => (Kind::Look, self.does.to_owned()),
        };
        Step { cost: self.cost, ..Step::new(who, kind, &what) }
    }
}

fn capacity(consumed: &Value) -> f64 {
    match consumed {
        Value::Array(tables) => tables.iter().map(capacity).sum(),
        one => one["CapacityUnits"].as_f64().unwrap_or_default(),
    }
}

/// What AWS counts for a write whose condition failed, which its answer does not say: a unit for each KB of what was found, and two for each
/// item of a transaction.
fn refused_capacity(answer: &Value, parts: usize) -> f64 {
    match kind(answer) {
        FAILED => (size(&answer["Item"]) as f64 / 1024.0).ceil().max(1.0),
        CANCELLED => 2.0 * parts as f64,
        _ => 0.0,
    }
}

/// The size of an item, about: its names and values, without the types of DynamoDB's JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| match (&**name, value) {
                ("B", Value::String(base64)) => base64.len() * 3 / 4,
                (name, value) if TYPES.contains(&name) => size(value),
                (name, value) => name.len() + size(value),
            };
            members.iter().map(member).sum()
        }
        Value::Array(values) => values.iter().map(size).sum(),
        Value::String(text) => text.len(),
        _ => 1,
    }
}

/// The types of DynamoDB's JSON.
const TYPES: [&str; 7] = ["S", "N", "B", "BOOL", "NULL", "L", "M"];
const FAILED: &str = "ConditionalCheckFailedException";
const CANCELLED: &str = "TransactionCanceledException";

fn kind(answer: &Value) -> &str {
    answer["__type"].as_str().unwrap_or_default().rsplit('#').next().unwrap_or_default()
}

/// Why a write was refused, whose record is at this place of its transaction.
fn refusal(answer: &Value, place: Option<usize>) -> String {
    let found = |item: &Value| match item["state"]["S"].as_str() {
        Some(state) => format!("finds it {}", spoken(state)),
        None => "is refused: the record has changed".to_owned(),
    };
    match kind(answer) {
        FAILED => found(&answer["Item"]),
        CANCELLED => {
            let reasons = answer["CancellationReasons"].as_array().map(Vec::as_slice).unwrap_or_default();
            let code = |reason: &Value| reason["Code"].as_str().unwrap_or("None").to_owned();
            let own = place
                .and_then(|place| reasons.get(place))
                .filter(|own| code(own) == "ConditionalCheckFailed");
            let other = reasons.iter().map(code).find(|code| code != "None");
            match (own, other.as_deref()) {
                (Some(own), _) => found(&own["Item"]),
                (None, Some("ConditionalCheckFailed")) => {
                    "is refused: the condition of a row fails".to_owned()
                }
                (None, code) => format!("is refused: {}", code.unwrap_or(CANCELLED)),
            }
        }
        kind => format!("is refused: {kind}"),
    }
}

/// What a write makes of a record.
fn change(before: &Value, after: &Value) -> String {
    let text = |item: &Value, name: &str| item[name]["S"].as_str().map(spoken).unwrap_or_default();
    let number = |name: &str| after[name]["N"].as_str().unwrap_or("0").to_owned();
    let differs = |name: &str| before[name] != after[name];
    let by = match &*text(after, "settled_by") {
        "" | "worker" => String::new(),
        by => format!(", by {by}"),
    };
    let was = if differs("attempt") {
        "another execution"
    } else {
        before["state"]["S"].as_str().unwrap_or_default()
    };
    let is = after["state"]["S"].as_str().unwrap_or_default();
    let alarm = alarm(&before["alarms"]["L"], &after["alarms"]["L"]);
    let is_all =
        was == is && !["cause", "reported", "lease_until", "phases", "effect_id"].into_iter().any(differs);
    if let Some(alarm) = alarm.as_ref().filter(|_| is_all) {
        return alarm.clone();
    }
    let change = match (was, is) {
        (was, is) if was == is && differs("effect_id") => {
            format!(
                "names its effect at the provider: {}",
                after["effect_id"]["S"].as_str().unwrap_or_default()
            )
        }
        ("in_progress", "in_progress") if differs("phases") => "keeps a recovery point".to_owned(),
        ("in_progress", "in_progress") if differs("lease_until") => "extends the lease".to_owned(),
        ("unknown", "unknown") if differs("cause") => format!("unknown: {}", text(after, "cause")),
        ("unknown", "unknown") if differs("reported") => "notes what was reported besides".to_owned(),
        ("unknown", "unknown") if differs("reconcile_at") && after["reconcile_at"]["N"] == NEVER => {
            "escalated: an operator must settle it".to_owned()
        }
        ("unknown", "unknown") if differs("asked") => {
            format!("stays unknown: question {} settled nothing", number("asked"))
        }
        ("between_workers", "between_workers") => "waits for a retry again".to_owned(),
        ("completed", "completed") => "changes what is kept of the answer".to_owned(),
        (was, is) if was == is => "notes what was reported besides".to_owned(),
        ("unknown", "in_progress") => "is in progress again: its worker lives".to_owned(),
        ("pending", "in_progress") => format!("claim: in progress, execution {}", number("attempts")),
        (_, "in_progress") => match (&*number("attempts"), before["state"]["S"].as_str()) {
            (attempts, Some("pending")) => format!("claim: in progress, execution {attempts}"),
            ("1", _) => "reserve: in progress".to_owned(),
            (attempts, _) => format!("take over: in progress, execution {attempts}"),
        },
        (_, "completed") => format!("complete{by}"),
        (_, "failed_retryable") if text(after, "settled_by") == "not begun" => {
            "refused before it began: the key is free".to_owned()
        }
        (_, "failed_retryable") => format!("release{by}: the next retry runs it"),
        (_, "unknown") => format!("unknown: {}", text(after, "cause")),
        (_, other) => spoken(other),
    };
    alarm.into_iter().fold(change, |change, alarm| format!("{change}; {alarm}"))
}

/// What a write makes of a record's alarms, if it changes them.
fn alarm(before: &Value, after: &Value) -> Option<String> {
    let alarms = |all: &Value| all.as_array().cloned().unwrap_or_default();
    let (before, after) = (alarms(before), alarms(after));
    let raised = after.iter().skip(before.len());
    let kinds: Vec<_> = raised.filter_map(|alarm| alarm["M"]["kind"]["S"].as_str()).map(spoken).collect();
    if before == after {
        None
    } else if !kinds.is_empty() {
        Some(format!("raises an alarm: {}", kinds.join(", ")))
    } else if after.is_empty() {
        Some("its alarms are cleared".to_owned())
    } else {
        Some("operators are told of its alarm".to_owned())
    }
}

/// When an escalated record is asked about.
const NEVER: &str = "18446744073709551615";

/// `in_progress` as it is spoken.
fn spoken(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "t";

    fn item(state: &str, attempt: &str, attempts: &str) -> Value {
        json!({
            "pk": { "S": "acme#pay#k" }, "sk": { "S": "record" },
            "state": { "S": state }, "attempt": { "B": attempt }, "attempts": { "N": attempts },
        })
    }

    fn with(mut item: Value, name: &str, value: Value) -> Value {
        item[name] = value;
        item
    }

    fn said(before: &Value, after: &Value) -> String {
        let request = json!({ "TableName": TABLE, "Item": after });
        let answer = json!({ "ConsumedCapacity": { "CapacityUnits": 2.0 } });
        let call = Call::of(TABLE, "PutItem", &request, true, &answer).expect("it is about a record");
        assert_eq!((call.records.clone(), call.item.as_ref()), (vec!["acme#pay#k".to_owned()], Some(after)));
        let step = call.step("pay", before);
        assert_eq!((step.kind, step.cost), (Kind::Change, Cost { round_trips: 1, reads: 0.0, writes: 2.0 }));
        step.what
    }

    #[test]
    fn a_write_is_named_by_what_it_makes_of_the_record() {
        let first = item("in_progress", "a", "1");
        let text = |text: &str| json!({ "S": text });
        let number = |number: &str| json!({ "N": number });
        let unknown = with(item("unknown", "a", "1"), "cause", text("lease_expired"));
        let completed = with(item("completed", "a", "1"), "settled_by", text("worker"));
        for (before, after, expected) in [
            (&Value::Null, &first, "reserve: in progress"),
            (&first, &with(first.clone(), "lease_until", number("9")), "extends the lease"),
            (&first, &with(first.clone(), "phases", json!({ "L": [] })), "keeps a recovery point"),
            (&first, &with(first.clone(), "reported", text("effect")), "notes what was reported besides"),
            (&first, &unknown, "unknown: lease expired"),
            (&unknown, &first, "is in progress again: its worker lives"),
            (
                &unknown,
                &with(unknown.clone(), "asked", number("2")),
                "stays unknown: question 2 settled nothing",
            ),
            (
                &unknown,
                &with(with(unknown.clone(), "asked", number("2")), "reconcile_at", number(NEVER)),
                "escalated: an operator must settle it",
            ),
            (&unknown, &with(unknown.clone(), "cause", text("held")), "unknown: held"),
            (
                &item("failed_retryable", "a", "1"),
                &item("in_progress", "b", "2"),
                "take over: in progress, execution 2",
            ),
            (&item("pending", "a", "0"), &item("in_progress", "b", "1"), "claim: in progress, execution 1"),
            (&first, &completed, "complete"),
            (
                &completed,
                &with(completed.clone(), "status", number("200")),
                "changes what is kept of the answer",
            ),
            (
                &unknown,
                &with(item("failed_retryable", "a", "1"), "settled_by", text("not_begun")),
                "refused before it began: the key is free",
            ),
        ] {
            assert_eq!(said(before, after), expected);
        }
    }

    #[test]
    fn a_write_names_the_messages_that_it_publishes_and_removes() {
        let named = |item: Value, sort_key: &str| with(item, "sk", json!({ "S": sort_key }));
        let completed = with(item("completed", "a", "1"), "settled_by", json!({ "S": "worker" }));
        let message = named(json!({ "pk": { "S": "acme#pay#k" }, "topic": { "S": "paid" } }), "message#1#0");
        let puts = [&completed, &message].map(|item| json!({ "Put": { "TableName": TABLE, "Item": item } }));
        let request = json!({ "TransactItems": puts });
        let call = Call::of(TABLE, "TransactWriteItems", &request, true, &json!({})).expect("of a record");
        let place = ("acme#pay#k".to_owned(), "message#1#0".to_owned());
        assert_eq!(call.step("pay", &item("in_progress", "a", "1")).what, "complete; publishes paid");
        assert_eq!((call.published, call.removed), (vec![(place.clone(), "paid".to_owned())], vec![]));
        let refused =
            Call::of(TABLE, "TransactWriteItems", &request, false, &json!({})).expect("of a record");
        assert_eq!(refused.published, []);

        let key = named(json!({ "pk": { "S": "acme#pay#k" } }), "message#1#0");
        let request = json!({ "TableName": TABLE, "Key": key });
        let removal = Call::of(TABLE, "DeleteItem", &request, true, &json!({})).expect("of a record");
        assert_eq!((removal.published, removal.removed), (vec![], vec![place]));
        let read = Call::of(TABLE, "GetItem", &request, true, &json!({})).expect("of a record");
        assert_eq!(read.removed, []);
    }

    // T54
    #[test]
    fn a_write_says_what_it_makes_of_alarms() {
        let alarms = |kind: &str, told: bool| json!({ "L": [{ "M": { "kind": { "S": kind }, "told": { "BOOL": told } } }] });
        let alarmed = |item: &Value, kind, told| with(item.clone(), "alarms", alarms(kind, told));
        let (first, completed) = (item("in_progress", "a", "1"), item("completed", "a", "1"));
        let untold = alarmed(&completed, "second_answer", false);
        let told = alarmed(&completed, "second_answer", true);
        let named = with(completed.clone(), "effect_id", json!({ "S": "ch_1" }));
        let reported = with(alarmed(&first, "second_execution", false), "reported", json!({ "S": "effect" }));
        for (before, after, expected) in [
            (&completed, &untold, "raises an alarm: second answer"),
            (&untold, &told, "operators are told of its alarm"),
            (&told, &completed, "its alarms are cleared"),
            (&told, &named, "names its effect at the provider: ch_1; its alarms are cleared"),
            (&completed, &named, "names its effect at the provider: ch_1"),
            (
                &item("unknown", "b", "2"),
                &alarmed(&item("completed", "b", "2"), "second_execution", false),
                "complete; raises an alarm: second execution",
            ),
            (&first, &reported, "notes what was reported besides; raises an alarm: second execution"),
        ] {
            assert_eq!(said(before, after), expected);
        }
    }

    #[test]
    fn what_is_refused_shows_what_was_found() {
        let put = json!({ "TableName": TABLE, "Item": item("in_progress", "b", "1") });
        let row = json!({ "Put": { "TableName": "rows", "Item": { "pk": { "S": "acme#order#17" } } } });
        let transaction = json!({ "TransactItems": [{ "Put": put }, row] });
        let error = |kind: &str| format!("com.amazonaws.dynamodb.v20120810#{kind}");
        let found = item("completed", "a", "1");
        let none = json!({ "Code": "None" });
        let failed = json!({ "Code": "ConditionalCheckFailed" });
        let cancelled =
            |reasons: Value| json!({ "__type": error(CANCELLED), "CancellationReasons": reasons });
        let failed_with = json!({ "Code": "ConditionalCheckFailed", "Item": found });
        for (operation, request, answer, expected, writes) in [
            ("PutItem", &put, json!({ "__type": error(FAILED), "Item": found }), "finds it completed", 1.0),
            ("PutItem", &put, json!({ "__type": error(FAILED) }), "is refused: the record has changed", 1.0),
            ("PutItem", &put, json!({ "__type": "x#Throttled" }), "is refused: Throttled", 0.0),
            (TRANSACT, &transaction, cancelled(json!([failed_with, none])), "finds it completed", 4.0),
            (
                TRANSACT,
                &transaction,
                cancelled(json!([none, failed])),
                "is refused: the condition of a row fails",
                4.0,
            ),
            (
                TRANSACT,
                &transaction,
                cancelled(json!([none, { "Code": "TransactionConflict" }])),
                "is refused: TransactionConflict",
                4.0,
            ),
        ] {
            let call = Call::of(TABLE, operation, request, false, &answer).unwrap();
            let step = call.step("pay", &Value::Null);
            assert_eq!((step.kind, &*step.what, step.cost.writes), (Kind::Look, expected, writes));
            assert_eq!(
                (call.item, call.records.len()),
                (None, 1),
                "nothing was written, and a row is no record"
            );
        }
        let long = with(found.clone(), "body", json!({ "B": "x".repeat(4_000) }));
        let answer = json!({ "__type": error(FAILED), "Item": long });
        assert_eq!(Call::of(TABLE, "PutItem", &put, false, &answer).unwrap().cost.writes, 3.0);
        let used = json!({ "ConsumedCapacity": [{ "CapacityUnits": 2.0 }, { "CapacityUnits": 4.0 }] });
        assert_eq!(Call::of(TABLE, TRANSACT, &transaction, true, &used).unwrap().cost.writes, 6.0);
    }

    const TRANSACT: &str = "TransactWriteItems";

    #[test]
    fn other_calls_are_not_told() {
        let row =
            json!({ "TableName": "rows", "Item": { "pk": { "S": "acme#pay#k" }, "sk": { "S": "record" } } });
        for (operation, request) in [("PutItem", row), ("Query", json!({})), ("PutItem", json!(1))] {
            assert_eq!(Call::of(TABLE, operation, &request, true, &json!({})), None);
        }
        let key = json!({ "pk": { "S": "acme#pay#k" }, "sk": { "S": "record" } });
        let read = json!({ "TableName": TABLE, "Key": key });
        let answer = json!({ "ConsumedCapacity": { "CapacityUnits": 1.0 } });
        let call = Call::of(TABLE, "GetItem", &read, true, &answer).unwrap();
        assert_eq!(call.cost, Cost { round_trips: 1, reads: 1.0, writes: 0.0 });
        assert_eq!(call.step("pay", &Value::Null).what, "reads the record");
    }
}
