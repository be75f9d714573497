//! What each process does: a client's request, a delivered message, a poll.

use std::time::Duration;

use lambda_idempotency::{
    Operation,
    engine::{Computed, Executor, Replay, Replied, Request},
    fingerprint::{Content, FingerprintRule},
    key::age::KeyTime,
    reconcile::{ProviderReport, ReconcileOutcome, Reconciliation},
    record::{Admission, Answer, AnswerKind, Says, Work},
    stale::Stale,
    time::Timestamp,
    time_budget::{CLOCK_SKEW, MAX_SENDING_TIME},
    world::World,
};

use crate::kernel::records::too_old;

use super::{
    accepted,
    answers::{GivesUp, Received},
    call::{Call, Source},
    handler::handle,
    ids::{BEGINNING, THE_KEY, record_key},
    properties::COMPLETION_TIMEOUT,
    scenario::{Deadline, Guarded, Rows, Versions},
    services::{GatedProvider, GatedQueue, GatedStore, Machine},
    shelf::{PHASE, READ, ROW, answer, row},
    universe::Message,
};

const LEASE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);
/// The retention in the reconcile function's configuration.
const SHORT_RETENTION: Duration = Duration::from_secs(300);
const MAX_LEASE: Duration = Duration::from_secs(240);
const MAX_QUESTIONS: u32 = 5;
const RESUME_WITHIN: Duration = Duration::from_secs(3600);

impl Machine {
    pub fn operation(&self) -> Operation {
        let scenario = self.universe.lock().scenario;
        let mut operation = Operation::new("model")
            .lease(LEASE)
            .grace(GRACE)
            .completion_timeout(COMPLETION_TIMEOUT)
            .retain(Duration::from_secs(scenario.retention));
        if let Some(every) = scenario.heartbeat {
            operation = operation.heartbeat(Duration::from_secs(every)).max_lease(MAX_LEASE);
        }
        if scenario.key_lives.is_some() {
            operation = operation.refuse_older_than(accepted::OLDEST, KeyTime::Signed(accepted::secrets()));
        }
        operation = match scenario.versions {
            // The first request is the first process.
            Versions::BecomesAsynchronous if self.process == 0 => operation,
            Versions::BecomesAsynchronous => {
                let rule = FingerprintRule::new().header("prefer");
                let operation = operation.fingerprint(rule).formerly(FingerprintRule::new());
                accepted::asynchronous(operation, scenario.accepts)
            }
            Versions::One => accepted::asynchronous(operation, scenario.accepts),
        };
        match scenario.guarded {
            Guarded::Transactional => operation.effects_in_transaction(),
            Guarded::Resumed(_) if scenario.rows == Rows::ManyRefused => {
                operation.resumes([READ, PHASE, ROW], RESUME_WITHIN)
            }
            Guarded::Resumed(_) => operation.resumes([PHASE, ROW], RESUME_WITHIN),
            Guarded::Reserved | Guarded::SingleTransaction => operation,
        }
    }

    fn executor(&self) -> Executor {
        Executor::new(GatedStore(self.clone()), self.operation())
            .world(self.clone())
            .defer_reports_to(GatedQueue(self.clone(), Source::Reconcile))
    }

    fn request(&self, deadline: Deadline) -> Request {
        let content = Content::new("POST", "/", b"");
        // Its key was young enough for those that came first.
        let is_late = matches!(deadline, Deadline::Later(_));
        let may_have_begun = Timestamp::from_millis(BEGINNING).plus(2 * CLOCK_SKEW + MAX_SENDING_TIME);
        let deadline = match deadline {
            Deadline::None | Deadline::Later(_) | Deadline::After(_) => None,
            Deadline::In(seconds) => Some(self.now().plus(Duration::from_secs(seconds))),
            Deadline::At(millis) => Some(Timestamp::from_millis(millis)),
        };
        Request {
            key: record_key(THE_KEY),
            fingerprints: content.fingerprints("model", &FingerprintRule::new(), &[]),
            answer_kind: AnswerKind::Http,
            admission: match is_late {
                true => too_old(self.now() <= may_have_begun),
                false => Admission::ALWAYS,
            },
            work: Work::Now,
            origin: None,
            deadline,
        }
    }

    fn reconciliation(&self) -> Reconciliation {
        Reconciliation::new(GatedStore(self.clone()), GatedQueue(self.clone(), Source::DeadLetters))
            .world(self.clone())
            .questions_to(GatedQueue(self.clone(), Source::Reconcile))
            .backoff(Duration::from_secs(30), Duration::from_secs(3600), MAX_QUESTIONS)
            // Its own retention does not count: the record has its guard's (T42).
            .operation(self.operation().retain(SHORT_RETENTION), GatedProvider(self.clone()))
    }

    fn stale(&self) -> Stale {
        let queue = |source| GatedQueue(self.clone(), source);
        Stale::new(
            GatedStore(self.clone()),
            queue(Source::Checks),
            queue(Source::Checks),
            queue(Source::DeadLetters),
        )
        .outbox(self.wakes())
        .work_to(queue(Source::Work))
        .world(self.clone())
    }

