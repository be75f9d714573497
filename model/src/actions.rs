//! All that can happen next. Each action is one atomic step; what it does to the record, production code decides.

use std::fmt;

use protocol::record::{Alarm, Deferred, Says, Written};

use crate::{
    config::Config,
    ending::{By, Command, Progress, Replaced},
    protocol::{ARRIVES, Event, Facts, Id, Kind, LEASE, Next, OWN_LEASE, Protocol, WINDOW},
    report::{Found, Report},
    world::{Late, Message, Phase, Question, Request, Worker, World},
};

/// What a reconciler adds to the number of an answer that it gives in its own words.
const OWN_WORDS: u8 = 8;

/// A property that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Two effects, although the provider, the operators and the table are honest.
    TwoEffects,
    /// Two effects that were reported, and no alarm.
    SilentDouble,
    /// An execution begins after an effect was reported to the record.
    BeganAfterEffect,
    /// An execution begins although an operator holds the record.
    BeganOverHold,
    /// A refusal becomes the answer although an effect was reported.
    RefusalOverEffect,
    /// A refusal becomes the answer although another execution perhaps did something.
    RefusalOverPossibleEffect,
    /// A report that was accepted has no trace.
    LostReport,
    /// A caller was refused, the record has an effect, and operators do not know it.
    ForgottenRefusal,
    /// Domain writes are committed twice, or without the record; or the other way round.
    Rows,
    /// Two callers get different answers, and operators do not know it.
    TwoAnswers,
    /// Nothing happens any more, and the record is neither settled nor with operators.
    NoRest,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoEffects => "at most one effect, if provider, operators and table are honest",
            Self::SilentDouble => "two reported effects are with operators",
            Self::BeganAfterEffect => "no execution begins once an effect is reported to the record",
            Self::BeganOverHold => "no execution begins while an operator holds the record",
            Self::RefusalOverEffect => "no refusal becomes the answer over a reported effect",
            Self::RefusalOverPossibleEffect => {
                "no refusal becomes the answer over another execution's possible effect"
            }
            Self::LostReport => "each accepted report is in the answer, or with operators",
            Self::ForgottenRefusal => "a refusal that a caller got is with operators if there was an effect",
            Self::Rows => "rows are committed once if the record is completed with them, and otherwise never",
            Self::TwoAnswers => "all callers get one answer, or operators know it",
            Self::NoRest => "at rest, the record is free, completed, or with operators",
        })
    }
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Begins(u8),
    BeginsLate(u8),
    FindsDead(u8),
    Replays(u8),
    Effect(u8),
    Refused(u8),
    Nothing(u8),
    NotBegun(u8),
    Perhaps(u8),
    Crashes(u8),
    CrashesSending(u8),
    Arrives(u8),
    Beats(u8),
    Reports(u8),
    Marks(u8),
    MarksInVain(u8),
    ReportsUnheard(u8),
    ReportsInVain(u8),
    ReportsLate(u8),
    RowsRefused(u8),
    RowsRefusedUnanswered(u8),
    Lands,
    Delivers(u8),
    DeliversRefused(u8),
    HandsBack(u8),
    Hears(u8),
    HearsHalf(u8),
    Expires,
    Asks(Found),
    Learns,
    Drops,
    Settles(Option<u8>),
    Holds,
    Deletes,
    Prunes,
    Saves,
    Restores,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |worker: u8| char::from(b'A' + worker);
        let text = match *self {
            Self::Tick => "time passes".to_owned(),
            Self::Begins(worker) => format!("{} begins", name(worker)),
            Self::BeginsLate(worker) => {
                format!("{}'s reservation gets no answer, and may land later", name(worker))
            }
            Self::FindsDead(worker) => format!("{} finds a dead worker", name(worker)),
            Self::Replays(worker) => format!("{}'s client gets the kept answer", name(worker)),
            Self::Effect(worker) => format!("{}'s handler executes the effect", name(worker)),
            Self::Refused(worker) => format!("{}'s handler is refused by the provider", name(worker)),
            Self::Nothing(worker) => format!("{}'s handler does nothing", name(worker)),
            Self::NotBegun(worker) => format!("{}'s handler refuses its request", name(worker)),
            Self::Perhaps(worker) => {
                format!("{}'s handler sends its request and gets no answer", name(worker))
            }
            Self::Crashes(worker) => format!("{} crashes", name(worker)),
            Self::CrashesSending(worker) => format!("{} sends its request and crashes", name(worker)),
            Self::Arrives(worker) => format!("{}'s request is executed", name(worker)),
            Self::Beats(worker) => format!("{} extends its lease", name(worker)),
            Self::Reports(worker) => format!("{} reports", name(worker)),
            Self::Marks(worker) => {
                format!("{}'s report is in the queue, and it marks the record", name(worker))
            }
            Self::MarksInVain(worker) => format!("{} marks the record, and gets no answer", name(worker)),
            Self::ReportsUnheard(worker) => {
                format!("{} reports, gets no answer, and defers its report", name(worker))
            }
            Self::ReportsInVain(worker) => format!("{}'s report is lost, and deferred", name(worker)),
            Self::ReportsLate(worker) => format!("{}'s report is deferred, and may land later", name(worker)),
            Self::RowsRefused(worker) => {
                format!("{} reports, and its rows are refused with an answer", name(worker))
            }
            Self::RowsRefusedUnanswered(worker) => {
                format!("{} reports, and its rows are refused without an answer", name(worker))
            }
            Self::Lands => "the late write lands".to_owned(),
            Self::Delivers(worker) => format!("{}'s deferred report is delivered", name(worker)),
            Self::DeliversRefused(worker) => {
                format!("{}'s deferred report is delivered, and its rows are refused", name(worker))
            }
            Self::HandsBack(worker) => format!(
                "{}'s deferred report is handed back, because its body cannot be stored yet",
                name(worker)
            ),
            Self::Hears(worker) => format!("the provider reports {}'s effect", name(worker)),
            Self::HearsHalf(worker) => {
                format!("the provider reports {}'s effect, and its listener dies half-way", name(worker))
            }
            Self::Expires => "the stale function looks".to_owned(),
            Self::Asks(found) => format!("the provider is asked, and answers {found:?}"),
            Self::Learns => "its answer is written".to_owned(),
            Self::Drops => "its answer is lost".to_owned(),
            Self::Settles(Some(_)) => "an operator settles it as executed".to_owned(),
            Self::Settles(None) => "an operator settles it as not executed".to_owned(),
            Self::Holds => "an operator holds it".to_owned(),
            Self::Deletes => "the record is deleted".to_owned(),
            Self::Prunes => "time to live deletes the record".to_owned(),
            Self::Saves => "a backup is taken".to_owned(),
            Self::Restores => "the backup is restored".to_owned(),
        };
        f.pad(&text)
    }
}

