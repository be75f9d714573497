//! The stored form of a record in a table, in a table's stream and in a queue. Its attributes have the same names everywhere.
//!
//! | attribute | in state | what |
//! | --- | --- | --- |
//! | `pk`, `sk` | all | [`RecordKey::partition_key`], `record` |
//! | `schema` | all | version of this layout |
//! | `state` | all | `pending`, `in_progress`, `between_workers`, `completed`, `failed_retryable`, `unknown` |
//! | `revision`, `attempt`, `attempts` | all | ids of the last write and of the execution, and the number of executions |
//! | `fingerprint`, `fingerprint_rule` | all | the request's fingerprint, and the rule that made it |
//! | `answer_kind` | all | `http`, `function`: the kind of answer that its callers read |
//! | `created_at`, `began_at` | all | milliseconds since 1970: when the key was first seen, and when this execution began |
//! | `retention` | all | for how many milliseconds it is kept once it is settled |
//! | `lease_until` | `in_progress` | milliseconds since 1970 |
//! | `reported` | `in_progress`, `unknown` | `perhaps`, `effect`: what was reported besides what its execution reports |
//! | `transactional` | all | whether the completing transaction contains all effects of the execution |
//! | `with_writes` | `completed` | whether domain writes committed with its completion |
//! | `messages` | all | how many messages were committed with it |
//! | `resume_within` | all, if its operation resumes | for how many milliseconds after its last recovery point it waits for a retry |
//! | `declared` | the same | a hash of the names of the phases that its operation declares |
//! | `phases`, `noted` | the same | name, result, time and references of the phases that are kept, and of those that others report |
//! | `begun_at` | the same | milliseconds since 1970: since when the call that follows may have been made |
//! | `granted_at` | the same | milliseconds since 1970: when it was last allowed to wait for a retry as long again |
//! | `request_id`, `claim_by`, `max_attempts`, `tries`, `perhaps` | all, if it was accepted | the body item with the request, until when a worker may claim it (milliseconds since 1970), how often it is executed at most, how often it was executed, and how many executions perhaps did something |
//! | `origin` | all | for operators: the request's method and route, or its queue, and what its key is made of if that is a hash |
//! | `last_failure` | all | for operators: why an execution last failed |
//! | `note` | `completed`, `failed_retryable`; `unknown`, `between_workers` if it is escalated | for operators: who settled it, if not its worker, and why; or why it is escalated |
//! | `completed_at`, `failed_at` | `completed`, `failed_retryable` | milliseconds since 1970 |
//! | `since` | `unknown`, `between_workers` | milliseconds since 1970 |
//! | `settled_by` | `completed`, `failed_retryable`, `pending` after an execution | `worker`, `provider`, `operator`, `certainty`, `assumption`, `not_begun` |
//! | `expires_at` | `completed`, `failed_retryable`, without an alarm | **seconds** since 1970: the time-to-live attribute |
//! | `expires_once_cleared` | the same, with an alarm | the same, once an operator has cleared it |
//! | `effect_id` | all, if its provider has reported it | the provider's own id of the effect |
//! | `alarms` | all | what operators must look at: for each alarm `kind`, `because`, `raised_at` (milliseconds since 1970), whether operators are `told`, and the body item with its `report` |
//! | `head` | `completed` | `payload` or `abandoned`, if the answer is not an HTTP response |
//! | `status`, `headers` | `completed` | those of an HTTP response |
//! | `body…` | `completed` | the answer's body, or its place |
//! | `cause`, `asked`, `anew_at` | `unknown` | why; how often reconciliation has asked; when it was last asked anew, in milliseconds since 1970 |
//! | `reconcile_at` | `unknown`, `between_workers` | when to ask next, or to escalate |
//! | `reconcile_shard` | `unknown`, `between_workers`, all with an alarm | its partition in the index `reconcile` |
//! | `reconcile_place` | the same | its place there: a hash of the tenant, then when reconciliation looks at it |
//!
//! `transactional` and `with_writes` are absent if they are false, `messages` if it is 0, and `phases`, `noted` and `alarms` if they are empty. `declared`, `begun_at`, `granted_at`, `reported`, `origin`, `last_failure`, `note` and `effect_id` are
//! optional. An item that lacks any other attribute of its state is unreadable.
//!
//! A reader does not read or change what another version has written. A new attribute needs a new version only if readers must not
//! ignore it.

