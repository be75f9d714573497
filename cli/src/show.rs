//! `show`: shows one record with its audit lines.

use crate::terminal::harmless_text;
use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::{
    key::RecordKey,
    operator::ReportSummary,
    record::{Answer, Place, Record, State},
    store::{AuditLine, Outbox, OutboxMessage, Store, StoreErrorKind},
    telemetry::error_chain,
    time::Timestamp,
};
use serde_json::{Value, json};

use crate::{
    alarms::{self, ReportJson},
    args,
    context::Context,
    failure::Failure,
    find,
    output::{cell, cell_of_lines, iso, when},
    record::{RecordJson, fields},
    undelivered::{MessageJson, line},
};

pub async fn run(context: &Context, args: &args::Show) -> Result<(), Failure> {
    let key = match args.record.hash() {
        Some(hash) => find::by_hash(context, &hash, args).await?,
        None => args.record.record_key()?,
    };
    let record = match context.load(&key).await {
        Ok(record) => record,
        Err(missing) => return Err(left(context, &key).await?.unwrap_or(missing)),
    };
    let lines = context.store.audit_lines(&key).await?;
    let (messages, unreadable) = messages(context, &key).await?;
    let has_request = has_request(context, &record).await?;
    let reports = context.operator.reports(&record).await?;
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
        if !messages.is_empty() {
            document["undelivered"] = json!(messages.iter().map(MessageJson::from).collect::<Vec<_>>());
        }
        if let Some(why) = unreadable {
            document["undelivered_unreadable"] = json!(why);
        }
        if !reports.is_empty() {
            let reports = reports.iter().map(|report| ReportJson::of(report, args.reports));
            document["reports"] = json!(reports.collect::<Vec<_>>());
        }
        if let Some(has_request) = has_request {
            document["has_request"] = json!(has_request);
        }
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
    fields.extend(alarms::report_fields(&reports));
    fields.extend(has_request.map(|is_there| ("request", cell(request(&record, is_there)))));
    fields.extend(messages.iter().map(|message| ("undelivered", cell(line(message, now)))));
    fields.extend(unreadable.map(|why| ("undelivered", cell(why))));
    fields.extend(lines.iter().map(|line| ("audit", cell_of_lines(line_text(line, now)))));
    context.screen.print_table(&context.screen.fields(fields))?;
    if args.reports {
        for ReportSummary { whole, .. } in reports.iter().filter_map(|report| report.says.as_ref()) {
            context.screen.print(&format!("\n{}", harmless_text(whole)))?;
        }
    }
    match answer {
        Some(Answer { body, .. }) if context.screen.is_terminal() => {
            context.screen.print(&format!("\n{}", harmless_text(&String::from_utf8_lossy(&body))))
        }
        Some(Answer { body, .. }) => context.screen.write(&[b"\n", &body[..], b"\n"].concat()),
        None => without,
    }
}

/// The messages that wait for delivery, or why the first of them cannot be read.
async fn messages(
    context: &Context,
    key: &RecordKey,
) -> Result<(Vec<OutboxMessage>, Option<String>), Failure> {
    match context.store.undelivered(key).await {
        Ok(messages) => Ok((messages, None)),
        Err(error) if error.kind() == StoreErrorKind::Unreadable => {
            Ok((Vec::new(), Some(format!("the first one cannot be read: {}", error_chain(&error)))))
        }
        Err(error) => Err(error.into()),
    }
}

/// Shows what a record has left that is not there any more: its audit lines, and messages, which have no time to live. Returns why only
/// that is shown, if there is any.
async fn left(context: &Context, key: &RecordKey) -> Result<Option<Failure>, Failure> {
    let lines = context.store.audit_lines(key).await?;
    let (messages, unreadable) = messages(context, key).await?;
    if lines.is_empty() && messages.is_empty() && unreadable.is_none() {
        return Ok(None);
    }
    if context.screen.is_json() {
        let lines: Vec<_> = lines.iter().map(line_json).collect();
        let messages: Vec<_> = messages.iter().map(MessageJson::from).collect();
        let document = json!({
            "record": null, "audit": lines, "undelivered": messages, "undelivered_unreadable": unreadable
        });
        context.screen.print_json(&document, false)?;
    } else {
        let now = context.now();
        let undelivered = messages.iter().map(|message| ("undelivered", cell(line(message, now))));
        let mut fields: Vec<_> = undelivered.collect();
        fields.extend(unreadable.map(|why| ("undelivered", cell(why))));
        fields.extend(lines.iter().map(|line| ("audit", cell_of_lines(line_text(line, now)))));
        context.screen.print_table(&context.screen.fields(fields))?;
    }
    Ok(Some(Failure::NotAsExpected("the record is gone: this is what it has left".into())))
}

/// Whether the request of accepted work is there; `None` if the record was not accepted.
async fn has_request(context: &Context, record: &Record) -> Result<Option<bool>, Failure> {
    let Some(accepted) = record.accepted else { return Ok(None) };
    let request = context.store.load_body(&record.key, accepted.request, Place::BodyItem).await?;
    Ok(Some(request.is_some()))
}

fn request(record: &Record, is_there: bool) -> &'static str {
    let is_needed = record.accepted.is_some_and(|accepted| record.needs_request(accepted.request));
    match (is_there, is_needed) {
        (true, true) => "kept, until the record is settled",
        (true, false) => "not needed any more: a sweep deletes it",
        (false, false) => "deleted, as the record is settled",
        (false, true) => "missing: no worker can execute it",
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
