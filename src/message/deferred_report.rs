//! A worker's report that could not be written. It waits in a queue, from which reconciliation applies it under the same fence.
//!
//! It holds the record's item, as its worker last saw it, with the worker's answer if it has one. The item has a version: see [`Item`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize, ser::Error};

use crate::{
    domain::DomainWrite,
    queue::WorkError,
    record::{KeptBody, Note, Record, Report, SettledBy, State},
    store::{Item, from_attributes},
    time::Timestamp,
};

/// SQS accepts 1 MiB, and accepted 256 KiB until 2025; other queues accept less. A body that does not fit is left out.
const MAX_BYTES: usize = 240 * 1024;

/// How an execution ended, as far as its worker knows, or the result of a phase.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DeferredReport {
    /// The record's partition key, for operators and their tools.
    pub(crate) key: String,
    /// How it ended, by the name of its [`Report`]; `None` if the item has a phase that its record could not take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Cow<'static, str>>,
    /// Why it has no answer, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    /// The record that its worker last saw, with that revision. If it ended with an answer, the state is completed with it.
    item: serde_dynamo::Item,
    /// The domain writes that commit with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writes: Vec<DomainWrite>,
}

impl DeferredReport {
    /// The report of the worker that last saw this record. The body is left out if the message would be too long with it. The domain
    /// writes never are: without them, the record would be wrong.
    ///
    /// # Errors
    /// If its domain writes are too large for a message.
    pub(crate) fn of(
        seen: &Record,
        ended: &Report,
        writes: &[DomainWrite],
        now: Timestamp,
    ) -> Result<Self, serde_json::Error> {
        let mut seen = seen.clone();
        if let Report::Completed(answer) = ended {
            let (answer, by, expires_at) = (answer.clone(), SettledBy::Worker, now.plus(seen.retention));
            seen.state = State::Completed { answer, completed_at: now, by, expires_at };
        }
        let (how, because) = (Some(ended.name().into()), ended.because().map(Note::to_string));
        let mut report = Self { ended: how, because, ..Self::whole(&seen, writes)? };
        if report.is_too_long()?
            && let State::Completed { answer, .. } = &mut seen.state
        {
            answer.body = KeptBody::Omitted { length: answer.body.length() };
            report.item = Self::whole(&seen, &[])?.item;
        }
        if report.is_too_long()? {
            return Err(serde_json::Error::custom("its domain writes are too large for a message"));
        }
        Ok(report)
    }

    /// The result of a phase: the last one that this record keeps. Of those before it, only the place of this one counts: however much the
    /// record has, the message is short.
    ///
    /// # Errors
    /// If the record cannot be written as an item.
    pub(crate) fn of_phase(wanted: &Record) -> Result<Self, serde_json::Error> {
        let mut wanted = wanted.clone();
        if let Some(phases) = wanted.effects.phases_mut() {
            phases.noted.clear();
            for before in phases.kept.iter_mut().rev().skip(1) {
                (before.result, before.references) = (None, Vec::new());
            }
        }
        Self::whole(&wanted, &[])
    }

    fn whole(wanted: &Record, writes: &[DomainWrite]) -> Result<Self, serde_json::Error> {
        let item = serde_dynamo::to_item(Item::from(wanted)).map_err(serde_json::Error::custom)?;
        let key = wanted.key.partition_key();
        Ok(Self { key, ended: None, because: None, item, writes: writes.to_vec() })
    }

    fn is_too_long(&self) -> Result<bool, serde_json::Error> {
        Ok(serde_json::to_string(self)?.len() > MAX_BYTES)
    }

    /// The record that its worker last saw, and how the execution ended; `None` if the record has a phase to be kept. If it ended with
    /// an answer, the record is completed with it.
    pub(crate) fn read(&self) -> Result<(Record, Option<Report>), WorkError> {
        let record: Record = from_attributes(self.item.clone()).map_err(|_| WorkError::Malformed("item"))?;
        // Operators must see the key that is written.
        if record.key.partition_key() != self.key {
            return Err(WorkError::Malformed("key"));
        }
        let Some(name) = self.ended.as_deref() else {
            return match record.state {
                State::InProgress { .. } => Ok((record, None)),
                _ => Err(WorkError::Malformed("ended")),
            };
        };
        let because = self.because.as_deref().map(Note::new);
        let ended = match (Report::named(name, because), &record.state) {
            (None, State::Completed { answer, .. }) if name == Report::COMPLETED => {
                // Its worker's guard makes none, but every sender to the queue could have made it.
                if !record.answer_kind.takes(&answer.head) {
                    return Err(WorkError::Malformed("head"));
                }
                if !answer.head.is_final() {
                    return Err(WorkError::Malformed("status"));
                }
                Report::Completed(answer.clone())
            }
            (None, _) | (Some(_), State::Completed { .. }) => return Err(WorkError::Malformed("ended")),
            (Some(ended), _) => ended,
        };
        Ok((record, Some(ended)))
    }

