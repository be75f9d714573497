//! What a call does.

use std::time::Duration;

use lambda_idempotency::store::{OutboxMessage, WriteOutcome};

use super::{
    call::{Call, Effect, How, Reply, Source},
    digest::digest,
    ids::{KeyId, ProcessId, THE_KEY, record_key},
    properties,
    scenario::{Guarded, Provider},
    shelf::Shelf,
    universe::Universe,
};
use crate::kernel::violation::Violation;

impl Universe {
    /// Does what this call asks for.
    pub fn perform(&mut self, process: ProcessId, call: &Call, how: How) -> Reply {
        match call {
            Call::Begin | Call::Handler | Call::Sleep(_) => Reply::Done,
            Call::Check => Reply::Sent(true),
            Call::Effect(key) => Reply::Effect(match self.scenario.provider {
                Provider::Refuses => {
                    self.input.progress[usize::from(*key)].is_refused = true;
                    Effect::Refused
                }
                Provider::IsAway => Effect::NotSent,
                Provider::Executes => {
                    self.effect(process, *key);
                    Effect::Executed
                }
            }),
            Call::Write(seen, record, with) => {
                let (id, clock) = (self.key_id(&record.key), self.clock);
                let (before, rows) = (self.shelf(id).record().cloned(), self.shelf(id).rows);
                let (outcome, then) = self.shelf_mut(id).write(*seen, record, with, clock);
                then.violation.into_iter().for_each(|violation| self.violate(violation));
                if let Some(batch) = then.stream {
                    self.send(Source::Stream, batch, Duration::ZERO, self.shelf(id).stamp());
                }
                if self.shelf(id).lacks_request() {
                    self.violate(Violation::RequestMissing);
                }
                if outcome == WriteOutcome::Written {
                    self.wrote(process, before.as_ref(), record, how);
                }
                if self.shelf(id).rows > rows {
                    self.does();
                }
                if self.shelf(id).is_abandoned() && !self.shelf(id).effects.is_empty() {
                    self.violate(Violation::FalseAbandonment);
                }
                if self.scenario.guarded != Guarded::Reserved && self.shelf(id).rows > 1 {
                    self.violate(Violation::TwoEffects);
                }
                if let Some(at) = then.check_at {
                    let (key, look_at) = (record.key.partition_key(), at.as_millis());
                    let check =
                        format!(r#"{{"version":1,"kind":"check","key":"{key}","look_at":{look_at}}}"#);
                    let delay = Duration::from_millis(look_at.saturating_sub(self.clock));
                    self.send(Source::Checks, check, delay, look_at);
                }
                match &outcome {
                    WriteOutcome::Written => {}
                    WriteOutcome::Refused(_) => self.tell(|_| "  refused: the record has changed".to_owned()),
                    WriteOutcome::Denied(_) => {
                        self.tell(|_| "  refused: the row's condition fails".to_owned())
                    }
                }
                Reply::Written(outcome)
            }
            Call::Load(key) => Reply::Loaded(self.shelf(*key).record().cloned().map(Box::new)),
            Call::KeepBody(key, id, body, until) => {
                Reply::Kept(self.shelf_mut(*key).keep_body(&record_key(*key), *id, body.clone(), *until))
            }
            Call::LoadBody(key, id, place) => {
                Reply::Body(self.shelf(*key).load_body(&record_key(*key), *id, *place, self.clock))
            }
            Call::DeleteBody(key, id) => {
                self.shelf_mut(*key).delete_body(&record_key(*key), *id);
                if self.shelf(*key).lacks_request() {
                    self.violate(Violation::RequestMissing);
                }
                Reply::Done
            }
            Call::Undelivered(key) => {
                self.shelf(*key).list_undelivered().map_or_else(Reply::Failed, Reply::Undelivered)
            }
            Call::Remove(message) => {
                let key = self.key_id(&message.key);
                self.shelf_mut(key).remove(message);
                Reply::Done
            }
            Call::Deliver(message) => {
                self.delivers(message);
                Reply::Sent(true)
            }
            Call::Wake(body, id) => {
                if !self.input.is_repeated(id.clone(), self.clock) {
                    self.send(Source::Wakes, body.clone(), Duration::ZERO, 0);
                }
                Reply::Sent(true)
            }
            Call::Scan(now) => Reply::Page(self.shelf(THE_KEY).scan(*now)),
            Call::Due(now) => {
                let is_due = |shelf: &Shelf| shelf.due_at().is_some_and(|at| at <= now.as_millis());
                let due = self.shelves.iter().zip(0..).filter(|(shelf, _)| is_due(shelf));
                Reply::Due(due.map(|(_, key)| record_key(key)).collect())
            }
            Call::Send(source, body, delay) => {
                let digest = digest(&(process, self.process(process).history));
                self.send(*source, body.clone(), *delay, digest);
                Reply::Sent(true)
            }
            Call::Ask(key) => Reply::Found(Some(self.shelf(*key).found(self.scenario))),
            Call::Hide(hidden) => Reply::Sent(self.hide(hidden)),
            Call::Bury(source, body) => {
                self.bury(*source, body.clone());
                Reply::Sent(true)
            }
            Call::EndBatch(done) => {
                self.end_batch(done);
                Reply::Done
            }
            Call::EndRecords(batch, again) => {
                self.end_records(batch, *again);
                Reply::Done
            }
            Call::Acknowledge(id) => {
                if let Some(place) = self.messages.iter().position(|message| message.id == *id) {
                    let message = self.messages.remove(place);
                    if let Some(violation) = properties::acknowledged(self, &message) {
                        self.violate(violation);
                    }
                }
                Reply::Done
            }
        }
    }

    /// The provider executes the effect of this process under this key.
    fn effect(&mut self, process: ProcessId, key: KeyId) {
        if matches!(self.scenario.guarded, Guarded::Resumed(1..)) && !self.shelf(key).effects.is_empty() {
            // It remembers the key.
            return;
        }
        self.shelf_mut(key).effects.push(process);
        self.does();
        if self.shelf(key).effects.len() > 1 && self.scenario.promises_one_effect() {
            self.violate(Violation::TwoEffects);
        }
        if self.shelf(key).is_abandoned() {
            self.violate(Violation::FalseAbandonment);
        }
        if self.scenario.webhook {
            self.send(Source::Events, String::new(), Duration::ZERO, u64::from(process));
        }
    }

    /// A target takes a message.
    pub fn delivers(&mut self, message: &OutboxMessage) {
        let key = self.key_id(&message.key);
        let number = serde_json::from_str::<(u64, u8)>(&message.body).map_or(0, |(number, _)| number);
        let is_kept = self.shelf(key).keeps_answer_of(number);
        let violation = self.shelf_mut(key).outbox.takes(message);
        let violation = violation.or((!is_kept).then_some(Violation::NotCommitted));
        violation.into_iter().for_each(|violation| self.violate(violation));
    }
}
