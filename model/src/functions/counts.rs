//! Compares what callers were told, what was counted and what operators got with what was done.

use std::sync::Arc;

use lambda_idempotency::{
    record::{Record, State},
    telemetry::WORK_ABANDONED,
    time::Timestamp,
};
use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::{
    answers::{GivesUp, Received},
    call::How,
    ids::{KeyId, ProcessId, THE_KEY},
    ledger::Ledger,
    scenario::Provider,
    universe::{Shared, Universe},
};
use crate::kernel::violation::Violation;

impl Universe {
    /// A client gets this answer: it follows the advice.
    pub fn told(&mut self, received: Received) {
        let nothing = self.shelf(THE_KEY).effects.is_empty() && self.shelf(THE_KEY).rows == 0;
        // Of what was done already, it finds the trace: it looks before it makes a new key.
        if matches!(received, Received::GivesUp(GivesUp::TooOld | GivesUp::Reused)) && nothing {
            self.ledger.has_new_key = true;
        }
    }

    /// Something is done under the old key.
    pub fn does(&mut self) {
        if self.ledger.has_new_key {
            self.violate(Violation::MisledClient);
        }
    }

    /// The handler of the execution that has the record of this key begins.
    pub fn tries(&mut self, process: ProcessId, key: KeyId) {
        self.ledger.begun += 1;
        self.ledger.owners[usize::from(key)] = Some((process, true));
    }

    /// A write was applied. Its call ends so.
    pub fn wrote(&mut self, process: ProcessId, before: Option<&Record>, after: &Record, how: How) {
        let runs = |record: &Record| matches!(record.state, State::InProgress { .. });
        let goes_on =
            before.is_some_and(|before| runs(before) && before.attempt == after.attempt) && runs(after);
        let clock = Timestamp::from_millis(self.clock);
        let is_over = |record: &Record| matches!(record.state, State::InProgress { lease_until } if lease_until <= clock);
        let key = self.key_id(&after.key);
        let owner = self.ledger.owners[usize::from(key)];
        if let Some((owner, began)) = owner.filter(|(owner, _)| *owner != process)
            && before.is_some_and(is_over)
            && !goes_on
        {
            self.expires(key, owner, began);
        }
        match &after.state {
            State::InProgress { .. } if !goes_on => {
                self.ledger.owners[usize::from(key)] = Some((process, false));
            }
            State::Completed { .. } if self.shelf(THE_KEY).is_abandoned() => {
                self.ends_with_408(before, after, how)
            }
            _ => {}
        }
    }

    /// A lease is over. If its owner ended by itself and ran nothing, it has left that to nobody.
    fn expires(&mut self, key: KeyId, owner: ProcessId, began: bool) {
        if !began {
            // As far as anybody knows, it has.
            self.ledger.begun += 1;
            self.input.progress[usize::from(key)].lost += 1;
        }
        let process = self.process(owner);
        let has_ended = process.ended_at.is_some() && !process.began;
        // A second fault may lose what it would have left in the queue.
        let is_left = self.faults > 1 || self.has_deferred();
        if self.scenario.ends_at_answer && has_ended && !is_left {
            self.violate(Violation::NotTakenBack);
        }
    }

    fn ends_with_408(&mut self, before: Option<&Record>, after: &Record, how: How) {
        if before.is_some_and(|before| matches!(before.state, State::Completed { .. })) {
            return;
        }
        match how {
            How::Answered | How::Apart | How::ClockBack | How::FreezesAfter => self.ledger.ended += 1,
            _ => self.ledger.perhaps_ended += 1,
        }
        let in_time = after.accepted.is_some_and(|accepted| self.clock < accepted.claim_by.as_millis());
        let has_tries = self.scenario.accepts.is_some_and(|most| self.ledger.begun < most);
        if in_time && has_tries {
            self.violate(Violation::NeverTried);
        }
    }

    /// A message of this key becomes a dead letter, for no other reason than that it was tried in vain.
    pub fn gives_up(&mut self, key: KeyId) {
        let Some(input) = self.scenario.input else { return };
        let progress = &self.input.progress[usize::from(key)];
        let is_refused = progress.is_refused || self.scenario.provider == Provider::Refuses;
        let tries = progress.begun + progress.lost;
        if self.may_be_parked() {
            return;
        }
        if !is_refused && tries < input.max_attempts && self.shelf(key).answer().is_none() {
            self.violate(Violation::BuriedUntried);
        }
    }

    /// What was counted at rest.
    pub fn counts_at_rest(&self) -> Option<Violation> {
        let Ledger { ended, perhaps_ended, counted, .. } = self.ledger;
        let most = ended + perhaps_ended + u32::from(self.faults);
        (counted < ended || counted > most).then_some(Violation::Uncounted)
    }
}

/// Counts what alarms stand on.
pub struct Counts(pub Shared);

struct Abandoned(Shared);

impl CounterFn for Abandoned {
    fn increment(&self, by: u64) {
        self.0.lock().ledger.counted += u32::try_from(by).unwrap_or(u32::MAX);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            WORK_ABANDONED => Counter::from_arc(Arc::new(Abandoned(self.0.clone()))),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
