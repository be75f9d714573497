//! What no guard needs: the calls of other functions, of operators, and all that reads or changes more than named items.

use std::{collections::HashSet, time::Duration};

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use lambda_idempotency::{
    record::Reference,
    store::{NotFoundSwitch, Outbox, Store, StoreErrorKind, Unsettled, dynamodb::table::INDEX},
};

use super::{
    call::{Call, arn},
    everything::{PROVIDER, Tables},
};
use crate::support::{
    guarded::fresh,
    http::{PAY, record_key},
};

const ACTIONS: &[&str] = &[
    "BatchGetItem",
    "BatchWriteItem",
    "CreateBackup",
    "DeleteResourcePolicy",
    "DeleteTable",
    "DescribeTable",
    "ExportTableToPointInTime",
    "GetRecords",
    "PartiQLDelete",
    "PartiQLInsert",
    "PartiQLSelect",
    "PartiQLUpdate",
    "PutResourcePolicy",
    "Query",
    "Scan",
    "UpdateTable",
    "UpdateTimeToLive",
];

#[tokio::test]
async fn a_tenants_credentials_do_not_serve_other_functions() {
    let tables = Tables::new().await;
    tables.asked_for("acme").await;
    let (gate, guarded) = tables.through(tables.role.of("acme"));
    let (store, now, key) = (guarded.store(), guarded.now(), record_key("acme", PAY, "report"));
    let reference = Reference::new(PROVIDER, "ch_acme").expect("a reference");
    let (who, reason) = ("acme".to_owned(), "our retries shall run".to_owned());
    let switch = NotFoundSwitch { revision: fresh(), releases: true, who, at: now, reason };
    let refused = [
        store.due(now, None, 1, &HashSet::new()).await.err(),
        store.unresolved(Some(key.tenant()), None).await.err(),
        store.survey().await.err(),
        store.scan((0, 1), None, now.plus(Duration::from_secs(1)), 1).await.err(),
        store.audit_lines(&key).await.err(),
        store.undelivered(&key).await.err(),
        store.load_checkpoint("sweep").await.err(),
        store.not_found_switch().await.err(),
        store.switch_not_found(None, &switch).await.err(),
        store.not_found_lines().await.err(),
        store.referred(&reference).await.err(),
    ];
    for error in refused {
        assert_eq!(error.expect("it is refused").kind(), StoreErrorKind::Refused);
    }
    // Of another partition too: use `new` or `from_client`, which do not call it.
    store.check().await.expect_err("it is refused");
    assert!(gate.asked().iter().all(|(_, may)| !may), "{:?}", gate.asked());
}

#[tokio::test]
async fn scans_partiql_the_index_and_the_table_itself_are_refused() {
    let tables = Tables::new().await;
    let (gate, guarded) = tables.through(tables.role.of("acme"));
    let (client, table) = (&guarded.client, &*guarded.table);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let own = "acme#create-payment#order-1";
    let keys =
        KeysAndAttributes::builder().keys([("pk".into(), text(own)), ("sk".into(), text("record"))].into());
    let of_shard = client.query().table_name(table).index_name(INDEX);
    let of_shard = of_shard.key_condition_expression("reconcile_shard = :key");
    let of_partition = client.query().table_name(table).key_condition_expression("pk = :key");
    let statement = format!("SELECT * FROM \"{table}\" WHERE pk = '{own}'");
    let are_refused = [
        client.scan().table_name(table).send().await.is_err(),
        client.scan().table_name(table).index_name(INDEX).send().await.is_err(),
        of_shard.expression_attribute_values(":key", text("0")).send().await.is_err(),
        of_partition.expression_attribute_values(":key", text(own)).send().await.is_err(),
        client.execute_statement().statement(statement).send().await.is_err(),
        client.batch_get_item().request_items(table, keys.build().expect("keys")).send().await.is_err(),
        client.describe_table().table_name(table).send().await.is_err(),
        client.delete_table().table_name(table).send().await.is_err(),
    ];
    assert_eq!(are_refused, [true; 8]);
    assert!(gate.asked().iter().all(|(_, may)| !may), "{:?}", gate.asked());

    // Whatever resource and keys DynamoDB names to IAM.
    let (session, table, rows) = (tables.role.of("acme"), arn(table), arn(tables.rows.name()));
    let index = format!("{table}/index/{INDEX}");
    for action in ACTIONS {
        for resource in [&table, &index, &rows] {
            for leading_keys in [None, Some(vec![own.to_owned()]), Some(vec!["acme".to_owned()])] {
                let (action, resource) = (format!("dynamodb:{action}"), resource.clone());
                let call = Call { action, resource, leading_keys };
                assert!(!session.may(&call), "{call:?}");
            }
        }
    }
    // The actions of a guard, but on the index.
    for action in ["GetItem", "PutItem", "DeleteItem", "UpdateItem", "ConditionCheckItem"] {
        let (action, leading_keys) = (format!("dynamodb:{action}"), Some(vec![own.to_owned()]));
        assert!(!session.may(&Call { action, resource: index.clone(), leading_keys }));
    }
}
