//! Orders that are interrupted within a call. The provider reports what became of it, or a question or the retry finds that out.

use std::time::{Duration, SystemTime};

use axum::{Router, body::Body, http::Request};
use lambda_idempotency::{
    key::signature::Secrets,
    lambda::webhook_service,
    queue::MemoryQueue,
    reconcile::{ReconcileOutcome, Reconciliation},
    record::{AlarmKind, Record, UnknownCause},
    store::{Store, WriteOutcome, conformance::samples},
    time::Timestamp,
    time_budget::DEFAULT_NOT_FOUND_GRACE,
};
use macro_rules_attribute::apply;
use orders::policy::{CREATE_ORDER, create_order};
use payments::Ledger;
use reconcile::{OrderReconciler, PaymentEvents};
use serde_json::{Value, json};

use crate::support::{
    client::client,
    guarded::fresh,
    http::{Answer, record_key, send},
    on_each_store,
    orders::{OrdersApi, Placed},
    payments_api::{provider, sealing_keys},
    proxy::{Cut, Proxy, Then},
};

const SECRET: &str = "a-secret-of-the-provider";

/// How long the provider remembers keys, by its contract.
const KEYS_LIVE: Duration = Duration::from_secs(24 * 60 * 60);

/// The phase whose call is interrupted, the order's card, and the status that its client gets in the end.
const CASES: [(&str, &str, u16); 3] =
    [("charge", "tok_ok", 201), ("charge", "tok_declined", 402), ("refund", "tok_ok", 409)];

/// The provider's answer is lost.
const MADE: Cut = Cut::Answer(0);

/// The request is lost.
const NOT_MADE: Cut = Cut::Request(0);

/// An order that was interrupted, in this process: its API, its reconciler and its webhook, and the provider of the local cloud.
struct Interrupted {
    api: OrdersApi,
    /// The URL of the provider's ledger.
    ledger: String,
    provider: Proxy,
    dead_letters: MemoryQueue,
    webhook: Router,
    order: Placed,
}

impl Interrupted {
    /// In its charge, or in the refund of an order that finds no stock.
    async fn within(endpoint: &str, call: &str, card: &str, cut: Cut) -> Self {
        let ledger = local::provider::start("http://127.0.0.1:1", SECRET).await.expect("a free port");
        let ledger = ledger.url;
        let proxy = Proxy::before(&ledger).await;
        let api = OrdersApi::before(endpoint, proxy.url()).await;
        let dead_letters = MemoryQueue::new();
        let secrets = Secrets::new([SECRET]).expect("a secret");
        let payments = Ledger::new(client(endpoint), "no-payments");
        let events = PaymentEvents { secrets, sealing_keys: sealing_keys(), ledger: payments };
        let webhook = webhook_service(reconciliation(&api, &proxy, &dead_letters), events);
        let webhook = Router::new().route_service("/webhooks/provider", webhook);
        let order = Placed::new(1, card, "tea", 1);
        let this = Self { api, ledger, provider: proxy, dead_letters, webhook, order };
        if call == "refund" {
            assert_eq!(this.send(&Placed::new(0, "tok_ok", "tea", 100)).await.status, 201);
        }
        this.provider.cut(&[&format!("POST /{call}s ")], cut, Then::Closed, 1);
        this.send(&this.order).await.assert_problem(503, "interrupted");
        assert_eq!(this.record().await.state.name(), "between_workers");
        this
    }

    async fn send(&self, order: &Placed) -> Answer {
        self.api.order(&order.key, order.body().to_string()).await
    }

    async fn record(&self) -> Record {
        let key = record_key("acme", CREATE_ORDER, &self.order.key);
        self.api.store().load(&key).await.expect("the store answers").expect("a record")
    }

    async fn put(&self, next: &Record) {
        let put = self.api.store().put(Some(self.record().await.revision), next, &[]).await;
        assert_eq!(put.expect("the store answers"), WriteOutcome::Written);
    }

    /// Lets its outcome be unknown since this time.
    async fn lose(&self, since: Timestamp) {
        self.put(&samples::unknown(&self.record().await, UnknownCause::LeaseExpired, since)).await;
    }

