//! Each function starts with the variables that the templates set, and no others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{FUNCTION, IDEMPOTENCY, SAMPLE, having, members, resources, starter, template};
use crate::support::{
    embedded, function::Function, payments_api::TestProvider, sample::Sample, tables::ledger_table,
};

/// Values of the variables that the sample's other tests do not need.
const MORE: &[(&str, &str)] = &[
    ("METRICS_NAMESPACE", "lambda-idempotency"),
    ("ORDERS_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/orders-dead-letters.fifo"),
    ("ORDERS_QUEUE_URL", "http://127.0.0.1:9/orders.fifo"),
    ("ORDERS_TENANT", "acme"),
    ("OUTBOX_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/outbox-dead-letters.fifo"),
    ("OUTBOX_QUEUE_URL", "http://127.0.0.1:9/outbox.fifo"),
    ("PROVIDER_TIMEOUT_MS", "20000"),
    ("SWEEP_UNITS_PER_SECOND", "50"),
    ("TENANT_LOOK_UPS_PER_SECOND", "100"),
    ("TENANT_NEW_KEYS_PER_SECOND", "10"),
    ("TENANT_OPEN_RECORDS", "1000"),
    ("SHIPMENTS_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/shipments-dead-letters"),
    ("SHIPMENTS_QUEUE_URL", "http://127.0.0.1:9/shipments"),
    ("WORK_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/work-dead-letters"),
    ("WORK_QUEUE_URL", "http://127.0.0.1:9/work"),
];

/// What several functions decide by, or what is secret: the variable, what its value refers to, and who reads it, in the sample and in the
/// starter. Nobody else has it.
const DECIDED_BY: &[(&str, &str, &[&str], &[&str])] = &[
    (
        "DEFERRED_REPORTS_QUEUE_URL",
        "DeferredReportsQueue",
        &[
            "OrderQueueFunction",
            "OrdersFunction",
            "PaymentsFunction",
            "ReconcileFunction",
            "ReportWorkerFunction",
            "ReportsFunction",
        ],
        &["ChargesFunction", "ReconcileFunction"],
    ),
    (
        "IDEMPOTENCY_TABLE",
        "IdempotencyTable",
        &[
            "OrderQueueFunction",
            "OrdersFunction",
            "OutboxFunction",
            "PaymentsFunction",
            "ReconcileFunction",
            "ReportWorkerFunction",
            "ReportsFunction",
            "ShippingFunction",
            "StaleFunction",
            "WebhookFunction",
        ],
        &["ChargesFunction", "ReconcileFunction"],
    ),
    ("OUTBOX_TOPICS", "OutboxTopics", &["OrderQueueFunction", "OrdersFunction", "OutboxFunction"], &[]),
    (
        "PROVIDER_URL",
        "ProviderUrl",
        &[
            "CompareFunction",
            "OrderQueueFunction",
            "OrdersFunction",
            "PaymentsFunction",
            "ReconcileFunction",
            "WebhookFunction",
        ],
        &["ChargesFunction", "ReconcileFunction"],
    ),
    (
        "SEALING_KEYS",
        "{{resolve:secretsmanager:${SealingSecret}:SecretString:::${SealingSecretVersion}}}",
        &["CompareFunction", "OrderQueueFunction", "OrdersFunction", "PaymentsFunction", "WebhookFunction"],
        &[],
    ),
    (
        "TENANT_NEW_KEYS_PER_SECOND",
        "TenantNewKeysPerSecond",
        &["OrderQueueFunction", "OrdersFunction", "PaymentsFunction", "ReportsFunction"],
        &[],
    ),
    (
        "TENANT_OPEN_RECORDS",
        "TenantOpenRecords",
        &["OrderQueueFunction", "OrdersFunction", "PaymentsFunction", "ReportsFunction"],
        &[],
    ),
    (
        "WEBHOOK_SECRETS",
        "{{resolve:secretsmanager:${WebhookSecret}:SecretString:::${WebhookSecretVersion}}}",
        &["WebhookFunction"],
        &[],
    ),
];

/// Settings that no template sets: their defaults are the same for all functions.
const DEFAULTS: [&str; 6] = [
    "LEASE_GRACE_MS",
    "MAX_UNKNOWN_AGE_MS",
    "NOT_FOUND_GRACE_MS",
    "RECONCILE_ASKS",
    "RECONCILE_FIRST_BACKOFF_MS",
    "RECONCILE_MAX_BACKOFF_MS",
];