/// What follows a state: the action, the state after it, and the property that it violates.
pub type Successor = (Action, World, Option<Violation>);

/// The steps that are possible in this state.
pub struct Steps<'a> {
    pub config: &'a Config,
    pub protocol: &'a mut Protocol,
    pub world: World,
    pub next: &'a mut Vec<Successor>,
}

/// Adds all that can happen next.
pub fn successors(config: &Config, protocol: &mut Protocol, world: &World, next: &mut Vec<Successor>) {
    let mut steps = Steps { config, protocol, world: *world, next };
    steps.all();
}

impl Steps<'_> {
    fn all(&mut self) {
        for worker in 0..self.config.workers {
            self.worker(worker);
        }
        for clock in 0..=self.config.skew {
            self.expire(clock);
        }
        for clock in 0..=self.config.skew {
            self.question(clock);
        }
        if self.config.operator {
            self.operator();
        }
        if self.config.meddling {
            self.meddle();
        }
        self.prune();
        self.land();
        self.tick();
    }

    fn id(&self) -> Option<Id> {
        self.world.record.map(|version| version.id)
    }

    pub fn step(&mut self, now: u8, event: Event) -> Next {
        self.protocol.step(self.id(), now, event)
    }

    fn push(&mut self, action: Action, world: World, violation: Option<Violation>) {
        let world = world.canonical();
        let violation = violation.or_else(|| self.refusal(action, &world));
        // An operation that may run again does so although it perhaps had its effect.
        let violation = violation
            .filter(|found| !self.config.may_run_again || *found != Violation::RefusalOverPossibleEffect);
        if world != self.world || violation.is_some() {
            self.next.push((action, world, violation));
        }
    }

    /// Whether a refusal becomes the record's answer, although something else was reported by then.
    fn refusal(&self, action: Action, after: &World) -> Option<Violation> {
        let refused = |world: &World| {
            let facts = world.record.map(|version| *self.protocol.facts(version.id));
            facts.filter(|facts| facts.state == Kind::Completed && !facts.is_effect)
        };
        let facts = refused(after).filter(|_| refused(&self.world).is_none())?;
        if action == Action::Lands {
            // Written late, by the rules of its own time.
            return None;
        }
        after.contradicts_refusal(facts.attempt)
    }

    pub fn tick(&mut self) {
        if self.world.now < self.config.horizon {
            let mut after = self.world;
            pass(&mut after);
            self.push(Action::Tick, after, None);
        }
    }

    fn worker(&mut self, worker: u8) {
        let state = self.world.workers[usize::from(worker)];
        match state.phase {
            Phase::Idle => {
                let before = usize::from(worker).checked_sub(1);
                if before.is_none_or(|before| self.world.workers[before].phase != Phase::Idle) {
                    for clock in 0..=self.config.skew {
                        self.begin(worker, clock);
                    }
                }
            }
            Phase::Running => self.run(worker),
            Phase::Ended(report) => self.report(worker, report),
            Phase::Deferred(report, mark) => self.marks(worker, report, mark),
            Phase::Reported(_) | Phase::Dead => {}
        }
        if let Request::OnItsWay(_) = state.request {
            let mut after = self.world;
            after.workers[usize::from(worker)].request = Request::Executed(after.now);
            after.workers[usize::from(worker)].webhook = self.config.webhook;
            self.executed(Action::Arrives(worker), after);
        }
        self.deliver(worker);
        self.hear(worker);
    }

    fn begin(&mut self, worker: u8, clock: u8) {
        let now = self.world.now + clock;
        let mut after = self.world;
        match self.step(now, Event::Reserve(worker)) {
            Next::Begins(id) => {
                if self.config.store_faults && after.late.is_none() {
                    let over = after.record.map(|version| version.revision);
                    let mut late = after;
                    late.late = Some(Late { over, id, commits: None });
                    late.workers[usize::from(worker)].phase = Phase::Dead;
                    self.push(Action::BeginsLate(worker), late, None);
                }
                let ends = |facts: &Facts| facts.absent_at <= now && !facts.not_begun;
                let anew = self.id().is_some_and(|id| ends(self.protocol.facts(id)));
                if anew {
                    after.new_life();
                }
                let heard = after.effect_was_heard() && !after.ruled;
                let violation = (heard && !self.config.may_run_again).then_some(Violation::BeganAfterEffect);
                let violation = violation.or(after.held.then_some(Violation::BeganOverHold));
                after.write(id);
                let state = &mut after.workers[usize::from(worker)];
                (state.phase, state.base, state.clock) = (Phase::Running, id, clock);
                self.push(Action::Begins(worker), after, violation);
            }
            Next::Written(id) => {
                after.write(id);
                self.push(Action::FindsDead(worker), after, None);
            }
            Next::Replays => {
                let violation = self.id().and_then(|id| after.publish_kept(self.protocol, id));
                self.push(Action::Replays(worker), after, violation);
            }
            _ => {}
        }
    }

    fn run(&mut self, worker: u8) {
        let index = usize::from(worker);
        let world = self.world;
        let base = *self.protocol.facts(world.workers[index].base);
        // By its own lease, which has no grace.
        let now = world.now + world.workers[index].clock;
        let alive = now < base.lease_until.saturating_sub(LEASE - OWN_LEASE);
        let ended = |report| {
            let mut after = world;
            after.workers[index].phase = Phase::Ended(report);
            after
        };
        let number = worker + 1;
        if self.config.transactional {
            self.push(Action::Effect(worker), ended(Report::Effect(number)), None);
        } else if alive {
            let mut after = ended(Report::Effect(number));
            after.workers[index].request = Request::Executed(world.now);
            after.workers[index].webhook = self.config.webhook;
            self.executed(Action::Effect(worker), after);
            let mut perhaps = ended(Report::PerhapsExecuted);
            perhaps.workers[index].request = Request::OnItsWay(world.now);
            self.push(Action::Perhaps(worker), perhaps, None);
            let mut crashed = perhaps;
            crashed.workers[index].phase = Phase::Dead;
            self.push(Action::CrashesSending(worker), crashed, None);
        }
        self.push(Action::Refused(worker), ended(Report::Refusal(number)), None);
        self.push(Action::Nothing(worker), ended(Report::NotExecuted), None);
        self.push(Action::NotBegun(worker), ended(Report::NotBegun), None);
        let mut crashed = world;
        crashed.workers[index].phase = Phase::Dead;
        self.push(Action::Crashes(worker), crashed, None);
        if self.config.heartbeats
            && let Next::Written(id) = self.step(now, Event::Extend(worker))
        {
            let mut after = world;
            after.write(id);
            after.workers[index].base = id;
            self.push(Action::Beats(worker), after, None);
        }
    }

    /// An effect has happened.
    fn executed(&mut self, action: Action, after: World) {
        let honest = !after.lied && !after.meddled && !after.ruled && !self.config.may_run_again;
        let effects = after.workers.iter().filter(|worker| worker.has_effect()).count();
        self.push(action, after, (honest && effects > 1).then_some(Violation::TwoEffects));
    }

    fn report(&mut self, worker: u8, report: Report) {
        let index = usize::from(worker);
        let mut crashed = self.world;
        crashed.workers[index].phase = Phase::Dead;
        self.push(Action::Crashes(worker), crashed, None);
        self.reports(worker, report, Replaced::No, Action::Reports(worker));
        if self.has_rows(report) {
            // With an answer: the operation is refused. Without one: what the handler did is not known.
            self.reports(worker, report, Replaced::Answer(worker + 1), Action::RowsRefused(worker));
            self.reports(worker, report, Replaced::Refused, Action::RowsRefusedUnanswered(worker));
        }
        if self.config.store_faults {
            self.unanswered(worker, report);
        }
    }

    pub fn has_rows(&self, report: Report) -> bool {
        self.config.rows && matches!(report, Report::Effect(_))
    }

    /// What is to be done about this worker's report.
    fn command(&mut self, after: &World, worker: u8, report: Report, progress: Progress) -> Command {
        let state = self.world.workers[usize::from(worker)];
        let (rows, current) = (self.has_rows(report), after.record.map(|version| version.id));
        let clock = if progress.by == By::Worker { state.clock } else { 0 };
        let event = Event::Report { base: state.base, report, rows, progress };
        match self.protocol.step(current, self.world.now + clock, event) {
            Next::Does(command) => command,
            _ => Command::IsDone,
        }
    }

    /// The report reaches the store, and its worker gets the store's answer.
    fn reports(&mut self, worker: u8, report: Report, instead: Replaced, action: Action) {
        let mut after = self.world;
        let is_effect = matches!(report, Report::Effect(_));
        let report = match instead {
            Replaced::No => report,
            Replaced::Answer(number) => Report::Refusal(number),
            Replaced::Refused if self.config.transactional => Report::NotExecuted,
            Replaced::Refused if self.config.may_run_again || !is_effect => Report::PerhapsExecuted,
            Replaced::Refused => report,
        };
        let violation = self.carry_out(&mut after, worker, report, Progress { instead, ..Progress::START });
        self.executed_or(action, after, violation);
    }

    /// Its report is in the queue. Before anything else happens, it marks the record with what it reports.
    fn marks(&mut self, worker: u8, report: Report, instead: Replaced) {
        let mut crashed = self.world;
        crashed.workers[usize::from(worker)].phase = Phase::Reported(report);
        self.push(Action::Crashes(worker), crashed, None);
        let mut after = self.world;
        let progress = Progress { instead, deferred: Deferred::Sent, ..Progress::START };
        let violation = self.carry_out(&mut after, worker, report, progress);
        self.executed_or(Action::Marks(worker), after, violation);
    }

    /// A worker does what is said about its report, until that is in the queue, or its caller is told.
    fn carry_out(
        &mut self,
        after: &mut World,
        worker: u8,
        report: Report,
        mut progress: Progress,
    ) -> Option<Violation> {
        let index = usize::from(worker);
        after.workers[index].phase = Phase::Reported(report);
        loop {
            match self.command(after, worker, report, progress) {
                Command::Writes(id) => {
                    self.alarms(after, id, worker);
                    after.written(self.protocol, worker, id, report);
                    progress.write = Some(Written::Applied);
                }
                Command::Alarms(id) => {
                    if self.config.store_faults {
                        self.marks_in_vain(after, id, worker, report, progress);
                    }
                    self.beside(after, id, worker, report);
                    progress.write = Some(Written::Beside);
                }
                Command::Marks(id) => {
                    if self.config.store_faults {
                        self.marks_in_vain(after, id, worker, report, progress);
                    }
                    after.write(id);
                    after.hear(worker, report);
                    progress.write = Some(Written::Marked);
                }
                Command::Defers => {
                    after.accept(worker, report);
                    let state = &mut after.workers[index];
                    (state.phase, state.message) =
                        (Phase::Deferred(report, progress.instead), Message::Queued);
                    return None;
                }
                Command::Tells(says) => return after.tell(self.protocol, worker, report, says),
                Command::Escalates | Command::Compares | Command::IsDone | Command::ComesAgain => {
                    return None;
                }
            }
        }
    }

    /// The store does not answer the mark: it is lost, or applied.
    fn marks_in_vain(&mut self, before: &World, id: Id, worker: u8, report: Report, progress: Progress) {
        let mut applied = *before;
        self.alarms(&mut applied, id, worker);
        applied.write(id);
        let unanswered = Progress { write: Progress::UNANSWERED.write, ..progress };
        let Command::Tells(says) = self.command(&applied, worker, report, unanswered) else { return };
        applied.hear(worker, report);
        let violation = applied.tell(self.protocol, worker, report, says);
        self.executed_or(Action::MarksInVain(worker), applied, violation);
        let mut lost = *before;
        let violation = lost.tell(self.protocol, worker, report, says);
        self.executed_or(Action::MarksInVain(worker), lost, violation);
    }

    /// The record that is about to be written: if it has a new alarm of a second execution, operators learn of both.
    fn alarms(&self, after: &mut World, id: Id, worker: u8) -> bool {
        let has = |id: Id| self.protocol.record(id).has_alarm(Alarm::SecondExecution);
        let before = after.record.map(|version| version.id);
        let is_new = has(id) && !before.is_some_and(has);
        if is_new {
            after.escalate(worker);
            after.escalate(before.map_or(worker, |before| self.protocol.facts(before).attempt));
        }
        is_new
    }

    /// The report is put beside the record, with an alarm.
    fn beside(&self, after: &mut World, id: Id, worker: u8, report: Report) {
        let facts = |id: Id| *self.protocol.facts(id);
        let marks = after.record.is_some_and(|before| facts(before.id).reported != facts(id).reported);
        if self.alarms(after, id, worker) || marks {
            after.hear(worker, report);
        }
        after.accept(worker, report);
        after.escalate(worker);
        after.write(id);
    }

    /// The store does not answer: the report is deferred. Its write was applied, was lost, or lands later.
    fn unanswered(&mut self, worker: u8, report: Report) {
        let index = usize::from(worker);
        let state = self.world.workers[index];
        let tried = self.command(&self.world.clone(), worker, report, Progress::START);
        let now = self.world.now + state.clock;
        let is_lost = now >= self.protocol.facts(state.base).lease_until.saturating_sub(LEASE - OWN_LEASE);
        let mut progress = Progress { is_lost, ..Progress::UNANSWERED };
        let mut deferred = self.world;
        deferred.workers[index].phase = Phase::Reported(report);
        // The record that was to be written.
        let mut seen = self.world;
        seen.write(if let Command::Writes(id) | Command::Marks(id) | Command::Alarms(id) = tried {
            id
        } else {
            state.base
        });
        if self.command(&seen, worker, report, progress) == Command::Defers {
            deferred.workers[index].message = Message::Queued;
            deferred.accept(worker, report);
            progress.deferred = Deferred::Sent;
        }
        let violation = match self.command(&seen, worker, report, progress) {
            Command::Tells(says) => deferred.tell(self.protocol, worker, report, says),
            _ => None,
        };
        self.push(Action::ReportsInVain(worker), deferred, violation);
        if let Command::Writes(id) | Command::Marks(id) | Command::Alarms(id) = tried {
            let mut late = deferred;
            let over = late.record.map(|version| version.revision);
            let commits = self.has_rows(report) && matches!(tried, Command::Writes(_));
            if late.late.is_none() {
                late.late = Some(Late { over, id, commits: commits.then_some(worker) });
                self.push(Action::ReportsLate(worker), late, violation);
            }
            let mut applied = deferred;
            self.alarms(&mut applied, id, worker);
            applied.write(id);
            applied.hear(worker, report);
            applied.workers[index].commits += u8::from(commits && self.protocol.facts(id).with_writes);
            self.executed_or(Action::ReportsUnheard(worker), applied, violation);
        }
    }

    fn executed_or(&mut self, action: Action, after: World, violation: Option<Violation>) {
        match violation {
            Some(_) => self.push(action, after, violation),
            None => self.executed(action, after),
        }
    }

    fn land(&mut self) {
        let Some(Late { over, id, commits }) = self.world.late else { return };
        if self.world.record.map(|version| version.revision) != over {
            return;
        }
        let mut after = self.world;
        after.late = None;
        let created = self.protocol.facts(id).created;
        let ends = |facts: &Facts| facts.created != created && !facts.not_begun;
        if self.id().is_some_and(|before| ends(self.protocol.facts(before))) {
            after.new_life();
        }
        let by = self.protocol.facts(id).attempt;
        self.alarms(&mut after, id, by);
        after.write(id);
        if let Some(worker) = commits {
            after.workers[usize::from(worker)].commits += 1;
        }
        self.executed(Action::Lands, after);
    }

    fn expire(&mut self, clock: u8) {
        let now = self.world.now + clock;
        if let Next::Written(id) = self.step(now, Event::Expire) {
            let mut after = self.world;
            after.write(id);
            self.push(Action::Expires, after, None);
        }
    }

    fn question(&mut self, clock: u8) {
        if let Some(question) = self.world.question {
            let mut after = self.world;
            after.question = None;
            self.push(Action::Drops, after, None);
            self.learn(question, clock);
            return;
        }
        let Some(version) = self.world.record else { return };
        let at = self.world.now + clock;
        if !self.protocol.is_due(version.id, at) {
            return;
        }
        let executed = self
            .world
            .workers
            .iter()
            .zip(0..)
            .find(|(worker, _)| matches!(worker.request, Request::Executed(_)));
        let executed = executed.map(|(_, worker)| self.executed_by(worker));
        let began = self.protocol.facts(version.id).began;
        let forgot = self.world.now > began.saturating_add(WINDOW);
        let (lies, nothing_can_arrive) = (self.config.provider_lies, self.nothing_can_arrive());
        let mut ask = |found, lies| {
            let mut after = self.world;
            after.question = Some(Question { seen: version, at, found });
            after.lied |= lies;
            self.push(Action::Asks(found), after, None);
        };
        let denials = [Found::NotFound, Found::NotExecuted, Found::Refused];
        match executed {
            Some(found) => {
                ask(found, false);
                if forgot {
                    ask(Found::NotFound, false);
                }
                if lies {
                    denials.into_iter().for_each(|found| ask(found, true));
                }
            }
            None if nothing_can_arrive => denials.into_iter().for_each(|found| ask(found, false)),
            None => ask(Found::NotFound, false),
        }
    }

    /// What a reconciler finds of this worker's effect.
    fn executed_by(&self, worker: u8) -> Found {
        Found::Executed(worker + 1 + if self.config.own_words { OWN_WORDS } else { 0 })
    }

    /// Whether no request is on its way, and none will be sent.
    pub fn nothing_can_arrive(&self) -> bool {
        self.world
            .workers
            .iter()
            .all(|worker| !matches!(worker.request, Request::OnItsWay(_)) && worker.phase != Phase::Running)
    }

    fn learn(&mut self, question: Question, clock: u8) {
        let mut after = self.world;
        after.question = None;
        let Some(current) = self.world.record else { return };
        let is_current = current.revision == question.seen.revision;
        let Question { seen, at, found } = question;
        let event = Event::Learn { seen: seen.id, is_current, found, at, reported: false };
        match self.step(self.world.now + clock, event) {
            Next::Written(id) => {
                after.write(id);
                let facts = self.protocol.facts(id);
                if facts.state == Kind::Released || facts.state == Kind::Completed && !facts.is_effect {
                    after.answered();
                }
            }
            Next::Stopped(true) => after.escalate_effects(),
            _ => {}
        }
        self.push(Action::Learns, after, None);
    }

    fn operator(&mut self) {
        let Some(version) = self.world.record else { return };
        // Not what an operator has settled.
        if !self.world.ruled
            && let Next::Written(id) = self.step(self.world.now, Event::Hold)
        {
            let mut after = self.world;
            after.write(id);
            after.held = true;
            self.push(Action::Holds, after, None);
        }
        if !matches!(self.protocol.facts(version.id).state, Kind::Unknown | Kind::Escalated) {
            return;
        }
        let executed = self.world.workers.iter().position(crate::world::Worker::has_effect);
        let answer = executed.map(|worker| u8::try_from(worker).unwrap_or_default() + 1);
        if (answer.is_some() || self.nothing_can_arrive())
            && let Next::Written(id) = self.step(self.world.now, Event::Settle(answer))
        {
            let mut after = self.world;
            after.write(id);
            (after.ruled, after.held) = (true, false);
            after.answered();
            self.push(Action::Settles(answer), after, None);
        }
    }

    fn meddle(&mut self) {
        if self.world.snapshot.is_none() {
            let mut saved = self.world;
            saved.snapshot = Some(saved.record);
            self.push(Action::Saves, saved, None);
        }
        if self.world.meddled {
            return;
        }
        if let Some(snapshot) = self.world.snapshot {
            let mut restored = self.world;
            (restored.record, restored.restored) = (snapshot, true);
            restored.meddled();
            self.push(Action::Restores, restored, None);
        }
        let mut deleted = self.world;
        deleted.record = None;
        deleted.meddled();
        self.push(Action::Deletes, deleted, None);
    }

    fn prune(&mut self) {
        if self.id().is_some_and(|id| self.protocol.facts(id).pruned_at < self.world.now) {
            let mut after = self.world;
            after.record = None;
            if self.id().is_some_and(|id| !self.protocol.facts(id).not_begun) {
                after.new_life();
            }
            self.push(Action::Prunes, after, None);
        }
    }

    /// A deferred report is delivered.
    pub fn deliver(&mut self, worker: u8) {
        let index = usize::from(worker);
        let state = self.world.workers[index];
        let again = match state.message {
            Message::None => return,
            Message::Queued => Message::Processed,
            Message::Processed => Message::None,
        };
        let (Phase::Reported(report) | Phase::Deferred(report, _)) = state.phase else { return };
        let mut after = self.world;
        after.workers[index].message = if self.config.duplicates { again } else { Message::None };
        if state.message == Message::Queued {
            let first = self.command(&after, worker, report, Progress::DELIVERED);
            if self.has_rows(report) && matches!(first, Command::Writes(_)) {
                // Refused, and no answer is set for that.
                let refused = Progress { instead: Replaced::Refused, ..Progress::DELIVERED };
                self.delivered(Action::DeliversRefused(worker), worker, report, refused, after);
            }
            if let Command::Marks(id) = self.command(&after, worker, report, Progress::HANDED_BACK) {
                // Its body cannot be stored yet: the record shows the effect until then.
                let mut back = self.world;
                back.write(id);
                back.workers[index].heard = true;
                self.push(Action::HandsBack(worker), back, None);
            }
        }
        self.delivered(Action::Delivers(worker), worker, report, Progress::DELIVERED, after);
    }

    fn delivered(
        &mut self,
        action: Action,
        worker: u8,
        report: Report,
        mut progress: Progress,
        mut after: World,
    ) {
        let index = usize::from(worker);
        loop {
            match self.command(&after, worker, report, progress) {
                Command::Writes(id) => {
                    self.alarms(&mut after, id, worker);
                    after.write(id);
                    after.hear(worker, report);
                    let commits = self.has_rows(report) && self.protocol.facts(id).with_writes;
                    after.workers[index].commits += u8::from(commits);
                    progress.write = Some(Written::Applied);
                }
                Command::Marks(id) => {
                    after.write(id);
                    after.hear(worker, report);
                    progress.write = Some(Written::Marked);
                }
                Command::Alarms(id) => {
                    self.beside(&mut after, id, worker, report);
                    progress.write = Some(Written::Beside);
                }
                Command::Compares => {
                    let number = after.record.map(|version| self.protocol.facts(version.id).answer);
                    progress.differs = Some(number != Some(worker + 1));
                }
                Command::ComesAgain => {
                    after.workers[index].message = self.world.workers[index].message;
                    break;
                }
                Command::Escalates => {
                    after.escalate(worker);
                    break;
                }
                Command::IsDone => {
                    if progress.write != Some(Written::Beside) {
                        after.hear(worker, report);
                    }
                    break;
                }
                Command::Defers | Command::Tells(_) => break,
            }
        }
        self.executed_or(action, after, None);
    }

    /// The provider reports an effect unprompted.
    pub fn hear(&mut self, worker: u8) {
        let index = usize::from(worker);
        if !self.world.workers[index].webhook {
            return;
        }
        let (mut after, now) = (self.world, self.world.now);
        let Some(id) = self.id() else {
            after.workers[index].webhook = false;
            after.escalate(worker);
            return self.push(Action::Hears(worker), after, None);
        };
        let facts = *self.protocol.facts(id);
        match facts.state {
            Kind::Completed => {
                after.workers[index].webhook = false;
                if !facts.is_effect {
                    after.escalate(worker);
                }
                return self.push(Action::Hears(worker), after, None);
            }
            Kind::InProgress if now < facts.lease_until => {
                // It is queued until the lease is over, and its claim counts from now on.
                if let Next::Written(id) = self.step(now, Event::Claim) {
                    after.write(id);
                }
                (after.workers[index].heard, after.workers[index].accepted) = (true, true);
                return self.push(Action::Hears(worker), after, None);
            }
            _ => {}
        }
        (after.workers[index].heard, after.workers[index].accepted) = (true, true);
        let claimed = match self.step(now, Event::Claim) {
            Next::Written(claimed) => {
                after.write(claimed);
                self.push(Action::HearsHalf(worker), after, None);
                claimed
            }
            _ if facts.state == Kind::Released => {
                after.workers[index].webhook = false;
                after.escalate(worker);
                return self.push(Action::Hears(worker), after, None);
            }
            _ => id,
        };
        after.workers[index].webhook = false;
        let found = self.executed_by(worker);
        let event = Event::Learn { seen: claimed, is_current: true, found, at: now, reported: true };
        match self.protocol.step(Some(claimed), now, event) {
            Next::Written(id) => after.write(id),
            Next::Stopped(true) => after.escalate(worker),
            _ => {}
        }
        self.push(Action::Hears(worker), after, None);
    }
}

