//! A finding that the callers of its record could not read: an HTTP answer for a function, a function's answer over HTTP, or a phase of an
//! operation that has none. It completes nothing, and it proves an effect (T46, T54).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    Answer, Failure, Finding, Guard, Operation, Question, Reconciler, RunError, async_trait,
    domain::Table,
    engine::Report,
    event::{Consumer, KeyFrom, MemorySource},
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    operator::{Correction, Operator},
    queue::MemoryQueue,
    reconcile::{ProviderReport, ReconcileOutcome, Reconciliation},
    record::{Evidence, Record, State},
    time::Timestamp,
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{
    BoxError,
    guarded::{GRACE, Guarded, LEASE, operation, outcome_of, owned, replayed_text, request, written},
    http::Gate,
    messages::{QUEUE, deliver, message},
    on_each_store,
    returns::Returns,
};

const SHIP: &str = "ship";
const LABEL: &str = "label 7";

const HTTP_FOR_A_FUNCTION: &str =
    "the reconciler returned an HTTP answer to a function: it must return Answer::payload or Answer::refusal";
const FUNCTION_OVER_HTTP: &str = "the reconciler returned a function's answer to an HTTP operation: it must return Answer::json or Answer::http";
const NO_PHASES: &str =
    "the reconciler names a phase, and the operation has none: it must return Finding::Executed";

/// Returns what a test has prepared, in order. The last finding stays.
#[derive(Clone)]
struct Carrier(Arc<Mutex<(VecDeque<Finding>, usize)>>);

impl Carrier {
    fn new(findings: impl IntoIterator<Item = Finding>) -> Self {
        Self(Arc::new(Mutex::new((findings.into_iter().collect(), 0))))
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

#[async_trait]
impl Reconciler for Carrier {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let next = if state.0.len() > 1 { state.0.pop_front() } else { state.0.front().cloned() };
        Ok(next.ok_or("nothing is prepared")?)
    }
}

fn http() -> Finding {
    Finding::Executed(Answer::json(201, format!("\"{LABEL}\"")))
}

fn payload() -> Finding {
    Finding::Executed(Answer::payload(&LABEL).expect("JSON"))
}

fn phase() -> Finding {
    Finding::PhaseExecuted { phase: "charge".to_owned(), result: "1".to_owned() }
}

/// A finding whose rows must not be made.
fn with_a_row(finding: Finding) -> Finding {
    let Finding::Executed(answer) = finding else { panic!("{finding:?}") };
    Finding::ExecutedWith(answer, vec![Table::new("no-such-table", "id").put(json!({ "id": "p-1" }))])
}

/// The shipments of a function, and what finds out about them.
struct Shipping {
    guarded: Guarded,
    guard: Guard,
    dead_letters: MemoryQueue,
    questions: MemoryQueue,
    carrier: Carrier,
    reconciliation: Reconciliation,
}

impl Shipping {
    async fn on(endpoint: &str, findings: impl IntoIterator<Item = Finding>) -> Self {
        let guarded = Guarded::on(endpoint).await;
        let (dead_letters, questions, carrier) =
            (MemoryQueue::new(), MemoryQueue::new(), Carrier::new(findings));
        let guard =
            Guard::new(guarded.store(), Operation::new(SHIP), Tenant::parse("acme").expect("a tenant"))
                .world(guarded.clock.clone());
        let reconciliation = Reconciliation::new(guarded.store(), dead_letters.clone())
            .world(guarded.clock.clone())
            .questions_to(questions.clone())
            .operation(Operation::new(SHIP), carrier.clone())
            .operation(operation(), carrier.clone());
        Self { guarded, guard, dead_letters, questions, carrier, reconciliation }
    }

    /// Ships an order. The carrier's answer is lost.
    async fn ship(&self) -> Result<String, RunError> {
        let lost = async |_, _: Value| -> Result<String, Failure> {
            Err(std::io::Error::other("no answer from the carrier").into())
        };
        self.guard.returns(&["order-1"], order(), lost).await
    }

    async fn lost(&self) -> RecordKey {
        let unknown = self.ship().await;
        assert!(matches!(unknown, Err(RunError::Unknown { .. })), "{unknown:?}");
        shipment()
    }

    async fn record(&self) -> Record {
        self.guarded.record(&shipment()).await.expect("a record")
    }

    async fn poll(&self, key: &RecordKey) -> ReconcileOutcome {
        self.reconciliation.ask_if_due(key).await.expect("store and queue answer")
    }

    async fn ask(&self, key: &RecordKey) -> ReconcileOutcome {
        self.reconciliation.ask(key).await.expect("store and queue answer")
    }

