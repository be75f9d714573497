//! What can happen next.

use super::{
    call::{Call, How, Source},
    execution::Choice,
    ids::REQUEST,
    scenario::Fault,
    universe::{Gate, Message, Process, Universe},
};

impl Universe {
    /// All that can happen next. The first is the usual one. Empty at rest.
    pub fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let mut is_urgent = false;
        let mut begun = false;
        for (id, gate) in &self.gates {
            let process = &self.processes[usize::from(gate.process)];
            if process.frozen.is_some() || gate.hangs || gate.is_answered() {
                continue;
            }
            match &gate.call {
                Call::Sleep(_) => continue,
                // Requests are alike: they begin in order.
                Call::Begin if begun => continue,
                Call::Begin => {
                    begun = true;
                    is_urgent |= self.scenario.answer_may_expire();
                }
                _ => is_urgent = true,
            }
            if process.outage_until > self.clock && gate.call.is_of_store() {
                choices.push(Choice::Open(*id, How::DuringOutage));
                continue;
            }
            let ends = gate.call.ends(self.scenario.faults);
            let possible = ends.into_iter().filter(|how| how.cost() <= self.faults_left());
            choices.extend(possible.map(|how| Choice::Open(*id, how)));
        }
        self.of_the_environment(&mut choices);
        if !is_urgent {
            let (is_awaited, faults) = (self.is_awaited(), self.scenario.faults);
            let may_pass = !is_awaited || faults.may(Fault::Queues) && self.faults_left() > 0;
            let passes = if is_awaited { Choice::Delay } else { Choice::Advance };
            choices.extend(self.next_event().filter(|_| may_pass).map(passes));
        }
        if self.ends_calmly() {
            choices.truncate(1);
        }
        choices
    }

    /// Whether a batch of the stream, what it led to, or a sweep can begin: it is late if time passes.
    fn is_awaited(&self) -> bool {
        let is_open = |message: &Message| message.source == Source::Stream && self.is_ready(message);
        let is_open = || self.messages.iter().any(is_open) || !self.batches().is_empty();
        self.scenario.has_stream() && (is_open() || self.is_swept())
    }

    /// Whether the order of what is left does not matter: no request, no consumer, and no fault is left.
    fn ends_calmly(&self) -> bool {
        let is_one = |process: &Process| process.name == REQUEST || process.is_consumer();
        let requests = self.processes.iter().any(|process| is_one(process) && !process.over);
        self.scenario.ends_calmly && self.faults_left() == 0 && !requests
    }

    fn of_the_environment(&self, choices: &mut Vec<Choice>) {
        for (process, id) in self.processes.iter().zip(0..) {
            if process.frozen.is_some() {
                choices.push(Choice::Resume(id));
            }
        }
        for message in self.messages.iter().filter(|message| self.is_ready(message)) {
            choices.push(Choice::Deliver(message.id));
            let is_first = message.source == Source::Reconcile && self.down_until == 0;
            if message.source == Source::Stream
                && self.scenario.faults.may(Fault::Losses)
                && self.faults_left() > 0
            {
                choices.push(Choice::Lose(message.id));
            }
            if self.scenario.long_outage && is_first && self.faults_left() > 0 {
                choices.push(Choice::GoDown);
            }
        }
        let polls = self.processes.iter().filter(|process| !process.over && process.name == "poll").count();
        let is_due = self.due_at().is_some_and(|at| at <= self.clock);
        if is_due && self.down_until <= self.clock && polls < usize::from(self.scenario.polls) {
            choices.push(Choice::Poll);
        }
        if self.is_swept() {
            choices.push(Choice::Sweep);
        }
        choices.extend(self.batches().into_iter().map(|(first, second)| Choice::Receive(first, second)));
        if self.can_be_trimmed() {
            choices.push(Choice::Trim);
        }
        choices.extend((0..self.later.len()).map(Choice::Land));
    }
}

impl Gate {
    /// Whether its answer waits for its process.
    pub const fn is_answered(&self) -> bool {
        self.reply.is_some()
    }
}
