//! The production steps on records that are known by a number, so that each is computed once.

use std::{error::Error, time::Duration};

use protocol::{
    learned::{Asked, Asks, Learned, ReconcileOutcome, Schedule, questions},
    record::{
        self, BodyId, Effects, NotTaken, Record, Report, ReservationRequest, Revision, Rows, Says, SettledBy,
        State, Transition, Work, decide,
    },
    time::Timestamp,
};
use rustc_hash::FxHashMap;

use super::{
    Handler, Setting,
    facts::{Facts, combination, facts},
    steps::Action,
    world::{Ending, Finding, With, World},
};
use crate::{
    ending::{Command, Progress},
    records::{NO_REVISION, OTHER_REVISION, Records, TICK, at, not_found, phase, request, resumes, schedule},
    report::{answer, verdict},
};

pub use crate::records::{ARRIVES, Id, LEASE, OWN_LEASE, tick};

/// How long the provider remembers a key, from the beginning of the execution.
pub const WINDOW: u8 = 4;
/// How long an interrupted record waits for a worker.
const WITHIN: u8 = 3;
const MAX_QUESTIONS: u32 = 2;

/// The number of the first worker. Those before it are clients.
const WORKERS: u8 = 100;

/// The phase of the handler.
const PHASE: &str = "charge";

/// A step, with all that decides its result besides the current record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A client's request that is to be accepted, in this life of the key.
    Accept(u8),
    /// A client's request that is to be executed at once, by a deployment whose operation is not asynchronous.
    Now,
    /// A worker claims what was accepted in this life.
    Claim {
        worker: u8,
        life: u8,
    },
    Report {
        base: Id,
        ending: Ending,
        rows: bool,
        progress: Progress,
    },
    Keep {
        base: Id,
    },
    /// The provider reports an effect unprompted.
    Hear,
    /// The stale function looks.
    Look,
    Learn {
        seen: Id,
        is_current: bool,
        found: Finding,
        at: u8,
        reported: bool,
    },
    /// Nobody has resumed the record in time.
    NotResumed,
    Settle(Option<u8>),
    Hold,
    Resume,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It becomes this record.
    Written(Id),
    /// An execution begins, or work is accepted, with this record.
    Begins(Id),
    /// What is done about a report.
    Does(Command),
    /// What the worker would claim is settled.
    Settled,
    /// Nothing changes. Whether the step contradicts the record.
    Stopped(bool),
    /// No record can take it.
    Gone,
}

/// What a handler with a phase does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    Call,
    /// Others report its result.
    Noted,
    /// It is kept: the handler answers.
    Kept,
    /// It cannot know whether the call was made.
    Ask,
}

pub struct Protocol {
    request: ReservationRequest,
    schedule: Schedule,
    claim: Duration,
    max_attempts: u32,
    may_run_again: bool,
    records: Records,
    facts: Vec<Facts>,
    known: FxHashMap<(Option<Id>, u8, Event), Next>,
    /// Whether its handler publishes, and the numbers of the messages that commit with a step.
    publishes: bool,
    published: FxHashMap<(Option<Id>, u8, Event), u8>,
    numbered: u8,
}

/// The request of a life.
fn request_of(life: u8) -> BodyId {
    [life; 16].into()
}