    /// The reasons of the dead letters, which are contradictions.
    fn reasons(&self) -> Vec<String> {
        let reason = |(dead_letter, _): (String, Duration)| {
            let dead_letter: Value = serde_json::from_str(&dead_letter).expect("JSON");
            assert_eq!(dead_letter["kind"], "contradiction", "{dead_letter}");
            dead_letter["reason"].as_str().expect("a reason").to_owned()
        };
        self.dead_letters.take().into_iter().map(reason).collect()
    }
}

fn order() -> Value {
    json!({ "id": "order-1" })
}

fn shipment() -> RecordKey {
    let (tenant, operation) = (Tenant::parse("acme"), OperationName::parse(SHIP));
    let key = IdempotencyKey::of(&["order-1"]).expect("a key");
    RecordKey::new(tenant.expect("a tenant"), operation.expect("a name"), key)
}

/// Asserts that an operator has the record, and that it shows whether an effect was reported.
#[track_caller]
fn assert_escalated(record: &Record, reported: Option<Evidence>) {
    assert!(
        matches!(record.state, State::Unknown { reconcile_at: Timestamp::MAX, .. }),
        "{:?}",
        record.state
    );
    assert_eq!(record.reported, reported);
}

const EFFECT: Option<Evidence> = Some(Evidence::Effect);

// T54: nothing releases what was found, nothing is lost, and the mended reconciler completes it.
#[apply(on_each_store)]
async fn a_finding_of_the_wrong_kind_is_an_effect_and_no_answer(endpoint: &str) {
    for (wrong, reason) in
        [(http(), HTTP_FOR_A_FUNCTION), (with_a_row(http()), HTTP_FOR_A_FUNCTION), (phase(), NO_PHASES)]
    {
        let denials = [Finding::NotExecuted, Finding::NotFound];
        let shipping = Shipping::on(endpoint, [wrong].into_iter().chain(denials).chain([payload()])).await;
        let key = shipping.lost().await;
        assert_eq!(shipping.poll(&key).await, ReconcileOutcome::Escalated);
        assert_eq!(shipping.guarded.escalated_because(&key).await.as_deref(), Some(reason));
        assert_escalated(&shipping.record().await, EFFECT);
        // It is not asked for ever, and no retry runs.
        shipping.guarded.clock.advance(DEFAULT_NOT_FOUND_GRACE);
        assert_eq!(shipping.poll(&key).await, ReconcileOutcome::NotDue);
        assert!(matches!(shipping.ship().await, Err(RunError::Unknown { .. })));
        for _ in 0..2 {
            assert_eq!(shipping.ask(&key).await, ReconcileOutcome::Escalated);
            assert_escalated(&shipping.record().await, EFFECT);
        }
        assert_eq!(shipping.carrier.asked(), 3);
        // The reconciler is mended, and an operator asks again.
        assert_eq!(shipping.ask(&key).await, ReconcileOutcome::Resolved("completed"));
        assert_eq!(shipping.ship().await.expect("a result"), LABEL);
    }
}

#[apply(on_each_store)]
async fn a_functions_answer_never_completes_the_record_of_a_request(endpoint: &str) {
    for wrong in [payload(), with_a_row(payload())] {
        let shipping = Shipping::on(endpoint, [wrong, Finding::NotExecuted, http()]).await;
        let (executor, request) = (shipping.guarded.executor(), request());
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, Report::perhaps("handler_failed")).await);
        assert_eq!(shipping.poll(&request.key).await, ReconcileOutcome::Escalated);
        let because = shipping.guarded.escalated_because(&request.key).await;
        assert_eq!(because.as_deref(), Some(FUNCTION_OVER_HTTP));
        assert_escalated(&shipping.guarded.record(&request.key).await.expect("a record"), EFFECT);
        assert_eq!(shipping.ask(&request.key).await, ReconcileOutcome::Escalated);
        assert_eq!(outcome_of(&executor.reserve(&request).await), "unknown");
        assert_eq!(shipping.ask(&request.key).await, ReconcileOutcome::Resolved("completed"));
        assert_eq!(replayed_text(executor.reserve(&request).await), format!("\"{LABEL}\""));
    }
}

// A refusal proves no effect, whatever it is written as.
#[apply(on_each_store)]
async fn a_refusal_of_the_wrong_kind_completes_and_proves_nothing(endpoint: &str) {
    let declined = Finding::Executed(Answer::json(402, "{}"));
    let shipping = Shipping::on(endpoint, [declined, Finding::NotExecuted]).await;
    let key = shipping.lost().await;
    assert_eq!(shipping.poll(&key).await, ReconcileOutcome::Escalated);
    assert_eq!(shipping.guarded.escalated_because(&key).await.as_deref(), Some(HTTP_FOR_A_FUNCTION));
    assert_escalated(&shipping.record().await, None);
    assert_eq!(shipping.ask(&key).await, ReconcileOutcome::Resolved("failed_retryable"));
}

// T46
#[apply(on_each_store)]
async fn a_webhook_of_the_wrong_kind_is_escalated_once_and_acknowledged(endpoint: &str) {
    let shipping = Shipping::on(endpoint, [Finding::NotExecuted, payload()]).await;
    let key = shipping.lost().await;
    let report = || ProviderReport::executed(201, Carrier::new([http()]));
    for reasons in [&[HTTP_FOR_A_FUNCTION][..], &[]] {
        let reported = shipping.reconciliation.reported(&key, &report()).await.expect("it is processed");
        assert_eq!(reported, ReconcileOutcome::Escalated);
        assert_eq!(shipping.reasons(), reasons);
        assert_escalated(&shipping.record().await, EFFECT);
    }
    assert_eq!(shipping.ask(&key).await, ReconcileOutcome::Escalated);
    assert_eq!(shipping.ask(&key).await, ReconcileOutcome::Resolved("completed"));
    // What is settled does not need the answer, and does not contradict it.
    let reported = shipping.reconciliation.reported(&key, &report()).await.expect("it is processed");
    assert_eq!((reported, shipping.reasons().len()), (ReconcileOutcome::Settled, 0));
    assert_eq!(shipping.ship().await.expect("a result"), LABEL);
}

