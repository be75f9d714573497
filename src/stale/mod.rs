//! Finds records with dead workers, even if their clients do not retry.
//!
//! ```text
//! stream records ─▶ unmatched: executions that began, and did not end in the same batch
//!                     └─▶ queue, with a delay until the lease expires ─▶ check: load, swap
//! table ─▶ sweep: a slow scan, one at a time ──────────────────────────────┘
//! ```
//!
//! 1. A healthy operation costs nothing here: its insertion and its completion are in one batch.
//! 2. An execution that is left open is checked when its lease has expired. If its worker is dead, the record becomes `unknown`.
//!    Accepted work that no worker has taken ends with 408.
//! 3. The lease in the record decides, and the write is a compare-and-set. So messages may come twice, late or in any order.
//! 4. Stream records that cannot be read go to operators, and block no others.
//! 5. A slow sweep finds records, and messages of the outbox, that the stream missed.
//!
//! It does not find out what the dead worker did: [`reconcile`](crate::reconcile) does.

mod checkpoint;
mod stream;
mod sweep;
mod unmatched;

use std::{sync::Arc, time::Duration};

use tracing::Instrument;

use crate::{
    engine::{Applied, Effort, Engine, Moment, Retries, Start, Step},
    key::RecordKey,
    message::Message,
    outbox::group_of,
    queue::{FairQueue, FifoQueue, Queue, QueueError, WorkError},
    record::{Record, State},
    store::{StoreError, StoreErrorKind, Unsettled},
    telemetry,
    time::{Instant, Timestamp},
    time_budget::{MIN_CHECK_DELAY, WRITE_BACKOFF},
    world::{SystemWorld, World},
};

/// How many read units a second a sweep takes: a million records in about 12 minutes, for a fraction of a cent.
pub(crate) const DEFAULT_SWEEP_UNITS: u32 = 50;

/// What a check of a record found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckOutcome {
    /// There is no record.
    Gone,
    /// It is settled, or unknown already.
    Settled,
    /// Its lease, or its time to wait for a worker, lasts until then.
    Live(Timestamp),
    /// Its lease had expired. It is `unknown` now, or released if its transaction can no longer commit.
    LeaseExpired,
    /// No worker took it in time. It is completed with 408, or escalated if an execution perhaps did something.
    Abandoned,
    /// Others changed it at each try. Check it again.
    Busy,
}

/// Checks records, and ends executions whose lease has expired.
#[must_use]
pub struct Stale {
    engine: Engine,
    records: Arc<dyn Unsettled>,
    checks: Arc<dyn FairQueue>,
    sweeps: Arc<dyn Queue>,
    contradictions: Arc<dyn Queue>,
    outbox: Option<Arc<dyn FifoQueue>>,
    work: Option<Arc<dyn FairQueue>>,
    sweep_units: f64,
}

impl Stale {
    /// Checks the records of `store`. Later checks go to the queue `checks`, each in its tenant's group. A sweep continues through `sweeps`, so that it
    /// delays no check. [`receive`](Self::receive) processes the messages of both. Stream records that cannot be read go to
    /// `contradictions`.
    pub fn new(
        store: impl Unsettled,
        checks: impl FairQueue,
        sweeps: impl Queue,
        contradictions: impl Queue,
    ) -> Self {
        let records: Arc<dyn Unsettled> = Arc::new(store);
        Self {
            engine: Engine { store: records.clone(), world: Arc::new(SystemWorld) },
            records,
            checks: Arc::new(checks),
            sweeps: Arc::new(sweeps),
            contradictions: Arc::new(contradictions),
            outbox: None,
            work: None,
            sweep_units: f64::from(DEFAULT_SWEEP_UNITS),
        }
    }

    /// Asks for the delivery of messages that a sweep finds in the outbox, through the queue of wakes of the
    /// [deliverer](crate::outbox::Deliverer). Without it, they are counted only.
    pub fn outbox(mut self, wakes: impl FifoQueue) -> Self {
        self.outbox = Some(Arc::new(wakes));
        self
    }

    /// Queues accepted work that a sweep finds without a worker to this queue, from which a [worker](crate::event::Consumer::work) takes it.
    pub fn work_to(mut self, queue: impl FairQueue) -> Self {
        self.work = Some(Arc::new(queue));
        self
    }

    /// How many read units a second a sweep takes at most, on average; at least 0.1. Default: 50.
    pub fn sweep_units_per_second(mut self, units: f64) -> Self {
        self.sweep_units = units;
        self
    }

