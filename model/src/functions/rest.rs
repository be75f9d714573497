//! What must hold at rest.

use lambda_idempotency::record::{Phases, Record, State};

use super::{
    answers::{Received, is_effect, kept_effect},
    ids::{KeyId, THE_KEY},
    input::Progress,
    scenario::{Guarded, Provider, Rows},
    shelf::{ROW, Shelf},
    universe::Universe,
};
use crate::kernel::violation::Violation;

impl Universe {
    /// What does not hold once nothing happens any more.
    pub fn at_rest(&self) -> Option<Violation> {
        let open = |record: &Record| match record.state {
            State::Completed { .. } => false,
            // No client would retry what was accepted.
            State::FailedRetryable { .. } => record.accepted.is_some(),
            _ => true,
        };
        let is_open = |shelf: &Shelf| !shelf.is_escalated() && shelf.record().is_some_and(open);
        if self.shelves.iter().any(is_open) || !self.messages.is_empty() {
            return Some(Violation::NoRest);
        }
        if let Some(violation) = self.counts_at_rest().or_else(|| self.stream_at_rest()) {
            return Some(violation);
        }
        match self.scenario.input {
            Some(_) => (0..self.scenario.keys()).find_map(|key| self.messages_at_rest(key)),
            None => self.clients_at_rest(),
        }
    }

    /// What does not hold for accepted work, and for what was published.
    fn stream_at_rest(&self) -> Option<Violation> {
        let shelf = self.shelf(THE_KEY);
        let is_sure = self.faults == self.losses && self.scenario.workers > 0 && self.can_be_done();
        if is_sure && shelf.is_abandoned() {
            return Some(Violation::NeverExecuted);
        }
        if shelf.has_request_left() {
            return Some(Violation::RequestLeft);
        }
        let is_left = shelf.outbox.delivered.len() < shelf.outbox.published.len();
        (is_left || !shelf.undelivered().is_empty()).then_some(Violation::Undelivered)
    }

    fn can_be_done(&self) -> bool {
        self.scenario.provider == Provider::Executes
    }

    /// What does not hold for the messages of this key.
    fn messages_at_rest(&self, key: KeyId) -> Option<Violation> {
        let shelf = self.shelf(key);
        let (done, known) = (!shelf.effects.is_empty(), shelf.is_escalated() || self.dead_letters > 0);
        let has_effect = shelf.answer().is_some_and(kept_effect);
        let Progress { sent, trimmed, .. } = self.input.progress[usize::from(key)];
        let is_trimmed = sent == trimmed;
        // What was accepted may end in time: its 408 is counted.
        if !done && !is_trimmed && !self.input.holds(key) && !shelf.is_abandoned() {
            return Some(Violation::LostMessage);
        }
        if done && !has_effect && !known {
            return Some(Violation::LostReport);
        }
        let is_refused = shelf.answer().is_some() && !has_effect || !self.can_be_done();
        let is_sure = self.faults == 0 || self.is_calm;
        (is_sure && !done && !is_trimmed && !is_refused && !known).then_some(Violation::NeverExecuted)
    }

    /// What does not hold for the clients.
    fn clients_at_rest(&self) -> Option<Violation> {
        let shelf = self.shelf(THE_KEY);
        let (record, effects, visible) = (shelf.record(), &shelf.effects, self.is_visible());
        let is_free = |record: &Record| matches!(record.state, State::FailedRetryable { .. });
        let nothing = effects.is_empty() && shelf.rows == 0;
        // An invalid request whose end nobody knows keeps its key.
        let in_calm = self.is_calm && !self.scenario.answer_may_expire() && !self.scenario.corrects;
        if (self.faults == 0 || in_calm)
            && self.can_be_done()
            && nothing
            && record.is_none_or(is_free)
            && !visible
        {
            return Some(Violation::NeverExecuted);
        }
        let waits = |record: &Record| matches!(record.state, State::BetweenWorkers { .. });
        let remembers =
            matches!(self.scenario.guarded, Guarded::Resumed(1..)) && self.scenario.accepts.is_none();
        if in_calm && self.can_be_done() && remembers && record.is_some_and(waits) {
            return Some(Violation::NeverResumed);
        }
        if self.scenario.webhook && effects.len() > 1 && !visible {
            return Some(Violation::SilentDouble);
        }
        let kept = shelf.answer();
        let has_effect = kept.is_some_and(kept_effect);
        if !effects.is_empty() && !has_effect && !visible {
            return Some(Violation::LostReport);
        }
        let answers = || self.received.iter().map(|(_, received)| *received);
        let refused = |received: &Received| matches!(received, Received::Answer(status, _) | Received::Omitted(status) if !is_effect(*status));
        let effect = !effects.is_empty() || has_effect;
        if answers().any(|received| refused(&received)) && effect && !visible {
            return Some(Violation::ForgottenRefusal);
        }
        let mut whole = answers()
            .filter(|received| matches!(received, Received::Answer(status, _) if is_effect(*status)));
        if let Some(first) = whole.next()
            && whole.any(|other| other != first)
        {
            return Some(Violation::TwoAnswers);
        }
        // What a client got is what the next one gets.
        let done =
            answers().any(|received| matches!(received, Received::Answer(status, _) if is_effect(status)));
        if done && !has_effect && !visible {
            return Some(Violation::FalseAnswer);
        }
        let rows = shelf.rows;
        let published = shelf.outbox.published.len();
        if matches!(self.scenario.guarded, Guarded::Resumed(_)) {
            let has_row = |phases: &Phases| phases.kept.iter().any(|phase| phase.name == ROW);
            let kept = record.and_then(|record| record.phases()).is_some_and(has_row);
            let messages =
                u8::from(kept) + if has_effect { self.scenario.messages.saturating_sub(1) } else { 0 };
            let all_published = published == usize::from(messages.min(self.scenario.messages)) || visible;
            return (rows > 1 || self.scenario.rows == Rows::One && (rows == 1) != kept || !all_published)
                .then_some(Violation::Rows);
        }
        let with_writes = has_effect && record.is_some_and(|record| record.with_writes);
        let with_rows = with_writes && self.scenario.rows != Rows::None;
        let messages = if with_writes { self.scenario.messages } else { 0 };
        if rows > 1 || (rows == 1) != with_rows || published != usize::from(messages) {
            return Some(Violation::Rows);
        }
        let wants_rows = self.scenario.rows == Rows::One && has_effect;
        let wants_messages = has_effect && published < usize::from(self.scenario.messages);
        ((wants_rows && rows == 0 || wants_messages) && !visible).then_some(Violation::Rows)
    }
}
