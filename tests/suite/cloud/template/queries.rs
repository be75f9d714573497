//! The saved queries by tenant find what functions really write.

use std::collections::BTreeMap;

use lambda_idempotency::{
    bounds::{Limits, Rate},
    key::{OperationName, Tenant},
    operator::{TenantChange, TenantOperator},
    store::Stop,
};
use serde_json::{Value, json};

use super::{resources, text};
use crate::support::tables::ledger_table;
use crate::support::{
    embedded,
    function::{Document, Function},
    payments_api::{TestProvider, order},
    sample::{Sample, payment, request, status},
};

/// As many send something.
const TENANTS: usize = 7;

const QUERY: &str = "AWS::Logs::QueryDefinition";

/// A line, or a row of a result: its fields by the names that CloudWatch Logs Insights gives them.
type Fields = BTreeMap<String, Value>;

/// The fields of a line of metrics. The elements of a list have its name and their place.
///
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CWL_AnalyzeLogData-discoverable-fields.html>
fn fields(document: Document) -> Fields {
    let of_metrics = document.metrics.into_iter().flat_map(|(name, (value, _))| match value {
        Value::Array(values) => {
            let values = values.into_iter().enumerate();
            values.map(|(place, value)| (format!("{name}.{place}"), value)).collect()
        }
        value => vec![(name, value)],
    });
    let named = [("operation", document.operation), ("tenant", document.tenant)];
    let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    of_metrics.chain(named).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// What an aggregate such as `sum(field)` is of these lines. Panics if no line of `all` has the field.
fn aggregate(call: &str, of: &[&Fields], all: &[Fields]) -> Value {
    let (function, arguments) = call.split_once('(').expect("a function");
    let arguments: Vec<_> = arguments.strip_suffix(')').expect("its end").split(", ").collect();
    if (function, &arguments[..]) == ("count", &["*"]) {
        return of.len().into();
    }
    // A dot, or another character that names do not have, must be quoted.
    let field =
        arguments[0].strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).expect("a quoted name");
    assert!(all.iter().any(|line| line.contains_key(field)), "no line has {field}");
    let mut values: Vec<_> = of.iter().filter_map(|line| line.get(field)).map(number).collect();
    values.sort_by(f64::total_cmp);
    match (function, &arguments[1..]) {
        ("sum", []) => values.iter().sum::<f64>().into(),
        // Of so few lines, the highest.
        ("pct", ["99"]) => values.last().copied().into(),
        _ => panic!("{call}"),
    }
}

/// The rows of a query's result, as far as the saved queries use the language.
fn rows(query: &str, all: &[Fields]) -> Vec<Fields> {
    let (mut lines, mut rows) = (all.iter().collect::<Vec<_>>(), Vec::new());
    for command in query.split('|').map(str::trim) {
        let (verb, rest) = command.split_once(' ').expect("a command");
        match verb {
            "filter" => {
                let field =
                    rest.strip_prefix("ispresent(").and_then(|rest| rest.strip_suffix(')')).expect("a field");
                lines.retain(|line| line.contains_key(field));
            }
            "stats" => {
                let (aggregates, by) = rest.split_once(" by ").expect("a group");
                let mut groups = BTreeMap::<String, Vec<&Fields>>::new();
                for line in &lines {
                    groups.entry(line[by].as_str().expect("text").to_owned()).or_default().push(line);
                }
                rows = groups
                    .into_iter()
                    .map(|(group, lines)| {
                        let mut row = Fields::from([(by.to_owned(), group.into())]);
                        let mut rest = aggregates;
                        while let Some((call, after)) = rest.split_once(" as ") {
                            let (name, next) = after.split_once(", ").unwrap_or((after, ""));
                            row.insert(name.to_owned(), aggregate(call, &lines, all));
                            rest = next;
                        }
                        row
                    })
                    .collect();
            }
            "sort" => {
                // The first counts most, so it is sorted by last.
                for by in rest.split(", ").collect::<Vec<_>>().into_iter().rev() {
                    let by = by.strip_suffix(" desc").expect("an order");
                    let key = |row: &Fields| row[by].as_f64().unwrap_or(f64::NEG_INFINITY);
                    rows.sort_by(|one, other| key(other).total_cmp(&key(one)));
                }
            }
            "limit" => rows.truncate(rest.parse().expect("a number")),
            _ => panic!("{command}"),
        }
    }
    rows
}

/// The queries, by the names of their resources.
fn queries() -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    resources(QUERY).into_iter().map(|query| (query.name, text(&query.properties["QueryString"]))).collect()
}

/// The answers' statuses of one tenant that sends these orders, each with its key.
async fn sends(payments: &mut Function, tenant: &str, orders: &[(&str, String)]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (key, order) in orders {
        statuses.push(status(&payments.invoke(&payment(tenant, key, order)).await).as_u16());
    }
    statuses
}