/// Time passes. A request that has not arrived by then never arrives.
pub fn pass(world: &mut World) {
    world.now += 1;
    for worker in &mut world.workers {
        if matches!(worker.request, Request::OnItsWay(sent) if world.now >= sent + ARRIVES) {
            worker.request = Request::None;
        }
    }
}

impl World {
    /// The key begins anew: what was done for it before is over.
    fn new_life(&mut self) {
        (self.answer, self.refused, self.ruled, self.held) = (0, false, false, false);
        for worker in &mut self.workers {
            let Worker { phase, base, clock, message, .. } = *worker;
            let orphan = message == Message::Queued && worker.accepted && !worker.heard;
            *worker = Worker { phase, base, clock, message, orphan, ..Worker::IDLE };
        }
    }

    /// What the record knew is gone, by an operator's hand.
    fn meddled(&mut self) {
        (self.meddled, self.answer, self.refused, self.held) = (true, 0, false, false);
        for worker in &mut self.workers {
            (worker.heard, worker.perhaps, worker.published) = (false, false, false);
            // What still waits in a queue is reported again.
            let waits = worker.message == Message::Queued
                && matches!(
                    worker.phase,
                    Phase::Reported(Report::Effect(_)) | Phase::Deferred(Report::Effect(_), _)
                );
            worker.accepted &= waits;
            // What was processed is deleted with the record.
            let reported = matches!(worker.phase, Phase::Reported(_) | Phase::Deferred(..));
            if worker.message == Message::None && reported {
                worker.phase = Phase::Dead;
            }
        }
    }