// T46: the report waits in the queue until the lease is over.
#[apply(on_each_store)]
async fn a_queued_report_of_the_wrong_kind_ends_with_operators(endpoint: &str) {
    let (shipping, gate) = (Shipping::on(endpoint, [http(), http(), payload()]).await, Gate::closed());
    let (guard, held) = (shipping.guard.clone(), gate.clone());
    let dead = tokio::spawn(async move {
        let dies = async move |_, _: Value| -> Result<String, Failure> {
            held.pass().await;
            Err(std::io::Error::other("killed").into())
        };
        guard.returns(&["order-1"], order(), dies).await
    });
    gate.reached(1).await;
    let report = ProviderReport::executed(200, Carrier::new([payload()]));
    let reported = shipping.reconciliation.reported(&shipment(), &report).await.expect("it is processed");
    assert!(matches!(reported, ReconcileOutcome::Scheduled(_)), "{reported:?}");
    let [(queued, _)] = &shipping.questions.take()[..] else { panic!("not one message") };
    shipping.guarded.clock.advance(LEASE + GRACE + Duration::from_secs(1));
    shipping.reconciliation.receive(queued).await.expect("it is with operators");
    assert_eq!(shipping.reasons(), [HTTP_FOR_A_FUNCTION]);
    assert_escalated(&shipping.record().await, EFFECT);
    // Delivered again, it changes nothing.
    shipping.reconciliation.receive(queued).await.expect("it is with operators");
    assert_escalated(&shipping.record().await, EFFECT);
    assert_eq!(shipping.dead_letters.take().len(), 0);
    assert_eq!(shipping.ask(&shipment()).await, ReconcileOutcome::Resolved("completed"));
    gate.open();
    assert_eq!(dead.await.expect("it ends").expect("the record's result"), LABEL);
}

/// Answers in the wrong kind, after the worker has reported.
struct Overtaken(Gate, Gate);

#[async_trait]
impl Reconciler for Overtaken {
    async fn ask(&self, _: &Question) -> Result<Finding, BoxError> {
        self.0.open();
        self.1.pass().await;
        Ok(http())
    }
}

// T32
#[apply(on_each_store)]
async fn a_wrong_kind_beside_a_result_that_agrees_is_no_contradiction(endpoint: &str) {
    let (shipping, asked, ended) = (Shipping::on(endpoint, []).await, Gate::closed(), Gate::closed());
    let key = shipping.lost().await;
    let reconciliation = Reconciliation::new(shipping.guarded.store(), shipping.dead_letters.clone())
        .world(shipping.guarded.clock.clone())
        .operation(Operation::new(SHIP), Overtaken(asked.clone(), ended.clone()));
    let question = tokio::spawn(async move { reconciliation.ask(&shipment()).await });
    asked.pass().await;
    let operator = Operator::new(shipping.guarded.store()).world(shipping.guarded.clock.clone());
    let seen = shipping.guarded.record(&key).await.expect("a record");
    let answer = Answer::payload(&LABEL).expect("JSON");
    let settles = Correction::Executed { answer, retain: None, messages: Vec::new() };
    operator.correct(&seen, &settles, "alex", "found at the carrier").await.expect("it is settled");
    ended.open();
    let outcome = question.await.expect("it ends").expect("it is processed");
    assert_eq!((outcome, shipping.dead_letters.take().len()), (ReconcileOutcome::Settled, 0));
    assert_eq!(shipping.ship().await.expect("a result"), LABEL);
}

// A message is held until its outcome is settled: it is never acknowledged without a result, and never a dead letter.
#[apply(on_each_store)]
async fn a_message_is_held_while_its_outcome_has_the_wrong_kind(endpoint: &str) {
    let shipping = Shipping::on(endpoint, [http(), payload()]).await;
    let key = shipping.lost().await;
    let queue = MemorySource::new(QUEUE);
    let consumer = Consumer::new(queue.clone(), KeyFrom::body("/id")).world(shipping.guarded.clock.clone());
    let consumer = consumer
        .each(shipping.guard.clone(), async |_, _: Value| -> Result<String, Failure> { panic!("it ran") });
    let deliver = async || deliver(&consumer, &[message("m-1", order())]).await.expect("an answer").len();
    assert_eq!(shipping.poll(&key).await, ReconcileOutcome::Escalated);
    assert_eq!(deliver().await, 1);
    assert_eq!(shipping.ask(&key).await, ReconcileOutcome::Resolved("completed"));
    assert_eq!((deliver().await, queue.take_dead().len()), (0, 0));
}
