//! Finds records whose worker died, without anybody retrying.
//!
//! ```text
//! stream records ─▶ net: insertions that no completion of the same batch cancels
//!                     └─▶ queue, with the delay that the lease asks for ─▶ check: load, swap
//! table ─▶ sweep: a slow scan, for the day on which the stream was down ───┘
//! ```
//!
//! A healthy operation costs nothing here: its insertion and its completion meet in one batch. What a check finds is
//! decided by the record's own lease and written by compare-and-set, so that messages which come twice, late or in any
//! order end the same.

mod net;
mod sweep;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    http::{Problem, ProblemType, Profile},
    key::RecordKey,
    lease::tell_given_up,
    policy::DEFAULT_RETENTION,
    record::{Encoding, KeptBody, KeptResponse, Record, Revision, State},
    store::{Register, Store, StoreError, Turn},
    time::{Clock, SystemClock, Timestamp},
};

pub use net::{Netted, Open, Poison, net};
pub use sweep::{Found, Sweep, SweepProgress};

/// How long accepted work may wait for a worker before it counts as abandoned: as long as SQS keeps a message where
/// nobody says otherwise (4 days).
pub const DEFAULT_PENDING_BOUND: Duration = Duration::from_secs(4 * 24 * 60 * 60);

/// How often a check looks again at a record that others change at the same moment.
const TURNS: usize = 8;

/// A message of the queue of checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Check {
    /// Look at this record, from this time on.
    Check {
        /// Its partition key.
        key: String,
        /// When, in milliseconds since 1970.
        look_at: u64,
    },
    /// Go on with a sweep that ran out of time.
    Sweep {
        /// How far it is.
        progress: SweepProgress,
    },
}

/// What a look at a record found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Nothing there.
    Gone,
    /// Nothing to do: it is settled, or unknown already.
    Settled,
    /// Its worker, or its time to wait, has until then.
    Live(Timestamp),
    /// Its worker was given up: it is `unknown` now.
    GivenUp,
    /// Nobody took it: it ended with 408.
    Abandoned,
    /// Others changed it each time that we tried. Look again.
    Busy,
}

/// Looks at records, and gives up those whose worker's lease is over.
pub struct Stale<S> {
    register: Register<S>,
    clock: Arc<dyn Clock>,
    pending_bound: Duration,
}

impl<S> fmt::Debug for Stale<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stale").field("pending_bound", &self.pending_bound).finish_non_exhaustive()
    }
}

impl<S: Store> Stale<S> {
    /// Looks at the records of `store`.
    pub fn new(store: S) -> Self {
        Self {
            register: Register { store },
            clock: Arc::new(SystemClock),
            pending_bound: DEFAULT_PENDING_BOUND,
        }
    }

    /// How long accepted work may wait for a worker.
    #[must_use]
    pub fn pending_bound(mut self, bound: Duration) -> Self {
        self.pending_bound = bound;
        self
    }

    /// Goes by another clock: for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The time by which it goes.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// When to look at what a batch of stream records left open.
    pub fn look_at(&self, open: &Open) -> Timestamp {
        match open.lease_until {
            Some(lease_until) => lease_until,
            None => open.created_at.plus(self.pending_bound),
        }
    }

    /// Looks at a record: one consistent read, and one write where there is something to write.
    pub async fn check(&self, key: &RecordKey) -> Result<Looked, StoreError> {
        match self.register.load(key).await? {
            Some(record) => self.look(record).await,
            None => Ok(Looked::Gone),
        }
    }

    /// Writes an unknown outcome as it is, so that it comes into the index from which it is asked about: one that was
    /// written before there was an index is found by nobody else.
    async fn index(&self, key: &RecordKey) -> Result<Looked, StoreError> {
        let Some(record) = self.register.load(key).await? else { return Ok(Looked::Gone) };
        if !matches!(record.state, State::Unknown { .. }) {
            return self.look(record).await;
        }
        let next = Record { revision: Revision::mint(), ..record.clone() };
        match self.register.swap(record.revision, &next).await? {
            Turn::Ours => {
                let (key, operation) = (record.key.hash(), record.key.operation());
                tracing::warn!(%key, %operation, "an unknown outcome was not in the index: it is asked about now");
                Ok(Looked::Settled)
            }
            Turn::Theirs(Some(_)) => Ok(Looked::Busy),
            Turn::Theirs(None) => Ok(Looked::Gone),
        }
    }

    /// What a record is to become whose worker's lease is over, or that nobody took in time: the record to write where
    /// the given one still stands. `None` where there is nothing to give up.
    pub fn given_up(&self, record: &Record, revision: Revision) -> Option<Record> {
        let now = self.clock.now();
        record
            .expire(revision, now)
            .or_else(|| record.abandon(revision, abandoned(), now, self.pending_bound, DEFAULT_RETENTION))
    }

    async fn look(&self, mut record: Record) -> Result<Looked, StoreError> {
        for _ in 0..TURNS {
            let Some(next) = self.given_up(&record, Revision::mint()) else {
                return Ok(match &record.state {
                    State::InProgress { lease_until } => Looked::Live(*lease_until),
                    State::Pending => Looked::Live(record.created_at.plus(self.pending_bound)),
                    State::Completed { .. } | State::FailedRetryable { .. } | State::Unknown { .. } => {
                        Looked::Settled
                    }
                });
            };
            let looked = match next.state {
                State::Unknown { .. } => Looked::GivenUp,
                _ => Looked::Abandoned,
            };
            match self.register.swap(record.revision, &next).await? {
                Turn::Ours => {
                    self.tell(&next, &looked);
                    return Ok(looked);
                }
                Turn::Theirs(Some(there)) => record = *there,
                Turn::Theirs(None) => return Ok(Looked::Gone),
            }
        }
        Ok(Looked::Busy)
    }

    fn tell(&self, record: &Record, looked: &Looked) {
        if *looked == Looked::GivenUp {
            return tell_given_up(record, self.clock.now());
        }
        let (key, operation) = (record.key.hash(), record.key.operation());
        let age_ms = u64::try_from(self.clock.now().since(record.created_at).as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(%key, %operation, age_ms, "accepted work was taken by nobody: it ends with 408");
    }
}

/// The answer of abandoned work: 408, and that nothing was done.
fn abandoned() -> KeptResponse {
    let (status, body) = Problem::new(ProblemType::Abandoned).document(&Profile::default());
    let length = body.len() as u64;
    KeptResponse {
        status: status.as_u16(),
        headers: vec![("content-type".to_owned(), "application/problem+json".to_owned())],
        body: KeptBody::Inline { bytes: body, encoding: Encoding::Identity, length },
    }
}
