//! What the worlds share: time in ticks, the request of their key, and records that are known by a number.

use std::{error::Error, time::Duration};

use protocol::{
    backoff::Backoff,
    fingerprint::{Fingerprint, Fingerprints},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    learned::{NotFound, Schedule},
    record::{
        Admission, Effects, Phase, PhaseList, PhaseResult, Record, Refusal, ReservationRequest, Resumes,
        Standing,
    },
    time::Timestamp,
};
use rustc_hash::FxHashMap;

/// The number of a record. Revision and notes are left out.
pub type Id = u32;

/// One tick: as long as clocks may be apart.
pub const TICK: Duration = Duration::from_secs(300);
/// How long a lease lasts, with its grace.
pub const LEASE: u8 = 2;
/// How long a worker may act by its own lease, which is the lease without its grace.
pub const OWN_LEASE: u8 = 1;
/// How long "not found" waits: as long as a request can be on its way, and clocks be apart.
const GRACE: u8 = 2;
/// How long a request can be on its way.
pub const ARRIVES: u8 = 1;

/// How the tenant stands, one after another. Operators stop its accepted work too, which only claims heed.
pub const STANDINGS: [Standing; 4] =
    [Standing::Within, Standing::Over(TICK), Standing::WorkStopped, Standing::Within];

/// The number of the first worker among executions. Those before it are clients.
pub const FIRST_WORKER: u8 = 100;

pub const NO_REVISION: [u8; 16] = [0; 16];
pub const OTHER_REVISION: [u8; 16] = [1; 16];

pub fn at(tick: u8) -> Timestamp {
    Timestamp::from_secs(1_000_000).plus(TICK * tick.into())
}

/// The tick of a time.
pub fn tick(time: Timestamp) -> u8 {
    u8::try_from(time.since(at(0)).as_secs() / TICK.as_secs()).unwrap_or(u8::MAX)
}

/// The request of the only key, whose operation is executed at once.
///
/// # Errors
/// Never: the names are valid.
pub fn request() -> Result<ReservationRequest, Box<dyn Error>> {
    let (tenant, name) = (Tenant::parse("model")?, OperationName::parse("model")?);
    let key = RecordKey::new(tenant, name, IdempotencyKey::parse("key")?);
    let fingerprints = Fingerprints::new(Fingerprint::new(1, [0; 32]), Vec::new());
    let attempt = NO_REVISION.into();
    Ok(ReservationRequest::new(key, fingerprints, attempt, Timestamp::MAX, TICK * 100))
}

/// The admission of a request whose key is too old; perhaps one that came before it is admitted, and has not begun.
pub fn too_old(perhaps_in_flight: bool) -> Admission {
    let (reason, detail) = ("too-old", "The key is too old".into());
    Admission::Refused(Refusal { reason, detail, perhaps_in_flight })
}

/// A question each tick, at most so many.
pub fn schedule(max_questions: u32) -> Schedule {
    let backoff = Backoff { first: TICK, factor: 1, max: TICK };
    Schedule { backoff, max_questions, max_unknown_age: Duration::from_secs(86_400) }
}

/// What "not found" means to a provider that remembers keys for this many ticks.
pub fn not_found(window: u8) -> NotFound {
    NotFound { grace: TICK * GRACE.into(), window: TICK * window.into(), releases: true }
}

/// A phase of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    Fraud,
    Charge,
    /// The charge, as a new version calls it.
    ChargeCard,
    Stock,
    Refund,
}

impl Name {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Fraud => "fraud",
            Self::Charge => "charge",
            Self::ChargeCard => "charge-card",
            Self::Stock => "stock",
            Self::Refund => "refund",
        }
    }
}

/// An operation resumes with these phases, within so many ticks.
pub fn resumes(names: &[Name], within: u8) -> Effects<Resumes> {
    let names: Vec<_> = names.iter().map(|name| name.text().to_owned()).collect();
    Effects::InPhases(Resumes { within: TICK * within.into(), list: PhaseList::of(&names) })
}

/// A phase of this result, which is a number.
pub fn phase(name: Name, result: u8, at: Timestamp) -> Phase {
    let text = result.to_string();
    Phase::new(name.text().to_owned(), Some(PhaseResult::new(text.clone(), &text)), at)
}

/// Records, each of which is computed once.
#[derive(Default)]
pub struct Records {
    all: Vec<Record>,
    numbers: FxHashMap<String, Id>,
}

impl Records {
    /// The number of this record.
    pub fn number(&mut self, mut record: Record) -> Id {
        record.revision = NO_REVISION.into();
        (record.last_failure, record.note, record.origin) = (None, None, None);
        // Operators are told at once.
        record.alarms.iter_mut().for_each(|alarm| (alarm.raised_at, alarm.is_told) = (at(0), true));
        // What was kept of a phase is not in the debug form.
        let kept = |phase: &Phase| format!("{:?} {:?}", phase.result, phase.at);
        let phases = record.phases().into_iter().flat_map(|phases| phases.kept.iter().chain(&phases.noted));
        let text = format!("{record:?} {:?}", phases.map(kept).collect::<Vec<_>>());
        if let Some(id) = self.numbers.get(&text) {
            return *id;
        }
        let id = Id::try_from(self.all.len()).expect("fewer than four billion records");
        self.all.push(record);
        self.numbers.insert(text, id);
        id
    }

    pub fn get(&self, id: Id) -> &Record {
        &self.all[id as usize]
    }

    /// All of them, in their order.
    pub fn all(&self) -> &[Record] {
        &self.all
    }
}
