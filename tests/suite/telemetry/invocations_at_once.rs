//! Several invocations at once in one process, as Lambda Managed Instances runs them.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    embedded,
    function::Function,
    payments_api::TestProvider,
    sample::{Sample, payment, status},
    tables::ledger_table,
};

/// Time for an invocation that is held for a while.
const TIME: Duration = Duration::from_secs(60);

/// The same for the provider's answer.
const PROVIDER_TIMEOUT_MS: &str = "60000";

fn paid(tenant: &str, key: &str, cents: u32, card: &str) -> Value {
    let order = json!({ "customerId": tenant, "amountCents": cents, "currency": "EUR", "source": card });
    payment(tenant, key, &order.to_string())
}

/// A function that runs two invocations at once, and asks for both.
async fn start() -> (Function, TestProvider) {
    let provider = TestProvider::start().await;
    let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
    let settings = [("AWS_LAMBDA_MAX_CONCURRENCY", "2"), ("PROVIDER_TIMEOUT_MS", PROVIDER_TIMEOUT_MS)];
    let mut payments = sample.start("payments", &settings).await;
    payments.ready().await;
    (payments, provider)
}

// T20: counters are of the process, so a document that may hold another tenant's counts names none.
#[tokio::test]
async fn invocations_at_once_answer_their_own_tenants_and_name_none() {
    let (mut payments, provider) = start().await;
    let mut begun = BTreeMap::new();
    for (tenant, cents) in [("acme", 1), ("globex", 2)] {
        let id = payments.begin(&paid(tenant, "order-1", cents, "tok-held"), TIME);
        begun.insert(id, (tenant, cents));
    }
    provider.gate.reached(2).await;
    assert!(!payments.has_answered());
    provider.gate.open();
    for _ in 0..2 {
        let (id, answer) = payments.answer().await;
        let (tenant, cents) = begun.remove(&id).expect("each is answered once");
        assert_eq!(status(&answer), 201, "{tenant}");
        let body = answer.expect("an answer")["body"].as_str().expect("a body").to_owned();
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["amountCents"], cents, "{tenant}: {body}");
        payments.ready().await;
    }
    let at_once = payments.documents();
    let created: u64 =
        at_once.iter().filter_map(|document| document.counts().remove("reserve.created")).sum();
    assert_eq!(created, 2, "{at_once:?}");
    assert!(at_once.iter().all(|document| document.tenant.is_none()), "{at_once:?}");

    // One alone is named again.
    assert_eq!(status(&payments.invoke(&paid("globex", "order-2", 3, "tok-ok")).await), 201);
    let all = payments.documents();
    let [alone] = &all[at_once.len()..] else { panic!("{all:?}") };
    assert_eq!(alone.tenant.as_deref(), Some("globex"));
}

// T20: the second neither runs nor gets the first one's answer before there is one.
#[tokio::test]
async fn two_invocations_of_one_key_at_once_charge_once() {
    let (mut payments, provider) = start().await;
    let order = paid("acme", "order-1", 1, "tok-held");
    let first = payments.begin(&order, TIME);
    provider.gate.reached(1).await;
    assert_eq!(status(&payments.invoke(&order).await), 409);
    provider.gate.open();
    let (id, answer) = payments.answer().await;
    assert_eq!((id, status(&answer).as_u16()), (first, 201));
    let replay = payments.invoke(&order).await.expect("a replay");
    assert_eq!(replay["body"], answer.expect("an answer")["body"]);
    assert_eq!(provider.charged(), 1);
}
