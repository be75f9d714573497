//! Rules of which this version cannot read all.

use aws_sdk_dynamodb::types::AttributeValue;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::*;
use crate::support::{
    http::{pay, send},
    on_each_store,
};

/// Writes the rules of all tenants, as another version would.
async fn written(guarded: &Guarded, tenants: &Value) {
    let mut item = guarded.items("tenant-rules").await.pop().expect("behind its audit lines");
    item.insert("tenants".to_owned(), AttributeValue::S(tenants.to_string()));
    guarded.write_raw(item).await;
    outdate(guarded);
}

/// The rules of all tenants, as they are in the table.
async fn kept(guarded: &Guarded) -> Value {
    let item = guarded.items("tenant-rules").await.pop().expect("behind its audit lines");
    serde_json::from_str(item["tenants"].as_s().expect("text")).expect("JSON")
}

#[apply(on_each_store)]
async fn a_rule_that_cannot_be_read_leaves_others_as_they_are(endpoint: &str) {
    let (guarded, runs) = (Guarded::on(endpoint).await, Counter::default());
    let (app, store) = (app(&guarded, Bounds::of(guarded.store()), &runs), guarded.undisturbed_store());
    set(&store, stopped(Stop::New)).await;
    let newer = json!({ "stop": "until_noon", "limits": { "create-payment": { "new_keys": "1/day" } } });
    for (key, own, status) in [
        ("k-1", json!({ "stop": "new" }), 403),
        ("k-2", json!({}), 201),
        // A stop that it does not know is one.
        ("k-3", newer.clone(), 403),
        ("k-4", json!({ "stop": null, "limits": 7 }), 201),
        ("k-5", json!(["stopped"]), 201),
    ] {
        written(&guarded, &json!({ TENANT: own, "other": newer })).await;
        assert_eq!(send(&app, pay(key)).await.status, status, "{own}");
    }
    // A change for one tenant loses nothing of another.
    set(&store, stopped(Stop::NewAndWork)).await;
    assert_eq!(kept(&guarded).await, json!({ TENANT: { "stop": "new_and_work" }, "other": newer }));
}
