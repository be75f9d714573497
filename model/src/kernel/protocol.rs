//! The production steps on records that are known by a number, so that each combination is computed once.

use std::{error::Error, time::Duration};

use protocol::{
    learned::{Asked, Asks, Learning, ReconcileOutcome, Schedule, questions},
    record::{
        self, Admission, BodyId, Effects, Keeping, Kept, Made, MessageNext, Moment, NotTaken, Record,
        ReservationRequest, Resumes, Revision, Rows, Says, SettledBy, Standing, State, Step, Transition,
        Work, decide,
    },
    time::Timestamp,
};
use rustc_hash::FxHashMap;

use super::{
    ending::{By, Command, Progress},
    facts::{Facts, facts},
    records::{
        FIRST_WORKER, Id, LEASE, NO_REVISION, Name, OTHER_REVISION, Records, TICK, at, not_found, phase,
        request, resumes, schedule, too_old,
    },
    report::{Found, Report, verdict},
    setting::{Handler, Setting},
};

/// How long a record between workers waits for one.
const WITHIN: u8 = 3;

/// A step, with all that decides its result besides the current record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A worker, perhaps of the new version, reserves the record and executes it at once.
    Reserve {
        worker: u8,
        is_new: bool,
        standing: Standing,
    },
    /// A client's request that is to be accepted, in this life of the key.
    Accept {
        life: u8,
        standing: Standing,
    },
    /// A client's request that is to be executed at once, by a deployment whose operation is not asynchronous.
    Now,
    /// A worker claims what was accepted in this life.
    Claim {
        worker: u8,
        life: u8,
        standing: Standing,
    },
    Extend(u8),
    Report {
        base: Id,
        report: Report,
        rows: bool,
        progress: Progress,
    },
    /// A worker that last saw `base` keeps the result of the phase of this name, in this place.
    Keep {
        base: Id,
        phase: Name,
        place: u8,
        result: u8,
        /// Itself, or its message.
        by: By,
    },
    /// The provider reports the result of a phase unprompted.
    Note {
        phase: Name,
        result: u8,
    },
    /// The provider reports an effect unprompted.
    Hear,
    /// The stale function looks.
    Look,
    Learn {
        seen: Id,
        is_current: bool,
        found: Found,
        at: u8,
        reported: bool,
    },
    Settle(Option<u8>),
    Hold,
    Resume,
    /// An operator says that no call is open.
    NothingIsOpen,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It becomes this record.
    Written(Id),
    /// An execution begins or goes on, or work is accepted, with this record.
    Begins(Id),
    /// What is done about a report.
    Does(Command),
    /// The report lies beside the record, which becomes this one.
    Alarmed(Id),
    /// It gets the record's answer.
    Settled,
    /// Its client hears that its tenant is over a bound.
    OverBound,
    /// The record has that already. Whether its execution is the one that says so.
    Known(bool),
    /// Nothing changes. Whether the step contradicts the record.
    Stopped(bool),
    /// No record can take it.
    Gone,
}

/// What a handler does about its next phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    Call,
    /// Others report this result.
    Noted(u8),
    /// It is kept.
    Kept,
    /// It cannot know whether the call was made.
    Ask,
    /// Another phase is kept in its place.
    Mismatch,
}

/// A step at this time, on this record.
type Situation = (Option<Id>, u8, Event);

/// The production code, memoised.
pub struct Protocol {
    setting: Setting,
    request: ReservationRequest,
    /// The effects of the version before, and of the new one.
    versions: [Effects<Resumes>; 2],
    schedule: Schedule,
    records: Records,
    facts: Vec<Facts>,
    known: FxHashMap<Situation, Next>,
    /// The numbers of the messages that commit with a step, a bit for each.
    published: FxHashMap<Situation, u8>,
    numbered: u8,
}

/// Where the result of a phase stands, by the command for its message.
fn of_message(step: Step<MessageNext>) -> Step<Kept> {
    match step {
        Step::Write { next, commits } => Step::Write { next, commits },
        Step::Mark(next) => Step::Mark(next),
        Step::Alarm(next) => Step::Alarm(next),
        Step::Next(MessageNext::Escalate(_)) => Step::Next(Kept::Left),
        Step::Next(_) => Step::Next(Kept::Lost),
    }
}

/// The request of a life.
fn request_of(life: u8) -> BodyId {
    [life; 16].into()
}

