//! What a worker's report does to the record: a pure function of both.

use super::{
    FencedError, KeptAnswer, Note, Record, Revision, SettledBy, State, Transition, UnknownCause, Worker,
};
use crate::time::Timestamp;

/// How an execution ended, as its worker reports it. The answer's body is stored.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// The effect and its answer are known.
    Completed(KeptAnswer),
    /// Certainly nothing was done. A note for the record, if the reason is known.
    NotExecuted(Option<Note>),
    /// The request was refused before anything was done.
    NotBegun,
    /// Something may have been done. A note for the record, if more than the cause is known.
    PerhapsExecuted(UnknownCause, Option<Note>),
}

/// A worker's report, with all that decides what it does to the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported<'a> {
    /// The record as its worker last saw it.
    pub(crate) base: &'a Record,
    /// How the execution ended.
    pub(crate) ended: &'a Ended,
    /// Whether domain writes commit with it.
    pub(crate) has_writes: bool,
    /// Whether the operation may run again if its worker is dead.
    pub(crate) may_run_again: bool,
    /// Whether it has been escalated that another execution certainly or possibly ran the operation too. Before that, nothing
    /// that the other execution left is overwritten: its trace would be lost.
    pub(crate) escalated: bool,
}

/// What a report does to the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It becomes this record.
    Written(Transition),
    /// Another execution is in progress: its record is marked as contested.
    Contested(Transition),
    /// Nothing: the record has moved on.
    Fenced(FencedError),
    /// The record has been gone for so long that it may have been settled and deleted since. Or the report has domain writes, which
    /// an operator or a restore may have undone together with the record.
    Gone,
}

impl Ended {
    /// Whether nothing was done.
    pub(crate) const fn did_nothing(&self) -> bool {
        matches!(self, Self::NotExecuted(_) | Self::NotBegun)
    }

    /// Whether its worker knows what it did.
    pub(crate) const fn is_certain(&self) -> bool {
        !matches!(self, Self::PerhapsExecuted(..))
    }

    /// Whether its worker knows of an effect.
    pub(crate) fn reports_an_effect(&self) -> bool {
        matches!(self, Self::Completed(answer) if answer.head.is_effect())
    }

    /// The record that this turns `seen` into.
    pub(crate) fn of(
        &self,
        seen: &Record,
        worker: Worker,
        revision: Revision,
        now: Timestamp,
    ) -> Result<Transition, FencedError> {
        match self {
            Self::Completed(answer) => seen.complete(worker, revision, answer.clone(), now),
            Self::NotExecuted(because) => {
                Ok(seen.release(worker.attempt, revision, now)?.failed(because.clone()))
            }
            Self::NotBegun => seen.not_begun(worker.attempt, revision, now),
            Self::PerhapsExecuted(cause, because) => {
                Ok(seen.mark_unknown(worker, revision, *cause, now)?.failed(because.clone()))
            }
        }
    }
}

impl Reported<'_> {
    /// What this does to the current record.
    ///
    /// The record may be gone, because an operator deleted it or the table was restored to an earlier time. Then it is written anew
    /// from `base`, because what is known is still true. After the retention, counted from the execution's beginning, it is not
    /// written anew: the record may have been settled, and then deleted by time to live.
    pub(crate) fn fate(&self, current: Option<&Record>, revision: Revision, now: Timestamp) -> Fate {
        let (base, worker) = (self.base, Worker::of(self.base));
        // Another request that did not begin counts as absent: it must not hide a certain or possible effect.
        let current = current.filter(|current| {
            !current.is_not_begun() || current.attempt == worker.attempt || self.ended.did_nothing()
        });
        let seen = current.unwrap_or(base);
        let late = now > base.began_at.plus(seen.retention);
        // The rows of a transaction may have been undone together with the record.
        let by_transaction = self.has_writes || (base.transactional && !self.ended.did_nothing());
        if current.is_none() && (late || by_transaction) {
            return Fate::Gone;
        }
        let double = self.is_double(seen, now);
        if double && let Some(contested) = seen.contest(worker, revision) {
            return Fate::Contested(contested);
        }
        if double && !self.escalated {
            return Fate::Fenced(FencedError::OwnedByAnother);
        }
        match self.ended.of(seen, worker, revision, now) {
            Ok(next) => Fate::Written(next),
            Err(fenced) => Fate::Fenced(fenced),
        }
    }

    /// Whether this record shows a second execution of an operation that must not run again, while this worker certainly or
    /// possibly did something.
    ///
    /// After the retention, the record may be of a later generation of the key, which is no second execution. Before that, a later
    /// generation means that an operator deleted the record, or restored the table.
    pub(crate) fn is_double(&self, current: &Record, now: Timestamp) -> bool {
        let base = self.base;
        // All its effects were in its transaction, which was not committed.
        if base.transactional {
            return false;
        }
        let one_generation = current.created_at == base.created_at;
        let early = now <= base.began_at.plus(base.retention);
        // If the other execution did nothing, the two do not contradict each other. In a later generation they still do, because a
        // retry would run.
        let did_nothing = matches!(
            current.state,
            State::FailedRetryable { .. } | State::Unknown { cause: UnknownCause::Contested, .. }
        );
        let theirs = !(did_nothing && one_generation);
        let ours = !self.ended.did_nothing();
        let same = base.is_same_request(current);
        let others = current.attempt != base.attempt && same && (one_generation || early);
        ours && theirs && others && !self.may_run_again
    }

    /// Whether its domain writes can never commit, because this record is of another generation of the key.
    pub(crate) fn belongs_to_earlier_generation(&self, current: &Record) -> bool {
        self.has_writes && current.created_at != self.base.created_at
    }

    /// Whether the record denies this report: it was completed without an effect that is reported, or without the report's domain
    /// writes. A record that the same worker completed denies nothing: its writes were refused, and it has the answer for that.
    pub(crate) fn is_denied_by(&self, current: &Record) -> bool {
        let State::Completed { answer, by, .. } = &current.state else { return false };
        if *by == SettledBy::Worker && current.attempt == self.base.attempt {
            return false;
        }
        let without_its_writes = self.has_writes && !current.with_writes;
        without_its_writes || (self.ended.reports_an_effect() && !answer.head.is_effect())
    }

    /// Claims the record for the effect that this reports, without its domain writes, which are not committed. From then on it is
    /// not released for a retry, and no earlier try of those writes can be applied. An operation that may run again is left alone:
    /// its next run repairs it.
    pub(crate) fn claim(
        &self,
        current: Option<&Record>,
        revision: Revision,
        now: Timestamp,
    ) -> Option<Transition> {
        let current = current?;
        let one_generation = current.created_at == self.base.created_at && self.base.is_same_request(current);
        if !one_generation || self.may_run_again {
            return None;
        }
        current.claim(revision, now, now)
    }
}

impl Record {
    /// Whether both records may be of one request. Fingerprints by different rules cannot be compared.
    pub(crate) fn is_same_request(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint || self.fingerprint.rule() != other.fingerprint.rule()
    }
}