// A renamed metric would leave a query that finds nothing, and says so to nobody.
#[tokio::test]
async fn the_saved_queries_name_the_tenant_who_causes_it() {
    let provider = TestProvider::start().await;
    let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
    // A tenant looks up 121 at once.
    let mut payments = sample.start("payments", &[("TENANT_LOOK_UPS_PER_SECOND", "1")]).await;
    let operator = TenantOperator::new(sample.store());
    let limits = Limits { new_keys: Some(Rate::per_minute(1).burst(1)), ..Limits::default() };
    let create_payment = OperationName::parse("create-payment").expect("an operation");
    for (tenant, change) in
        [("floods", TenantChange::Limit(create_payment, limits)), ("stopped", TenantChange::Stop(Stop::New))]
    {
        let seen = operator.rules().await.expect("the store answers");
        let tenant = Tenant::parse(tenant).expect("a tenant");
        let changed = operator.change(seen.as_ref(), &tenant, &change, "a test", "to see it").await;
        changed.expect("it is written");
    }
    let (ok, fails) = (order("tok_ok"), order("500"));
    let other = ok.replace("1999", "2000");
    assert_ne!(other, ok);
    let usual = [("1", ok.clone()), ("2", ok.clone()), ("2", ok.clone())];
    assert_eq!(sends(&mut payments, "usual", &usual).await, [201, 201, 201]);
    let looping = [("1", ok.clone()), ("1", ok.clone()), ("1", ok.clone())];
    assert_eq!(sends(&mut payments, "loops", &looping).await, [201, 201, 201]);
    assert_eq!(sends(&mut payments, "misuses", &[("1", ok), ("1", other)]).await, [201, 422]);
    let [first, again] = sends(&mut payments, "unlucky", &[("1", fails.clone()), ("1", fails)]).await[..]
    else {
        panic!("two answers")
    };
    assert!(first == 504 && again >= 400, "{first} {again}");

    let three = ["1", "2", "3"].map(|key| (key, order("tok_ok")));
    assert_eq!(sends(&mut payments, "floods", &three).await, [201, 201, 429]);
    assert_eq!(sends(&mut payments, "stopped", &three[..1]).await, [403]);
    let transfer = json!({ "from": "a-0", "to": "a-1", "amountCents": 5 }).to_string();
    let transfer = request("POST", "/transfers", "usual", &[("idempotency-key", "t")], &transfer);
    assert_eq!(status(&payments.invoke(&transfer).await), 201);
    let mut reports = sample.start("reports", &[]).await;
    let report = request("POST", "/reports", "usual", &[("idempotency-key", "r")], r#"{"seconds":1}"#);
    assert_eq!(status(&reports.invoke(&report).await), 202);
    let mut looked_up = Vec::new();
    for number in 0..130 {
        let asks = request("GET", &format!("/operations/{number}"), "guesses", &[], "");
        looked_up.push(status(&payments.invoke(&asks).await).as_u16());
    }
    assert_eq!((looked_up[0], looked_up[120], looked_up[129]), (404, 404, 429));

    let lines: Vec<_> = payments.documents().into_iter().chain(reports.documents()).map(fields).collect();
    let queries = queries();
    for (query, column, tenant, value) in [
        ("TenantsReplayed", "replays", "loops", 2.0),
        ("TenantsMisusing", "misused", "misuses", 1.0),
        ("TenantsUnknown", "unknown", "unlucky", 1.0),
        ("TenantsRefused", "refused", "floods", 1.0),
    ] {
        let rows = rows(&queries[query], &lines);
        assert_eq!(rows.len(), TENANTS, "{query}");
        assert_eq!((&rows[0]["tenant"], number(&rows[0][column])), (&tenant.into(), value), "{query}");
    }
    let guesses = rows(&queries["TenantsLookingUp"], &lines).swap_remove(0);
    assert_eq!(guesses["tenant"], "guesses");
    let (without, refused) = (number(&guesses["without_operation"]), number(&guesses["refused"]));
    assert!(without >= 121.0 && refused >= 1.0 && without + refused == 130.0, "{guesses:?}");
    let stopped = rows(&queries["TenantsRefused"], &lines).swap_remove(1);
    assert_eq!((&stopped["tenant"], number(&stopped["stopped"])), (&"stopped".into(), 1.0));
    let slow = rows(&queries["TenantsSlow"], &lines);
    // Two tenants have run nothing.
    let handler_ms: Vec<_> = slow.iter().filter_map(|row| row["handler_ms"].as_f64()).collect();
    assert!(
        handler_ms.len() == TENANTS - 2 && handler_ms.is_sorted_by(|one, next| one >= next),
        "{handler_ms:?}"
    );
    assert_eq!(slow.iter().map(|row| number(&row["requests"])).sum::<f64>(), 146.0);
    assert_eq!(queries.len(), 6, "a query that is not run here");

    let page = text("docs/operate.md");
    for query in resources(QUERY) {
        let name = query.properties["Name"]["Fn::Sub"].as_str().expect("a name").to_owned();
        let name = name.strip_prefix("${AWS::StackName}/").expect("the stack's folder");
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}
