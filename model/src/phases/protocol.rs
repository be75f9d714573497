//! The production steps on records that are known by a number.

use std::{error::Error, time::Duration};

use lambda_idempotency::{
    Operation,
    fingerprint::{Content, FingerprintRule},
    internal::steps::{
        self, Admission, Asked, Asks, Backoff, Ended, Fate, Learned, Next, NotFound, NotTaken,
        ReservationRequest, Safe, Schedule, WorkerReport,
    },
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{AnswerKind, Phase, Record, Resumes, State, Work},
    time::Timestamp,
};
use rustc_hash::FxHashMap;

use crate::protocol::too_old;

use super::{
    Setting,
    steps::Action,
    world::{CALLS, Ending, World},
};

/// The number of a record. Revision and notes are left out.
pub type Id = u32;

const TICK: Duration = Duration::from_secs(300);
/// How long a lease lasts, with its grace, and how much of it a worker uses.
pub const LEASE: u8 = 2;
pub const OWN_LEASE: u8 = 1;
/// How long a request can be on its way.
pub const ARRIVES: u8 = 1;
/// How long the record waits for a retry.
const WITHIN: u8 = 3;
const GRACE: u8 = 2;
/// How long "not found" is proof.
const WINDOW: u8 = 20;

/// The phases of the handler, in their places.
const NAMES: [&str; 3] = ["charge", "stock", "refund"];
/// The same in another version of the program, which calls its first phase otherwise.
const RENAMED: [&str; 3] = ["pay", "stock", "refund"];

/// What a handler does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    /// The phase is kept: it goes on.
    GoOn,
    /// Others report this result.
    Noted(u8),
    /// It commits the stock.
    Commit,
    /// It makes this call.
    Call(u8),
    /// It cannot know whether this call was made.
    Ask(u8),
    /// Another phase is kept in this place.
    Mismatch,
    /// It answers.
    Answer(u8),
}

/// What a record did with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It took it, and whether its worker goes on.
    Taken(Id, bool),
    /// It has it, and whether its worker goes on.
    Known(bool),
    /// It has not taken it.
    Left,
}

pub struct Protocol {
    request: ReservationRequest,
    /// How the other version resumes, and which worker is of it.
    renamed: (Option<Resumes>, Option<u8>),
    operation: Operation,
    schedule: Schedule,
    keys_live: Duration,
    records: Vec<Record>,
    numbers: FxHashMap<String, Id>,
}

pub fn at(tick: u8) -> Timestamp {
    Timestamp::from_secs(1_000_000).plus(TICK * tick.into())
}

impl Protocol {
    pub fn new(setting: &Setting) -> Result<Self, Box<dyn Error>> {
        let key = RecordKey::new(
            Tenant::parse("model")?,
            OperationName::parse("model")?,
            IdempotencyKey::parse("key")?,
        );
        let content = Content::new("POST", "/", b"");
        let within = TICK * WITHIN.into();
        let request = ReservationRequest {
            key,
            fingerprints: content.fingerprints("model", &FingerprintRule::new(), &[]),
            answer_kind: AnswerKind::Http,
            attempt: [0; 16].into(),
            lease_until: Timestamp::MAX,
            retention: TICK * 100,
            admission: Admission::ALWAYS,
            may_run_again: false,
            resumes: None,
            transactional: false,
            work: Work::Now,
            origin: None,
        };
        let operation = Operation::new("model")
            .lease(TICK * OWN_LEASE.into())
            .not_found_within(TICK * WINDOW.into())
            .resumes(NAMES, within);
        let request = ReservationRequest { resumes: steps::resumes(&operation), ..request };
        let renamed = steps::resumes(&operation.clone().resumes(RENAMED, within));
        let renamed = (renamed, setting.renamed.then_some(setting.workers - 1));
        let backoff = Backoff { first: TICK, factor: 1, max: TICK };
        let schedule = Schedule { backoff, max_questions: 4, ..Schedule::default() };
        let keys_live = TICK * setting.keys_live.into();
        Ok(Self {
            request,
            renamed,
            operation,
            schedule,
            keys_live,
            records: Vec::new(),
            numbers: FxHashMap::default(),
        })
    }

    pub fn record(&self, id: Id) -> &Record {
        &self.records[id as usize]
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }

    fn number(&mut self, next: impl Into<Record>) -> Id {
        let mut record = next.into();
        record.revision = [0; 16].into();
        record.attempts = record.attempts.min(2);
        (record.last_failure, record.settled_note, record.origin) = (None, None, None);
        // Results are not in the debug form.
        let result = |phase: &Phase| format!("{:?} {:?}", phase.result, phase.at);
        let phases = record.phases.iter().flat_map(|phases| phases.kept.iter().chain(&phases.noted));
        let text = format!("{record:?} {:?}", phases.map(result).collect::<Vec<_>>());
        if let Some(id) = self.numbers.get(&text) {
            return *id;
        }
        let id = Id::try_from(self.records.len()).unwrap_or(Id::MAX);
        self.records.push(record);
        self.numbers.insert(text, id);
        id
    }

