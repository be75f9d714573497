//! A record in print.

use comfy_table::Cell;
use lambda_idempotency::{
    key::RecordKey,
    record::{Evidence, Head, KeptAnswer, Phase, Record, Reference, SettledBy, State},
    time::Timestamp,
};
use serde::Serialize;

use crate::{
    alarms::{self, AlarmJson},
    output::{cell, cell_of_lines, iso, span, state_cell, when},
};

/// A record's key in JSON, with the names of the table's attributes.
#[derive(Debug, Serialize)]
pub struct KeyJson {
    /// The record's name for every command.
    name: String,
    tenant: String,
    operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    key: String,
    /// The key's name in logs and metrics.
    hash: String,
}

impl From<&RecordKey> for KeyJson {
    fn from(key: &RecordKey) -> Self {
        Self {
            name: key.partition_key(),
            tenant: key.tenant().as_str().to_owned(),
            operation: key.operation().to_string(),
            scope: key.scope().map(|scope| scope.to_string()),
            key: key.idempotency_key().as_str().to_owned(),
            hash: key.hash().to_string(),
        }
    }
}

/// A record in JSON, with the names of the table's attributes.
#[derive(Debug, Serialize)]
pub struct RecordJson {
    #[serde(flatten)]
    key: KeyJson,
    state: &'static str,
    revision: String,
    attempt: String,
    attempts: u32,
    created_at: Option<String>,
    began_at: Option<String>,
    /// The kind of answer that its callers read: `http` or `function`.
    answer_kind: &'static str,
    /// The method and route of its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// Why an execution last failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<String>,
    /// Who settled it, if not its worker, and why; or why it is escalated.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    retention_seconds: u64,
    /// What was reported besides what its execution reports: `perhaps` or `effect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reported: Option<&'static str>,
    /// Whether all effects of its execution are in the transaction that completes it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    transactional: bool,
    /// Whether domain writes committed with its completion.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    with_writes: bool,
    /// Whether its request was refused before anything was done: the key is free.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    not_begun: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// In place of `expires_at`, if it has an alarm.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_once_cleared: Option<String>,
    /// The provider's own id of the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect_id: Option<String>,
    /// What operators must look at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<AlarmJson>,
    /// Of an operation that is executed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<AcceptedJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<UnknownJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    between_workers: Option<BetweenWorkersJson>,
    /// What is known of its phases, if its operation resumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    phases: Option<PhasesJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ResponseJson>,
}

#[derive(Debug, Serialize)]
struct AcceptedJson {
    /// The id of the item with its request.
    request: String,
    /// Until when a worker may claim it.
    claim_by: Option<String>,
    max_attempts: u32,
    /// How many executions there were since it was accepted.
    tries: u32,
    /// How many executions perhaps did something.
    perhaps: u32,
}

#[derive(Debug, Serialize)]
struct BetweenWorkersJson {
    since: Option<String>,
    /// Absent if it is escalated.
    reconcile_at: Option<String>,
    escalated: bool,
}

#[derive(Debug, Serialize)]
struct PhasesJson {
    resume_within_seconds: u64,
    kept: Vec<PhaseJson>,
    noted: Vec<PhaseJson>,
    /// Since when an earlier execution may have made the call that follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    begun_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct PhaseJson {
    name: String,
    at: Option<String>,
    /// Absent if the result was too long to be kept. The result itself may be confidential.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_digest: Option<String>,
    /// The providers, each with its own id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    references: Vec<[String; 2]>,
}