impl Protocol {
    /// The production code with the settings of this environment, for handlers of two versions with these phases.
    ///
    /// # Errors
    /// Never: the names are valid.
    pub fn new(setting: &Setting, phases: [&'static [Name]; 2]) -> Result<Self, Box<dyn Error>> {
        let request = ReservationRequest {
            retention: TICK * setting.retention.into(),
            may_run_again: setting.may_run_again(),
            ..request()?
        };
        let effects = |names| match setting.handler {
            Handler::Commits => Effects::InTransaction,
            Handler::Resumes => resumes(names, WITHIN),
            Handler::Calls | Handler::RunsAgain => Effects::Anywhere,
        };
        Ok(Self {
            setting: *setting,
            request,
            versions: phases.map(effects),
            schedule: schedule(setting.max_questions),
            records: Records::default(),
            facts: Vec::new(),
            known: FxHashMap::default(),
            published: FxHashMap::default(),
            numbered: 0,
        })
    }

    pub fn record(&self, id: Id) -> &Record {
        self.records.get(id)
    }

    pub fn facts(&self, id: Id) -> &Facts {
        &self.facts[id as usize]
    }

    pub fn records(&self) -> &[Record] {
        self.records.all()
    }

    /// Whether a worker needs the request of this life.
    pub fn needs_request(&self, record: Option<Id>, life: u8) -> bool {
        record.is_some_and(|id| self.record(id).needs_request(request_of(life)))
    }

    /// Whether the record's question is due.
    pub fn is_due(&self, id: Id, now: u8) -> bool {
        let outcome = questions(self.record(id), Asks::IfDue, at(now));
        use ReconcileOutcome::{InFlight, NotDue, Settled};
        !matches!(outcome, Err(NotDue | InFlight(_) | Settled))
    }

    /// Whether a record was begun by the new version.
    pub fn is_of_new_version(&self, record: &Record) -> bool {
        let declared = record.phases().and_then(|phases| phases.declared);
        declared.is_some() && declared == self.versions[1].phases().map(|phases| phases.list)
    }

    /// What the handler of a worker that last saw `base` does about the phase of this name in this place.
    pub fn todo(&self, base: Id, (place, name): (u8, Name), keys_live: Duration, now: u8) -> Todo {
        let Some(phases) = self.record(base).phases() else { return Todo::Mismatch };
        match phases.next(place.into(), name.text(), keys_live, at(now)) {
            record::Next::Kept(_) => Todo::Kept,
            record::Next::Noted(result) => Todo::Noted(result.parse().unwrap_or_default()),
            record::Next::Call => Todo::Call,
            record::Next::Ask { .. } => Todo::Ask,
            record::Next::Mismatch => Todo::Mismatch,
        }
    }

    /// What this step does to the current record at this time.
    pub fn step(&mut self, current: Option<Id>, now: u8, event: Event) -> Next {
        let situation = (current, now, event);
        if let Some(next) = self.known.get(&situation) {
            return *next;
        }
        self.numbered = 0;
        let next = self.compute(current, at(now), event);
        if self.numbered != 0 {
            self.published.insert(situation, self.numbered);
        }
        self.known.insert(situation, next);
        next
    }

    /// The messages that commit with a step that was computed before.
    pub fn messages(&self, current: Option<Id>, now: u8, event: Event) -> Option<u8> {
        self.published.get(&(current, now, event)).copied()
    }

    /// One more message commits with this record.
    fn publish(&mut self, next: &mut Transition) {
        if self.setting.messages {
            // A number that is taken already is outside of the eight that there can be.
            let bit = 1_u8.checked_shl(next.next_message()).unwrap_or_default();
            self.numbered = if self.numbered & bit == 0 { self.numbered | bit } else { u8::MAX };
        }
    }

    fn compute(&mut self, id: Option<Id>, now: Timestamp, event: Event) -> Next {
        let revision: Revision = NO_REVISION.into();
        let current = id.map(|id| self.record(id).clone());
        let next = match (event, &current) {
            (Event::Reserve { worker, is_new, standing }, _) => {
                let (effects, admission) =
                    (self.versions[usize::from(is_new)], self.admission(&current, now));
                let request = ReservationRequest { effects, admission, standing, ..self.request.clone() };
                return self.begin(current, request, FIRST_WORKER + worker, now);
            }
            (Event::Accept { life, standing }, _) => {
                let claim_by = now.plus(TICK * self.setting.claim.into());
                let work = Work::Later { claim_by, max_attempts: self.setting.max_attempts };
                return self.begin_work(current, (work, standing), life, now);
            }
            (Event::Now, _) => return self.begin_work(current, (Work::Now, Standing::Within), u8::MAX, now),
            (Event::Claim { worker, life, standing }, _) => {
                let work = Work::Claimed(request_of(life));
                return self.begin_work(current, (work, standing), FIRST_WORKER + worker, now);
            }
            (Event::Report { base, report, rows, progress }, current) => {
                return self.report((base, report, rows), &progress, current.as_ref(), now);
            }
            (_, None) => return Next::Gone,
            (Event::Keep { base, phase: name, place, result, by }, Some(current)) => {
                let (worker, phase) = (self.record(base).clone(), phase(name, result, now));
                let is_own = current.is_run_by(&worker);
                let of = if name == Name::Stock { Made::Commit } else { Made::Call };
                let keeping = Keeping { worker, place: place.into(), phase, of };
                let at = Moment { revision, now };
                let step = match by {
                    By::Worker => keeping.step(Some(current), None, at),
                    By::Message | By::HandedBack => of_message(keeping.deliver(Some(current), None, at)),
                };
                return match step {
                    Step::Write { mut next, .. } if is_own => {
                        self.publish(&mut next);
                        Next::Begins(self.number(next))
                    }
                    Step::Write { next, .. } | Step::Mark(next) => Next::Written(self.number(next)),
                    Step::Alarm(next) => Next::Alarmed(self.number(next)),
                    Step::Next(Kept::Own) => Next::Known(true),
                    Step::Next(Kept::Lost | Kept::Alarmed) => Next::Known(false),
                    Step::Next(Kept::Left) => Next::Stopped(true),
                };
            }
            (Event::Note { phase: name, result }, Some(current)) => {
                return match current.note(&phase(name, result, now), revision, now) {
                    Ok(next) => Next::Written(self.number(next)),
                    Err(error) => Next::Stopped(error == NotTaken::Differs),
                };
            }
            (Event::Learn { seen, is_current, found, at: asked_at, reported }, Some(current)) => {
                let mut seen = self.record(seen).clone();
                if !is_current {
                    seen.revision = OTHER_REVISION.into();
                }
                let asked = Asked {
                    seen: &seen,
                    why: if reported { Asks::ProviderReported } else { Asks::IfDue },
                    reported: None,
                    at: at(asked_at),
                    not_found: not_found(self.setting.window),
                    schedule: &self.schedule,
                };
                let learned = found.learned(now);
                return match asked.step(Some(current), &learned, Moment { revision, now }) {
                    Learning::Write { next, .. } => Next::Written(self.number(next)),
                    Learning::Contradicts { .. } => Next::Stopped(true),
                    Learning::Ends(_) => Next::Stopped(false),
                };
            }
            (Event::Extend(worker), Some(current)) => {
                current.extend([FIRST_WORKER + worker; 16].into(), revision, now.plus(TICK * LEASE.into()))
            }
            (Event::Hear, Some(current)) => current.claim(revision, now, now),
            (Event::Look, Some(current)) => current.expire_or_abandon(revision, now),
            (Event::Settle(answer), Some(current)) => {
                current.settle(verdict(answer), SettledBy::Operator, revision, now).ok()
            }
            (Event::Hold, Some(current)) => current.hold(revision, now).ok(),
            (Event::Resume, Some(current)) => current.resume(revision, now),
            (Event::NothingIsOpen, Some(current)) => current.nothing_is_open(revision, now),
        };
        next.map_or(Next::Stopped(false), |next| Next::Written(self.number(next)))
    }

    /// T43: a record that is only resumed is taken over with an old key too.
    fn admission(&self, current: &Option<Record>, now: Timestamp) -> Admission {
        let is_free =
            |current: &Record| current.expired(now) || matches!(current.state, State::FailedRetryable { .. });
        let may_begin = self.setting.handler != Handler::Resumes || current.as_ref().is_none_or(is_free);
        if may_begin { Admission::ALWAYS } else { too_old(false) }
    }

    fn begin_work(
        &mut self,
        current: Option<Record>,
        (work, standing): (Work, Standing),
        number: u8,
        now: Timestamp,
    ) -> Next {
        let effects = self.versions[0];
        let request = ReservationRequest { work, standing, effects, ..self.request.clone() };
        self.begin(current, request, number, now)
    }

    fn begin(
        &mut self,
        current: Option<Record>,
        request: ReservationRequest,
        number: u8,
        now: Timestamp,
    ) -> Next {
        let lease_until = now.plus(TICK * LEASE.into());
        let request = ReservationRequest { attempt: [number; 16].into(), lease_until, ..request };
        // The write that accepts gives the request its id.
        match decide(current.as_ref(), &request, [number; 16].into(), now) {
            Ok(next) => {
                let mut record = Record::from(next);
                if record.attempts == 1 && record.accepted.is_none() && record.phases().is_none() {
                    // Two generations of a key do not begin within one millisecond.
                    record.created_at = record.created_at.plus(Duration::from_millis(number.into()));
                }
                Next::Begins(self.number(record))
            }
            Err(record::Found::Ends(ended)) => Next::Written(self.number(ended)),
            Err(record::Found::Says(Says::Replay(_) | Says::Gone)) => Next::Settled,
            Err(record::Found::Says(Says::OverBound { .. })) => Next::OverBound,
            Err(_) => Next::Stopped(false),
        }
    }

    fn report(
        &mut self,
        (base, report, rows): (Id, Report, bool),
        progress: &Progress,
        current: Option<&Record>,
        now: Timestamp,
    ) -> Next {
        let ending = record::Ending {
            base: self.record(base).clone(),
            report: report.into(),
            rows: if rows { Rows::Conditional } else { Rows::None },
            may_run_again: self.setting.may_run_again(),
        };
        Next::Does(progress.next(&ending, current, now, |mut next, commits| {
            if commits && next.commits() {
                self.publish(&mut next);
                self.publish(&mut next);
            }
            self.number(next)
        }))
    }

    fn number(&mut self, next: impl Into<Record>) -> Id {
        let mut record = next.into();
        if record.accepted.is_none() {
            record.attempts = record.attempts.min(2);
        } else if let State::Unknown { asked, .. } = &mut record.state {
            *asked = (*asked).min(self.setting.max_questions + 1);
        }
        let id = self.records.number(record);
        self.facts.extend(self.records.all()[self.facts.len()..].iter().map(facts));
        id
    }
}
