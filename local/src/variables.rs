//! The variables of the functions, and of the operators' command line.

use crate::{
    bus::Bus,
    queues::Queues,
    settings::Settings,
    store::Store,
    template::{Stack, kebab},
};
use std::collections::BTreeMap;

/// The variable that names the table of records.
pub const IDEMPOTENCY_TABLE: &str = "IDEMPOTENCY_TABLE";

/// Variables of the functions, besides those of the template.
pub struct Variables {
    /// Where the services are. On AWS, the SDK knows that.
    pub services: Vec<(&'static str, String)>,
    /// Where the tables and queues are, for functions that are in no template: `CHECKS_QUEUE_URL` is the output `ChecksQueueUrl` of the
    /// nested stack, and `ORDERS_QUEUE_URL` the queue `orders`.
    pub resources: BTreeMap<String, String>,
    /// In place of the template's.
    pub settings: Vec<(&'static str, String)>,
    /// The simulated provider's address, for functions whose template gives them none.
    pub provider: String,
}

/// The variable that gets the simulated provider's address.
pub const PROVIDER_URL: &str = "PROVIDER_URL";

impl Variables {
    pub fn new(
        settings: &Settings,
        store: &Store,
        queues: &Queues,
        bus: &Bus,
        stack: &Stack,
        provider: &str,
    ) -> Self {
        let dynamodb = settings.function_dynamodb_endpoint.as_ref().unwrap_or(&store.recorded);
        let sqs = settings.function_sqs_endpoint.as_ref().unwrap_or(&queues.endpoint);
        let mut services = store.environment(dynamodb);
        services.extend(endpoints(sqs, bus));
        let mut replaced = settings.environment();
        let provider = settings.function_provider_url.as_deref().unwrap_or(provider).to_owned();
        let bounds = ["TENANT_LOOK_UPS_PER_SECOND", "TENANT_NEW_KEYS_PER_SECOND", "TENANT_OPEN_RECORDS"];
        replaced.extend(bounds.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?))));
        Self { services, resources: resources(stack), settings: replaced, provider }
    }

    /// Shell commands that set what the operators' command line needs, without the proxies of the functions. `records` is the table of
    /// records.
    pub fn operate(&self, store: &Store, queues: &Queues, bus: &Bus, records: Option<&str>) -> String {
        let services = store.environment(&store.recorded).into_iter().chain(endpoints(&queues.endpoint, bus));
        let resources = self.resources.iter().map(|(name, value)| (&**name, value.clone()));
        // Without the nested stack, only the functions name it.
        let records = records.filter(|_| !self.resources.contains_key(IDEMPOTENCY_TABLE));
        let records = records.map(|table| (IDEMPOTENCY_TABLE, table.to_owned()));
        services
            .chain(resources)
            .chain(records)
            .map(|(name, value)| format!("export {name}='{value}'\n"))
            .collect()
    }
}

fn endpoints(sqs: &str, bus: &Bus) -> [(&'static str, String); 2] {
    [("AWS_ENDPOINT_URL_SQS", sqs.to_owned()), ("AWS_ENDPOINT_URL_EVENTBRIDGE", bus.endpoint.clone())]
}

fn resources(stack: &Stack) -> BTreeMap<String, String> {
    let variable = |name: &str| name.replace('-', "_").to_uppercase();
    let tables = stack.tables.iter();
    let tables = tables.map(|table| (format!("{}_TABLE", variable(&table.name)), table.full_name.clone()));
    let queues = stack.queues.iter();
    let queues = queues.map(|queue| (format!("{}_QUEUE_URL", variable(&queue.name)), queue.url.clone()));
    // Last, because operators need the nested stack's queues, whatever others are called.
    let outputs = stack.outputs.iter().filter_map(|(output, value)| match output.as_str() {
        "TableName" => Some((IDEMPOTENCY_TABLE.to_owned(), value.clone())),
        "OutboxTopics" | "MetricsNamespace" => Some((variable(&kebab(output)), value.clone())),
        url if url.ends_with("QueueUrl") => Some((variable(&kebab(url)), value.clone())),
        _ => None,
    });
    tables.chain(queues).chain(outputs).collect()
}
