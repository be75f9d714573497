//! The library's seams, as each process sees them: the world, the store, queues, the provider. Each call waits at a gate.

use std::{
    collections::HashSet,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use lambda_idempotency::{
    Finding, Question, Reconciler, async_trait,
    key::RecordKey,
    outbox::{Deliverer, Target},
    queue::{FairQueue, FifoQueue, Queue, QueueError},
    record::{BodyId, Place, Record, Revision},
    store::{
        AuditLine, Checkpoint, Companion, Cursor, Due, NotFoundSwitch, Outbox, OutboxMessage, Page, Store,
        StoreError, Survey, Turn, Unsettled, WriteOutcome,
    },
    time::Timestamp,
    world::World,
};

use super::{
    call::{Call, Effect, Reply, Source},
    ids::{GateId, KeyId, ProcessId},
    outbox::{TOPIC, topics},
    universe::Shared,
};

type Result<T> = std::result::Result<T, StoreError>;
type Sent = std::result::Result<(), QueueError>;

/// One process's view of the universe.
#[derive(Clone)]
pub struct Machine {
    pub universe: Shared,
    pub process: ProcessId,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({})", self.process)
    }
}

impl Machine {
    fn key_id(&self, key: &RecordKey) -> KeyId {
        self.universe.lock().key_id(key)
    }

    /// Waits until the explorer lets this call end.
    pub fn call(&self, call: Call) -> Waiting {
        Waiting { machine: self.clone(), gate: None, call: Some(call) }
    }

    /// A call of the store, which may fail.
    async fn ask(&self, call: Call) -> Result<Reply> {
        match self.call(call).await {
            Reply::Failed(kind) => Err(StoreError::new(kind, "as the explorer wants it")),
            reply => Ok(reply),
        }
    }

    /// A call that sends something, which may fail.
    pub async fn sends(&self, call: Call) -> Sent {
        match self.call(call).await {
            Reply::Sent(true) => Ok(()),
            _ => Err(QueueError::new("as the explorer wants it")),
        }
    }

    /// The provider is asked for the effect of this key.
    pub async fn effect(&self, key: KeyId) -> Effect {
        match self.call(Call::Effect(key)).await {
            Reply::Effect(effect) => effect,
            _ => Effect::NoAnswer,
        }
    }
}

/// A call that has not ended.
pub struct Waiting {
    machine: Machine,
    gate: Option<GateId>,
    call: Option<Call>,
}

