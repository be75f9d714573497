//! The metadata of a charge leads the webhook back to the record. It reveals nothing about the record to the provider.

use std::time::{Duration, SystemTime};

use axum::http::Request;
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use lambda_idempotency::{
    key::{RecordKey, signature::Secrets},
    time::Timestamp,
};
use macro_rules_attribute::apply;
use payments::{SealingKeys, policy::CREATE_PAYMENT};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    embedded,
    http::{Answer, record_key, send},
    logs::Logs,
    on_each_store,
    payments_api::{PaymentsApi, TestProvider, order, sealing_keys},
};

const TENANT: &str = "acme";

/// A payment that the provider may have made, because its answer was lost.
struct Lost {
    api: PaymentsApi,
    provider: TestProvider,
}

impl Lost {
    async fn on(endpoint: &str) -> Self {
        let provider = TestProvider::start().await;
        let lost = Self { api: PaymentsApi::on(endpoint, &provider.url).await, provider };
        assert_eq!(lost.pay("order-1").await.status, 504);
        assert_eq!(lost.state("order-1").await, "unknown");
        lost
    }

    /// Pays with a card for which every answer of the provider is lost.
    async fn pay(&self, key: &str) -> Answer {
        self.api.pay(TENANT, key, order("500")).await
    }

    async fn state(&self, key: &str) -> String {
        let status = self.api.get(TENANT, &format!("/operations/{key}")).await.json();
        status["state"].as_str().expect("a state").to_owned()
    }

    /// The metadata that was sent to the provider with the first order.
    fn correlation(&self) -> String {
        correlation(&self.provider.orders()[0].1)
    }

    /// The webhook's answer to an event about the first order's charge, with this metadata.
    async fn webhook_answer(&self, correlation: &str) -> (u16, Value) {
        self.webhook_answer_at(correlation, SystemTime::now().into()).await
    }

    /// The same for a charge that was made at that time.
    async fn webhook_answer_at(&self, correlation: &str, made_at: Timestamp) -> (u16, Value) {
        let metadata = json!({ "record": correlation, "customerId": "c-1" });
        let event = json!({
            "type": "charge.succeeded",
            "key": self.provider.orders()[0].0,
            "charge": {
                "id": "ch_1", "amountCents": 1999, "currency": "EUR", "createdAt": made_at.as_millis(),
                "metadata": metadata,
            },
            "metadata": metadata,
        });
        let (event, secrets) = (event.to_string(), Secrets::new(["a-secret-of-the-provider"]).unwrap());
        let signature = secrets.sign(SystemTime::now().into(), event.as_bytes());
        let request = Request::post("/webhooks/provider").header("provider-signature", signature);
        let answer = send(&self.api.webhook(secrets), request.body(event.into()).unwrap()).await;
        (answer.status, answer.json()["outcome"].clone())
    }

    /// Fails unless the payment is made and a retry gets it.
    async fn assert_made(&self) {
        assert_eq!(self.state("order-1").await, "completed");
        let retry = self.pay("order-1").await;
        assert_eq!((retry.status, retry.replayed()), (201, true));
        let listed = self.api.get(TENANT, "/payments").await.json();
        assert_eq!(listed["payments"], json!([retry.json()]));
        assert_eq!(retry.json()["chargeId"], "ch_1");
    }
}

fn record(key: &str) -> RecordKey {
    record_key(TENANT, CREATE_PAYMENT, key)
}

fn correlation(order: &Value) -> String {
    order["metadata"]["record"].as_str().expect("a correlation").to_owned()
}