    /// Lets the execution that was interrupted have begun so long ago.
    async fn age(&self, ago: Duration) {
        let mut record = self.record().await;
        record.effects.phases_mut().expect("it resumes").begun = Some(now().minus(ago));
        record.revision = fresh();
        self.put(&record).await;
    }

    async fn ask(&self) -> ReconcileOutcome {
        let asking = reconciliation(&self.api, &self.provider, &self.dead_letters);
        asking.ask_if_due(&self.record().await.key).await.expect("store and provider answer")
    }

    /// The names of the phases that are noted in its record.
    async fn noted(&self) -> Vec<String> {
        let phases = self.record().await.phases().expect("it resumes").clone();
        phases.noted.into_iter().map(|phase| phase.name).collect()
    }

    /// The provider's charges or refunds for the order.
    async fn effects(&self, call: &str) -> Vec<Value> {
        let listed = reqwest::get(format!("{}/{call}s", self.ledger)).await.expect("the provider answers");
        let mut listed: Value = listed.json().await.expect("JSON");
        let Value::Array(mut effects) = listed[format!("{call}s")].take() else { panic!("{listed}") };
        effects.retain(|effect| effect["amountCents"] == self.order.cents);
        effects
    }

    /// The provider's event about its charge or its refund.
    async fn event(&self, call: &str) -> Value {
        let (charge, effect) = (&self.effects("charge").await[0], &self.effects(call).await[0]);
        json!({
            "type": format!("{call}.succeeded"), "key": effect["key"], call: effect,
            "metadata": charge["metadata"],
        })
    }

    async fn post(&self, event: &Value, signature: Option<String>) -> (u16, String) {
        let request = Request::post("/webhooks/provider");
        let request = signature.iter().fold(request, |request, it| request.header("provider-signature", it));
        let answer =
            send(&self.webhook, request.body(Body::from(event.to_string())).expect("a request")).await;
        (answer.status, answer.json()["outcome"].as_str().expect("an outcome").to_owned())
    }

    async fn report(&self, event: &Value) -> String {
        let signature = Secrets::new([SECRET]).expect("a secret").sign(now(), event.to_string().as_bytes());
        let (status, outcome) = self.post(event, Some(signature)).await;
        assert_eq!(status, 200, "{outcome}");
        outcome
    }

    /// Fails unless the retry gets this answer, makes so many calls, asks so many questions, and everything happened once.
    async fn assert_resumed(&self, status: u16, calls: usize, questions: usize) {
        let sent = |method: &str| self.provider.arrived(&format!("{method} /")).len();
        let (posted, asked) = (sent("POST"), sent("GET"));
        let answer = self.send(&self.order).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!((sent("POST") - posted, sent("GET") - asked), (calls, questions));
        let effects = (self.effects("charge").await.len(), self.effects("refund").await.len());
        assert_eq!(effects, (usize::from(status != 402), usize::from(status == 409)));
    }
}

#[apply(on_each_store)]
async fn what_a_question_finds_of_an_order_is_used_by_its_retry(endpoint: &str) {
    for (call, card, status) in CASES {
        let order = Interrupted::within(endpoint, call, card, MADE).await;
        // Only a retry knows what follows: nothing is asked.
        assert_eq!(order.ask().await, ReconcileOutcome::NotDue);
        order.lose(now()).await;
        assert_eq!(order.ask().await, ReconcileOutcome::Resolved("between_workers"));
        assert_eq!(order.noted().await, [call]);
        order.assert_resumed(status, 0, 0).await;
    }
}

#[apply(on_each_store)]
async fn a_question_that_finds_no_call_leaves_it_to_the_retry(endpoint: &str) {
    for (call, card, status) in CASES {
        let order = Interrupted::within(endpoint, call, card, NOT_MADE).await;
        order.lose(now()).await;
        let early = order.ask().await;
        assert!(matches!(early, ReconcileOutcome::Scheduled(_)), "it may still arrive: {early:?}");
        order.lose(now().minus(DEFAULT_NOT_FOUND_GRACE)).await;
        assert_eq!(order.ask().await, ReconcileOutcome::Resolved("between_workers"));
        assert_eq!(order.noted().await, [""; 0]);
        order.assert_resumed(status, 1, 0).await;
    }
}