impl Protocol {
    pub fn new(setting: &Setting) -> Result<Self, Box<dyn Error>> {
        let (claim, retention) = (TICK * setting.claim.into(), TICK * setting.retention.into());
        let request = ReservationRequest {
            retention,
            may_run_again: setting.handler == Handler::RunsAgain,
            effects: match setting.handler {
                Handler::Commits => Effects::InTransaction,
                Handler::Resumes => resumes(&[PHASE], WITHIN),
                _ => Effects::Anywhere,
            },
            ..request()?
        };
        Ok(Self {
            request,
            schedule: schedule(MAX_QUESTIONS),
            claim,
            max_attempts: setting.max_attempts,
            may_run_again: setting.handler == Handler::RunsAgain,
            records: Records::default(),
            facts: Vec::new(),
            known: FxHashMap::default(),
            publishes: setting.messages,
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

    /// Whether the sweep queues it for a worker.
    pub fn waits_for_a_worker(&self, record: Option<Id>) -> bool {
        record.is_some_and(|id| self.record(id).waits_for_a_worker())
    }

    /// Whether the record's question is due.
    pub fn is_due(&self, id: Id, now: u8) -> bool {
        let outcome = questions(self.record(id), Asks::IfDue, at(now));
        use ReconcileOutcome::{InFlight, NotDue, Settled};
        !matches!(outcome, Err(NotDue | InFlight(_) | Settled))
    }

    /// What the handler of a worker that last saw `base` does about its phase.
    pub fn todo(&self, base: Id, now: u8) -> Todo {
        let Some(phases) = self.record(base).phases() else { return Todo::Ask };
        match phases.next(0, PHASE, TICK * 100, at(now)) {
            record::Next::Kept(_) => Todo::Kept,
            record::Next::Noted(_) => Todo::Noted,
            record::Next::Call => Todo::Call,
            record::Next::Ask { .. } | record::Next::Mismatch => Todo::Ask,
        }
    }

    /// One line of a story: what happens, and the record after it.
    pub fn tell(&self, action: Action, after: &World) -> String {
        let record = after.record.map_or("no record".to_owned(), |id| {
            let attempts = self.facts(id).attempts;
            format!("{} (attempt {attempts})", combination(self.record(id)))
        });
        format!("{:>3}  {:<24} {record}", after.now, format!("{action:?}"))
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

    /// What commits with a step that was computed before: the messages that are published, or nothing.
    pub fn messages(&self, current: Option<Id>, now: u8, event: Event) -> With {
        let numbers = self.published.get(&(current, now, event));
        numbers.map_or(With::Nothing, |numbers| With::Messages(*numbers))
    }

    /// One more message commits with this record.
    fn publish(&mut self, next: &mut Transition) {
        if self.publishes {
            // A number that is taken already is outside of the eight that there can be.
            let bit = 1_u8.checked_shl(next.next_message()).unwrap_or_default();
            self.numbered = if self.numbered & bit == 0 { self.numbered | bit } else { u8::MAX };
        }
    }

    fn compute(&mut self, id: Option<Id>, now: Timestamp, event: Event) -> Next {
        let revision: Revision = NO_REVISION.into();
        let current = id.map(|id| self.record(id).clone());
        let current = current.as_ref();
        let next = match event {
            Event::Accept(life) => {
                let (claim_by, max_attempts) = (now.plus(self.claim), self.max_attempts);
                return self.begin(current, Work::Later { claim_by, max_attempts }, life, now);
            }
            Event::Now => return self.begin(current, Work::Now, u8::MAX, now),
            Event::Claim { worker, life } => {
                return self.begin(current, Work::Claimed(request_of(life)), WORKERS + worker, now);
            }
            Event::Report { base, ending, rows, progress } => {
                return self.report((base, ending, rows), &progress, current, now);
            }
            Event::Keep { base } => {
                let Some(current) = current else { return Next::Gone };
                let (worker, phase) = (self.record(base).clone(), phase(PHASE, "1", now));
                let kept = current.keep(&worker, 0, &phase, revision, now);
                return match (current.is_run_by(&worker), kept) {
                    (true, Ok(mut next)) => {
                        self.publish(&mut next);
                        Next::Begins(self.number(next))
                    }
                    (false, Ok(next)) => Next::Written(self.number(next)),
                    (_, Err(error)) => Next::Stopped(error == NotTaken::Differs),
                };
            }
            Event::Learn { seen, is_current, found, at: asked_at, reported } => {
                let Some(current) = current else { return Next::Gone };
                let mut seen = self.record(seen).clone();
                if !is_current {
                    seen.revision = OTHER_REVISION.into();
                }
                let learned = match found {
                    Finding::Executed(number) => Learned::Executed(answer(201, number)),
                    Finding::NotExecuted => Learned::NotExecuted,
                    Finding::NotFound => Learned::NotFound,
                    Finding::Phase => Learned::Phase(phase(PHASE, "1", now)),
                };
                let why = if reported { Asks::ProviderReported } else { Asks::IfDue };
                return match self.asked(&seen, why, at(asked_at)).next(current, &learned, revision, now) {
                    Ok(next) => Next::Written(self.number(next)),
                    Err(_) => Next::Stopped(learned.contradicted_by(&seen, current, now).is_some()),
                };
            }
            Event::NotResumed => current.and_then(|current| {
                let asked = self.asked(current, Asks::IfDue, now);
                asked.next(current, &Learned::NotResumed, revision, now).ok()
            }),
            Event::Hear => current.and_then(|current| current.claim(revision, now, now)),
            Event::Look => current.and_then(|current| current.expire_or_abandon(revision, now)),
            Event::Settle(answer) => current
                .and_then(|current| current.settle(verdict(answer), SettledBy::Operator, revision, now).ok()),
            Event::Hold => current.and_then(|current| current.hold(revision, now).ok()),
            Event::Resume => current.and_then(|current| current.resume(revision, now)),
        };
        next.map_or(Next::Stopped(false), |next| Next::Written(self.number(next)))
    }

    fn asked<'a>(&'a self, seen: &'a Record, why: Asks, at: Timestamp) -> Asked<'a> {
        Asked { seen, why, at, not_found: not_found(WINDOW), schedule: &self.schedule }
    }

    fn begin(&mut self, current: Option<&Record>, work: Work, number: u8, now: Timestamp) -> Next {
        let request = ReservationRequest {
            attempt: [number; 16].into(),
            lease_until: now.plus(TICK * LEASE.into()),
            work,
            ..self.request.clone()
        };
        // The write that accepts gives the request its id.
        let revision: Revision = [number; 16].into();
        match decide(current, &request, revision, now) {
            Ok(next) => Next::Begins(self.number(next)),
            Err(record::Found::Ends(ended)) => Next::Written(self.number(ended)),
            Err(record::Found::Says(Says::Replay(_) | Says::Gone)) => Next::Settled,
            Err(_) => Next::Stopped(false),
        }
    }

    fn report(
        &mut self,
        (base, ending, rows): (Id, Ending, bool),
        progress: &Progress,
        current: Option<&Record>,
        now: Timestamp,
    ) -> Next {
        let report = match ending {
            Ending::Effect(number) => Report::Completed(answer(201, number)),
            Ending::Refusal(number) => Report::Completed(answer(402, number)),
            Ending::NotExecuted => Report::NotExecuted(None),
            Ending::NotBegun => Report::NotBegun,
            Ending::NotStarted => Report::NotStarted,
            Ending::Perhaps => Report::PerhapsExecuted(None),
            Ending::Interrupted => Report::Interrupted(None),
        };
        let ending = record::Ending {
            base: self.record(base).clone(),
            report,
            rows: if rows { Rows::Conditional } else { Rows::None },
            may_run_again: self.may_run_again,
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
        if let State::Unknown { asked, .. } = &mut record.state {
            *asked = (*asked).min(MAX_QUESTIONS + 1);
        }
        let id = self.records.number(record);
        self.facts.extend(self.records.all()[self.facts.len()..].iter().map(facts));
        id
    }
}