use std::{mem, ops::Not, time::Duration};

use serde::{Deserialize, Serialize};
use serde_bytes::{ByteArray, ByteBuf};
use serde_dynamo::AttributeValue;

use self::{alarm::ItemAlarm, phase::ItemPhase};
use super::{
    Result, StoreError,
    shards::{place, shard},
};
use crate::{
    fingerprint::Fingerprint,
    key::RecordKey,
    record::{
        Accepted, AnswerKind, AttemptId, BodyId, Effects, Encoding, Evidence, Head, KeptAnswer, KeptBody,
        Note, Phase, Phases, Place, Record, Revision, SettledBy, State, StateName, UnknownCause,
    },
    time::Timestamp,
};

mod alarm;
mod phase;

/// The version of this layout. A reader does not touch items of other versions.
pub(crate) const SCHEMA: u32 = 2;

/// The sort key of a record in its item collection.
pub(crate) const RECORD: &str = "record";

/// The prefix of the sort keys of messages in its item collection.
pub(crate) const MESSAGE: &str = "message#";

/// The partition key attribute.
pub(super) const PK: &str = "pk";

/// The sort key attribute.
pub(super) const SK: &str = "sk";

/// The version attribute.
pub(super) const SCHEMA_ATTRIBUTE: &str = "schema";

/// The names of answers that are not HTTP responses.
const PAYLOAD: &str = "payload";
const REFUSAL: &str = "refusal";
const ABANDONED: &str = "abandoned";

