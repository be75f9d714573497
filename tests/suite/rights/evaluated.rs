//! What the template's conditions are for, and that the evaluator knows what it evaluates.

use std::panic::catch_unwind;

use serde_json::{Value, json};

use super::{
    call::{Call, arn},
    context::{Context, Key},
    policy::{Asked, Policy},
    role::Role,
};

const OWN: &str = "acme#create-payment#order-1";
const REFERENCE: &str = "#stripe#ch_1";

fn call(action: &str, resource: &str, leading_keys: Option<&[&str]>) -> Call {
    let leading_keys = leading_keys.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
    Call { action: format!("dynamodb:{action}"), resource: arn(resource), leading_keys }
}

fn role(parameters: &[(&str, &str)]) -> Role {
    Role::on(&arn("idempotency"), parameters)
}

/// Each allowed action of the role, on its table.
fn allowed(role: &Role) -> Vec<String> {
    role.policy.allowed().map(|(action, resource)| format!("{action} {resource}")).collect()
}

/// Whether a policy of one statement with this condition allows a call with these partition keys to the tenant `acme`.
fn holds(condition: &Value, leading_keys: Option<&[&str]>) -> bool {
    let statement =
        json!({ "Sid": "S", "Effect": "Allow", "Action": "a:B", "Resource": "r", "Condition": condition });
    let context = Context::default().with(Key::PrincipalTenant, ["acme"]);
    let context = match leading_keys {
        Some(keys) => context.with(Key::LeadingKeys, keys.iter().copied()),
        None => context,
    };
    let policy = Policy::read(json!({ "Version": "2012-10-17", "Statement": [statement] }));
    policy.allows(&Asked { action: "a:B", resource: Some("r"), principal: None, context: &context })
}

#[test]
fn a_request_without_a_partition_key_is_refused() {
    let rows = arn("rows");
    let role = role(&[("DomainTableArns", &rows), ("AcceptedWork", "on"), ("ReferenceProvider", "stripe")]);
    let session = role.of("acme");
    for (action, resource) in role.policy.allowed() {
        for leading_keys in [None, Some(Vec::new())] {
            let (action, resource) = (action.to_owned(), resource.to_owned());
            let call = Call { action, resource, leading_keys };
            assert!(!session.may(&call), "{call:?}");
        }
    }
    // `ForAllValues` alone would allow it.
    let for_all =
        json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": "${aws:PrincipalTag/tenant}#*" } });
    assert!(holds(&for_all, None));
    let mut with_null = for_all;
    with_null["Null"] = json!({ "dynamodb:LeadingKeys": "false" });
    assert!(!holds(&with_null, None) && holds(&with_null, Some(&[OWN])));
}

// One item of another tenant among a tenant's own.
#[test]
fn a_request_for_several_partitions_needs_each_of_them() {
    let session = role(&[]).of("acme");
    assert!(session.may(&call("PutItem", "idempotency", Some(&[OWN, "acme#refund#1"]))));
    assert!(!session.may(&call("PutItem", "idempotency", Some(&[OWN, "other#refund#1"]))));
}

// Without a tag, or with an empty one, `#*` would be the references of all tenants.
#[test]
fn a_session_without_a_tenant_reaches_nothing() {
    for parameters in [&[][..], &[("ReferenceProvider", "stripe")][..]] {
        let role = role(parameters);
        for tag in [None, Some("")] {
            let session = role.tagged(tag);
            for key in [OWN, REFERENCE, "#create-payment#order-1", "#", ""] {
                for action in ["GetItem", "PutItem"] {
                    let call = call(action, "idempotency", Some(&[key]));
                    assert!(!session.may(&call), "{tag:?} {call:?}");
                }
            }
        }
    }
}