    /// Whether a worker that last saw this record is of the other version.
    pub fn is_renamed(&self, base: Id) -> bool {
        let declared = self.record(base).phases.as_ref().and_then(|phases| phases.declared);
        declared.is_some() && declared == self.renamed.0.map(|renamed| renamed.list)
    }

    fn names(&self, base: Id) -> [&'static str; 3] {
        if self.is_renamed(base) { RENAMED } else { NAMES }
    }

    fn current(&self, world: &World) -> Option<Record> {
        world.record.map(|id| self.record(id).clone())
    }

    /// The record of the execution that this worker begins, if it may.
    pub fn begins(&mut self, world: &World, worker: u8, now: u8) -> Option<Id> {
        let request = ReservationRequest {
            attempt: [worker + 1; 16].into(),
            lease_until: at(now + LEASE),
            ..self.request.clone()
        };
        let (other, of) = self.renamed;
        let resumes = if of == Some(worker) { other } else { request.resumes };
        let request = ReservationRequest { resumes, ..request };
        let current = self.current(world);
        let may_begin = current.as_ref().is_none_or(|current| current.expired(at(now)))
            || matches!(current.as_ref()?.state, State::FailedRetryable { .. });
        // T43: a record that is only resumed is taken over with an old key too.
        let admission = if may_begin { Admission::ALWAYS } else { too_old() };
        let request = ReservationRequest { admission, ..request };
        let next = steps::decide(current.as_ref(), &request, [0; 16].into(), at(now));
        next.ok().map(|next| self.number(next))
    }

    /// What the handler of a worker that last saw `base` does in this place.
    pub fn todo(&self, base: Id, place: u8, now: u8) -> Todo {
        let Some(phases) = &self.record(base).phases else { return Todo::Mismatch };
        let refused = phases
            .kept
            .get(1)
            .is_some_and(|stock| stock.result.as_ref().is_some_and(|result| result.text() == "0"));
        let name = match place {
            2 if !refused => return Todo::Answer(1),
            3 => return Todo::Answer(2),
            place => self.names(base)[usize::from(place)],
        };
        let call = if place == 0 { 0 } else { 1 };
        let keys_live = if place == 1 { Duration::ZERO } else { self.keys_live };
        match phases.next(place.into(), name, keys_live, at(now)) {
            Next::Kept(_) => Todo::GoOn,
            Next::Mismatch => Todo::Mismatch,
            Next::Noted(result) => Todo::Noted(result.parse().unwrap_or_default()),
            Next::Call | Next::Ask { .. } if place == 1 => Todo::Commit,
            Next::Call => Todo::Call(call),
            Next::Ask { .. } => Todo::Ask(call),
        }
    }

    /// The current record takes the result of a phase. That of a commit counts only if its worker still runs the record.
    pub fn keep(&mut self, world: &World, base: Id, place: u8, result: u8, now: u8) -> Kept {
        let Some(current) = self.current(world) else { return Kept::Left };
        let phase = steps::phase(self.names(base)[usize::from(place)], result.to_string(), at(now));
        let worker = self.record(base).clone();
        match steps::keep(&current, &worker, place.into(), &phase, [0; 16].into(), at(now)) {
            (own, Ok(next)) => Kept::Taken(self.number(next), own),
            (own, Err(NotTaken::Known)) => Kept::Known(own),
            (_, Err(NotTaken::Differs)) => Kept::Left,
        }
    }

    /// What the report of a worker makes of the record.
    pub fn report(&mut self, world: &World, base: Id, ending: Ending, now: u8) -> Option<Id> {
        let base = self.record(base).clone();
        let ended = match ending {
            Ending::Completed(1) => Ended::Completed(steps::answer(201, 1)),
            Ending::Completed(number) => Ended::Completed(steps::answer(409, number)),
            Ending::Outside => Ended::NotExecuted(None),
            Ending::InCall => Ended::Interrupted(None),
            Ending::Unknown => Ended::PerhapsExecuted(None),
        };
        let (has_writes, may_run_again, safe) = (false, false, Safe::Nothing);
        let reported = WorkerReport { base: &base, ended: &ended, has_writes, may_run_again, safe };
        match reported.fate(self.current(world).as_ref(), [0; 16].into(), at(now)) {
            Fate::Written(next) => Some(self.number(next)),
            _ => None,
        }
    }

    pub fn expire(&mut self, world: &World, now: u8) -> Option<Id> {
        let next = steps::expire(&self.current(world)?, [0; 16].into(), at(now))?;
        Some(self.number(next))
    }