// The execution that was interrupted may have begun just before a key is forgotten, and its request takes time to arrive.
#[apply(on_each_store)]
async fn a_retry_asks_before_it_calls_once_the_keys_are_forgotten(endpoint: &str) {
    let forgotten = KEYS_LIVE - DEFAULT_NOT_FOUND_GRACE;
    let remembered = forgotten - Duration::from_secs(60);
    for (call, card, status) in CASES {
        for (cut, ago, calls, questions) in
            [(MADE, forgotten, 0, 1), (NOT_MADE, forgotten, 1, 1), (MADE, remembered, 1, 0)]
        {
            let order = Interrupted::within(endpoint, call, card, cut).await;
            order.age(ago).await;
            order.assert_resumed(status, calls, questions).await;
        }
    }
}

// T46
#[apply(on_each_store)]
async fn a_reported_charge_or_refund_is_noted_once_and_used(endpoint: &str) {
    for (call, card, status) in [CASES[0], CASES[2]] {
        let order = Interrupted::within(endpoint, call, card, MADE).await;
        let event = order.event(call).await;
        assert_eq!(order.report(&event).await, "noted");
        assert_eq!(order.noted().await, [call]);
        let noted = order.record().await;
        assert_eq!(order.report(&event).await, "nothing to settle");
        assert_eq!(order.record().await, noted);
        order.assert_resumed(status, 0, 0).await;
        let completed = order.record().await;
        assert_eq!(order.report(&event).await, "nothing to settle");
        assert_eq!((order.record().await, order.dead_letters.take()), (completed, Vec::new()));
    }
}

// T46
#[apply(on_each_store)]
async fn another_charge_or_refund_under_an_orders_key_is_escalated(endpoint: &str) {
    for (call, card, status) in [CASES[0], CASES[2]] {
        let order = Interrupted::within(endpoint, call, card, MADE).await;
        let event = order.event(call).await;
        assert_eq!(order.report(&event).await, "noted");
        let mut other = event.clone();
        other[call]["id"] = "another".into();
        let is_escalated = async |dead_letters| {
            let seen = order.record().await;
            assert_eq!(order.report(&other).await, "escalated");
            assert_eq!(order.dead_letters.take().len(), dead_letters);
            let after = order.record().await;
            assert!(after.has_alarm(AlarmKind::Contradicted));
            assert_eq!((&after.state, &after.effects), (&seen.state, &seen.effects));
        };
        is_escalated(1).await;
        order.assert_resumed(status, 0, 0).await;
        // Operators have been told of it.
        is_escalated(0).await;
    }
}

#[apply(on_each_store)]
async fn a_report_of_an_order_that_is_not_signed_changes_nothing(endpoint: &str) {
    let order = Interrupted::within(endpoint, "charge", "tok_ok", MADE).await;
    let (event, seen) = (order.event("charge").await, order.record().await);
    let by_another = Secrets::new(["another-secret-of-no-provider"]).expect("a secret");
    for signature in [None, Some(by_another.sign(now(), event.to_string().as_bytes()))] {
        assert_eq!(order.post(&event, signature).await, (401, "refused".to_owned()));
    }
    assert_eq!((order.record().await, order.dead_letters.take()), (seen, Vec::new()));
}

// Its charge is known: the question is about the call that follows.
#[apply(on_each_store)]
async fn a_question_does_not_ask_for_a_charge_that_is_noted(endpoint: &str) {
    let order = Interrupted::within(endpoint, "charge", "tok_ok", MADE).await;
    let event = order.event("charge").await;
    assert_eq!(order.report(&event).await, "noted");
    order.lose(now().minus(DEFAULT_NOT_FOUND_GRACE)).await;
    assert_eq!(order.ask().await, ReconcileOutcome::Resolved("between_workers"));
    assert_eq!((order.noted().await, order.dead_letters.take()), (vec!["charge".to_owned()], Vec::new()));
    order.assert_resumed(201, 0, 0).await;
}

fn reconciliation(api: &OrdersApi, proxy: &Proxy, dead_letters: &MemoryQueue) -> Reconciliation {
    let reconciler = OrderReconciler(provider(proxy.url()));
    Reconciliation::new(api.store(), dead_letters.clone()).operation(create_order(), reconciler)
}

fn now() -> Timestamp {
    SystemTime::now().into()
}
