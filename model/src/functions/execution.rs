//! One execution: the processes' tasks, what can happen next, and what happens.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::future::LocalBoxFuture;

use super::{
    call::{How, Source},
    consumer,
    counts::Counts,
    digest::digest,
    ids::{CONSUMER, DELIVERER, GateId, MessageId, ProcessId, REQUEST, WORKER},
    processes,
    scenario::{Deadline, Scenario},
    services::Machine,
    universe::Shared,
};
use crate::kernel::violation::Violation;

/// After how many choices an execution counts as endless.
const MAX_STEPS: usize = 2_000;

/// What can happen next.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// The call at this gate ends.
    Open(GateId, How),
    /// A frozen process resumes.
    Resume(ProcessId),
    /// A message is delivered.
    Deliver(MessageId),
    /// A consumer receives one message, or two.
    Receive(MessageId, Option<MessageId>),
    /// The reconcile function is down for days.
    GoDown,
    /// The schedule invokes the reconcile function.
    Poll,
    /// The schedule begins a sweep.
    Sweep,
    /// A batch of the table's stream is lost.
    Lose(MessageId),
    /// The oldest record of a shard leaves it.
    Trim,
    /// A late call is done.
    Land(usize),
    /// Time passes until then.
    Advance(u64),
    /// The same, although a batch of the stream or a message waits: its queue is late.
    Delay(u64),
    /// At rest: a last client asks, or messages come again, and nothing goes wrong any more.
    Last,
}