#[test]
fn rights_that_nobody_asked_for_are_left_out() {
    let (table, rows, more) = (arn("idempotency"), arn("rows"), arn("more"));
    let records = ["GetItem", "PutItem"].map(|action| format!("dynamodb:{action} {table}"));
    assert_eq!(allowed(&role(&[])), records);
    let with = |parameter| allowed(&role(&[parameter])).split_off(records.len());
    assert_eq!(with(("AcceptedWork", "on")), [format!("dynamodb:DeleteItem {table}")]);
    assert_eq!(with(("ReferenceProvider", "stripe")), [format!("dynamodb:PutItem {table}")]);
    assert_eq!(with(("DomainTableArns", &format!("{rows},{more}"))).len(), 8);

    let reference = |action| call(action, "idempotency", Some(&[REFERENCE]));
    assert!(!role(&[]).of("acme").may(&reference("PutItem")));
    let session = role(&[("ReferenceProvider", "stripe")]).of("acme");
    assert!(session.may(&reference("PutItem")) && !session.may(&reference("GetItem")));
    for other in ["#stripe", "#stripe-eu#ch_1", "##stripe#ch_1"] {
        assert!(!session.may(&call("PutItem", "idempotency", Some(&[other]))), "{other}");
    }
}

#[test]
fn the_evaluator_reads_wildcards_variables_and_escapes_as_iam_does() {
    let like = |value: &str| json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": value } });
    for (pattern, key, expected) in [
        ("a*c", "abbc", true),
        ("a*c", "abbcd", false),
        ("a*b*c", "aXbXbXc", true),
        ("a?c", "aéc", true),
        ("a?c", "ac", false),
        ("${*}", "*", true),
        ("${*}", "a", false),
        ("a${?}${$}", "a?$", true),
        ("${aws:PrincipalTag/tenant}", "acme", true),
        ("${aws:PrincipalTag/tenant}", "acmes", false),
    ] {
        assert_eq!(holds(&like(pattern), Some(&[key])), expected, "{pattern} {key}");
    }
    let equal = json!({ "ForAllValues:StringEquals": { "dynamodb:LeadingKeys": ["a*", "b"] } });
    assert!(holds(&equal, Some(&["a*", "b"])) && !holds(&equal, Some(&["ab"])));

    let context = Context::default();
    let denied = Policy::read(json!({
        "Version": "2012-10-17",
        "Statement": [
            { "Sid": "A", "Effect": "Allow", "Action": "a:B", "Resource": "r" },
            { "Sid": "D", "Effect": "Deny", "Action": "A:b", "Resource": "r" },
        ],
    }));
    assert!(!denied.allows(&Asked {
        action: "a:B",
        resource: Some("r"),
        principal: None,
        context: &context
    }));
}

#[test]
fn the_evaluator_refuses_what_it_does_not_know() {
    for condition in [
        json!({ "StringNotLike": { "aws:PrincipalTag/tenant": "a" } }),
        json!({ "StringLikeIfExists": { "aws:PrincipalTag/tenant": "a" } }),
        json!({ "ForAnyValue:StringLike": { "dynamodb:LeadingKeys": "a" } }),
        json!({ "ForAllValues:StringLike": { "dynamodb:Attributes": "a" } }),
        json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": "${aws:userid}" } }),
        // AWS requires a set operator for a key with several values, and none for others.
        json!({ "StringLike": { "dynamodb:LeadingKeys": "a" } }),
        json!({ "ForAllValues:StringLike": { "aws:PrincipalTag/tenant": "a" } }),
        json!({ "Null": { "dynamodb:LeadingKeys": "no" } }),
    ] {
        assert!(catch_unwind(|| holds(&condition, Some(&["a"]))).is_err(), "{condition}");
    }
    for (member, value) in [
        ("NotAction", json!("a:B")),
        ("NotResource", json!("r")),
        ("Action", json!("a:*")),
        ("Resource", json!("*")),
        ("Effect", json!("Maybe")),
    ] {
        let mut statement = json!({ "Sid": "S", "Effect": "Allow", "Action": "a:B", "Resource": "r" });
        statement[member] = value;
        let document = json!({ "Version": "2012-10-17", "Statement": [statement] });
        assert!(catch_unwind(|| Policy::read(document.clone())).is_err(), "{document}");
    }
}