    /// Takes clocks, randomness and tasks from `world`: for tests.
    pub fn world(mut self, world: impl World) -> Self {
        self.engine.world = Arc::new(world);
        self
    }

    /// Processes one message of the queues of checks and of sweeps, for about `time` at most.
    ///
    /// # Errors
    /// If it failed: the message must be delivered again.
    pub async fn receive(&self, body: &str, time: Duration) -> Result<(), WorkError> {
        match Message::read(body)? {
            Message::Sweep => self.run_sweep(false, time).await,
            Message::Check { key, look_at } => {
                let record =
                    RecordKey::from_partition_key(&key).ok_or(WorkError::Malformed("it names no record"))?;
                if self.engine.world.now() < look_at {
                    return self.look_later(key, look_at).await;
                }
                match self.check(&record).await? {
                    CheckOutcome::Live(until) => self.look_later(key, until).await,
                    CheckOutcome::Busy => Err(WorkError::Busy),
                    _ => Ok(()),
                }
            }
            _ => Err(WorkError::Malformed("it is neither a check nor a sweep")),
        }
    }

    /// Checks a record: one consistent read, and one write if there is something to write.
    pub async fn check(&self, key: &RecordKey) -> Result<CheckOutcome, StoreError> {
        self.look(key).instrument(telemetry::record_span(key)).await
    }

    async fn look(&self, key: &RecordKey) -> Result<CheckOutcome, StoreError> {
        let step = |current: Option<&Record>, Moment { revision, now }: Moment| {
            let Some(current) = current else { return Step::Stop(CheckOutcome::Gone) };
            if let Some(next) = current.expire_or_abandon(revision, now) {
                let outcome = match (&current.state, &next.state) {
                    (State::Pending { .. }, _) | (_, State::Completed { .. }) => CheckOutcome::Abandoned,
                    _ => CheckOutcome::LeaseExpired,
                };
                return Step::Write(next.into(), outcome);
            }
            Step::Stop(match &current.state {
                State::InProgress { lease_until } => CheckOutcome::Live(*lease_until),
                State::Pending { .. } => {
                    CheckOutcome::Live(current.accepted.map_or(now, |accepted| accepted.claim_by))
                }
                State::Completed { .. }
                | State::FailedRetryable { .. }
                | State::Unknown { .. }
                | State::BetweenWorkers { .. } => CheckOutcome::Settled,
            })
        };
        let effort = Effort { until: None, backoff: WRITE_BACKOFF, retries: Retries::None };
        match self.engine.apply(Start::Unread(key), effort, step).await {
            Ok(Applied::Written(outcome, record)) => {
                let now = self.engine.world.now();
                match (&outcome, &record.state) {
                    (CheckOutcome::Abandoned, State::Completed { .. }) => {}
                    (CheckOutcome::Abandoned, _) => tracing::error!(
                        age_ms = telemetry::age_ms(&record, now),
                        "no worker took accepted work in time, and perhaps something was done: it is escalated"
                    ),
                    _ => telemetry::lease_expired(&record, now),
                }
                Ok(outcome)
            }
            Ok(Applied::Stopped(outcome, _)) => Ok(outcome),
            Err(unapplied) if unapplied.error.kind() == StoreErrorKind::Contended => Ok(CheckOutcome::Busy),
            Err(unapplied) => Err(unapplied.error),
        }
    }

    /// Looks again at the right time, at least a second later. A queue delays a message by 15 minutes at most, so a longer wait
    /// takes several messages.
    async fn look_later(&self, key: String, look_at: Timestamp) -> Result<(), WorkError> {
        let delay = look_at.since(self.engine.world.now()).max(MIN_CHECK_DELAY);
        Ok(self.engine.sent(self.queue_check(&key, look_at, delay)).await?)
    }

    /// Queues a check, in the group of its tenant: so that one tenant's many dead workers delay the checks of no other.
    async fn queue_check(&self, key: &str, look_at: Timestamp, delay: Duration) -> Result<(), QueueError> {
        let check = Message::Check { key: key.to_owned(), look_at };
        self.checks.send_fairly(&check.to_json(), &group_of(key), delay).await
    }