/// A record in its stored form. serde converts it to the format of a store.
///
/// ```
/// use lambda_idempotency::{record::Record, store::Item};
///
/// /// The reads and writes of a store that keeps JSON.
/// fn write(record: &Record) -> serde_json::Result<String> {
///     serde_json::to_string(&Item::from(record))
/// }
///
/// fn read(stored: &str) -> Result<Record, Box<dyn std::error::Error>> {
///     let item: Item = serde_json::from_str(stored)?;
///     Ok(Record::try_from(item)?)
/// }
/// ```
#[derive(Default, Serialize, Deserialize, derive_more::Debug)]
// Without key and answer.
#[debug("Item {{ state: {state:?}, .. }}")]
pub struct Item {
    pk: String,
    sk: String,
    schema: u32,
    state: String,
    revision: ByteArray<16>,
    attempt: ByteArray<16>,
    attempts: u32,
    fingerprint: ByteArray<32>,
    fingerprint_rule: u32,
    answer_kind: String,
    created_at: Timestamp,
    began_at: Timestamp,
    retention: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported: Option<String>,
    #[serde(default, skip_serializing_if = "Not::not")]
    transactional: bool,
    #[serde(default, skip_serializing_if = "Not::not")]
    with_writes: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    messages: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_within: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    declared: Option<ByteArray<8>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    phases: Vec<ItemPhase>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    noted: Vec<ItemPhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    begun_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<ByteArray<16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_by: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    perhaps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<ItemAlarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_once_cleared: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reconcile_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reconcile_shard: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reconcile_place: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anew_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<(String, String)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<ByteBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_id: Option<ByteArray<16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_place: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_length: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references.
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl From<&Record> for Item {
    fn from(record: &Record) -> Self {
        let by = record.state.settled_by().or(record.state.released_by());
        let expires_at = record.state.expires_at().map(Timestamp::as_secs_rounded_up);
        let is_alarmed = !record.alarms.is_empty();
        let mut item = Self {
            pk: record.key.partition_key(),
            sk: RECORD.to_owned(),
            schema: SCHEMA,
            state: record.state.name().to_owned(),
            revision: ByteArray::new(*record.revision.as_bytes()),
            attempt: ByteArray::new(*record.attempt.as_bytes()),
            attempts: record.attempts,
            fingerprint: ByteArray::new(*record.fingerprint.digest()),
            fingerprint_rule: record.fingerprint.rule(),
            answer_kind: record.answer_kind.name().to_owned(),
            created_at: record.created_at,
            began_at: record.began_at,
            retention: millis(record.retention),
            reported: record.reported.map(|reported| reported.name().to_owned()),
            with_writes: record.with_writes,
            messages: record.messages,
            request_id: record.accepted.map(|accepted| ByteArray::new(*accepted.request.as_bytes())),
            claim_by: record.accepted.map(|accepted| accepted.claim_by),
            max_attempts: record.accepted.map(|accepted| accepted.max_attempts),
            tries: record.accepted.map(|accepted| accepted.tries),
            perhaps: record.accepted.map(|accepted| accepted.perhaps),
            origin: record.origin.as_ref().map(Note::to_string),
            last_failure: record.last_failure.as_ref().map(Note::to_string),
            note: record.note.as_ref().map(Note::to_string),
            settled_by: by.map(|by| by.name().to_owned()),
            effect_id: record.effect_id.as_ref().map(Note::to_string),
            alarms: record.alarms.iter().map(ItemAlarm::from).collect(),
            expires_at: expires_at.filter(|_| !is_alarmed),
            expires_once_cleared: expires_at.filter(|_| is_alarmed),
            ..Self::default()
        };
        match &record.effects {
            Effects::Anywhere | Effects::InTransaction => item.transactional = record.is_transactional(),
            Effects::InPhases(phases) => {
                item.resume_within = Some(millis(phases.resume_within));
                item.declared = phases.declared.map(|list| ByteArray::new(*list.as_bytes()));
                item.phases = phases.kept.iter().map(ItemPhase::from).collect();
                item.noted = phases.noted.iter().map(ItemPhase::from).collect();
                (item.begun_at, item.granted_at) = (phases.begun, phases.granted);
            }
        }
        match &record.state {
            State::Pending { .. } => {}
            State::InProgress { lease_until } => item.lease_until = Some(*lease_until),
            State::Completed { answer, completed_at, .. } => {
                item.completed_at = Some(*completed_at);
                item.keep(answer);
            }
            State::FailedRetryable { failed_at, .. } => item.failed_at = Some(*failed_at),
            State::BetweenWorkers { since, reconcile_at } => {
                (item.since, item.reconcile_at) = (Some(*since), Some(*reconcile_at));
            }
            State::Unknown { cause, since, reconcile_at, asked, anew_at } => {
                item.cause = Some(cause.name().to_owned());
                (item.since, item.reconcile_at) = (Some(*since), Some(*reconcile_at));
                item.asked = Some(*asked);
                item.anew_at = *anew_at;
            }
        }
        if let Some(due_at) = record.due_at() {
            item.reconcile_shard = Some(shard(&item.pk, due_at).to_owned());
            item.reconcile_place = Some(place(record.key.tenant(), due_at));
        }
        item
    }
}

impl TryFrom<Item> for Record {
    type Error = StoreError;

