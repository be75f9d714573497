//! `show`: shows one record with its audit lines.

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::{
    internal::terminal::harmless_text,
    record::{Answer, Record, State},
    store::{AuditLine, Store},
    time::Timestamp,
};
use serde_json::{Value, json};

use crate::{
    args,
    context::Context,
    failure::Failure,
    find,
    output::{cell, cell_of_lines, iso, when},
    record::{RecordJson, fields},
};

pub async fn run(context: &Context, args: &args::Show) -> Result<(), Failure> {
    let key = match args.record.hash() {
        Some(hash) => find::by_hash(context, &hash, args).await?,
        None => args.record.record_key()?,
    };
    let record = context.load(&key).await?;
    let lines = context.store.audit_lines(&key).await?;
    let (answer, without) = match args.body {
        true => match answer(context, &record).await {
            Ok(answer) => (Some(answer), Ok(())),
            // The record is still shown, and then why its body is missing.
            Err(failure) => (None, Err(failure)),
        },
        false => (None, Ok(())),
    };
    if context.screen.is_json() {
        let lines: Vec<_> = lines.iter().map(line_json).collect();
        let mut document = json!({ "record": RecordJson::from(&record), "audit": lines });
        if !args.phase.is_empty() {
            let keys =
                args.phase.iter().map(|phase| (phase.clone(), Value::from(downstream_key(&record, phase))));
            document["downstream_keys"] = Value::Object(keys.collect());
        }
        if let Some(answer) = answer {
            document["body"] = body_json(&answer.body);
        }
        context.screen.print_json(&document, false)?;
        return without;
    }
    let now = context.now();
    let derived = |phase: &str| cell(format!("{} (derived, not looked up)", downstream_key(&record, phase)));
    let labels: Vec<_> = args.phase.iter().map(|phase| format!("downstream key of `{phase}`")).collect();
    let mut fields = fields(&record, now);
    fields.extend(labels.iter().zip(&args.phase).map(|(label, phase)| (label.as_str(), derived(phase))));
    fields.extend(lines.iter().map(|line| ("audit", cell_of_lines(line_text(line, now)))));
    context.screen.print_table(&context.screen.fields(fields))?;
    match answer {
        Some(Answer { body, .. }) if context.screen.is_terminal() => {
            context.screen.print(&format!("\n{}", harmless_text(&String::from_utf8_lossy(&body))))
        }
        Some(Answer { body, .. }) => context.screen.write(&[b"\n", &body[..], b"\n"].concat()),
        None => without,
    }
}

/// The kept answer as clients get it, if its body can be read.
async fn answer(context: &Context, record: &Record) -> Result<Answer, Failure> {
    let State::Completed { answer, .. } = &record.state else {
        let state = record.state.name();
        return Err(Failure::NotAsExpected(format!("the record is {state}: it keeps no body")));
    };
    if answer.body_place() == "omitted" {
        return Err(Failure::NotAsExpected("the record does not keep its body".into()));
    }
    let gone = || Failure::Error(format!("the body is missing from its place (`{}`)", answer.body_place()));
    context.operator.answer(record).await?.ok_or_else(gone)
}

/// The idempotency key that a downstream service got for this record, if its handler called `downstream_key` with this name. A
/// charge can be found by it at its provider.
fn downstream_key(record: &Record, phase: &str) -> String {
    record.key.downstream_key(&record.fingerprint, phase)
}

fn body_json(body: &[u8]) -> Value {
    match std::str::from_utf8(body) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(body) }),
    }
}

fn line_json(line: &AuditLine) -> Value {
    let mut json = json!(line);
    json["at"] = json!(iso(Timestamp::from_millis(line.at)));
    json
}

fn line_text(line: &AuditLine, now: Timestamp) -> [String; 3] {
    let at = when(Timestamp::from_millis(line.at), now);
    let (before, after) = (line.before().unwrap_or("(absent)"), line.after().unwrap_or("(absent)"));
    [at, format!("{} by {}: {before} → {after}", line.what, line.who), line.reason.clone()]
}