    fn until(&self, time: Duration) -> Instant {
        self.engine.world.instant().plus(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        queue::{MemoryQueue, tests::Silent},
        record::{
            Revision,
            tests::{Mint, reservation},
        },
        store::{Companion, OutboxMessage, Store, memory::MemoryStore},
        time_budget::{DELIVERY_GRACE, SEND_TIMEOUT},
        world::ManualWorld,
    };

    // T4, T50: the stream shows it once.
    #[tokio::test]
    async fn a_live_worker_is_checked_again_when_its_lease_expires() {
        let (store, checks) = (MemoryStore::new(), MemoryQueue::new());
        let (reservation, now) = (reservation("k"), Timestamp::from_secs(1_000));
        let live = Record::reserve(&reservation, Revision::mint(), now);
        store.put(None, &live, &[]).await.expect("there is none");
        let stale = Stale::new(store.clone(), checks.clone(), MemoryQueue::new(), MemoryQueue::new())
            .world(ManualWorld::at(now));
        for look_at in [now, reservation.lease_until] {
            let message = Message::Check { key: live.key.partition_key(), look_at };
            stale.receive(&message.to_json(), Duration::ZERO).await.expect("it is checked");
            let [(_, delay)] = &checks.take()[..] else { panic!("not one message") };
            assert_eq!(*delay, reservation.lease_until.since(now));
        }
        // By a clock that is slightly behind, it would be sent again and again.
        let look_at = now.plus(Duration::from_millis(1));
        let message = Message::Check { key: live.key.partition_key(), look_at };
        stale.receive(&message.to_json(), Duration::ZERO).await.expect("it is checked");
        let [(_, delay)] = &checks.take()[..] else { panic!("not one message") };
        assert_eq!(*delay, MIN_CHECK_DELAY);
        assert_eq!(store.load(&live.key).await.unwrap(), Some(live));
    }

    // T50: whoever waits for it is killed, and all messages of the batch come again.
    #[tokio::test]
    async fn a_queue_that_never_answers_is_left_in_time() {
        let (store, now) = (MemoryStore::new(), Timestamp::from_secs(1_000));
        let (world, old) = (ManualWorld::at(now), now.minus(DELIVERY_GRACE));
        let live = Record::reserve(&reservation("k"), Revision::mint(), now);
        store.put(None, &live, &[]).await.expect("there is none");
        // For the sweep: a message that is not delivered, and work that waits.
        let claim_by = now.plus(DELIVERY_GRACE);
        let waiting: Record = Record::accept(&reservation("w"), claim_by, 2, Revision::mint(), old);
        let request = waiting.accepted.expect("it is accepted").request;
        let message = OutboxMessage {
            key: waiting.key.clone(),
            created_at: old,
            sequence: 0,
            first: 0,
            topic: "topic".to_owned(),
            body: "1".to_owned(),
            published_at: old,
        };
        let with = [Companion::Message(message), Companion::KeepBody(request, "{}".into(), old)];
        store.put(None, &waiting, &with).await.expect("there is none");
        let stale = Stale::new(store, Silent, Silent, Silent).world(world.clone());
        let stale = stale.outbox(Silent).work_to(Silent).sweep_units_per_second(1e9);

        let check = Message::Check { key: live.key.partition_key(), look_at: now }.to_json();
        let checked = world.passing(stale.receive(&check, DELIVERY_GRACE)).await;
        assert!(matches!(checked, Err(WorkError::Queue(_))), "{checked:?}");
        let poison: Box<serde_json::value::RawValue> = serde_json::from_str("{}").expect("JSON");
        assert_eq!(world.passing(stale.stream(&[poison], DELIVERY_GRACE)).await, [None]);
        let reserved = r#"{"eventName":"INSERT","dynamodb":{"SequenceNumber":"7","Keys":{"pk":{"S":"shop#pay#k"},"sk":{"S":"record"}},
            "NewImage":{"state":{"S":"in_progress"},"attempt":{"B":"QQ=="},"created_at":{"N":"0"},"lease_until":{"N":"0"}}}}"#;
        let reserved: Box<serde_json::value::RawValue> = serde_json::from_str(reserved).expect("JSON");
        let failed = world.passing(stale.stream(&[reserved], DELIVERY_GRACE)).await;
        assert_eq!(failed, [Some("7".to_owned())]);
        assert_eq!(world.running(), 3 * SEND_TIMEOUT);
        // It has time for nothing, and asks for another one.
        let swept = world.passing(stale.sweep(Duration::ZERO)).await;
        assert!(matches!(swept, Err(WorkError::Queue(_))), "{swept:?}");
        // One asks for a delivery, one for a worker: the next sweep asks again.
        let swept = world.passing(stale.sweep(DELIVERY_GRACE)).await;
        assert!(swept.is_ok(), "{swept:?}");
        assert_eq!(world.running(), 6 * SEND_TIMEOUT);
    }
}