    /// Fails with an error of kind [`Unreadable`](super::StoreErrorKind::Unreadable) if the item is not a record that this version
    /// can read.
    fn try_from(mut item: Item) -> Result<Self> {
        check_version(item.schema)?;
        if item.sk != RECORD {
            return Err(missing(SK));
        }
        Ok(Self {
            key: required(RecordKey::from_partition_key(&item.pk), PK)?,
            revision: Revision::from(*item.revision),
            attempt: AttemptId::from(*item.attempt),
            attempts: item.attempts,
            fingerprint: Fingerprint::new(item.fingerprint_rule, *item.fingerprint),
            answer_kind: required(AnswerKind::parse(&item.answer_kind), "answer_kind")?,
            created_at: item.created_at,
            began_at: item.began_at,
            retention: Duration::from_millis(item.retention),
            reported: match item.reported.as_deref() {
                Some(name) => Some(required(Evidence::parse(name), "reported")?),
                None => None,
            },
            effects: item.take_effects()?,
            with_writes: item.with_writes,
            messages: item.messages,
            accepted: item.accepted()?,
            origin: item.origin.as_deref().map(Note::new),
            last_failure: item.last_failure.as_deref().map(Note::new),
            note: item.note.as_deref().map(Note::new),
            effect_id: item.effect_id.as_deref().map(Note::new),
            alarms: required(
                mem::take(&mut item.alarms).into_iter().map(ItemAlarm::read).collect(),
                "alarms",
            )?,
            state: item.state()?,
        })
    }
}

/// Reads a record from its attributes, as DynamoDB, its streams and queued messages contain them.
pub(crate) fn from_attributes(attributes: impl Into<serde_dynamo::Item>) -> Result<Record> {
    let attributes = attributes.into();
    // The version is read first, because another layout may have other attributes.
    let version = match attributes.get(SCHEMA_ATTRIBUTE) {
        Some(AttributeValue::N(digits)) => digits.parse().ok(),
        _ => None,
    };
    check_version(required(version, SCHEMA_ATTRIBUTE)?)?;
    let item: Item =
        serde_dynamo::from_item(attributes).map_err(|error| StoreError::unreadable(Shape(error)))?;
    item.try_into()
}

/// An item without the attributes of a record. Its source may quote their values, so its text does not contain it.
#[derive(Debug, thiserror::Error)]
#[error("the item does not have the attributes of a record")]
struct Shape(#[source] serde_dynamo::Error);

/// Refuses an item that another version has written.
pub(super) fn check_version(schema: u32) -> Result<()> {
    match schema {
        SCHEMA => Ok(()),
        _ => Err(StoreError::unreadable(format!("the item has schema {schema}, not {SCHEMA}"))),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn required<T>(value: Option<T>, attribute: &str) -> Result<T> {
    value.ok_or_else(|| missing(attribute))
}

fn missing(attribute: &str) -> StoreError {
    StoreError::unreadable(format!("attribute `{attribute}` is missing or malformed"))
}

impl Item {
    fn keep(&mut self, answer: &KeptAnswer) {
        match &answer.head {
            Head::Http { status, headers } => {
                (self.status, self.headers) = (Some(*status), Some(headers.to_vec()));
            }
            Head::Payload => self.head = Some(PAYLOAD.to_owned()),
            Head::Refusal => self.head = Some(REFUSAL.to_owned()),
            Head::Abandoned => self.head = Some(ABANDONED.to_owned()),
        }
        self.body_place = Some(answer.body_place().to_owned());
        self.body_length = Some(answer.body_length());
        self.body_id = answer.body_id().map(|id| ByteArray::new(*id.as_bytes()));
        if let KeptBody::Inline { bytes, .. } = &answer.body {
            self.body = Some(ByteBuf::from(bytes.to_vec()));
        }
        if let KeptBody::Inline { encoding, .. } | KeptBody::Outside { encoding, .. } = &answer.body {
            self.body_encoding = Some(encoding.name().to_owned());
        }
    }

    fn take_effects(&mut self) -> Result<Effects> {
        let phases = |items: &mut Vec<ItemPhase>| mem::take(items).into_iter().map(Phase::from).collect();
        let (kept, noted): (Vec<_>, Vec<_>) = (phases(&mut self.phases), phases(&mut self.noted));
        let has_any = !kept.is_empty() || !noted.is_empty() || self.begun_at.is_some();
        let declared = self.declared.map(|list| list.into_array().into());
        let (begun, granted) = (self.begun_at, self.granted_at);
        match (self.transactional, self.resume_within.map(Duration::from_millis)) {
            (true, Some(_)) => {
                Err(StoreError::unreadable("its effects are in its transaction, and in phases"))
            }
            (false, Some(resume_within)) => {
                Ok(Effects::InPhases(Phases { resume_within, declared, kept, noted, begun, granted }))
            }
            // Without its bound, an operation would begin anew over what is kept.
            (_, None) if has_any => Err(missing("resume_within")),
            (true, None) => Ok(Effects::InTransaction),
            (false, None) => Ok(Effects::Anywhere),
        }
    }

    fn accepted(&self) -> Result<Option<Accepted>> {
        let Some(request) = &self.request_id else { return Ok(None) };
        Ok(Some(Accepted {
            request: BodyId::from(**request),
            claim_by: required(self.claim_by, "claim_by")?,
            max_attempts: required(self.max_attempts, "max_attempts")?,
            tries: required(self.tries, "tries")?,
            perhaps: required(self.perhaps, "perhaps")?,
        }))
    }

    fn state(self) -> Result<State> {
        let settled_by = || required(self.settled_by.as_deref().and_then(SettledBy::parse), "settled_by");
        let expires_at = self.expires_at.or(self.expires_once_cleared);
        let expires_at = || required(expires_at.map(Timestamp::from_secs), "expires_at");
        let state = required(StateName::parse(&self.state), "state")?;
        Ok(match state {
            StateName::Pending if self.request_id.is_none() => return Err(missing("request_id")),
            StateName::Pending => State::Pending {
                released_by: match self.settled_by {
                    Some(_) => Some(settled_by()?),
                    None => None,
                },
            },
            StateName::InProgress => {
                State::InProgress { lease_until: required(self.lease_until, "lease_until")? }
            }
            StateName::Completed => State::Completed {
                completed_at: required(self.completed_at, "completed_at")?,
                by: settled_by()?,
                expires_at: expires_at()?,
                answer: self.answer()?,
            },
            StateName::FailedRetryable => State::FailedRetryable {
                failed_at: required(self.failed_at, "failed_at")?,
                by: settled_by()?,
                expires_at: expires_at()?,
            },
            // Without these attributes it is not in the index, and nothing would ask about it.
            StateName::Unknown | StateName::BetweenWorkers
                if self.reconcile_shard.is_none() || self.reconcile_place.is_none() =>
            {
                return Err(missing("reconcile_shard or reconcile_place"));
            }
            StateName::BetweenWorkers if self.resume_within.is_none() => {
                return Err(missing("resume_within"));
            }
            StateName::BetweenWorkers => State::BetweenWorkers {
                since: required(self.since, "since")?,
                reconcile_at: required(self.reconcile_at, "reconcile_at")?,
            },
            StateName::Unknown => State::Unknown {
                cause: required(self.cause.as_deref().and_then(UnknownCause::parse), "cause")?,
                since: required(self.since, "since")?,
                reconcile_at: required(self.reconcile_at, "reconcile_at")?,
                asked: required(self.asked, "asked")?,
                anew_at: self.anew_at,
            },
        })
    }

    fn answer(self) -> Result<KeptAnswer> {
        let length = required(self.body_length, "body_length")?;
        let encoding = || required(self.body_encoding.as_deref().and_then(Encoding::parse), "body_encoding");
        let body = match required(self.body_place.as_deref(), "body_place")? {
            KeptBody::OMITTED => KeptBody::Omitted { length },
            KeptBody::IN_RECORD => KeptBody::Inline {
                encoding: encoding()?,
                bytes: required(self.body, "body")?.into_vec().into(),
                length,
            },
            place => KeptBody::Outside {
                id: BodyId::from(*required(self.body_id, "body_id")?),
                place: required(Place::parse(place), "body_place")?,
                encoding: encoding()?,
                length,
            },
        };
        let head = match self.head.as_deref() {
            None => Head::Http {
                status: required(self.status.filter(|status| (100..1000).contains(status)), "status")?,
                headers: required(self.headers, "headers")?.into(),
            },
            Some(PAYLOAD) => Head::Payload,
            Some(REFUSAL) => Head::Refusal,
            Some(ABANDONED) => Head::Abandoned,
            Some(_) => return Err(missing("head")),
        };
        Ok(KeptAnswer { head, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{
        ReservationRequest, phase_of,
        tests::{Mint, Reports, accepted, answer, reservation, resuming},
    };

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);

    fn completed(answer: KeptAnswer) -> Record {
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let reserved = Record { retention: Duration::from_millis(86_400_001), ..reserved };
        reserved.complete(&reserved, Revision::mint(), answer, NOW).unwrap().into()
    }

    /// In progress, with a kept phase.
    fn resumed() -> Record {
        let resumes = ReservationRequest { effects: resuming(Duration::from_secs(1)), ..reservation("k") };
        let resumed = Record::reserve(&resumes, Revision::mint(), NOW);
        let charge = phase_of("charge".into(), Some("1".into()), NOW);
        resumed.keep(&resumed, 0, &charge, Revision::mint(), NOW).unwrap().into()
    }

    fn between_workers() -> Record {
        let resumed = resumed();
        let between_workers = resumed.release(resumed.attempt, Revision::mint(), NOW).unwrap();
        assert_eq!(between_workers.state.name(), "between_workers");
        between_workers.into()
    }

    fn attributes(record: &Record) -> serde_dynamo::Item {
        serde_dynamo::to_item(Item::from(record)).unwrap()
    }

    // T13: a Number, in seconds, on settled records only.
    #[test]
    fn time_to_live_is_in_seconds_and_only_on_settled_records() {
        let item = attributes(&completed(answer()));
        assert_eq!(item["expires_at"], AttributeValue::N("1800086401".into()));
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let unknown = reserved.mark_unknown(&reserved, Revision::mint(), NOW).unwrap();
        for open in [accepted("k", NOW), reserved, unknown.into(), between_workers()] {
            assert!(!attributes(&open).contains_key("expires_at"), "{}", open.state.name());
        }
    }

    // T36
    #[test]
    fn an_item_of_another_version_is_unreadable() {
        for schema in [SCHEMA - 1, SCHEMA + 1] {
            let mut item = attributes(&completed(answer()));
            item.insert("schema".into(), AttributeValue::N(schema.to_string()));
            let error = from_attributes(item).unwrap_err();
            assert_eq!(error.cause(), format!("the item has schema {schema}, not 2"));
        }
    }

    // A body item or an audit line of its partition, or what a sender to the queue of reports wrote.
    #[test]
    fn an_item_in_another_place_is_no_record() {
        let mut item = attributes(&completed(answer()));
        item.insert("sk".into(), AttributeValue::S("audit#1".into()));
        assert_eq!(from_attributes(item).unwrap_err().kind(), crate::store::StoreErrorKind::Unreadable);
    }

    #[test]
    fn only_http_answers_have_a_status() {
        for head in [Head::Payload, Head::Refusal, Head::Abandoned] {
            let record = completed(KeptAnswer { head, ..answer() });
            let item = attributes(&record);
            assert!(!item.contains_key("status") && !item.contains_key("headers"));
            assert_eq!(from_attributes(item).unwrap(), record);
        }
    }

    #[test]
    fn the_flags_of_a_contested_or_claimed_record_are_kept() {
        let other = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        let reserved = Record { attempt: crate::record::AttemptId::mint(), ..other.clone() };
        let contested = reserved.contest(&other, Evidence::Perhaps, Revision::mint()).unwrap();
        assert_eq!(from_attributes(attributes(&contested)).unwrap(), contested.clone().into());
        let claimed = contested.claim(Revision::mint(), NOW, NOW).unwrap();
        assert_eq!(from_attributes(attributes(&claimed)).unwrap(), claimed.into());
        let unknown = contested.release(contested.attempt, Revision::mint(), NOW).unwrap();
        assert_eq!(from_attributes(attributes(&unknown)).unwrap(), unknown.into());
    }

    #[test]
    fn effects_in_a_transaction_and_in_phases_are_unreadable() {
        for record in [resumed(), between_workers()] {
            let mut item = attributes(&record);
            item.insert("transactional".into(), AttributeValue::Bool(true));
            let error = from_attributes(item).unwrap_err();
            assert_eq!(error.kind(), crate::store::StoreErrorKind::Unreadable);
        }
    }

    #[test]
    fn an_item_missing_a_required_attribute_is_unreadable() {
        let unknown = {
            let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
            reserved.mark_unknown(&reserved, Revision::mint(), NOW).unwrap()
        };
        let reserved = Record::reserve(&reservation("k"), Revision::mint(), NOW);
        for record in [completed(answer()), unknown.into(), reserved, resumed(), between_workers()] {
            let whole = attributes(&record);
            assert_eq!(from_attributes(whole.clone()).unwrap(), record);
            let optional = ["origin", "last_failure", "note", "phases", "declared"];
            let needed = |name: &&String| !optional.contains(&name.as_str());
            for name in whole.keys().filter(needed) {
                let mut damaged = whole.clone();
                damaged.remove(name);
                assert!(from_attributes(damaged).is_err(), "read without {name}");
            }
        }
    }
}
