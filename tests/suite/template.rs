//! The template deploys the table that the library defines, which is the one that all tests run on.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::{AttributeDefinition, KeySchemaElement};

use crate::support::{client::client, embedded, payments_api::PaymentsApi, tables::idempotency_table};

const TEMPLATE: &str = include_str!("../../infra/template.yaml");

/// The lines of the template about the table of the records, without comments.
fn template() -> Vec<&'static str> {
    let lines = TEMPLATE.lines().skip_while(|line| *line != "  IdempotencyTable:").skip(1);
    // Until the next resource.
    let lines =
        lines.take_while(|line| line.is_empty() || line.starts_with("   ") || line.starts_with("  #"));
    let lines: Vec<_> =
        lines.filter(|line| !line.is_empty() && !line.trim_start().starts_with('#')).collect();
    assert_eq!(lines.first(), Some(&"    Type: AWS::DynamoDB::Table"));
    lines
}

/// The lines below the first one that says `name` at this indentation; those of a list may begin with a dash instead.
fn below<'a>(lines: &[&'a str], name: &str) -> Vec<&'a str> {
    let found =
        lines.iter().position(|line| line.trim_start().trim_start_matches("- ") == format!("{name}:"));
    let at = found.unwrap_or_else(|| panic!("no line `{name}:` in {lines:#?}"));
    let indentation = |line: &str| line.find(|char| !" -".contains(char)).expect("an empty line");
    let depth = indentation(lines[at]);
    let below = lines[at + 1..].iter().take_while(|line| indentation(line) > depth);
    below.copied().collect()
}

/// The value that the only line with this name gives it.
fn value<'a>(lines: &[&'a str], name: &str) -> &'a str {
    let values = lines
        .iter()
        .filter_map(|line| line.trim_start().trim_start_matches("- ").strip_prefix(name)?.strip_prefix(": "));
    let values: Vec<_> = values.collect();
    let [value] = values[..] else { panic!("{} lines `{name}: …` in {lines:#?}", values.len()) };
    value
}

/// A list of two members each, in braces, as texts `first second`.
fn pairs(lines: &[&str], first: &str, second: &str) -> Vec<String> {
    let pair = |line: &&str| {
        let inner = line.trim_start().strip_prefix("- { ")?.strip_suffix(" }")?;
        let (one, other) = inner.split_once(", ")?;
        let value = |part: &'_ str, name| Some(part.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
        Some(format!("{} {}", value(one, first)?, value(other, second)?))
    };
    let pairs = lines.iter().map(|line| pair(line).unwrap_or_else(|| panic!("no pair: {line}")));
    pairs.collect()
}

/// The resources that have a line with this name.
fn resources_with(name: &str) -> Vec<&'static str> {
    let (mut resource, mut found) = ("", Vec::new());
    for line in TEMPLATE.lines() {
        let outermost = line.strip_prefix("  ").filter(|line| !line.starts_with([' ', '#']));
        resource = outermost.and_then(|line| line.strip_suffix(':')).unwrap_or(resource);
        if line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with(": ")) {
            found.push(resource);
        }
    }
    found
}

fn keys(schema: &[KeySchemaElement]) -> Vec<String> {
    schema.iter().map(|key| format!("{} {}", key.attribute_name(), key.key_type())).collect()
}

fn attributes(definitions: &[AttributeDefinition]) -> BTreeSet<String> {
    let text = |attribute: &AttributeDefinition| {
        format!("{} {}", attribute.attribute_name(), attribute.attribute_type())
    };
    definitions.iter().map(text).collect()
}

#[tokio::test]
async fn the_template_defines_the_table_that_the_library_creates() {
    let client = client(embedded::endpoint());
    let name = idempotency_table(&client).await;
    let described = client.describe_table().table_name(&name).send().await.expect("the table is described");
    let table = described.table.expect("there is a table");
    let ttl = client.describe_time_to_live().table_name(&name).send().await.expect("it has a time to live");
    let ttl = ttl.time_to_live_description.expect("a description");

    let template = template();
    let properties = below(&template, "Properties");
    let names = |lines: &[&str]| pairs(lines, "AttributeName", "AttributeType");
    let schema = |lines: &[&str]| pairs(&below(lines, "KeySchema"), "AttributeName", "KeyType");

    let defined: BTreeSet<_> = names(&below(&properties, "AttributeDefinitions")).into_iter().collect();
    assert_eq!(defined, attributes(table.attribute_definitions()));
    assert_eq!(schema(&properties), keys(table.key_schema()));

    let index = below(&properties, "GlobalSecondaryIndexes");
    let [created] = table.global_secondary_indexes() else { panic!("{table:?}") };
    assert_eq!(Some(value(&index, "IndexName")), created.index_name());
    assert_eq!(schema(&index), keys(created.key_schema()));
    let projection = created.projection().and_then(|projection| projection.projection_type());
    let projection = format!("{{ ProjectionType: {} }}", projection.expect("a projection"));
    assert_eq!(value(&index, "Projection"), projection);

    let stream = table.stream_specification().expect("a stream");
    let view = stream.stream_view_type().expect("a view");
    assert!(stream.stream_enabled());
    assert_eq!(value(&below(&properties, "StreamSpecification"), "StreamViewType"), view.as_str());

    let time_to_live = below(&properties, "TimeToLiveSpecification");
    assert_eq!(Some(value(&time_to_live, "AttributeName")), ttl.attribute_name());
    assert_eq!(value(&time_to_live, "Enabled"), "true");
    assert_eq!(ttl.time_to_live_status().map(|status| status.as_str()), Some("ENABLED"));

    let billing = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    assert_eq!(Some(value(&properties, "BillingMode")), billing.map(|mode| mode.as_str()));
}

// R36
#[test]
fn secrets_go_to_the_functions_that_need_them_alone() {
    assert_eq!(resources_with("SEALING_KEYS"), ["PaymentsFunction", "WebhookFunction"]);
    assert_eq!(resources_with("WEBHOOK_SECRETS"), ["WebhookFunction"]);
}

// R5, T45: what the gateway does not route nobody can call.
#[tokio::test]
async fn the_template_routes_what_the_payments_function_serves() {
    let api = PaymentsApi::on(embedded::endpoint(), "http://127.0.0.1:1").await;
    // The gateway writes `{key+}` for what the router calls `{*key}`.
    let served = api
        .routes()
        .into_iter()
        .map(|route| format!("{} {}", route.method, route.path.replace("{*key}", "{key+}")));
    let function = TEMPLATE.lines().skip_while(|line| *line != "  PaymentsFunction:").skip(1);
    let function =
        function.take_while(|line| line.is_empty() || line.starts_with("   ") || line.starts_with("  #"));
    let routed = function.filter_map(|line| {
        let (_, rest) = line.trim().split_once("Method: ")?;
        let (method, path) = rest.strip_suffix(" }")?.split_once(", Path: ")?;
        Some(format!("{method} {}", path.trim_matches('"')))
    });
    assert_eq!(routed.collect::<BTreeSet<_>>(), served.collect::<BTreeSet<_>>());
}

// R36
#[test]
fn both_functions_seal_and_open_with_the_same_secret() {
    let lines: Vec<_> =
        TEMPLATE.lines().filter_map(|line| line.trim().strip_prefix("SEALING_KEYS: ")).collect();
    let secret =
        "!Sub \"{{resolve:secretsmanager:${SealingSecret}:SecretString:::${SealingSecretVersion}}}\"";
    assert_eq!(lines, [secret, secret]);
}
