//! Everything around the processes: clocks, gates at which they wait, the store, the queues, the provider.

use std::{
    collections::BTreeMap,
    mem::discriminant,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use futures_util::future::BoxFuture;
use lambda_idempotency::{key::RecordKey, time::Timestamp};

use super::{
    answers::Received,
    call::{Call, How, Reply, Source},
    digest::digest,
    ids::{
        BEGINNING, CONSUMER, DELIVERER, GateId, KEYS, KeyId, MessageId, ProcessId, REQUEST, THE_KEY, WORKER,
    },
    input::InputQueue,
    ledger::Ledger,
    reply::{failed, reply_kind},
    scenario::Scenario,
    shelf::Shelf,
};
use crate::kernel::violation::Violation;

/// How long the store is down for one process: longer than any of its retries.
const OUTAGE: u64 = 2_000;
/// How far a clock is set back: less than `CLOCK_SKEW`.
const SET_BACK: u64 = 240_000;
/// How long a request to the provider can be on its way.
const ARRIVES: u64 = 300_000;

/// One process.
#[derive(Debug, Default)]
pub struct Process {
    pub name: &'static str,
    /// The digest of all that it was answered, in order. Its state follows from that.
    pub history: u64,
    pub nonces: u32,
    pub gates: u32,
    pub over: bool,
    /// Whether its handler has begun.
    pub began: bool,
    /// How many faults it had.
    pub faults: u8,
    /// When it ended by itself.
    pub ended_at: Option<u64>,
    /// Since when it is frozen.
    pub frozen: Option<u64>,
    /// For how long its monotonic clock stood still.
    pub suspended: u64,
    /// How far its wall clock was set back.
    pub behind: u64,
    pub outage_until: u64,
    /// The message that it works on.
    pub message: Option<MessageId>,
}

impl Process {
    pub fn is_consumer(&self) -> bool {
        [CONSUMER, WORKER, DELIVERER].contains(&self.name)
    }
}

/// Where a task waits.
#[derive(Debug)]
pub struct Gate {
    pub process: ProcessId,
    /// The number of this gate within its process.
    pub number: u32,
    pub call: Call,
    /// It gets no answer.
    pub hangs: bool,
    pub(super) reply: Option<Reply>,
    waker: Option<Waker>,
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: MessageId,
    pub source: Source,
    pub body: String,
    pub visible_at: u64,
    pub receives: u8,
    /// Whether a process works on it.
    pub taken: bool,
    pub digest: u64,
}

/// A call that is done later.
#[derive(Clone, Debug)]
pub struct Later {
    pub process: ProcessId,
    pub call: Call,
    pub digest: u64,
    /// When its process called.
    pub at: u64,
    /// By when at the latest.
    pub by: u64,
}

/// Everything but the processes' futures.
pub struct Universe {
    pub scenario: &'static Scenario,
    pub clock: u64,
    pub processes: Vec<Process>,
    pub gates: BTreeMap<GateId, Gate>,
    next_gate: GateId,
    /// What there is under each key.
    pub shelves: Vec<Shelf>,
    /// The queues from which consumers take messages.
    pub input: InputQueue,
    pub messages: Vec<Message>,
    pub next_message: MessageId,
    /// Until when the reconcile function is down.
    pub down_until: u64,
    /// How many batches of the table's stream were lost.
    pub losses: u8,
    /// How many sweeps there were, and when the last one began.
    pub sweeps: u8,
    pub swept_at: u64,
    pub dead_letters: u8,
    pub ledger: Ledger,
    pub later: Vec<Later>,
    pub received: Vec<(ProcessId, Received)>,
    pub violation: Option<Violation>,
    pub spawned: Vec<(ProcessId, BoxFuture<'static, ()>)>,
    /// The faults that have happened, and how many may happen.
    pub faults: u8,
    pub budget: u8,
    /// Whether nothing goes wrong any more.
    pub is_calm: bool,
    pub story: Option<Vec<String>>,
}

/// The universe, shared by all processes of one execution. There is only one thread.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Universe>>);

impl Shared {
    pub fn new(scenario: &'static Scenario, budget: u8, tells: bool) -> Self {
        Self(Arc::new(Mutex::new(Universe {
            scenario,
            clock: BEGINNING,
            processes: Vec::new(),
            gates: BTreeMap::new(),
            next_gate: 0,
            shelves: (0..scenario.keys()).map(|_| Shelf::new(scenario)).collect(),
            input: InputQueue::new(scenario),
            messages: Vec::new(),
            next_message: 0,
            down_until: 0,
            losses: 0,
            sweeps: 0,
            swept_at: BEGINNING,
            dead_letters: 0,
            ledger: Ledger::default(),
            later: Vec::new(),
            received: Vec::new(),
            violation: None,
            spawned: Vec::new(),
            faults: 0,
            budget,
            is_calm: false,
            story: tells.then(Vec::new),
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Universe> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Universe {
    pub fn shelf(&self, key: KeyId) -> &Shelf {
        &self.shelves[usize::from(key)]
    }

    pub fn shelf_mut(&mut self, key: KeyId) -> &mut Shelf {
        &mut self.shelves[usize::from(key)]
    }

    /// The number of a key.
    pub fn key_id(&self, key: &RecordKey) -> KeyId {
        let name = key.idempotency_key().as_str();
        KEYS.iter().zip(0..).find(|(known, _)| **known == name).map_or(THE_KEY, |(_, id)| id)
    }

    /// When the next question is due.
    pub fn due_at(&self) -> Option<u64> {
        self.shelves.iter().filter_map(Shelf::due_at).min()
    }

    pub fn process(&mut self, id: ProcessId) -> &mut Process {
        &mut self.processes[usize::from(id)]
    }

    /// A new process, in the place of one that is over if it can be.
    pub fn add_process(&mut self, name: &'static str, message: Option<MessageId>) -> ProcessId {
        // What lands late asks for these.
        let stays = |process: &Process| process.name == REQUEST || process.is_consumer();
        let place = self.processes.iter().position(|process| process.over && !stays(process));
        let place = place.unwrap_or(self.processes.len());
        if place == self.processes.len() {
            self.processes.push(Process::default());
        }
        let nonces = self.processes[place].nonces;
        self.processes[place] = Process { name, message, nonces, ..Process::default() };
        u8::try_from(place).unwrap_or(u8::MAX)
    }

    /// A process has ended, or died.
    pub fn end_process(&mut self, id: ProcessId, dies: bool) {
        let clock = self.clock;
        let process = self.process(id);
        (process.over, process.ended_at) = (true, (!dies).then_some(clock));
        if let Some(message) = self.process(id).message {
            self.give_back(message);
        }
    }

    pub fn tell(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.story.is_some() {
            let line = format!("{:>9.3}  {}", (self.clock - BEGINNING) as f64 / 1e3, what(self));
            self.story.iter_mut().for_each(|story| story.push(line.clone()));
        }
    }

    pub fn name(&self, id: ProcessId) -> String {
        format!("{} {id}", self.processes[usize::from(id)].name)
    }

    pub fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// The wall clock of this process.
    pub fn now(&self, id: ProcessId) -> Timestamp {
        Timestamp::from_millis(self.clock - self.processes[usize::from(id)].behind)
    }

    /// How long its monotonic clock has run.
    pub fn running(&self, id: ProcessId) -> Duration {
        Duration::from_millis(self.clock - BEGINNING - self.processes[usize::from(id)].suspended)
    }

    /// The next nonce of this process. Its first byte is zero, so that no backoff has a jitter.
    pub fn nonce(&mut self, id: ProcessId) -> [u8; 16] {
        let process = self.process(id);
        process.nonces += 1;
        let mut nonce = [0; 16];
        nonce[1] = id + 1;
        nonce[2..6].copy_from_slice(&process.nonces.to_be_bytes());
        nonce
    }

    pub fn wait(&mut self, process: ProcessId, call: Call) -> GateId {
        let id = self.next_gate;
        self.next_gate += 1;
        let number = self.process(process).gates;
        self.process(process).gates += 1;
        self.gates.insert(id, Gate { process, number, call, hangs: false, reply: None, waker: None });
        id
    }

    /// The answer of a gate, or nothing yet.
    pub fn answer(&mut self, gate: GateId, waker: &Waker) -> Option<Reply> {
        let waiting = self.gates.get_mut(&gate)?;
        match waiting.reply.take() {
            Some(reply) => {
                self.gates.remove(&gate);
                Some(reply)
            }
            None => {
                waiting.waker = Some(waker.clone());
                None
            }
        }
    }

    pub fn reply(&mut self, id: GateId, how: How, reply: Reply) {
        let clock = self.clock;
        let Some(gate) = self.gates.get(&id) else { return };
        let key = match (&gate.call, &reply) {
            (Call::Write(_, record, _), Reply::Written(_)) => Some(self.key_id(&record.key)),
            (Call::Load(key), Reply::Loaded(_)) => Some(*key),
            (Call::Scan(_), _) => Some(THE_KEY),
            _ => None,
        };
        let stamp = key.map(|key| self.shelf(key).stamp());
        let Some(gate) = self.gates.get_mut(&id) else { return };
        let digest = digest(&(gate.number, discriminant(&gate.call), how, clock, stamp, reply_kind(&reply)));
        gate.reply = Some(reply);
        gate.waker.take().into_iter().for_each(Waker::wake);
        let process = gate.process;
        self.remember(process, digest);
    }

    pub fn remember(&mut self, process: ProcessId, what: u64) {
        let process = self.process(process);
        process.history = digest(&(process.history, what));
    }

    /// Ends the call of a gate. Returns whether its process dies.
    pub fn open(&mut self, id: GateId, how: How) -> bool {
        let Some(gate) = self.gates.get(&id) else { return false };
        let (process, number, call) = (gate.process, gate.number, gate.call.clone());
        let ends = if how == How::Answered { String::new() } else { format!(": {how:?}") };
        self.tell(|all| format!("{} {call}{ends}", all.name(process)));
        self.faults += how.cost();
        self.process(process).faults += how.cost();
        let clock = self.clock;
        if matches!(how, How::Outage | How::OutageAfter) {
            self.process(process).outage_until = clock + OUTAGE;
        }
        let done = how.is_done().then(|| self.perform(process, &call, how));
        if how.is_late() {
            let digest = digest(&(self.process(process).history, number));
            let by = if matches!(call, Call::Effect(_)) { clock + ARRIVES } else { u64::MAX };
            self.later.push(Later { process, call: call.clone(), digest, at: clock, by });
        }
        match (how, done) {
            (How::Answered, Some(reply)) => self.reply(id, how, reply),
            (How::FreezesAfter, Some(reply)) => {
                self.freeze(process);
                self.reply(id, how, reply);
            }
            (How::Apart, Some(reply)) => {
                // As if the stream had lost it: a sweep makes up for that.
                self.losses += 1;
                if let Call::Write(_, record, with) = &call {
                    let key = self.key_id(&record.key);
                    self.shelf_mut(key).outbox.hides(with);
                }
                self.reply(id, how, reply);
            }
            (How::ClockBack, Some(reply)) => {
                self.process(process).behind += SET_BACK;
                self.reply(id, how, reply);
            }
            (How::Freezes, _) => {
                self.freeze(process);
                self.remember(process, digest(&(how, clock)));
            }
            (How::Late, _) if !matches!(call, Call::Effect(_)) => {
                self.gates.entry(id).and_modify(|gate| gate.hangs = true);
                self.remember(process, digest(&(how, clock)));
            }
            (how, _) if how.kills() => return true,
            (how, _) => {
                let failed = failed(&call, how);
                self.reply(id, how, failed);
            }
        }
        false
    }

    fn freeze(&mut self, process: ProcessId) {
        let clock = self.clock;
        self.process(process).frozen = Some(clock);
    }

    pub fn resume(&mut self, id: ProcessId) {
        self.tell(|all| format!("{} resumes", all.name(id)));
        let clock = self.clock;
        let process = self.process(id);
        process.suspended += clock - process.frozen.take().unwrap_or(clock);
        self.remember(id, digest(&clock));
    }

    /// How many more faults may happen.
    pub fn faults_left(&self) -> u8 {
        if self.is_calm { 0 } else { self.budget - self.faults }
    }

    /// Whether operators know that something is wrong.
    pub fn is_visible(&self) -> bool {
        let work = self.input.dead.iter().any(|message| message.source == Source::Work);
        work || self.dead_letters > 0 || self.shelves.iter().any(Shelf::is_escalated)
    }
}