    /// What was possible is answered: nothing of it was done.
    fn answered(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| worker.phase != Phase::Idle) {
            (worker.perhaps, worker.covered) = (false, true);
        }
    }

    /// A worker's report reaches the record.
    fn hear(&mut self, worker: u8, report: Report) {
        self.accept(worker, report);
        let worker = &mut self.workers[usize::from(worker)];
        worker.heard |= matches!(report, Report::Effect(_));
        worker.perhaps |= report == Report::PerhapsExecuted && !worker.covered;
    }

    /// A worker's report is accepted.
    fn accept(&mut self, worker: u8, report: Report) {
        self.workers[usize::from(worker)].accepted |= matches!(report, Report::Effect(_));
    }

    /// The report is written.
    fn written(&mut self, protocol: &Protocol, worker: u8, id: Id, report: Report) {
        self.write(id);
        self.hear(worker, report);
        let facts = protocol.facts(id);
        let commits = facts.with_writes && facts.state == Kind::Completed;
        self.workers[usize::from(worker)].commits += u8::from(commits);
    }

    /// The worker's caller is told this.
    fn tell(&mut self, protocol: &Protocol, worker: u8, report: Report, says: Says) -> Option<Violation> {
        let kept = self.record.map(|version| version.id);
        match (says, kept) {
            (Says::Own { expires_at: Some(_) } | Says::Replay(_) | Says::Refused(_), Some(id)) => {
                self.publish_kept(protocol, id)
            }
            (Says::Own { .. }, _) => self.publish(worker, report),
            _ => None,
        }
    }

    /// A caller gets the record's answer.
    fn publish_kept(&mut self, protocol: &Protocol, id: Id) -> Option<Violation> {
        let facts = protocol.facts(id);
        // A number, and whether it is a refusal.
        let answer = facts.answer * 2 + u8::from(!facts.is_effect);
        if self.answer != 0 && self.answer != answer {
            return Some(Violation::TwoAnswers);
        }
        self.answer = answer;
        None
    }

    /// A caller gets its handler's answer.
    fn publish(&mut self, worker: u8, report: Report) -> Option<Violation> {
        match report {
            // It cannot know what the record that was deleted knew.
            Report::Refusal(_) if !self.meddled => self.publish_refusal(worker),
            Report::Effect(_) => {
                self.workers[usize::from(worker)].published = true;
                None
            }
            _ => None,
        }
    }

    fn publish_refusal(&mut self, worker: u8) -> Option<Violation> {
        self.refused = true;
        self.contradicts_refusal(worker)
    }

    /// The property that a refusal by this worker violates.
    fn contradicts_refusal(&self, worker: u8) -> Option<Violation> {
        let others =
            || self.workers.iter().zip(0..).filter(|(_, other)| *other != worker).map(|(worker, _)| worker);
        if self.effect_was_heard() {
            return Some(Violation::RefusalOverEffect);
        }
        others().any(|other| other.perhaps).then_some(Violation::RefusalOverPossibleEffect)
    }
}
