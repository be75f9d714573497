//! The production steps on records that are known by a number, so that each combination is computed once.

use std::{error::Error, time::Duration};

use protocol::{
    learned::{Asked, Asks, Learned, NotFound, ReconcileOutcome, Schedule, questions},
    record::{
        self, Effects, Ending, Evidence, Record, ReservationRequest, Revision, Rows, Says, SettledBy, State,
        decide,
    },
    time::Timestamp,
};
use rustc_hash::FxHashMap;

use crate::{
    config::Config,
    ending::{Command, Progress},
    records::{NO_REVISION, OTHER_REVISION, Records, TICK, at, not_found, request, schedule, tick},
    report::{Found, Report, verdict},
};

pub use crate::records::{ARRIVES, Id, LEASE, OWN_LEASE};

/// How long the provider remembers a key, from the beginning of the execution.
pub const WINDOW: u8 = 4;
/// How long a settled record is kept.
const RETENTION: u8 = 4;
const MAX_QUESTIONS: u32 = 2;

/// A step, with all that decides its result besides the current record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Reserve(u8),
    Extend(u8),
    Report { base: Id, report: Report, rows: bool, progress: Progress },
    Claim,
    Expire,
    Learn { seen: Id, is_current: bool, found: Found, at: u8, reported: bool },
    Settle(Option<u8>),
    Hold,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It becomes this record.
    Written(Id),
    /// An execution begins with this record.
    Begins(Id),
    /// What is done about a report.
    Does(Command),
    /// It gets the record's answer.
    Replays,
    /// Nothing changes. Whether the step contradicts the record.
    Stopped(bool),
    /// No record can take it.
    Gone,
}

/// What the model asks about a record.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub state: Kind,
    pub attempt: u8,
    /// When it began, and until when its lease lasts.
    pub began: u8,
    pub lease_until: u8,
    /// From when on it counts as absent, and from when on it may be deleted.
    pub absent_at: u8,
    pub pruned_at: u8,
    pub answer: u8,
    pub is_effect: bool,
    pub with_writes: bool,
    /// Whether anything was reported besides what its execution reports.
    pub reported: bool,
    /// Whether its request was refused before anything was done.
    pub not_begun: bool,
    /// Whether it is the first execution.
    pub is_first: bool,
    pub created: u8,
}

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    InProgress,
    Completed,
    Released,
    Unknown,
    /// Unknown, and an operator has to settle it.
    Escalated,
}

/// The production code, memoised.
pub struct Protocol {
    request: ReservationRequest,
    not_found: NotFound,
    schedule: Schedule,
    may_run_again: bool,
    records: Records,
    facts: Vec<Facts>,
    known: FxHashMap<(Option<Id>, u8, Event), Next>,
}