/// What every function has for its metrics, which is read before there is a log.
const OF_LOGS: [&str; 1] = ["METRICS_NAMESPACE"];

/// A comparison waits longer for a page of charges than a client for its payment.
const OF_ONE_FUNCTION: &str = "PROVIDER_TIMEOUT_MS";

/// The variables that a function has read, by its log.
fn read(function: &Function) -> BTreeSet<String> {
    let log = function.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let reads = lines.filter(|line| line["fields"]["message"] == "reads an environment variable");
    reads.map(|line| line["fields"]["name"].as_str().expect("a name").to_owned()).collect()
}

// T56: a variable that the template forgets is found when the function starts in production, or later.
#[tokio::test]
async fn each_function_starts_with_the_variables_of_its_template() {
    let provider = TestProvider::start().await;
    let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
    let values: BTreeMap<_, _> = sample.values().chain(MORE.iter().copied()).collect();
    let mut functions: Vec<(String, BTreeSet<String>, BTreeSet<String>)> = Vec::new();
    for function in resources(FUNCTION) {
        let globals = &template(function.template)["Globals"]["Function"]["Environment"]["Variables"];
        let own = &function.properties["Environment"]["Variables"];
        let set = members(globals).chain(members(own)).map(|(name, _)| {
            let value =
                values.get(&**name).unwrap_or_else(|| panic!("{}: no value of {name}", function.name));
            (&**name, *value)
        });
        // Where AWS is, which the functions find by themselves.
        let aws =
            values.iter().filter(|(name, _)| name.starts_with("AWS_")).map(|(name, value)| (*name, *value));
        let program = template(function.template)["Resources"][&function.name]["Metadata"]["BuildProperties"]
            ["Binary"]
            .clone();
        let program = program.as_str().expect("a program");
        let set: BTreeMap<_, _> = set.collect();
        let debug = [("RUST_LOG", "lambda_idempotency=debug")];
        let variables = set.iter().map(|(name, value)| (*name, *value)).chain(aws).chain(debug);
        let started = Function::start(program, &variables.collect::<Vec<_>>()).await;
        let set = set.into_keys().map(str::to_owned).filter(|name| !OF_LOGS.contains(&&**name)).collect();
        functions.push((function.name, set, read(&started)));
    }
    for (variable, _, readers, _) in DECIDED_BY {
        let reads = functions.iter().filter(|(_, _, read)| read.contains(*variable));
        let reads: BTreeSet<_> = reads.map(|(name, ..)| &**name).collect();
        assert_eq!(reads, readers.iter().copied().collect(), "{variable}");
    }
    // Also those with a default: what is set for one function alone would be stopped there alone.
    let set_somewhere: BTreeSet<_> = functions.iter().flat_map(|(_, set, _)| set.clone()).collect();
    let all_read: BTreeSet<_> = functions.iter().flat_map(|(_, _, read)| read.clone()).collect();
    let set_nowhere = all_read.difference(&set_somewhere).map(|name| &**name);
    assert_eq!(set_nowhere.filter(|name| !OF_LOGS.contains(name)).collect::<Vec<_>>(), DEFAULTS);
    for (name, set, read) in functions {
        let is_needed = |read: &&String| set.contains(*read) || *read != OF_ONE_FUNCTION;
        let needed: BTreeSet<_> = read.intersection(&set_somewhere).filter(is_needed).cloned().collect();
        assert_eq!(set, needed, "{name}: what its template sets, and what it reads");
    }
}

// T56: during an incident, a webhook without the switch would go on to release what is not found.
#[test]
fn what_functions_decide_by_reaches_each_of_them_alike() {
    let sample = [template(IDEMPOTENCY), template(SAMPLE)];
    for (variable, refers_to, of_sample, of_starter) in DECIDED_BY {
        for (templates, readers) in [(&sample[..], of_sample), (&[starter()], of_starter)] {
            let set = templates.iter().flat_map(|template| having(template, variable));
            let expected = readers.iter().map(|name| ((*name).to_owned(), (*refers_to).to_owned()));
            assert_eq!(set.collect::<BTreeMap<_, _>>(), expected.collect(), "{variable}");
        }
    }
}
