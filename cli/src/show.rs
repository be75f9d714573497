//! `show`: one record, and what people have done to it.

use std::io::Read;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use comfy_table::Cell;
use flate2::read::ZlibDecoder;
use lambda_idempotency::{
    key::RecordKey,
    record::{Encoding, KeptBody, Record, State},
    store::{Store, dynamodb::AuditLine},
    time::Timestamp,
};
use serde_json::{Value, json};

use crate::{
    args,
    context::Context,
    failure::Failure,
    output::{harmless, iso, when},
    record::{RecordJson, fields},
};

pub async fn run(context: &Context, args: &args::Show) -> Result<(), Failure> {
    let key = args.record.record_key()?;
    let record = context.load(&key).await?;
    let lines = context.store.audit_lines(&key).await?;
    let (body, without) = match args.body {
        true => match body(context, &key, &record).await {
            Ok(body) => (Some(body), Ok(())),
            // The record is shown all the same, and then why there is no body.
            Err(failure) => (None, Err(failure)),
        },
        false => (None, Ok(())),
    };
    if context.screen.is_json() {
        let lines: Vec<_> = lines.iter().map(line_json).collect();
        let mut document = json!({ "record": RecordJson::from(&record), "audit": lines });
        if let Some(body) = body {
            document["body"] = body_json(&body);
        }
        context.screen.print_json(&document, false)?;
        return without;
    }
    let now = context.now();
    let mut fields = fields(&record, now);
    fields.extend(lines.iter().map(|line| ("audit", Cell::new(line_text(line, now)))));
    context.screen.print_table(&context.screen.fields(fields))?;
    match body {
        Some(body) if context.screen.is_terminal() => {
            context.screen.print(&format!("\n{}", harmless(&String::from_utf8_lossy(&body))))
        }
        Some(body) => context.screen.write(&[b"\n", &body[..], b"\n"].concat()),
        None => without,
    }
}

/// The kept body, as clients get it.
async fn body(context: &Context, key: &RecordKey, record: &Record) -> Result<Bytes, Failure> {
    let State::Completed { response, .. } = &record.state else {
        let state = record.state.name();
        return Err(Failure::NotAsExpected(format!("the record is {state}: it keeps no body")));
    };
    let (bytes, encoding, length) = match &response.body {
        KeptBody::Omitted { .. } => {
            return Err(Failure::NotAsExpected("the record does not keep its body".into()));
        }
        KeptBody::Inline { bytes, encoding, length } => (bytes.clone(), *encoding, *length),
        KeptBody::Outside { id, place, encoding, length } => {
            let bytes = context.store.load_body(key, *id, *place).await?;
            let gone = || Failure::Error(format!("the body is not where the record says, {}", place.name()));
            (bytes.ok_or_else(gone)?, *encoding, *length)
        }
    };
    match encoding {
        Encoding::Identity => Ok(bytes),
        Encoding::Zlib => {
            let mut body = Vec::new();
            let read = ZlibDecoder::new(&bytes[..]).take(length.saturating_add(1)).read_to_end(&mut body);
            read.map_err(|error| Failure::Error(format!("the kept body cannot be decoded: {error}")))?;
            Ok(body.into())
        }
        other => Err(Failure::Error(format!("the kept body has an encoding of its own: {}", other.name()))),
    }
}

fn body_json(body: &Bytes) -> Value {
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

fn line_text(line: &AuditLine, now: Timestamp) -> String {
    let state = |state: &Option<_>| match state {
        Some(lambda_idempotency::store::dynamodb::AuditedState { state, .. }) => state.clone(),
        None => "(absent)".to_owned(),
    };
    let at = when(Timestamp::from_millis(line.at), now);
    let (before, after) = (state(&line.before), state(&line.after));
    harmless(&format!("{at}\n{} by {}: {before} → {after}\n{}", line.what, line.who, line.reason))
}
