//! Each function starts with the variables that the templates set, and no others.

use std::collections::BTreeMap;

use super::{FUNCTION, members, resources, template};
use crate::support::{embedded, function::Function, sample::Sample};
use crate::{reconcile::ledger_comparison::payments_table, support::payments_api::TestProvider};

/// Values of the variables that the sample's other tests do not need.
const MORE: &[(&str, &str)] = &[
    ("METRICS_NAMESPACE", "lambda-idempotency"),
    ("NOT_FOUND_RELEASES", "on"),
    ("ORDERS_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/orders-dead-letters.fifo"),
    ("ORDERS_QUEUE_URL", "http://127.0.0.1:9/orders.fifo"),
    ("ORDERS_TENANT", "acme"),
    ("OUTBOX_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/outbox-dead-letters.fifo"),
    ("OUTBOX_QUEUE_URL", "http://127.0.0.1:9/outbox.fifo"),
    ("PROVIDER_TIMEOUT_MS", "20000"),
    ("RUST_LOG", "info"),
    ("SHIPMENTS_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/shipments-dead-letters"),
    ("SHIPMENTS_QUEUE_URL", "http://127.0.0.1:9/shipments"),
    ("WORK_DEAD_LETTERS_QUEUE_URL", "http://127.0.0.1:9/work-dead-letters"),
    ("WORK_QUEUE_URL", "http://127.0.0.1:9/work"),
];

// T56: a variable that the template forgets is found when the function starts in production, or later.
#[tokio::test]
async fn each_function_starts_with_the_variables_of_its_template() {
    let provider = TestProvider::start().await;
    let sample = Sample::new(&payments_table(embedded::endpoint()).await, &provider.url).await;
    let values: BTreeMap<_, _> = sample.values().chain(MORE.iter().copied()).collect();
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
        Function::start(program, &set.chain(aws).collect::<Vec<_>>()).await;
    }
}
