//! The second starter, with a row, a message and a consumer, is made of parts of the first one and of the sample.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value, json};

use super::{ALARM, FUNCTION, QUEUE, SAMPLE, having, list, members, referred, starter, template, text};
use local::yaml;

fn events() -> Value {
    yaml::parse(&text("starter-events/template.yaml")).expect("YAML")
}

/// The same resource under another name, without what is written for people.
fn renamed(resource: &Value, names: &[(&str, &str)]) -> Value {
    let mut resource = resource.clone();
    if let Some(Value::Object(properties)) = resource.get_mut("Properties") {
        properties.remove("AlarmDescription");
    }
    let text = names.iter().fold(resource.to_string(), |text, (from, to)| text.replace(from, to));
    serde_json::from_str(&text).expect("JSON")
}

const OF_CHARGES: &[(&str, &str)] = &[("Charges", "Orders")];
const OF_SHIPPING: &[(&str, &str)] =
    &[("Shipments", "Billing"), ("Shipping", "Billing"), ("-shipments", "-billing")];

// So what the tests show of those alarms is true of these.
#[test]
fn each_alarm_of_the_second_starter_is_one_that_is_tested() {
    let (events, starter, sample) = (events(), starter(), template(SAMPLE));
    let alarms: BTreeMap<_, _> =
        members(&events["Resources"]).filter(|(_, resource)| resource["Type"] == ALARM).collect();
    let mut left = alarms.clone();
    for (name, model, names) in [
        ("OrdersErrors", &starter["Resources"]["ChargesErrors"], OF_CHARGES),
        ("OrdersFail", &starter["Resources"]["ChargesFail"], OF_CHARGES),
        ("PollMissing", &starter["Resources"]["PollMissing"], &[]),
        ("BillingErrors", &sample["Resources"]["ShippingErrors"], OF_SHIPPING),
        ("BillingThrottled", &sample["Resources"]["ShippingThrottled"], OF_SHIPPING),
        ("BillingDead", &sample["Resources"]["ShipmentsDead"], OF_SHIPPING),
        ("BillingDeadGrow", &sample["Resources"]["ShipmentsDeadGrow"], OF_SHIPPING),
        ("BillingDeadOld", &sample["Resources"]["ShipmentsDeadOld"], OF_SHIPPING),
        ("BillingNotBuried", &sample["Resources"]["ShipmentsNotBuried"], OF_SHIPPING),
        ("BillingHeld", &sample["Resources"]["OrdersHeld"], &[("OrdersQueue", "BillingQueue")]),
        ("BillingLate", &sample["Resources"]["ShipmentsLate"], OF_SHIPPING),
    ] {
        let alarm = left.remove(&name.to_owned()).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(renamed(alarm, &[]), renamed(model, names), "{name}");
    }
    assert!(left.is_empty(), "{:?}", left.keys());
    let topic = json!({ "Fn::If": ["Notifies", [{ "Ref": "AlarmTopicArn" }], { "Ref": "AWS::NoValue" }] });
    let page = text("docs/alarms.md");
    for (name, alarm) in alarms {
        assert_eq!(alarm["Properties"]["AlarmActions"], topic, "{name}");
        let description = alarm["Properties"]["AlarmDescription"].as_str().expect("text");
        assert!(description.contains(" Begin with "), "{name}");
        let is_named = page.contains(&format!("`{name}`")) || name.starts_with("Billing");
        assert!(is_named && page.contains("`Billing…`"), "docs/alarms.md says nothing of {name}");
    }
}

#[test]
fn the_second_starters_queue_is_the_samples_for_a_consumer() {
    let (events, sample) = (events(), template(SAMPLE));
    for part in ["Queue", "DeadLettersQueue"] {
        let [ours, theirs] = [("Billing", &events), ("Shipments", &sample)]
            .map(|(name, template)| &template["Resources"][format!("{name}{part}")]);
        assert_eq!(ours["Type"], QUEUE);
        assert_eq!(*ours, renamed(theirs, OF_SHIPPING), "{part}");
        let policy = &events["Resources"][format!("Billing{part}Policy")]["Properties"]["PolicyDocument"];
        assert_eq!(policy["Statement"][0]["Sid"], "EncryptedTransportOnly", "{part}");
    }
}

/// The statements of a role or a policy, by their names.
fn statements(template: &Value, role: &str) -> BTreeMap<String, Value> {
    let properties = &template["Resources"][role]["Properties"];
    assert!(properties["ManagedPolicyArns"].is_null(), "managed policies are not in the template");
    let document = match &properties["Policies"] {
        Value::Null => &properties["PolicyDocument"],
        policies => &policies[0]["PolicyDocument"],
    };
    let all = list(&document["Statement"]).into_iter();
    all.map(|it| (it["Sid"].as_str().expect("a name").to_owned(), it.clone())).collect()
}

