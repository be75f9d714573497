//! Records for the tests of other rooms.

use std::{borrow::Borrow, time::Duration};

use bytes::Bytes;

use super::{
    Admission, AttemptId, Effects, Encoding, Head, KeptAnswer, KeptBody, Note, PhaseList, Record, Report,
    ReservationRequest, Resumes, Revision, Transition,
};
use crate::{
    fingerprint::{Content, FingerprintRule},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant, refusal::KeyRefusal},
    time::Timestamp,
    world::{SystemWorld, World},
};

pub(crate) const RETAIN: Duration = Duration::from_secs(60);

/// Makes fresh ids.
pub(crate) trait Mint: From<[u8; 16]> {
    fn mint() -> Self {
        SystemWorld.nonce().into()
    }
}

impl Mint for Revision {}
impl Mint for AttemptId {}

pub(crate) fn reservation(key: &str) -> ReservationRequest {
    reservation_for(key, "body")
}

pub(crate) fn reservation_for(key: &str, body: &str) -> ReservationRequest {
    let content = Content::new("POST", "/payments", body.as_bytes());
    let fingerprints = content.fingerprints("pay", &FingerprintRule::new(), &[]);
    let (tenant, operation) = (Tenant::parse("tenant").unwrap(), OperationName::parse("pay").unwrap());
    let key = RecordKey::new(tenant, operation, IdempotencyKey::parse(key).unwrap());
    let (attempt, lease_until) = (AttemptId::mint(), Timestamp::from_secs(1_030));
    let origin = Some(Note::new("POST /payments"));
    ReservationRequest { origin, ..ReservationRequest::new(key, fingerprints, attempt, lease_until, RETAIN) }
}

/// With one phase, `charge`.
pub(crate) fn resuming(within: Duration) -> Effects<Resumes> {
    Effects::InPhases(Resumes { within, list: PhaseList::of(&["charge".to_owned()]) })
}

/// The admission of a request whose key is too old.
pub(crate) fn too_old() -> Admission {
    KeyRefusal::TOO_OLD.admission(false)
}

/// A record that was accepted, for a minute.
pub(crate) fn accepted(key: &str, now: Timestamp) -> Record {
    Record::accept(&reservation(key), now.plus(RETAIN), 2, Revision::mint(), now)
}

pub(crate) fn answer() -> KeptAnswer {
    let bytes = Bytes::from_static(b"{}");
    let body = KeptBody::Inline { length: bytes.len() as u64, bytes, encoding: Encoding::Identity };
    let headers = [("location".into(), "/payments/1".into())].into();
    KeptAnswer { head: Head::Http { status: 201, headers }, body }
}

/// What a worker's report makes of a record.
pub(crate) trait Reports: Borrow<Record> {
    fn complete(
        &self,
        worker: &Record,
        revision: Revision,
        answer: KeptAnswer,
        now: Timestamp,
    ) -> Option<Transition> {
        Report::Completed(answer).of(self.borrow(), worker, revision, now)
    }

    fn release(&self, attempt: AttemptId, revision: Revision, now: Timestamp) -> Option<Transition> {
        let worker = Record { attempt, ..self.borrow().clone() };
        Report::NotExecuted(None).of(self.borrow(), &worker, revision, now)
    }

    fn mark_unknown(&self, worker: &Record, revision: Revision, now: Timestamp) -> Option<Transition> {
        Report::PerhapsExecuted(None).of(self.borrow(), worker, revision, now)
    }
}

impl Reports for Record {}
