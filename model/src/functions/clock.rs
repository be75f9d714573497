//! The clock: what happens next by itself, and what happens late.

use lambda_idempotency::store::WriteOutcome;

use super::{
    call::{Call, How, Reply},
    ids::{BEGINNING, GateId, ProcessId},
    universe::{Gate, Later, Universe},
};

impl Universe {
    /// When something happens next without anybody's call.
    pub fn next_event(&self) -> Option<u64> {
        let is_frozen = |id: ProcessId| self.processes[usize::from(id)].frozen.is_some();
        let sleeps = self.gates.values().filter(|gate| !is_frozen(gate.process) && gate.reply.is_none());
        let sleeps = sleeps.filter_map(|gate| self.wakes_at(gate));
        let messages =
            self.messages.iter().filter(|message| !message.taken).map(|message| message.visible_at);
        let later = self.later.iter().map(|later| later.by).filter(|by| *by != u64::MAX);
        let due = self.due_at().filter(|_| self.scenario.polls > 0);
        let (up, sweep) = (Some(self.down_until), self.sweep_at());
        let visible = self
            .input
            .messages
            .iter()
            .filter(|message| !self.is_quiet(message))
            .map(|message| message.visible_at);
        sleeps
            .chain(messages)
            .chain(visible)
            .chain(up)
            .chain(sweep)
            .chain(later)
            .chain(due)
            .filter(|at| *at > self.clock)
            .min()
    }

    fn wakes_at(&self, gate: &Gate) -> Option<u64> {
        let Call::Sleep(until) = gate.call else { return None };
        let millis = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        Some(BEGINNING + self.processes[usize::from(gate.process)].suspended + millis)
    }

    /// Advances the clock, and wakes who waits for that.
    pub fn advance(&mut self, to: u64) {
        self.clock = to;
        self.tell(|_| "time passes".to_owned());
        self.shelves.iter_mut().for_each(|shelf| shelf.outbox.unseen.clear());
        self.wake_sleepers();
        while let Some(place) = self.later.iter().position(|later| later.by <= to) {
            self.land(place);
        }
    }

    /// Wakes each sleeper whose time has come, unless its process is frozen.
    pub fn wake_sleepers(&mut self) {
        let is_due = |(id, gate): (&GateId, &Gate)| {
            let frozen = self.processes[usize::from(gate.process)].frozen.is_some();
            let due = self.wakes_at(gate).is_some_and(|at| at <= self.clock);
            (due && !frozen && gate.reply.is_none()).then_some(*id)
        };
        let due: Vec<GateId> = self.gates.iter().filter_map(is_due).collect();
        for id in due {
            self.reply(id, How::Answered, Reply::Done);
        }
    }

    /// A late call is done.
    pub fn land(&mut self, place: usize) {
        let Later { process, call, at, .. } = self.later.remove(place);
        self.tell(|all| format!("late: {} {call}", all.name(process)));
        if let Reply::Written(WriteOutcome::Written) = self.perform(process, &call, How::Late)
            && let Call::Write(_, record, _) = &call
        {
            self.landed(process, self.key_id(&record.key), at);
        }
    }
}