    fn replies(&self, received: Received) {
        self.universe.lock().answered(self.process, received);
    }
}

/// A client's request, from its reservation to its answer.
pub async fn request(machine: Machine, deadline: Deadline) {
    match deadline {
        Deadline::Later(seconds) | Deadline::After(seconds) => {
            machine.sleep(Duration::from_secs(seconds)).await
        }
        _ => drop(machine.call(Call::Begin).await),
    }
    let scenario = machine.universe.lock().scenario;
    if scenario.accepts.is_some() || scenario.by_http {
        return machine.replies(accepted::request(&machine).await);
    }
    let (executor, request) = (machine.executor(), machine.request(deadline));
    if scenario.guarded == Guarded::SingleTransaction {
        return machine.replies(single_transaction(&machine, &executor, &request).await);
    }
    let received = match executor.reserve(&request).await {
        Ok(owned) => {
            machine.universe.lock().begins(machine.process, THE_KEY, owned.execution().attempt());
            let (report, answer) = handle(&machine, owned.execution()).await;
            if scenario.unheard {
                return;
            }
            let finished = executor.finish(owned, report).await;
            received(finished, answer)
        }
        Err(says) => received(says, None),
    };
    machine.replies(received);
}

async fn single_transaction(machine: &Machine, executor: &Executor, request: &Request) -> Received {
    let compute = |transaction: lambda_idempotency::engine::SingleTransaction| {
        let machine = machine.clone();
        let computed = async move {
            machine.call(Call::Handler).await;
            let rows = machine.universe.lock().scenario.rows;
            if let Some(row) = row(rows) {
                let _ = transaction.write(row);
            }
            let answer = answer(201, machine.process + 1);
            Computed::Answer(answer.clone(), answer)
        };
        Box::pin(computed) as futures_util::future::BoxFuture<'static, Computed<Answer>>
    };
    let Replied { says, reply } = executor.run_single_transaction(request, compute).await;
    received(says, reply)
}

fn of_replay(replay: &Replay) -> Received {
    match Received::of(&replay.answer) {
        Received::Answer(status, _) if replay.body_omitted => Received::Omitted(status),
        received => received,
    }
}

/// What the guard answers, as in `http/guard.rs` and `http/respond.rs`.
fn received(says: Says<Replay>, answer: Option<Answer>) -> Received {
    match says {
        Says::Replay(kept) => of_replay(&kept),
        Says::Refused(Replay { answer, .. }) => Received::of(&answer),
        Says::Own { .. } | Says::Released => answer.as_ref().map_or(Received::Again, Received::of),
        Says::MayNotBegin => Received::GivesUp(GivesUp::TooOld),
        Says::Mismatch => Received::GivesUp(GivesUp::Reused),
        _ => Received::Again,
    }
}

/// A function takes a message.
pub async fn deliver(machine: Machine, message: Message) {
    let time = Duration::from_secs(30);
    let is_done = match message.source {
        Source::Checks => machine.stale().receive(&message.body, time).await.is_ok(),
        Source::Reconcile => machine.reconciliation().receive(&message.body).await.is_ok(),
        Source::Events => is_processed(&machine).await,
        Source::Stream => accepted::stream(&machine, &message.body, time).await,
        _ => true,
    };
    if is_done {
        machine.call(Call::Acknowledge(message.id)).await;
    }
}

/// Whether the webhook answers 200 to the provider's event, as in `lambda/webhook.rs`.
async fn is_processed(machine: &Machine) -> bool {
    let report = {
        let universe = machine.universe.lock();
        match (universe.scenario.guarded, universe.shelf(THE_KEY).record()) {
            (Guarded::Resumed(_), Some(record)) => {
                let key = record.key.downstream_key(&record.fingerprint, PHASE);
                let number = universe.shelf(THE_KEY).effects.last().map_or(0, |by| by + 1);
                ProviderReport::phase_executed(PHASE, &key, &Some(number))
            }
            _ => ProviderReport::executed(201, GatedProvider(machine.clone())),
        }
    };
    let again = |outcome: &ReconcileOutcome| {
        use ReconcileOutcome::{Busy, InFlight, NotDue};
        matches!(outcome, InFlight(_) | Busy | NotDue)
    };
    let outcome = machine.reconciliation().reported(&record_key(THE_KEY), &report).await;
    outcome.is_ok_and(|outcome| !again(&outcome))
}

/// The stale function is invoked by the schedule of sweeps.
pub async fn sweep(machine: Machine) {
    let _ = machine.stale().sweep(Duration::from_secs(60)).await;
}

/// The reconcile function is invoked by its schedule.
pub async fn poll(machine: Machine) {
    // If it fails, the next one asks.
    let _ = machine.reconciliation().poll(Duration::from_secs(60)).await;
}