impl Choice {
    /// How many faults it is.
    pub const fn cost(self) -> u8 {
        match self {
            Self::Open(_, how) => how.cost(),
            Self::GoDown | Self::Lose(_) | Self::Trim | Self::Delay(_) => 1,
            _ => 0,
        }
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Task {
    process: ProcessId,
    future: LocalBoxFuture<'static, ()>,
    is_woken: Arc<Flag>,
    waker: Waker,
    /// Whether it is what its process answers with.
    answers: bool,
}

/// One execution of a scenario.
pub struct Execution {
    scenario: &'static Scenario,
    universe: Shared,
    counts: Counts,
    tasks: Vec<Task>,
    steps: usize,
    /// Whether the last client, who comes once all is at rest, has come, or messages have come again.
    has_last: bool,
}

impl Execution {
    /// The beginning: no request has begun.
    pub fn new(scenario: &'static Scenario, budget: u8, tells: bool) -> Self {
        let universe = Shared::new(scenario, budget, tells);
        let counts = Counts(universe.clone());
        let mut execution = Self { scenario, universe, counts, tasks: Vec::new(), steps: 0, has_last: false };
        for deadline in scenario.requests {
            execution.request(*deadline);
        }
        execution.run();
        execution
    }

    /// The digest of its state.
    pub fn state(&self) -> u64 {
        self.universe.lock().state()
    }

    /// How many faults have happened.
    pub fn faults(&self) -> usize {
        usize::from(self.universe.lock().faults)
    }

    /// What has happened, line for line.
    pub fn story(self) -> Vec<String> {
        let mut universe = self.universe.lock();
        universe.tell(super::story::end);
        universe.story.take().unwrap_or_default()
    }

    fn request(&mut self, deadline: Deadline) {
        let process = self.begin(REQUEST, None, None, "", |machine| processes::request(machine, deadline));
        self.tasks.iter_mut().filter(|task| task.process == process).for_each(|task| task.answers = true);
    }

    /// A process begins, perhaps with a message, whose digest its state needs.
    fn begin<F: Future<Output = ()> + 'static>(
        &mut self,
        name: &'static str,
        message: Option<MessageId>,
        digest: Option<u64>,
        does: &str,
        runs: impl FnOnce(Machine) -> F,
    ) -> ProcessId {
        let mut universe = self.universe.lock();
        let process = universe.add_process(name, message);
        digest.into_iter().for_each(|digest| universe.remember(process, digest));
        if !does.is_empty() {
            universe.tell(|all| format!("{} {does}", all.name(process)));
        }
        drop(universe);
        self.add(process, Box::pin(runs(Machine { universe: self.universe.clone(), process })));
        process
    }

    fn add(&mut self, process: ProcessId, future: LocalBoxFuture<'static, ()>) {
        let is_woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(is_woken.clone());
        self.tasks.push(Task { process, future, is_woken, waker, answers: false });
    }

    /// Polls every task that can go on, until none can.
    fn run(&mut self) {
        loop {
            let mut progress = false;
            let mut place = 0;
            while place < self.tasks.len() {
                let task = &mut self.tasks[place];
                let frozen = self.universe.lock().process(task.process).frozen.is_some();
                if frozen || !task.is_woken.0.swap(false, Ordering::Relaxed) {
                    place += 1;
                    continue;
                }
                progress = true;
                let mut context = Context::from_waker(&task.waker);
                let polled =
                    metrics::with_local_recorder(&self.counts, || task.future.as_mut().poll(&mut context));
                match polled {
                    Poll::Pending => place += 1,
                    Poll::Ready(()) => {
                        let Task { process, answers, .. } = self.tasks.remove(place);
                        self.adopt();
                        if answers && self.scenario.ends_at_answer {
                            self.end_tasks(process);
                        }
                        if self.tasks.iter().all(|task| task.process != process) {
                            self.universe.lock().end_process(process, false);
                        }
                    }
                }
                self.adopt();
            }
            if !progress {
                return;
            }
        }
    }

    /// Takes the tasks that were spawned.
    fn adopt(&mut self) {
        let spawned = std::mem::take(&mut self.universe.lock().spawned);
        for (process, task) in spawned {
            self.add(process, task);
        }
    }

    /// Ends the tasks of a process, also those as which its dropped calls would go on.
    fn end_tasks(&mut self, process: ProcessId) {
        self.tasks.retain(|task| task.process != process);
        // Dropped without the lock, which the calls in them take.
        let spawned = std::mem::take(&mut self.universe.lock().spawned);
        let others = spawned.into_iter().filter(|(of, _)| *of != process).collect::<Vec<_>>();
        self.universe.lock().spawned.extend(others);
    }

    fn kill(&mut self, process: ProcessId) {
        self.end_tasks(process);
        self.universe.lock().end_process(process, true);
    }

    /// All that can happen next. Empty at rest.
    pub fn choices(&self) -> Vec<Choice> {
        let choices = self.universe.lock().choices();
        match choices.is_empty() && !self.has_last {
            true => vec![Choice::Last],
            false => choices,
        }
    }

    /// Lets this happen.
    pub fn choose(&mut self, choice: Choice) {
        self.steps += 1;
        match choice {
            Choice::Open(gate, how) => {
                let mut universe = self.universe.lock();
                let process = universe.gates.get(&gate).map(|gate| gate.process);
                let dies = universe.open(gate, how);
                drop(universe);
                if let Some(process) = process.filter(|_| dies) {
                    self.kill(process);
                }
            }
            Choice::Resume(process) => {
                let mut universe = self.universe.lock();
                universe.resume(process);
                universe.wake_sleepers();
            }
            Choice::Deliver(id) => {
                let message = self.universe.lock().take(id);
                if let Some(message) = message {
                    let name = match message.source {
                        Source::Checks => "stale",
                        Source::Events => "webhook",
                        Source::Stream => "outbox",
                        _ => "reconcile",
                    };
                    let digest = digest(&(message.digest, message.receives));
                    let runs = |machine| processes::deliver(machine, message);
                    self.begin(name, Some(id), Some(digest), "takes a message", runs);
                }
            }
            Choice::Receive(first, second) => {
                let ids: Vec<_> = [first].into_iter().chain(second).collect();
                let batch = self.universe.lock().receive(&ids);
                let name = match batch.first().map(|message| message.source) {
                    Some(Source::Work) => WORKER,
                    Some(Source::Wakes) => DELIVERER,
                    _ => CONSUMER,
                };
                let receipts: Vec<_> = batch.iter().map(|message| message.receipt().to_string()).collect();
                let (digest, does) = (digest(&batch), format!("receives {}", receipts.join(" and ")));
                self.begin(name, None, Some(digest), &does, |machine| consumer::consume(machine, batch));
            }
            Choice::GoDown => self.universe.lock().go_down(),
            Choice::Poll => drop(self.begin("poll", None, None, "begins", processes::poll)),
            Choice::Sweep => {
                let mut universe = self.universe.lock();
                (universe.sweeps, universe.swept_at) = (universe.sweeps + 1, universe.clock);
                drop(universe);
                self.begin("sweep", None, None, "begins", processes::sweep);
            }
            Choice::Lose(id) => self.universe.lock().lose(id),
            Choice::Trim => self.universe.lock().trim(),
            Choice::Land(place) => self.universe.lock().land(place),
            Choice::Last => {
                self.has_last = true;
                self.universe.lock().is_calm = true;
                self.universe.lock().come_again();
                if self.scenario.input.is_some() {
                    return self.run();
                }
                let is_late = self.scenario.answer_may_expire();
                self.request(if is_late { Deadline::Later(0) } else { Deadline::None });
            }
            Choice::Advance(to) => self.universe.lock().advance(to),
            Choice::Delay(to) => {
                let mut universe = self.universe.lock();
                universe.faults += 1;
                universe.advance(to);
            }
        }
        self.run();
    }

    /// The property that does not hold, now or at rest.
    pub fn violation(&self, at_rest: bool) -> Option<Violation> {
        let universe = self.universe.lock();
        let endless = (self.steps > MAX_STEPS).then_some(Violation::NoRest);
        universe.violation.or(endless).or_else(|| universe.at_rest().filter(|_| at_rest))
    }
}

impl Drop for Execution {
    /// The futures go first: each leaves its gate.
    fn drop(&mut self) {
        self.tasks.clear();
        let spawned = std::mem::take(&mut self.universe.lock().spawned);
        drop(spawned);
    }
}