    /// The domain writes that commit with it.
    pub(crate) fn writes(&self) -> &[DomainWrite] {
        &self.writes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        message::Message,
        record::{
            AnswerKind, Encoding, Evidence, Head, KeptAnswer, Phase, Reference, ReservationRequest, Revision,
            phase_of,
            tests::{Mint, RETAIN, answer, reservation, resuming},
        },
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn reserved() -> Record {
        Record::reserve(&reservation("k"), Revision::mint(), NOW)
    }

    fn message(ended: &Report) -> String {
        let report = DeferredReport::of(&reserved(), ended, &[], NOW).unwrap();
        Message::DeferredReport(Box::new(report)).to_json()
    }

    fn read(message: &str) -> Result<(Record, Option<Report>), WorkError> {
        let Message::DeferredReport(report) = Message::read(message)? else { panic!("{message}") };
        report.read()
    }

    // T38: as many phases as an operation has, with all that they may have.
    #[test]
    fn the_result_of_a_phase_always_fits_in_a_message() {
        let resumes = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
        let mut record = Record::reserve(&resumes, Revision::mint(), NOW);
        for place in 0..64 {
            let name = format!("{place:-<64}");
            let result = Some("1".repeat(2_048));
            let reference = || Reference::new("\u{1}".repeat(255), "\u{2}".repeat(255)).unwrap();
            let references = vec![reference(), reference(), reference(), reference()];
            let phase = Phase { references, ..phase_of(name, result, NOW) };
            record = record.keep(&record, place, &phase, Revision::mint(), NOW).unwrap().into();
        }
        let report = DeferredReport::of_phase(&record).unwrap();
        assert!(serde_json::to_string(&report).unwrap().len() < MAX_BYTES / 8);
        let (read, ended) = report.read().unwrap();
        let (all, read) = (&record.phases().unwrap().kept, &read.phases().unwrap().kept);
        assert_eq!((ended, read.last(), read.len()), (None, all.last(), all.len()));
    }

    // T36
    #[test]
    fn every_report_comes_out_of_its_message_as_it_went_in() {
        let resumes = ReservationRequest { effects: resuming(RETAIN), ..reservation("k") };
        let fresh = Record::reserve(&resumes, Revision::mint(), NOW);
        let phase = |name: &str| phase_of(name.to_owned(), Some(r#"{"id":"ch_7"}"#.to_owned()), NOW);
        let noted = Record::from(fresh.note(&phase("refund"), Revision::mint(), NOW).unwrap());
        let kept = Record::from(noted.keep(&noted, 0, &phase("charge"), Revision::mint(), NOW).unwrap());
        let seen = Record { reported: Some(Evidence::Effect), ..kept };
        let body =
            KeptBody::Inline { bytes: Bytes::from_static(b"\xff"), encoding: Encoding::Zlib, length: 9 };
        let because = || Some(Note::new("interrupted, status 503"));
        for ended in [
            Report::Completed(answer()),
            Report::Completed(KeptAnswer { head: Head::Payload, body }),
            Report::NotExecuted(because()),
            Report::NotBegun,
            Report::NotStarted,
            Report::Interrupted(because()),
            Report::PerhapsExecuted(None),
            Report::Uncommitted,
        ] {
            let answer_kind = match &ended {
                Report::Completed(KeptAnswer { head: Head::Payload, .. }) => AnswerKind::Function,
                _ => AnswerKind::Http,
            };
            let seen = Record { answer_kind, ..seen.clone() };
            let report = DeferredReport::of(&seen, &ended, &[], NOW).unwrap();
            let message = Message::DeferredReport(Box::new(report)).to_json();
            let (read, how) = read(&message).unwrap();
            assert_eq!(how, Some(ended), "{message}");
            assert_eq!(Record { state: seen.state.clone(), ..read }, seen, "{message}");
        }
    }

    // T16
    #[test]
    fn a_report_is_queued_without_a_body_too_large_for_it() {
        let bytes = Bytes::from(vec![0; MAX_BYTES]);
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let message = message(&Report::Completed(KeptAnswer { body, ..answer() }));
        assert!(message.len() < 2_000);
        let Some(Report::Completed(answer)) = read(&message).unwrap().1 else { panic!("{message}") };
        assert_eq!(answer.body, KeptBody::Omitted { length: MAX_BYTES as u64 });
    }

    #[test]
    fn a_message_that_contradicts_itself_about_its_answer_is_refused() {
        let answered = message(&Report::Completed(answer()));
        let other = answered.replacen(r#""ended":"completed""#, r#""ended":"not_executed""#, 1);
        let none = message(&Report::NotBegun).replacen(r#""ended":"not_begun""#, r#""ended":"completed""#, 1);
        for wrong in [other, none] {
            assert_ne!(wrong, answered);
            assert!(matches!(read(&wrong), Err(WorkError::Malformed("ended"))), "{wrong}");
        }
    }

    // Every sender to the queue could have made it.
    #[test]
    fn an_answer_of_the_wrong_kind_is_refused() {
        let message = message(&Report::Completed(answer()));
        let other = message.replacen(r#""answer_kind":{"S":"http"}"#, r#""answer_kind":{"S":"function"}"#, 1);
        assert_ne!(message, other);
        assert!(matches!(read(&other), Err(WorkError::Malformed("head"))));
    }

    #[test]
    fn a_message_that_names_another_record_than_its_item_is_refused() {
        let message = message(&Report::NotBegun);
        let other = message.replacen(r#""key":"tenant#pay#k""#, r#""key":"tenant#pay#other""#, 1);
        assert_ne!(message, other);
        assert!(matches!(read(&other), Err(WorkError::Malformed("key"))));
    }

    // T36
    #[test]
    fn an_item_of_another_version_is_refused_and_not_guessed() {
        let message = message(&Report::NotBegun);
        for version in ["1", "3"] {
            let other = message.replace(r#""schema":{"N":"2"}"#, &format!(r#""schema":{{"N":"{version}"}}"#));
            assert_ne!(message, other);
            assert!(matches!(read(&other), Err(WorkError::Malformed("item"))));
        }
    }
}