// Least privilege: those of the first starter and of the sample's consumer, and what the row and the message need.
#[test]
fn the_second_starters_roles_have_what_their_functions_need() {
    let (events, starter, sample) = (events(), starter(), template(SAMPLE));
    let row = |actions: Value| json!({ "Sid": "Orders", "Effect": "Allow", "Action": actions, "Resource": { "Fn::GetAtt": "OrdersTable.Arn" } });
    let rights = |template: &Value, role: &str, left_out: &[&str]| {
        let mut all = statements(template, role);
        all.retain(|name, _| !left_out.contains(&&**name));
        all
    };
    let with = |mut all: BTreeMap<String, Value>, more: Value| {
        all.insert(more["Sid"].as_str().expect("a name").to_owned(), more);
        all
    };
    let charges = rights(&starter, "ChargesRole", &["DeferredReports", "Logs"]);
    let read_and_put = row(json!(["dynamodb:GetItem", "dynamodb:PutItem"]));
    assert_eq!(rights(&events, "OrdersRole", &["Logs"]), with(charges, read_and_put));

    let update = row(json!("dynamodb:UpdateItem"));
    let reconcile = rights(&starter, "ReconcileRole", &[]);
    assert_eq!(rights(&events, "ReconcileRole", &[]), with(reconcile, update.clone()));

    let consumer = rights(&sample, "ShippingRole", &["Bounds", "OpenRecords", "Shipments", "Logs"]);
    let consumer = consumer.into_iter().map(|(name, it)| (name, renamed(&it, OF_SHIPPING))).collect();
    let deferred = statements(&starter, "ChargesRole").remove("DeferredReports").expect("it defers");
    let consumer = with(with(consumer, update), deferred);
    assert_eq!(rights(&events, "BillingRole", &["Logs"]), consumer);
    assert_eq!(statements(&events, "SchedulesRole"), statements(&starter, "SchedulesRole"));

    for (name, function) in members(&events["Resources"]).filter(|(_, it)| it["Type"] == FUNCTION) {
        let role = referred(&function["Properties"]["Role"]);
        let logs = format!("{}Logs", role.strip_suffix("Role").expect("a role"));
        assert_eq!(referred(&statements(&events, &role)["Logs"]["Resource"]), logs, "{name}");
        assert_eq!(referred(&function["Properties"]["LoggingConfig"]["LogGroup"]), logs, "{name}");
    }
}

// A message that is published reaches its consumer: the topic's target, and the right to send to it.
#[test]
fn what_the_second_starter_publishes_goes_to_its_queue() {
    let events = events();
    let topics = &events["Resources"]["Idempotency"]["Properties"]["Parameters"]["OutboxTopics"];
    assert_eq!(*topics, json!({ "Fn::Sub": "order.placed=${BillingQueue}" }));
    let targets = statements(&events, "OutboxTargets");
    let placed = &targets["Placed"];
    assert_eq!(
        (placed["Action"].as_str(), referred(&placed["Resource"])),
        (Some("sqs:SendMessage"), "BillingQueue".to_owned())
    );
    assert_eq!(targets.len(), 1);
    let taken = &events["Resources"]["BillingFunction"]["Properties"]["Events"]["Placed"]["Properties"];
    assert_eq!(referred(&taken["Queue"]), "BillingQueue");
    for (variable, readers) in [
        ("OUTBOX_TOPICS", &["OrdersFunction"][..]),
        ("PROVIDER_URL", &["BillingFunction", "ReconcileFunction"]),
        ("DEFERRED_REPORTS_QUEUE_URL", &["BillingFunction", "ReconcileFunction"]),
        ("ORDERS_TABLE", &["BillingFunction", "OrdersFunction", "ReconcileFunction"]),
    ] {
        let having: Vec<_> = having(&events, variable).into_iter().map(|(name, _)| name).collect();
        assert_eq!(having, readers, "{variable}");
    }
}

// An operator of either reads the same page, and what is nested is the same.
#[test]
fn the_second_starter_has_all_that_the_first_one_has() {
    let (events, starter) = (events(), starter());
    assert_eq!(events["Parameters"], starter["Parameters"]);
    assert_eq!(events["Conditions"], starter["Conditions"]);
    for (output, value) in
        members(&starter["Outputs"]).filter(|(name, _)| !["Url", "ChargesFunctionName"].contains(&&***name))
    {
        assert_eq!(events["Outputs"][output], *value, "{output}");
    }
    let without = |mut function: Value| {
        let properties = function["Properties"].as_object_mut().expect("properties");
        properties.remove("Environment");
        function
    };
    let reconcile = |template: &Value| without(template["Resources"]["ReconcileFunction"].clone());
    assert_eq!(reconcile(&events), reconcile(&starter));
    let parameters = |template: &Value| -> Map<String, Value> {
        let nested = &template["Resources"]["Idempotency"]["Properties"]["Parameters"];
        let all = members(nested).filter(|(name, _)| !["Alarms", "OutboxTopics"].contains(&&***name));
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    assert_eq!(parameters(&events), parameters(&starter));
    for part in ["HttpApi", "ApiLogs"] {
        assert_eq!(events["Resources"][part], starter["Resources"][part], "{part}");
    }
    for file in [
        "infra/idempotency.yaml",
        "functions/outbox/Cargo.toml",
        "functions/outbox/src/main.rs",
        "functions/stale/Cargo.toml",
        "functions/stale/src/main.rs",
        "rustfmt.toml",
    ] {
        let same = text(&format!("starter-events/{file}")) == text(&format!("starter/{file}"));
        assert!(same, "copy starter/{file} to starter-events");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../starter-events/src/bin");
    let mut programs: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").file_name()).collect();
    programs.sort();
    assert_eq!(programs, ["billing.rs", "orders.rs", "reconcile.rs"]);
    assert!(text("starter-events/README.md").lines().count() <= 90, "it is read by all who copy it");
}
