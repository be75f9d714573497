//! What each process does: a client's request, a delivered message, a poll.

use std::time::Duration;

use lambda_idempotency::{
    Execution, Operation,
    engine::{CallError, PhaseError},
    fingerprint::{Content, FingerprintRule},
    internal::{Admission, Computed, Executor, Ran, Replay, Report, Request, Says, Stale},
    key::age::KeyTime,
    reconcile::{ProviderReport, ReconcileOutcome, Reconciliation},
    record::{Answer, AnswerKind, MAX_PHASE_RESULTS, Work},
    time::Timestamp,
    time_budget::{CLOCK_SKEW, MAX_SENDING_TIME},
    world::World,
};

use crate::kernel::records::too_old;

use super::{
    accepted,
    call::{Call, Effect, Source},
    outbox::message,
    properties::{GivesUp, Received},
    scenario::{Deadline, Guarded, Rows, THE_KEY, Versions},
    services::{GatedProvider, GatedQueue, GatedStore, Machine},
    shelf::{PHASE, READ, ROW, answer, record_key, row, rows},
    universe::{BEGINNING, Message},
};

const LEASE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(10);
/// Short, so that a report is given up after few tries.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_millis(400);
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

/// The handler: asks the provider for the effect.
pub async fn handle(machine: &Machine, execution: &Execution) -> (Report, Option<Answer>) {
    let scenario = machine.universe.lock().scenario;
    if scenario.work > 0 {
        machine.sleep(Duration::from_secs(scenario.work)).await;
    }
    machine.call(Call::Handler).await;
    if scenario.looks && execution.is_lost() {
        return (Report::NotExecuted(None), None);
    }
    if let Guarded::Resumed(keys_live) = scenario.guarded {
        return phases(machine, execution, Duration::from_secs(keys_live)).await;
    }
    if let Some(row) = row(scenario.rows) {
        // A row that cannot be added shows at the end: it is missing.
        let _ = execution.write(row);
    }
    let number = machine.process + 1;
    let effect = match scenario.guarded {
        Guarded::Reserved => machine.effect(THE_KEY).await,
        _ => Effect::Executed,
    };
    let status = match effect {
        Effect::Executed => 201,
        Effect::Refused => 402,
        Effect::NoAnswer => return (Report::perhaps("handler_failed"), None),
        Effect::NotSent => return (Report::NotExecuted(None), None),
    };
    for place in 0..if status == 201 { scenario.messages } else { 0 } {
        let _ = execution.write(message(number, place));
    }
    let answer = answer(status, number);
    (Report::Completed(answer.clone()), Some(answer))
}

/// The handler of an operation that resumes: the provider's effect, then its row.
async fn phases(machine: &Machine, execution: &Execution, keys_live: Duration) -> (Report, Option<Answer>) {
    let ended = async {
        let scenario = machine.universe.lock().scenario;
        if scenario.rows == Rows::ManyRefused {
            // Next to all that a record keeps of results.
            let read = execution.phase(READ).keys_live(keys_live);
            let _: String =
                read.call(async |_| Ok::<_, CallError>("x".repeat(MAX_PHASE_RESULTS - 8))).await?;
        }
        let charge = execution.phase(PHASE).keys_live(keys_live).call(async |_| {
            match machine.effect(THE_KEY).await {
                // The provider's id for it.
                Effect::Executed => {
                    Ok(Some(machine.universe.lock().shelf(THE_KEY).effects.last().map_or(0, |by| by + 1)))
                }
                Effect::Refused => Ok(None),
                Effect::NoAnswer => Err(CallError::Perhaps("no answer".into())),
                Effect::NotSent => Err(CallError::not_executed("nothing was sent")),
            }
        });
        let Some(number) = charge.await? else { return Ok(answer(402, machine.process + 1)) };
        // The first message commits with the row, the others with the answer.
        let mut messages = (0..scenario.messages).map(|place| message(number, place));
        let writes = rows(scenario.rows).into_iter().chain(messages.next());
        execution.commit(ROW, writes.collect()).await?;
        messages.for_each(|message| drop(execution.write(message)));
        Ok::<_, PhaseError>(answer(201, number))
    };
    match ended.await {
        Ok(answer) => (Report::Completed(answer.clone()), Some(answer)),
        // As a handler that answers 500.
        Err(_) => (Report::perhaps("handler_failed"), None),
    }
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
    let Ran { says, reply } = executor.run_single_transaction(request, compute).await;
    received(says, reply)
}

fn of_replay(replay: &Replay) -> Received {
    match Received::of(&replay.answer) {
        Received::Answer(status, _) if replay.body_omitted => Received::Omitted(status),
        received => received,
    }
}

/// What the guard answers, as in `http/guard.rs` and `http/respond.rs`.
fn received(says: Says, answer: Option<Answer>) -> Received {
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