impl From<&Phase> for PhaseJson {
    fn from(phase: &Phase) -> Self {
        let named = |reference: &Reference| [reference.provider().to_owned(), reference.id().to_owned()];
        Self {
            name: phase.name.clone(),
            at: iso(phase.at),
            result_digest: phase.digest().map(str::to_owned),
            references: phase.references.iter().map(named).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct UnknownJson {
    cause: &'static str,
    since: Option<String>,
    asked: u32,
    /// When it was last asked anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    anew_at: Option<String>,
    /// Absent if the outcome is escalated.
    reconcile_at: Option<String>,
    escalated: bool,
}

#[derive(Debug, Serialize)]
struct ResponseJson {
    /// `payload` or `abandoned`; absent from an HTTP response.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<&'static str>,
    /// Of an HTTP response only.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    headers: Vec<(String, String)>,
    body_length: u64,
    body_place: &'static str,
}

impl From<&Record> for RecordJson {
    fn from(record: &Record) -> Self {
        let (expires_at, is_alarmed) = (record.state.expires_at(), alarms::is_alarmed(record));
        let mut json = Self {
            key: (&record.key).into(),
            state: record.state.name(),
            revision: record.revision.to_string(),
            attempt: record.attempt.to_string(),
            attempts: record.attempts,
            created_at: iso(record.created_at),
            began_at: iso(record.began_at),
            answer_kind: record.answer_kind.name(),
            origin: record.origin.as_ref().map(ToString::to_string),
            last_failure: record.last_failure.as_ref().map(ToString::to_string),
            note: record.note.as_ref().map(ToString::to_string),
            retention_seconds: record.retention.as_secs(),
            reported: record.reported.map(Evidence::name),
            transactional: record.is_transactional(),
            with_writes: record.with_writes,
            not_begun: record.is_not_begun(),
            settled_by: record.state.settled_by().map(SettledBy::name),
            lease_until: None,
            completed_at: None,
            failed_at: None,
            expires_at: expires_at.filter(|_| !is_alarmed).and_then(iso),
            expires_once_cleared: expires_at.filter(|_| is_alarmed).and_then(iso),
            effect_id: record.effect_id.as_ref().map(ToString::to_string),
            alarms: record.alarms.iter().map(AlarmJson::from).collect(),
            accepted: record.accepted.map(|accepted| AcceptedJson {
                request: accepted.request.to_string(),
                claim_by: iso(accepted.claim_by),
                max_attempts: accepted.max_attempts,
                tries: accepted.tries,
                perhaps: accepted.perhaps,
            }),
            unknown: None,
            between_workers: None,
            phases: record.phases().map(|phases| PhasesJson {
                resume_within_seconds: phases.resume_within.as_secs(),
                kept: phases.kept.iter().map(PhaseJson::from).collect(),
                noted: phases.noted.iter().map(PhaseJson::from).collect(),
                begun_at: phases.begun.and_then(iso),
            }),
            response: None,
        };
        match &record.state {
            State::InProgress { lease_until } => json.lease_until = iso(*lease_until),
            State::FailedRetryable { failed_at, .. } => json.failed_at = iso(*failed_at),
            State::Completed { answer, completed_at, .. } => {
                json.completed_at = iso(*completed_at);
                json.response = Some(ResponseJson {
                    head: head(&answer.head),
                    status: answer.head.status(),
                    headers: answer.head.headers().to_vec(),
                    body_length: answer.body_length(),
                    body_place: answer.body_place(),
                });
            }
            State::Unknown { cause, since, reconcile_at, asked, anew_at } => {
                json.unknown = Some(UnknownJson {
                    cause: cause.name(),
                    since: iso(*since),
                    asked: *asked,
                    anew_at: anew_at.and_then(iso),
                    reconcile_at: iso(*reconcile_at),
                    escalated: *reconcile_at == Timestamp::MAX,
                });
            }
            State::BetweenWorkers { since, reconcile_at } => {
                json.between_workers = Some(BetweenWorkersJson {
                    since: iso(*since),
                    reconcile_at: iso(*reconcile_at),
                    escalated: *reconcile_at == Timestamp::MAX,
                });
            }
            // Pending has no fields of its own: see `accepted`.
            _ => {}
        }
        json
    }
}

/// A record for an operator, a line for each field.
pub fn fields(record: &Record, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let mut fields =
        vec![("tenant", cell(record.key.tenant().as_str())), ("operation", cell(record.key.operation()))];
    fields.extend(record.key.scope().map(|scope| ("scope", cell(scope))));
    fields
        .extend([("key", cell(record.key.idempotency_key().as_str())), ("in logs", cell(record.key.hash()))]);
    fields.extend(record.origin.iter().map(|origin| ("origin", cell(origin))));
    fields.push(("answer kind", cell(record.answer_kind.name())));
    fields.extend(state_fields(record, now));
    fields.push(("kept for", cell(span(record.retention))));
    if record.is_transactional() {
        fields.push(("effects", cell("all in its transaction")));
    }
    fields.push(("attempt", cell(record.attempt)));
    fields.push(("revision", cell(record.revision)));
    fields
}

/// The state and its fields. Not the revision: that of a planned record is not known yet.
pub fn state_fields(record: &Record, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let at = |time: Timestamp| cell(when(time, now));
    let mut fields = vec![
        ("state", state_cell(record.state.name())),
        ("attempts", cell(executions(record))),
        ("created", at(record.created_at)),
    ];
    if record.began_at != record.created_at {
        fields.push(("began", at(record.began_at)));
    }
    match record.reported {
        Some(Evidence::Effect) => fields.push(("reported", cell("an effect"))),
        Some(Evidence::Perhaps) => fields.push(("reported", cell("perhaps an effect, by another execution"))),
        None => {}
    }
    match &record.state {
        State::Pending { .. } => fields.push(("claim until", claims(record, now))),
        State::InProgress { lease_until } => fields.push(("lease until", at(*lease_until))),
        State::FailedRetryable { failed_at, .. } => {
            fields.push(("failed", at(*failed_at)));
            if record.is_not_begun() {
                fields.push(("not begun", cell("refused before anything was done: the key is free")));
            }
        }
        State::Unknown { cause, since, reconcile_at, asked, anew_at } => {
            fields.push(("cause", cell(cause.name())));
            fields.push(("since", at(*since)));
            let anew = |at| format!("{asked}, anew since {}", when(at, now));
            fields.push(("asked", cell(anew_at.map_or_else(|| asked.to_string(), anew))));
            fields.push(("asks next", asks_next(*reconcile_at, now)));
        }
        State::BetweenWorkers { since, reconcile_at } => {
            fields.push(("since", at(*since)));
            fields.push(("escalated", escalates(*reconcile_at, now)));
        }
        State::Completed { answer, completed_at, .. } => {
            fields.push(("completed", at(*completed_at)));
            if record.with_writes {
                fields.push(("domain writes", cell("committed with its completion")));
            }
            fields.extend(answer_fields(answer));
        }
    }
    fields.extend(phase_fields(record, now));
    fields.extend(record.last_failure.iter().map(|why| ("last failure", cell(why))));
    if let Some(by) = record.state.settled_by() {
        fields.push(("settled by", cell(by.name())));
    }
    let noted = if record.is_escalated() { "escalated because" } else { "settled as" };
    fields.extend(record.note.iter().map(|note| (noted, cell(note))));
    fields.extend(record.effect_id.iter().map(|id| ("effect id", cell(id))));
    fields.extend(alarms::fields(record, now));
    if let Some(expires_at) = record.state.expires_at().filter(|_| !record.is_not_begun()) {
        let once_cleared = if alarms::is_alarmed(record) { ", once its alarms are cleared" } else { "" };
        fields.push(("expires", cell(format!("{}{once_cleared}", when(expires_at, now)))));
    }
    fields
}

/// A line for each phase that is kept or noted, and what is known of the call that follows.
fn phase_fields(record: &Record, now: Timestamp) -> Vec<(&'static str, Cell)> {
    let Some(phases) = record.phases() else { return Vec::new() };
    let line = |phase: &Phase| {
        let result = match phase.digest() {
            Some(digest) => format!(", result {digest}"),
            None => ", its result was too long to be kept".to_owned(),
        };
        let named = |reference: &Reference| format!(", {} {}", reference.provider(), reference.id());
        let references: String = phase.references.iter().map(named).collect();
        format!("{}: {}{result}{references}", phase.name, when(phase.at, now))
    };
    let mut fields = Vec::new();
    for (name, list) in [("phases", &phases.kept), ("noted", &phases.noted)] {
        if !list.is_empty() {
            fields.push((name, cell_of_lines(list.iter().map(line))));
        }
    }
    let begun = |at| format!("perhaps made since {}", when(at, now));
    fields.extend(phases.begun.map(|at| ("next call", cell(begun(at)))));
    fields
}

/// How many executions there were; of an operation that is executed later, of how many at most.
pub fn attempts(record: &Record) -> String {
    match record.accepted {
        Some(accepted) => format!("{} of {}", accepted.tries, accepted.max_attempts),
        None => record.attempts.to_string(),
    }
}

/// The same; of an operation that is executed later, also how many perhaps did something.
fn executions(record: &Record) -> String {
    let attempts = attempts(record);
    match record.accepted {
        Some(accepted) if record.attempts > 0 => {
            format!("{attempts}; {} perhaps did something", accepted.perhaps)
        }
        _ => attempts,
    }
}

/// Until when a worker may claim accepted work. Then it ends with the answer 408, or is escalated if something was perhaps done.
pub fn claims(record: &Record, now: Timestamp) -> Cell {
    match record.accepted.map(|accepted| accepted.claim_by) {
        Some(at) if at <= now => cell(format!("not taken in time: due since {}", span(now.since(at)))),
        Some(at) => cell(format!("{}, then it ends", when(at, now))),
        None => cell("not known: it ends at the next sweep"),
    }
}

/// When an operation between workers is escalated, or that it is.
pub fn escalates(reconcile_at: Timestamp, now: Timestamp) -> Cell {
    match reconcile_at {
        Timestamp::MAX => cell("yes: it waits for an operator, or for a retry"),
        at if at <= now => cell(format!("due since {}", span(now.since(at)))),
        at => cell(format!("{}, if no retry comes", when(at, now))),
    }
}

/// When reconciliation asks next.
pub fn asks_next(reconcile_at: Timestamp, now: Timestamp) -> Cell {
    match reconcile_at {
        Timestamp::MAX => cell("never: escalated, it waits for an operator"),
        at if at <= now => cell(format!("due since {}", span(now.since(at)))),
        at => cell(when(at, now)),
    }
}

fn answer_fields(answer: &KeptAnswer) -> Vec<(&'static str, Cell)> {
    let headers: Vec<_> =
        answer.head.headers().iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let place = match answer.body_place() {
        "record" => "in the record",
        "body_item" => "in a body item",
        "s3" => "in S3",
        "omitted" => "left out",
        _ => "elsewhere",
    };
    let body = format!("{} bytes, {place}", answer.body_length());
    let mut fields = Vec::new();
    fields.extend(answer.head.status().map(|status| ("status", cell(status))));
    fields.extend(head(&answer.head).map(|head| ("answer", cell(head))));
    if !headers.is_empty() {
        fields.push(("headers", cell_of_lines(headers)));
    }
    fields.push(("body", cell(body)));
    fields
}

/// The kind of an answer that is not an HTTP response; `None` if it is one.
const fn head(head: &Head) -> Option<&'static str> {
    match head {
        Head::Http { .. } => None,
        Head::Payload => Some("payload"),
        Head::Refusal => Some("refusal"),
        Head::Abandoned => Some("abandoned"),
    }
}
