//! Reports in the local cloud: accepted at once, and written once by a worker, whatever becomes of it.

use std::collections::BTreeMap;

use macro_rules_attribute::apply;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{books::Books, local_cloud::LocalCloud, on_each_store};

/// A report's request.
async fn ask(cloud: &LocalCloud, key: &str, body: &Value) -> (StatusCode, Option<String>, Value) {
    let asked = cloud.post("/reports").bearer_auth("acme").header("idempotency-key", key).json(body);
    let answer = asked.send().await.expect("the front answers");
    let status = answer.status();
    let location =
        answer.headers().get("location").map(|location| location.to_str().expect("text").to_owned());
    (status, location, answer.json().await.expect("JSON"))
}

/// The answer of the status, once the report is no more in flight.
async fn written(cloud: &LocalCloud, location: &str) -> (StatusCode, Value) {
    let ask = async || {
        let answer = cloud.get(location).bearer_auth("acme").send().await.expect("the front answers");
        (answer.status(), answer.json::<Value>().await.expect("JSON"))
    };
    cloud.until(async || ask().await.0 != 200, "the report is written").await;
    ask().await
}

#[apply(on_each_store)]
async fn reports_are_accepted_at_once_and_written_once(endpoint: &str) {
    let books = Books::on(endpoint);
    let (cloud, _provider) = books.cloud(endpoint, &[("FUNCTION_TIMEOUT_MS", "8000")]).await;
    // Two of them kill their first worker: behind its claim, and between two pages.
    let sources =
        BTreeMap::from([("r-1", "tok_ok"), ("r-2", "tok_crash_claim"), ("r-3", "tok_crash_page_3")]);
    let mut locations = Vec::new();
    for (key, source) in &sources {
        let body = json!({ "seconds": 1, "source": source });
        let (status, location, _) = ask(&cloud, key, &body).await;
        let (again, same, _) = ask(&cloud, key, &body).await;
        assert_eq!((status.as_u16(), again.as_u16()), (202, 202));
        assert_eq!(location, same);
        locations.push((key, body, location.expect("the URL of its status")));
    }
    for (key, body, location) in locations {
        let (status, report) = written(&cloud, &location).await;
        assert_eq!((status.as_u16(), &report["pages"]), (201, &json!(10)), "{key} {report}");
        let (status, _, answer) = ask(&cloud, key, &body).await;
        assert_eq!((status.as_u16(), answer), (201, report), "a retry gets the answer");
    }
    let times: Vec<_> = books.reports().await.into_values().collect();
    assert_eq!(times, [1, 1, 1], "each was written once");
    let (status, _, refused) = ask(&cloud, "r-4", &json!({ "seconds": 0 })).await;
    assert_eq!((status.as_u16(), &refused["type"]), (422, &json!("urn:reports:invalid-report")));
}
