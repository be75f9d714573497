//! A client of the reports API in the local cloud, and the API in this process.

use super::{books::Books, client::client, local_cloud::LocalCloud, payments::Answer, tables};
use axum::Router;
use lambda_idempotency::{
    bounds::Bounds,
    domain::Table,
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    queue::MemoryQueue,
    store::dynamodb::DynamoDbStore,
};
use reports::{
    policy::create_report,
    routes::{Route, router, routes},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A report waits for the workers' other reports. Only a failure takes this long.
const ANSWERED_WITHIN: Duration = Duration::from_secs(180);
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// A report that a test asks for. It takes a second.
#[derive(Clone, Debug)]
pub struct Report {
    pub key: String,
}

impl Report {
    pub fn new(number: usize) -> Self {
        Self { key: format!("report-{number:06}") }
    }

    /// The id of its row.
    fn id(&self) -> String {
        let key = RecordKey::new(
            Tenant::parse("acme").expect("a tenant"),
            OperationName::parse("create-report").expect("a name"),
            IdempotencyKey::parse(&self.key).expect("a key"),
        );
        key.hash().to_string()
    }

    /// Sends the request.
    pub async fn send(&self, cloud: &LocalCloud) -> Answer {
        let request = cloud.post("/reports").bearer_auth("acme").header("Idempotency-Key", &self.key);
        Answer::of(request.json(&json!({ "seconds": 1 })).send().await.expect("the front answers")).await
    }

    /// Sends it until it is accepted, and asks for its status until it is written. Returns the answer.
    pub async fn answer(&self, cloud: &LocalCloud) -> Answer {
        let deadline = Instant::now() + ANSWERED_WITHIN;
        let mut status: Option<String> = None;
        loop {
            let answer = match &status {
                None => self.send(cloud).await,
                Some(url) => {
                    let asked = cloud.get(url).bearer_auth("acme").send().await;
                    Answer::of(asked.expect("the front answers")).await
                }
            };
            match answer.status {
                201 => return answer,
                202 => status = answer.location.clone(),
                200 | 502..=504 => {}
                _ => panic!("{self:?}, of no use to a client: {answer:?}"),
            }
            assert!(Instant::now() < deadline, "{self:?} has no answer: {answer:?}");
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
    }
}

/// Fails unless each of these reports was written once, as its answer says, and nothing else was. A worker that had too little time left has
/// kept its answer without the body.
pub async fn assert_written_once(books: &Books, answered: &[(Report, Answer)]) {
    let expected = answered.iter().map(|(report, answer)| {
        let id = report.id();
        if !answer.body_omitted {
            let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
            assert_eq!(body, json!({ "id": id, "seconds": 1, "pages": 10 }), "{report:?}");
        }
        (id, 1)
    });
    assert_eq!(books.reports().await, expected.collect());
}

/// The reports function's API in this process, with separate tables: the router, and every route.
pub async fn reports_api(endpoint: &str) -> (Router, Vec<Route>) {
    let client = client(endpoint);
    let table = Table::new(tables::idempotency_table(&client).await, "pk").sort_key("sk");
    let records = tables::idempotency_table(&client).await;
    let store = DynamoDbStore::from_client(client, records);
    let bounds = Bounds::of(store.clone());
    let router = router(store.clone(), create_report(), table.clone(), MemoryQueue::new(), bounds.clone());
    (router, routes(store, create_report(), table, MemoryQueue::new(), bounds))
}
