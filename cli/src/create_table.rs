//! `create-table`: creates a table of records, for development. A deployment gets its table from the template.

use std::time::Duration;

use aws_sdk_dynamodb::{
    Client,
    client::Waiters,
    config::Builder,
    operation::create_table::CreateTableInput,
    types::{KeySchemaElement, Projection, StreamSpecification, TableDescription, TimeToLiveStatus},
};
use lambda_idempotency::store::dynamodb::table::{self, INDEX};
use serde_json::json;

use crate::{
    args::Global,
    context::{self, Context},
    failure::Failure,
    output::Screen,
};

const READY_WITHIN: Duration = Duration::from_secs(120);

pub async fn run(global: &Global) -> Result<(), Failure> {
    let name = Context::table(global)?;
    let config = context::aws(global, global.endpoint_url.as_deref()).await?;
    let client = Client::from_conf(Builder::from(&config).timeout_config(context::timeouts()).build());
    let create = table::create(&client, &name);
    let wanted = create.as_input().clone().build().map_err(|error| Failure::from_error(&error))?;
    let created = match create.send().await {
        Ok(_) => true,
        Err(error) if error.as_service_error().is_some_and(|error| error.is_resource_in_use_exception()) => {
            let described = client.describe_table().table_name(&name).send().await;
            let described = described.map_err(|error| Failure::from_error(&error))?;
            if let Some(differs) = described.table().and_then(|current| difference(&wanted, current)) {
                let message = format!("the table `{name}` exists, and {differs}; nothing was changed");
                return Err(Failure::NotAsExpected(message));
            }
            false
        }
        Err(error) => return Err(Failure::from_error(&error)),
    };
    let ready = client.wait_until_table_exists().table_name(&name).wait(READY_WITHIN).await;
    ready.map_err(|error| Failure::from_error(&error))?;
    // Also if the table existed: the process that created it may have ended before this step.
    expire(&client, &name).await?;
    let screen = Screen::new(global.output);
    if screen.is_json() {
        return screen.print_json(&json!({ "table": name, "created": created }), false);
    }
    let what = if created { "created" } else { "unchanged, and already complete" };
    screen.print(&format!("The table `{name}` is {what}: keys, index `{INDEX}`, stream and time to live."))
}

/// Switches time to live on, unless it is on already.
async fn expire(client: &Client, name: &str) -> Result<(), Failure> {
    let current = client.describe_time_to_live().table_name(name).send().await;
    let current = current.map_err(|error| Failure::from_error(&error))?;
    let wanted = table::time_to_live();
    if let Some(current) = current.time_to_live_description()
        && matches!(
            current.time_to_live_status(),
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
        )
    {
        let attribute = wanted.attribute_name();
        return match current.attribute_name() == Some(attribute) {
            true => Ok(()),
            false => Err(Failure::NotAsExpected(format!(
                "the table `{name}` exists, and its time to live is not on `{attribute}`; nothing was changed"
            ))),
        };
    }
    let update = client.update_time_to_live().table_name(name);
    let updated = update.time_to_live_specification(wanted).send().await;
    updated.map(|_| ()).map_err(|error| Failure::from_error(&error))
}

/// How the existing table differs from the wanted one.
fn difference(wanted: &CreateTableInput, current: &TableDescription) -> Option<String> {
    if keys(wanted.key_schema()) != keys(current.key_schema()) {
        return Some("has other keys than `pk` and `sk`: name another one".to_owned());
    }
    for index in wanted.global_secondary_indexes() {
        let name = index.index_name();
        let same =
            current.global_secondary_indexes().iter().find(|current| current.index_name() == Some(name));
        let Some(same) = same else { return Some(format!("has no index `{name}`")) };
        if keys(index.key_schema()) != keys(same.key_schema()) {
            return Some(format!("its index `{name}` has other keys"));
        }
        let projects = |projection: Option<&Projection>| {
            projection.and_then(|projection| projection.projection_type().cloned())
        };
        if projects(index.projection()) != projects(same.projection()) {
            return Some(format!("its index `{name}` does not hold all attributes"));
        }
    }
    let images = |stream: Option<&StreamSpecification>| {
        stream.filter(|stream| stream.stream_enabled()).and_then(|stream| stream.stream_view_type().cloned())
    };
    if images(wanted.stream_specification()) != images(current.stream_specification()) {
        return Some("has no stream of new and old images".to_owned());
    }
    None
}

fn keys(schema: &[KeySchemaElement]) -> Vec<(&str, &str)> {
    schema.iter().map(|key| (key.attribute_name(), key.key_type().as_str())).collect()
}