impl Future for Waiting {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let universe = self.machine.universe.clone();
        let mut universe = universe.lock();
        let process = self.machine.process;
        if let Some(call) = self.call.take() {
            self.gate = Some(universe.wait(process, call));
        }
        let reply = self.gate.and_then(|gate| universe.answer(gate, context.waker()));
        match reply {
            Some(reply) => {
                self.gate = None;
                Poll::Ready(reply)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    /// No process waits for the call any more.
    fn drop(&mut self) {
        if let Some(gate) = self.gate {
            self.machine.universe.lock().gates.remove(&gate);
        }
    }
}

impl World for Machine {
    fn now(&self) -> Timestamp {
        self.universe.lock().now(self.process)
    }

    fn running(&self) -> Duration {
        self.universe.lock().running(self.process)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = self.running().saturating_add(duration);
        let waiting = self.call(Call::Sleep(until));
        Box::pin(async move { drop(waiting.await) })
    }

    fn nonce(&self) -> [u8; 16] {
        self.universe.lock().nonce(self.process)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.universe.lock().spawned.push((self.process, task));
    }
}

/// The store behind gates.
#[derive(Clone, Debug)]
pub struct GatedStore(pub Machine);

#[async_trait]
impl Store for GatedStore {
    async fn put(&self, seen: Option<Revision>, record: &Record, with: &[Companion]) -> Result<WriteOutcome> {
        let call = Call::Write(seen, Box::new(record.clone()), with.to_vec());
        let Reply::Written(outcome) = self.0.ask(call).await? else { unreachable!("it is answered so") };
        Ok(outcome)
    }

    fn retry_budget(&self) -> Option<&lambda_idempotency::store::RetryBudget> {
        None
    }

    fn records_table(&self) -> Option<&str> {
        None
    }

    async fn load(&self, key: &RecordKey) -> Result<Option<Record>> {
        let call = Call::Load(self.0.key_id(key));
        let Reply::Loaded(record) = self.0.ask(call).await? else { unreachable!("it is answered so") };
        Ok(record.map(|record| *record))
    }

    fn body_capacity(&self, _: &Record) -> usize {
        if self.0.universe.lock().scenario.large_bodies { 0 } else { 512 }
    }

    async fn keep_body(
        &self,
        key: &RecordKey,
        id: BodyId,
        body: Bytes,
        until: Timestamp,
    ) -> Result<Option<Place>> {
        let call = Call::KeepBody(self.0.key_id(key), id, body, until);
        let Reply::Kept(place) = self.0.ask(call).await? else { unreachable!("it is answered so") };
        Ok(place)
    }

    async fn load_body(&self, key: &RecordKey, id: BodyId, place: Place) -> Result<Option<Bytes>> {
        let call = Call::LoadBody(self.0.key_id(key), id, place);
        let Reply::Body(body) = self.0.ask(call).await? else { unreachable!("it is answered so") };
        Ok(body)
    }

    async fn delete_body(&self, key: &RecordKey, id: BodyId) -> Result<()> {
        let call = Call::DeleteBody(self.0.key_id(key), id);
        self.0.ask(call).await.map(drop)
    }

    async fn audit(&self, _: &RecordKey, _: Revision, _: &AuditLine) -> Result<()> {
        Ok(())
    }

    async fn audit_lines(&self, _: &RecordKey) -> Result<Vec<AuditLine>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Unsettled for GatedStore {
    async fn due(
        &self,
        now: Timestamp,
        _: Option<&Cursor>,
        _: usize,
        taken: &HashSet<RecordKey>,
    ) -> Result<Due> {
        let Reply::Due(due) = self.0.ask(Call::Due(now)).await? else { unreachable!("it is answered so") };
        let keys: Vec<_> = due.into_iter().filter(|key| !taken.contains(key)).collect();
        let turn = (!keys.is_empty()).then(|| Turn { keys, next: Cursor::new([]) });
        Ok(Due { turns: turn.into_iter().collect(), next: None })
    }

    async fn unresolved(
        &self,
        _: Option<&lambda_idempotency::key::Tenant>,
        _: Option<&Cursor>,
    ) -> Result<Page> {
        Ok(Page::default())
    }

    async fn survey(&self) -> Result<Survey> {
        Ok(Survey::NOTHING)
    }

    async fn settings_off(&self) -> Vec<&'static str> {
        Vec::new()
    }

    async fn scan(
        &self,
        (segment, _): (u32, u32),
        _: Option<&Cursor>,
        now: Timestamp,
        _: u32,
    ) -> Result<Page> {
        if segment > 0 {
            // Everything is in the first segment.
            return Ok(Page::default());
        }
        let Reply::Page(page) = self.0.ask(Call::Scan(now)).await? else { unreachable!("it is answered so") };
        Ok(page)
    }

    async fn not_found_switch(&self) -> Result<Option<NotFoundSwitch>> {
        Ok(None)
    }

    async fn switch_not_found(&self, _: Option<Revision>, _: &NotFoundSwitch) -> Result<bool> {
        Ok(false)
    }

    async fn not_found_lines(&self) -> Result<Vec<AuditLine>> {
        Ok(Vec::new())
    }

    async fn load_checkpoint(&self, _: &str) -> Result<Option<Checkpoint>> {
        Ok(None)
    }

    async fn write_checkpoint(&self, _: Option<Revision>, _: &Checkpoint) -> Result<bool> {
        // One sweep at a time.
        Ok(true)
    }
}

#[async_trait]
impl Outbox for GatedStore {
    async fn undelivered(&self, key: &RecordKey) -> Result<Vec<OutboxMessage>> {
        let call = Call::Undelivered(self.0.key_id(key));
        let Reply::Undelivered(messages) = self.0.ask(call).await? else { unreachable!("it is answered so") };
        Ok(messages)
    }

    async fn remove(&self, message: &OutboxMessage) -> Result<()> {
        let call = Call::Remove(Box::new(message.clone()));
        self.0.ask(call).await.map(drop)
    }
}

/// A queue behind gates.
#[derive(Clone, Debug)]
pub struct GatedQueue(pub Machine, pub Source);

#[async_trait]
impl Queue for GatedQueue {
    async fn send(&self, message: &str, delay: Duration) -> Sent {
        self.0.sends(Call::Send(self.1, message.to_owned(), delay)).await
    }
}

#[async_trait]
impl FairQueue for GatedQueue {
    async fn send_fairly(&self, message: &str, _: &str, delay: Duration) -> Sent {
        self.send(message, delay).await
    }
}

/// The provider, who answers questions.
#[derive(Clone, Debug)]
pub struct GatedProvider(pub Machine);

#[async_trait]
impl Reconciler for GatedProvider {
    async fn ask(
        &self,
        question: &Question,
    ) -> std::result::Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
        let Reply::Found(found) = self.0.ask(Call::Ask(self.0.key_id(question.record_key()))).await? else {
            unreachable!("it is answered so")
        };
        found.ok_or_else(|| "the provider does not answer".into())
    }
}

/// The queue of wakes behind gates.
struct GatedWakes(Machine);

#[async_trait]
impl FifoQueue for GatedWakes {
    async fn send_in_group(&self, message: &str, _: &str, id: &str) -> Sent {
        self.0.sends(Call::Wake(message.to_owned(), id.to_owned())).await
    }
}

/// The target of the messages behind gates.
struct GatedTarget(Machine);

#[async_trait]
impl Target for GatedTarget {
    async fn deliver(&self, message: &OutboxMessage) -> Sent {
        self.0.sends(Call::Deliver(Box::new(message.clone()))).await
    }
}

impl Machine {
    pub fn wakes(&self) -> impl FifoQueue {
        GatedWakes(self.clone())
    }

    pub fn deliverer(&self) -> Deliverer {
        Deliverer::new(GatedStore(self.clone()), self.wakes(), topics())
            .work_to(GatedQueue(self.clone(), Source::Work))
            .target(TOPIC, GatedTarget(self.clone()))
            .world(self.clone())
    }
}
