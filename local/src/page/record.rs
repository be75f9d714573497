//! A record, with what its state means.

use crate::cloud::Cloud;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{key::RecordKey, record::StateName};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A record on the page.
pub struct Shown {
    /// Its partition key.
    pub name: String,
    pub attempt: String,
    pub state: String,
    /// What the state means.
    pub says: &'static str,
    pub fields: Vec<(&'static str, Field)>,
    pub can_be_settled: bool,
    /// With what an operator settles it as executed.
    pub settled_with: &'static str,
    /// JSON.
    pub item: String,
}

/// A field's value.
pub enum Field {
    Text(String),
    /// Milliseconds since 1970, as the time until then.
    Until(u64),
}

/// The records with these partition keys, as they are now.
pub async fn read(cloud: &Cloud, names: &[String]) -> Vec<Shown> {
    let Some(table) = cloud.journal.table() else { return Vec::new() };
    let mut shown = Vec::new();
    for name in names {
        let get = cloud.events.client.get_item().table_name(table).consistent_read(true);
        let get =
            get.key("pk", AttributeValue::S(name.clone())).key("sk", AttributeValue::S("record".to_owned()));
        if let Ok(answer) = get.send().await
            && let Some(found) = answer.item
        {
            let item = found.iter().map(|(name, value)| (name.clone(), plain(value))).collect();
            shown.push(Shown::of(name, &item));
        }
    }
    shown
}

impl Shown {
    fn of(name: &str, item: &Value) -> Self {
        let text = |name: &str| item[name].as_str().map(str::to_owned);
        let state = text("state").unwrap_or_default();
        let mut fields = Vec::new();
        for (attribute, spoken) in [
            ("revision", "revision"),
            ("attempts", "executions"),
            ("cause", "cause"),
            ("reported", "reported besides"),
            ("asked", "times asked"),
            ("settled_by", "settled by"),
            ("status", "answer"),
            ("last_failure", "last failure"),
            ("effect_id", "effect at the provider"),
        ] {
            fields.extend(text(attribute).map(|value| (spoken, Field::Text(value))));
        }
        let due = if state == "unknown" { "next question" } else { "is escalated" };
        let pending = (state == "pending").then_some(("claim_by", "must be taken"));
        for (attribute, spoken) in
            [("lease_until", "lease ends"), ("reconcile_at", due)].into_iter().chain(pending)
        {
            let time = text(attribute).and_then(|value| value.parse().ok());
            fields.extend(time.map(|time| match time {
                // Escalated: nobody asks any more.
                u64::MAX => {
                    (spoken, Field::Text("never: it is escalated, and an operator must settle it".to_owned()))
                }
                time => (spoken, Field::Until(time)),
            }));
        }
        fields.extend(alarms(&item["alarms"]));
        for (attribute, spoken) in
            [("expires_at", "expires"), ("expires_once_cleared", "would expire, were its alarms cleared")]
        {
            let expires = text(attribute).and_then(|value| value.parse::<u64>().ok());
            fields.extend(expires.map(|seconds| (spoken, Field::Until(seconds * 1000))));
        }
        Self {
            name: name.to_owned(),
            says: says(&state, text("settled_by").as_deref()),
            attempt: text("attempt").unwrap_or_default(),
            settled_with: match text("answer_kind").as_deref() {
                Some("function") => "with this result",
                _ => "201, with this answer",
            },
            can_be_settled: state == "unknown" && RecordKey::from_partition_key(name).is_some(),
            state,
            fields,
            item: serde_json::to_string_pretty(item).unwrap_or_default(),
        }
    }
}

/// What operators must look at, whatever the state.
fn alarms(alarms: &Value) -> Vec<(&'static str, Field)> {
    let alarms = alarms.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |alarm: &Value, name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
    let mut fields: Vec<_> = alarms
        .iter()
        .map(|alarm| {
            let told = match alarm["told"].as_bool() {
                Some(true) => "operators are told, and must clear it: `idempotency clear-alarms`",
                _ => "the next poll tells operators",
            };
            let kind = text(alarm, "kind").replace('_', " ");
            ("alarm", Field::Text(format!("{kind}: {}; {told}", text(alarm, "because"))))
        })
        .collect();
    let reports = alarms.iter().filter(|alarm| alarm["report"].is_string()).count();
    fields.extend((reports > 0).then(|| ("reports beside it", Field::Text(reports.to_string()))));
    fields
}

/// An attribute as it is read. Numbers and bytes are text.
pub fn plain(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => json!(text),
        AttributeValue::Bool(value) => json!(value),
        AttributeValue::L(values) => values.iter().map(plain).collect(),
        AttributeValue::M(members) => {
            members.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
        }
        AttributeValue::B(bytes) => json!(bytes.as_ref().iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })),
        _ => Value::Null,
    }
}

/// What a state means for a retry.
fn says(state: &str, settled_by: Option<&str>) -> &'static str {
    let Some(state) = StateName::parse(state) else { return "" };
    match state {
        StateName::InProgress => {
            "A worker has the key, until its lease ends. A retry gets 409, and nothing runs twice. If the worker dies, it is not known at \
             first how far it came."
        }
        StateName::Completed => {
            "The outcome is known, and its answer is kept. A retry gets this answer, and nothing runs."
        }
        StateName::Unknown => {
            "It cannot be known here whether the effect happened: the worker died, or got no answer, after the effect may have begun. To run \
             it again could do it twice, and to call it failed could be wrong. So retries get an error, and nothing runs, until the provider \
             has been asked, or an operator says what happened. \"Not found\" counts only once no lost request can still arrive."
        }
        StateName::FailedRetryable => match settled_by {
            Some("provider") => {
                "The provider says that it did not happen. The next retry with this key runs it."
            }
            Some("operator") => {
                "An operator says that it did not happen. The next retry with this key runs it."
            }
            Some("assumption") => {
                "The provider knows of no effect, and none can be under way any more: it counts as not executed. The next retry with this key \
                 runs it."
            }
            _ => "It certainly did not happen. The next retry with this key runs it.",
        },
        StateName::BetweenWorkers => {
            "A part is done, and kept. The next retry with this key goes on behind it."
        }
        StateName::Pending => "The request is accepted, and waits for a worker.",
    }
}
