//! A worker's report that could not be written. It waits in a queue, from which reconciliation applies it under the same fence.
//!
//! It holds the record's item, in the state that its worker wanted. The item has a version: see [`Item`].

use serde::{Deserialize, Serialize, ser::Error};

use crate::{
    domain::DomainWrite,
    queue::WorkError,
    record::{KeptBody, Record, State},
    store::{Item, from_attributes},
};

/// SQS accepts 1 MiB, and accepted 256 KiB until 2025; other queues accept less. A body that does not fit is left out.
const MAX_BYTES: usize = 240 * 1024;

/// How an execution ended, as far as its worker knows.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DeferredReport {
    /// The record's partition key, for operators and their tools.
    pub(crate) key: String,
    /// The record that its worker last saw, with that revision, in the state that the worker wanted.
    item: serde_dynamo::Item,
    /// The domain writes that commit with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writes: Vec<DomainWrite>,
}

impl DeferredReport {
    /// The report that wants this record. The body is left out if the message would be too long with it. The domain writes never
    /// are: without them, the record would be wrong.
    ///
    /// # Errors
    /// If its domain writes are too large for a message.
    pub(crate) fn of(mut wanted: Record, writes: &[DomainWrite]) -> Result<Self, serde_json::Error> {
        let mut report = Self::whole(&wanted, writes)?;
        if report.is_too_long()?
            && let State::Completed { answer, .. } = &mut wanted.state
        {
            answer.body = KeptBody::Omitted { length: answer.body.length() };
            report = Self::whole(&wanted, writes)?;
        }
        if report.is_too_long()? {
            return Err(serde_json::Error::custom("its domain writes are too large for a message"));
        }
        Ok(report)
    }

    fn whole(wanted: &Record, writes: &[DomainWrite]) -> Result<Self, serde_json::Error> {
        let item = serde_dynamo::to_item(Item::from(wanted)).map_err(serde_json::Error::custom)?;
        Ok(Self { key: wanted.key.partition_key(), item, writes: writes.to_vec() })
    }

    fn is_too_long(&self) -> Result<bool, serde_json::Error> {
        Ok(serde_json::to_string(self)?.len() > MAX_BYTES)
    }

    /// The record that it ends, in the state that the worker wanted.
    pub(crate) fn record(&self) -> Result<Record, WorkError> {
        let record = from_attributes(self.item.clone()).map_err(|_| WorkError::Malformed("item"))?;
        // Operators must see the key that is written.
        if record.key.partition_key() != self.key {
            return Err(WorkError::Malformed("key"));
        }
        match &record.state {
            State::Completed { answer, .. } if !answer.head.is_final() => Err(WorkError::Malformed("status")),
            _ => Ok(record),
        }
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
            Encoding, KeptAnswer, Revision,
            tests::{answer, reservation},
        },
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn reserved() -> Record {
        Record::reserve(&reservation("k"), Revision::mint(), NOW)
    }

    fn released() -> Record {
        let reserved = reserved();
        reserved.release(reserved.attempt, reserved.revision, NOW).unwrap().into()
    }

    fn message(wanted: Record) -> String {
        Message::DeferredReport(Box::new(DeferredReport::of(wanted, &[]).unwrap())).to_json()
    }

    fn read(message: &str) -> Result<Record, WorkError> {
        let Message::DeferredReport(report) = Message::read(message)? else { panic!("{message}") };
        report.record()
    }

    // T16
    #[test]
    fn a_report_is_queued_without_a_body_too_large_for_it() {
        let bytes = Bytes::from(vec![0; MAX_BYTES]);
        let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
        let reserved = reserved();
        let answer = KeptAnswer { body, ..answer() };
        let completed = reserved.complete(&reserved, Revision::mint(), answer, NOW).unwrap();
        let message = message(completed.into());
        assert!(message.len() < 2_000);
        let State::Completed { answer, .. } = read(&message).unwrap().state else { panic!("{message}") };
        assert_eq!(answer.body, KeptBody::Omitted { length: MAX_BYTES as u64 });
    }

    #[test]
    fn a_message_that_names_another_record_than_its_item_is_refused() {
        let message = message(released());
        let other = message.replacen(r#""key":"tenant#pay#k""#, r#""key":"tenant#pay#other""#, 1);
        assert_ne!(message, other);
        assert!(matches!(read(&other), Err(WorkError::Malformed("key"))));
    }

    // T36
    #[test]
    fn an_item_of_another_version_is_refused_and_not_guessed() {
        let message = message(released());
        for version in ["0", "2"] {
            let other = message.replace(r#""schema":{"N":"1"}"#, &format!(r#""schema":{{"N":"{version}"}}"#));
            assert_ne!(message, other);
            assert!(matches!(read(&other), Err(WorkError::Malformed("item"))));
        }
    }
}