impl Protocol {
    /// The production code with the settings of this environment.
    ///
    /// # Errors
    /// Never: the names are valid.
    pub fn new(config: &Config) -> Result<Self, Box<dyn Error>> {
        let request = ReservationRequest {
            retention: TICK * RETENTION.into(),
            may_run_again: config.may_run_again,
            effects: if config.transactional { Effects::InTransaction } else { Effects::Anywhere },
            ..request()?
        };
        Ok(Self {
            request,
            not_found: not_found(WINDOW),
            schedule: schedule(MAX_QUESTIONS),
            may_run_again: config.may_run_again,
            records: Records::default(),
            facts: Vec::new(),
            known: FxHashMap::default(),
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

    /// Whether the record's question is due.
    pub fn is_due(&self, id: Id, now: u8) -> bool {
        let outcome = questions(self.record(id), Asks::IfDue, at(now));
        use ReconcileOutcome::{InFlight, NotDue, Settled};
        !matches!(outcome, Err(NotDue | InFlight(_) | Settled))
    }

    /// What this step does to the current record at this time.
    pub fn step(&mut self, current: Option<Id>, now: u8, event: Event) -> Next {
        let situation = (current, now, event);
        if let Some(next) = self.known.get(&situation) {
            return *next;
        }
        let next = self.compute(current, at(now), event);
        self.known.insert(situation, next);
        next
    }

    fn compute(&mut self, id: Option<Id>, now: Timestamp, event: Event) -> Next {
        let revision: Revision = NO_REVISION.into();
        let current = id.map(|id| self.record(id).clone());
        let current = current.as_ref();
        let next = match event {
            Event::Reserve(worker) => {
                let request = ReservationRequest {
                    attempt: [worker; 16].into(),
                    lease_until: now.plus(TICK * LEASE.into()),
                    ..self.request.clone()
                };
                return match decide(current, &request, revision, now) {
                    Ok(next) => {
                        let mut record = Record::from(next);
                        if record.attempts == 1 {
                            // Two generations of a key do not begin within one millisecond.
                            record.created_at =
                                record.created_at.plus(Duration::from_millis(u64::from(worker) + 1));
                        }
                        Next::Begins(self.number(record))
                    }
                    Err(record::Found::Ends(ended)) => Next::Written(self.number(ended)),
                    Err(record::Found::Says(Says::Replay(_))) => Next::Replays,
                    Err(_) => Next::Stopped(false),
                };
            }
            Event::Report { base, report, rows, progress } => {
                return self.report((base, report, rows), &progress, current, now);
            }
            Event::Learn { seen, is_current, found, at: asked_at, reported } => {
                let Some(current) = current else { return Next::Gone };
                let mut seen = self.record(seen).clone();
                if !is_current {
                    seen.revision = OTHER_REVISION.into();
                }
                let asked = Asked {
                    seen: &seen,
                    why: if reported { Asks::ProviderReported } else { Asks::IfDue },
                    at: at(asked_at),
                    not_found: self.not_found,
                    schedule: &self.schedule,
                };
                let learned = Learned::from(found);
                return match asked.next(current, &learned, revision, now) {
                    Ok(next) => Next::Written(self.number(next)),
                    Err(_) => Next::Stopped(learned.contradicted_by(&seen, current, now).is_some()),
                };
            }
            Event::Extend(worker) => current.and_then(|current| {
                current.extend([worker; 16].into(), revision, now.plus(TICK * LEASE.into()))
            }),
            Event::Claim => current.and_then(|current| current.claim(revision, now, now)),
            Event::Expire => current.and_then(|current| current.expire(revision, now)),
            Event::Settle(answer) => current
                .and_then(|current| current.settle(verdict(answer), SettledBy::Operator, revision, now).ok()),
            Event::Hold => current.and_then(|current| current.hold(revision, now).ok()),
        };
        next.map_or(Next::Stopped(false), |next| Next::Written(self.number(next)))
    }

    fn report(
        &mut self,
        (base, report, rows): (Id, Report, bool),
        progress: &Progress,
        current: Option<&Record>,
        now: Timestamp,
    ) -> Next {
        let ending = Ending {
            base: self.record(base).clone(),
            report: report.into(),
            rows: if rows { Rows::Conditional } else { Rows::None },
            may_run_again: self.may_run_again,
        };
        Next::Does(progress.next(&ending, current, now, |mut next, commits| {
            if commits {
                next.commits();
            }
            self.number(next)
        }))
    }

    fn number(&mut self, next: impl Into<Record>) -> Id {
        let mut record = next.into();
        record.attempts = record.attempts.min(2);
        let id = self.records.number(record);
        self.facts.extend(self.records.all()[self.facts.len()..].iter().map(facts));
        id
    }
}

/// The names of a record's fields that decide, for a count of their combinations.
pub fn combination(record: &Record) -> String {
    let state = &record.state;
    let detail = match state {
        State::Unknown { cause, reconcile_at, .. } => {
            format!(" {}{}", cause.name(), if *reconcile_at == Timestamp::MAX { " escalated" } else { "" })
        }
        _ => String::new(),
    };
    let by = state.settled_by().map_or("", |by| by.name());
    let flags = [
        (record.reported == Some(Evidence::Perhaps), "perhaps reported"),
        (record.reported == Some(Evidence::Effect), "effect reported"),
        (record.is_transactional(), "transactional"),
        (record.with_writes, "with writes"),
        (record.alarms.is_some(), "with an alarm"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let words = format!("{} {by}{detail} {}", state.name(), flags.join(", "));
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn facts(record: &Record) -> Facts {
    let (mut answer, mut is_effect, mut lease_until) = (0, false, 0);
    let state = match &record.state {
        State::InProgress { lease_until: until } => {
            lease_until = tick(*until);
            Kind::InProgress
        }
        State::Completed { answer: kept, .. } => {
            answer = u8::try_from(kept.body_length()).unwrap_or(u8::MAX);
            is_effect = kept.head.status() == Some(201);
            Kind::Completed
        }
        State::Unknown { reconcile_at: Timestamp::MAX, .. } => Kind::Escalated,
        State::Unknown { .. } => Kind::Unknown,
        _ => Kind::Released,
    };
    let expires_at = record.state.expires_at().filter(|_| record.alarms.is_none());
    Facts {
        state,
        attempt: record.attempt.as_bytes()[0],
        began: tick(record.began_at),
        created: tick(record.created_at),
        lease_until,
        pruned_at: expires_at.map_or(u8::MAX, tick),
        absent_at: expires_at.map_or(u8::MAX, |at| tick(at) + 1),
        answer,
        is_effect,
        with_writes: record.with_writes,
        reported: record.reported.is_some(),
        not_begun: record.is_not_begun(),
        is_first: record.attempts == 1,
    }
}