#[tokio::test]
async fn the_provider_reads_neither_tenant_nor_key_in_a_charges_metadata() {
    let marker = Uuid::new_v4().simple().to_string();
    let (tenant, key) = (format!("tenant-{marker}"), format!("key-{marker}"));
    let provider = TestProvider::start().await;
    let api = PaymentsApi::on(embedded::endpoint(), &provider.url).await;
    assert_eq!(api.pay(&tenant, &key, order("tok")).await.status, 201);
    let orders = provider.orders();
    let [(sent_key, sent)] = &orders[..] else { panic!("one order") };

    let correlation = correlation(sent);
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(&correlation).expect("base64 for URLs");
    for text in [sent["metadata"].to_string(), String::from_utf8_lossy(&bytes).into_owned()] {
        assert!(!text.contains(&marker) && !text.contains(CREATE_PAYMENT), "{text}");
    }
    // The order contains the tenant as plain text. The key is in no place.
    assert!(!sent.to_string().contains(&key) && !sent_key.contains(&key), "{sent_key} {sent}");
    assert_eq!(sealing_keys().open(&correlation), Some(record_key(&tenant, CREATE_PAYMENT, &key)));
}

#[tokio::test]
async fn the_same_operation_sends_the_same_charge_after_a_restore() {
    let provider = TestProvider::start().await;
    // Separate tables: the second has forgotten what is in the first.
    for _ in 0..2 {
        let api = PaymentsApi::on(embedded::endpoint(), &provider.url).await;
        assert_eq!(api.pay(TENANT, "order-1", order("tok")).await.status, 201);
    }
    let orders = provider.orders();
    assert_eq!((orders.len(), provider.charged()), (2, 1));
    assert_eq!(orders[0], orders[1]);
}

#[apply(on_each_store)]
async fn the_webhook_finds_the_record_by_sealed_metadata(endpoint: &str) {
    let lost = Lost::on(endpoint).await;
    assert_eq!(lost.webhook_answer(&lost.correlation()).await, (200, json!("settled")));
    lost.assert_made().await;
    assert_eq!(lost.webhook_answer(&lost.correlation()).await, (200, json!("nothing to settle")));
}

#[apply(on_each_store)]
async fn forged_metadata_changes_nothing_and_unreadable_metadata_is_delivered_again(endpoint: &str) {
    let logs = Logs::capture();
    let marker = Uuid::new_v4().simple().to_string();
    let lost = Lost::on(endpoint).await;
    assert_eq!(lost.pay("order-2").await.status, 504);

    let true_one = lost.correlation();
    let others = SealingKeys::parse(&BASE64_STANDARD.encode([8; 64])).unwrap();
    let flipped = if true_one.starts_with('A') { "B" } else { "A" };
    let unreadable = [
        others.seal(&record("order-1")),
        format!("{flipped}{}", &true_one[1..]),
        true_one[..true_one.len() - 4].to_owned(),
        format!("{true_one}{true_one}"),
        String::new(),
        format!("no base64: {marker}"),
        BASE64_URL_SAFE_NO_PAD.encode(&marker),
        BASE64_URL_SAFE_NO_PAD.encode(record("order-1").partition_key()),
    ];
    for correlation in unreadable {
        assert_eq!(lost.webhook_answer(&correlation).await, (503, json!("try again")), "{correlation}");
        let hours_ago =
            |hours: u64| Timestamp::from(SystemTime::now()).minus(Duration::from_secs(hours * 3600));
        assert_eq!(lost.webhook_answer_at(&correlation, hours_ago(23)).await.0, 503);
        assert_eq!(lost.webhook_answer_at(&correlation, hours_ago(25)).await, (200, json!("escalated")));
    }
    // A record other than the event's. It may exist or not.
    for another in [record("order-2"), record("order-3"), record_key("globex", CREATE_PAYMENT, "order-1")] {
        let correlation = sealing_keys().seal(&another);
        assert_eq!(lost.webhook_answer(&correlation).await, (200, json!("escalated")), "{another:?}");
    }
    for key in ["order-1", "order-2"] {
        assert_eq!(lost.state(key).await, "unknown", "{key}");
    }
    assert_eq!(lost.api.get(TENANT, "/payments").await.json()["payments"], json!([]));
    assert!(logs.contains("metadata opens with none of SEALING_KEYS"));
    for text in [&marker, &BASE64_URL_SAFE_NO_PAD.encode(&marker)] {
        assert!(!logs.contains(text), "what does not open is logged");
    }
}
