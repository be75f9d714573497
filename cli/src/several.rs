//! Several records that one command changes, and those that it does not.

use lambda_idempotency::{key::RecordKey, operator::Correction, record::Record};
use serde_json::{Value, json};

use crate::{
    change::{self, BUSY},
    context::Context,
    failure::Failure,
    output::{Screen, cell},
    record::RecordJson,
};

/// A record that is not changed, and why; or a name without a record.
pub struct Refused {
    key: RecordKey,
    why: String,
    record: Option<Record>,
}

impl Refused {
    pub fn new(record: Record, why: String) -> Self {
        Self { key: record.key.clone(), why, record: Some(record) }
    }
}

/// The records of these names. A name without one is refused.
pub async fn named(
    context: &Context,
    names: &[RecordKey],
    refused: &mut Vec<Refused>,
) -> Result<Vec<Record>, Failure> {
    let mut found = Vec::new();
    for key in names {
        match context.load(key).await {
            Ok(record) => found.push(record),
            Err(Failure::NotAsExpected(why)) => {
                refused.push(Refused { key: key.clone(), why, record: None });
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

/// Those that can be corrected so. The others are refused.
pub fn allowed(
    context: &Context,
    found: Vec<Record>,
    correction: &Correction,
    refused: &mut Vec<Refused>,
) -> Vec<Record> {
    let mut allowed = Vec::new();
    for record in found {
        match context.operator.preview(&record, correction) {
            Ok(_) => allowed.push(record),
            Err(error) => refused.push(Refused::new(record, error.to_string())),
        }
    }
    allowed
}

/// A line for each that is refused; `None` if none is.
pub fn table(screen: &Screen, header: &str, refused: &[Refused]) -> Option<String> {
    let mut table = screen.table([header, "why"]);
    for Refused { key, why, .. } in refused {
        table.add_row([cell(key.partition_key()), cell(why)]);
    }
    (!refused.is_empty()).then(|| table.trim_fmt())
}

/// Each that was corrected, with what it is now.
pub fn done_json(done: &[(Record, &'static str)]) -> Vec<Value> {
    done.iter().map(|(record, is)| json!({ "was": RecordJson::from(record), "is": is })).collect()
}

/// Each that is refused.
pub fn refused_json(refused: &[Refused]) -> Vec<Value> {
    let json = |Refused { key, why, record }: &Refused| {
        let record = record.as_ref().map(RecordJson::from);
        json!({ "name": key.partition_key(), "record": record, "why": why })
    };
    refused.iter().map(json).collect()
}

/// Of those that were named, each was meant: fails if one is not `changed`, such as `held`.
pub fn each_was_meant(
    done: &[(Record, &'static str)],
    refused: &[Refused],
    changed: &str,
) -> Result<(), Failure> {
    if let Some((record, _)) = done.iter().find(|(_, is)| *is == BUSY) {
        let name = change::name(&record.key);
        return Err(Failure::NotAsExpected(format!("{name} has changed meanwhile, and is not {changed}")));
    }
    match refused.first() {
        Some(Refused { key, why, .. }) => {
            let name = change::name(key);
            Err(Failure::NotAsExpected(format!("{} not {changed}: {name}: {why}", refused.len())))
        }
        None => Ok(()),
    }
}