    /// The provider reports a call. As an error: whether the record contradicts it.
    pub fn note(&mut self, world: &World, call: u8, result: u8, now: u8) -> Result<Id, bool> {
        let current = self.current(world).ok_or(true)?;
        let phase = steps::phase(NAMES[usize::from(call) * 2], result.to_string(), at(now));
        match steps::note(&current, &phase, [0; 16].into(), at(now)) {
            Ok(next) => Ok(self.number(next)),
            Err(error) => Err(error == NotTaken::Differs),
        }
    }

    /// Reconciliation asks what became of the call that follows, or finds that no retry has resumed the record in time.
    pub fn reconcile(&mut self, world: &World, now: u8) -> Option<Id> {
        let seen = self.current(world)?;
        let learned = match (&seen.state, Self::open_call(&seen)) {
            (State::BetweenWorkers { .. }, _) => Learned::NotResumed,
            (_, Some(call)) if world.calls[usize::from(call)].effects > 0 => {
                let effects = world.calls[usize::from(call)].effects.to_string();
                Learned::Phase(steps::phase(NAMES[usize::from(call) * 2], effects, at(now)))
            }
            _ => Learned::NotFound,
        };
        let asked = Asked {
            seen: &seen,
            why: Asks::IfDue,
            at: at(now),
            operation: Some(&self.operation),
            not_found: NotFound { grace: TICK * GRACE.into(), releases: true },
            schedule: &self.schedule,
        };
        let next = asked.next(&seen, &learned, [0; 16].into(), at(now)).ok()?;
        Some(self.number(next))
    }

    /// The call that follows what is kept; `None` if that is the commit.
    pub fn open_call(record: &Record) -> Option<u8> {
        match record.phases.as_ref()?.kept.len() {
            0 => Some(0),
            2 => Some(1),
            _ => None,
        }
    }

    /// An operator holds the record, if it is open.
    pub fn hold(&mut self, id: Id, now: u8) -> Option<Id> {
        let next = steps::hold(self.record(id), [0; 16].into(), at(now))?;
        Some(self.number(next))
    }

    /// An operator says of each call that was made that it was, and then that nothing follows. That ends the hold.
    fn settle_held(&mut self, world: &World, current: &Record, now: u8) -> Option<Id> {
        for call in 0..CALLS {
            let number = u8::try_from(call).unwrap_or_default();
            if world.calls[call].effects > 0
                && let Ok(id) = self.note(world, number, world.calls[call].effects, now)
            {
                return Some(id);
            }
        }
        let next = steps::nothing_follows(current, [0; 16].into(), at(now))?;
        Some(self.number(next))
    }

    /// An operator lets a retry resume it, after looking up whether the call that follows was made.
    pub fn operate(&mut self, world: &World, now: u8) -> Option<Id> {
        let current = self.current(world)?;
        if current.is_held() {
            return self.settle_held(world, &current, now);
        }
        let next = match Self::open_call(&current) {
            Some(call) if world.calls[usize::from(call)].effects == 0 => {
                steps::nothing_follows(&current, [0; 16].into(), at(now))
            }
            Some(call) => {
                let effects = world.calls[usize::from(call)].effects;
                return self.note(world, call, effects, now).ok().or_else(|| self.resume(&current, now));
            }
            None => return self.resume(&current, now),
        };
        next.map(|next| self.number(next))
    }

    fn resume(&mut self, current: &Record, now: u8) -> Option<Id> {
        let next = steps::resume(current, [0; 16].into(), at(now))?;
        Some(self.number(next))
    }

    /// One line of a story: what happens, and the record after it.
    pub fn tell(&self, action: Action, after: &World) -> String {
        let record = after.record.map_or("no record".to_owned(), |id| combination(self.record(id)));
        let effects = after.calls.map(|call| call.effects);
        let action = format!("{action:?}");
        format!("{:>3}  {action:<28} {record}; effects {effects:?}, rows {}", after.now, after.rows)
    }
}

/// Whether operators have this record.
pub fn is_escalated(record: &Record) -> bool {
    matches!(
        record.state,
        State::Unknown { reconcile_at: Timestamp::MAX, .. }
            | State::BetweenWorkers { reconcile_at: Timestamp::MAX, .. }
    )
}

/// The names of a record's fields that decide, for a count of their combinations.
pub fn combination(record: &Record) -> String {
    let Some(phases) = &record.phases else { return record.state.name().to_owned() };
    let kept: Vec<_> = phases.kept.iter().map(|phase| phase.name.as_str()).collect();
    let noted: Vec<_> = phases.noted.iter().map(|phase| phase.name.as_str()).collect();
    let escalated = if is_escalated(record) { " escalated" } else { "" };
    let begun = if phases.begun.is_some() { ", a call perhaps begun" } else { "" };
    let noted = if noted.is_empty() { String::new() } else { format!(", noted {}", noted.join(" ")) };
    format!("{}{escalated}, kept {}{noted}{begun}", record.state.name(), kept.join(" "))
}
