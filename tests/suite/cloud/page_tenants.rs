//! The page's part about tenants: what each uses, and the brake.

use lambda_idempotency::{
    DynamoDbStore,
    key::Tenant,
    store::{Stop, TenantRules, Tenants},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::support::{client::client, local_cloud::LocalCloud};

async fn act(cloud: &LocalCloud, tenant: &str, what: &str) -> (u16, String) {
    let body = format!("tenant={}&do={what}", utf8_percent_encode(tenant, NON_ALPHANUMERIC));
    let request = cloud.post("/local/tenants").header("content-type", "application/x-www-form-urlencoded");
    let answer = request.body(body).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("text"))
}

async fn page_with(cloud: &LocalCloud, texts: &[&str]) -> String {
    let mut page = String::new();
    for _ in 0..300 {
        page = cloud.get("/").send().await.expect("an answer").text().await.expect("text");
        if texts.iter().all(|text| page.contains(text)) {
            return page;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the page lacks one of {texts:?}:\n{page}");
}

fn store(cloud: &LocalCloud) -> DynamoDbStore {
    let printed = cloud.printed();
    let (_, endpoint) = printed.split_once("dynamodb    ").expect("its address is printed");
    let endpoint = endpoint.split_whitespace().next().expect("an address");
    DynamoDbStore::from_client(client(endpoint), "local-idempotency")
}

async fn rules(cloud: &LocalCloud) -> TenantRules {
    store(cloud).rules().await.expect("the store answers").expect("rules")
}

#[tokio::test]
async fn the_page_shows_what_a_tenant_uses_and_stops_it() {
    let cloud = LocalCloud::start(&[("TENANT_NEW_KEYS_PER_SECOND", "1")]).await;
    let order = json!({ "customerId": "c-1", "amountCents": 1, "currency": "EUR", "source": "tok_ok" });
    let pay = async |tenant: &str, key: String| {
        let request = cloud.post("/payments").bearer_auth(tenant).header("idempotency-key", key).json(&order);
        request.send().await.expect("an answer").status()
    };
    assert_eq!(pay("acme", "k-0".into()).await, 201);
    for number in 1..24 {
        assert_eq!(pay("acme", format!("k-{number}")).await, 201);
    }
    let page = page_with(&cloud, &["create-payment: new keys 1/s+120: ", " % of its burst"]).await;
    assert!(page.contains("stop-61636d65") && !page.contains("resume-61636d65"), "{page}");

    assert_eq!(act(&cloud, "acme", "stop").await.0, 200);
    page_with(&cloud, &["stopped: nothing new begins", "resume-61636d65"]).await;
    let acme = Tenant::parse("acme").expect("a tenant");
    assert_eq!(rules(&cloud).await.of(&acme).and_then(|rule| rule.stop), Some(Stop::New));
    let (status, refused) = act(&cloud, "acme", "stop").await;
    assert!(status == 409 && refused.contains("it is so already"), "{refused}");
    assert_eq!(act(&cloud, "acme", "stop-work").await.0, 200);
    page_with(&cloud, &["accepted work waits"]).await;
    assert_eq!(act(&cloud, "acme", "resume").await.0, 200);
    assert_eq!(rules(&cloud).await.of(&acme), None);
    let lines = store(&cloud).rules_lines().await.expect("the store answers");
    let lines: Vec<_> = lines.iter().map(|line| (&*line.who, &*line.what)).collect();
    let by_the_page = |what| ("the page", what);
    let expected = ["stop \"acme\"", "stop --work \"acme\"", "resume \"acme\""].map(by_the_page);
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn no_tenants_name_can_mark_up_the_page() {
    let cloud = LocalCloud::start(&[]).await;
    let long = "é".repeat(127);
    let hostile = ["<script>alert(1)</script>", "a/../b", "a#b#c", "\" onclick=\"x", "ア\u{301}", &long];
    for name in hostile {
        assert_eq!(act(&cloud, name, "stop").await.0, 200, "{name}");
    }
    let page = page_with(&cloud, &["a#b#c", "a/../b", "&#60;script&#62;alert(1)", "…"]).await;
    assert!(!page.contains("<script>alert") && !page.contains("\" onclick"), "{page}");
    for name in hostile {
        assert_eq!(act(&cloud, name, "resume").await.0, 200, "{name}");
    }
    for wrong in ["", &"x".repeat(4096), "line\nbreak"] {
        assert_eq!(act(&cloud, wrong, "stop").await.0, 409, "{wrong}");
    }
    assert_eq!(act(&cloud, "acme", "eat").await.0, 422);
    assert_eq!(rules(&cloud).await.tenants.len(), 0);
}
