//! What a call does.

use std::time::Duration;

use lambda_idempotency::store::{Survey, WriteOutcome};

use super::{
    call::{Call, Effect, Reply, Source},
    properties::{self, Violation},
    scenario::Guarded,
    shelf::found,
    state::digest,
    universe::{ProcessId, Universe},
};

impl Universe {
    /// Does what this call asks for.
    pub fn perform(&mut self, process: ProcessId, call: &Call) -> Reply {
        match call {
            Call::Begin | Call::Handler | Call::Sleep(_) => Reply::Done,
            Call::Effect => {
                self.effect(process);
                Reply::Effect(Effect::Executed)
            }
            Call::Write(seen, record, with) => {
                let (outcome, then) = self.shelf.write(*seen, record, with, self.clock);
                then.violation.into_iter().for_each(|violation| self.violate(violation));
                if self.scenario.guarded != Guarded::Reserved && self.shelf.rows > 1 {
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
                Reply::Written(Ok(outcome))
            }
            Call::Load => Reply::Loaded(Ok(self.shelf.record().cloned().map(Box::new))),
            Call::KeepBody(id, body, until) => {
                let key = self.scenario_key();
                Reply::Kept(Ok(self.shelf.keep_body(&key, *id, body.clone(), *until)))
            }
            Call::LoadBody(id, place) => {
                let key = self.scenario_key();
                Reply::Body(Ok(self.shelf.load_body(&key, *id, *place, self.clock)))
            }
            Call::Due(now) => {
                let is_due = self.shelf.due_at().is_some_and(|at| at <= now.as_millis());
                Reply::Due(Ok(is_due.then(|| self.scenario_key()).into_iter().collect()))
            }
            Call::Survey => Reply::Survey(Survey::NOTHING),
            Call::Send(source, body, delay) => {
                let digest = digest(&(process, self.process(process).history));
                self.send(*source, body.clone(), *delay, digest);
                Reply::Sent(true)
            }
            Call::Ask => Reply::Found(Some(found(&self.effects, self.scenario))),
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

    /// The provider executes the effect of this process.
    fn effect(&mut self, process: ProcessId) {
        if matches!(self.scenario.guarded, Guarded::Resumed(1..)) && !self.effects.is_empty() {
            // It remembers the key.
            return;
        }
        self.effects.push(process);
        if self.effects.len() > 1 {
            self.violate(Violation::TwoEffects);
        }
        if self.scenario.webhook {
            self.send(Source::Events, String::new(), Duration::ZERO, u64::from(process));
        }
    }
}
