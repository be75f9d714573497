//! Tenants with similar and with hostile names.

use super::{
    call::{Call, arn},
    role::{FUNCTION, Role},
};
use crate::support::http::{PAY, record_key};

const TABLE: &str = "idempotency";

/// Names that STS takes as a tag.
const TAGS: &[&str] = &[
    "a",
    "acme",
    "acme-eu",
    "acme.eu",
    "acme:",
    "acme ",
    "acme/create-payment",
    "ACME",
    "é",
    "e",
    "ア",
    "+=@_",
];

/// Names that a tenant can have, and a tag cannot.
const NO_TAGS: &[&str] = &[
    "*",
    "acme*",
    "a?me",
    "acme#",
    "acme#create-payment",
    "#",
    "#stripe",
    "acme%",
    "acme%23",
    "acme$",
    "${aws:PrincipalTag/tenant}",
    "${*}",
    "acme,acme-eu",
    "\"acme\"",
    "acme\\",
    "e\u{301}",
];

fn role() -> Role {
    let rows = arn("rows");
    let all = [("DomainTableArns", &*rows), ("AcceptedWork", "on"), ("ReferenceProvider", "stripe")];
    Role::on(&arn(TABLE), &all)
}

#[test]
fn a_tenant_reaches_the_partitions_of_its_own_name_alone() {
    let (role, table, rows) = (role(), arn(TABLE), arn("rows"));
    let call = |action: &str, resource: &str, key: &str| {
        let (action, leading_keys) = (format!("dynamodb:{action}"), Some(vec![key.to_owned()]));
        Call { action, resource: resource.to_owned(), leading_keys }
    };
    for name in TAGS {
        let session = role.of(name);
        for other in TAGS.iter().chain(NO_TAGS) {
            for key in ["order-1", "#", "acme#", "*", "create-payment#order-1"] {
                let key = record_key(other, PAY, key).partition_key();
                for action in ["GetItem", "PutItem", "DeleteItem"] {
                    let may = session.may(&call(action, &table, &key));
                    assert_eq!(may, name == other, "{name} {action} {key}");
                }
            }
            assert_eq!(session.may(&call("UpdateItem", &rows, other)), name == other, "{name} {other}");
            // Of a tenant that is named so, or of rows in another layout.
            let named = format!("{name}#{other}");
            assert!(!session.may(&call("UpdateItem", &rows, &named)), "{named}");
        }
    }
}

#[test]
fn a_name_that_no_tag_can_hold_gets_no_credentials() {
    let role = role();
    for name in NO_TAGS {
        assert!(role.assumed_by(FUNCTION, Some(name)).is_none(), "{name}");
    }
    assert!(role.assumed_by(FUNCTION, Some(&"a".repeat(257))).is_none());
    assert!(role.assumed_by(FUNCTION, Some(&"a".repeat(255))).is_some(), "the longest tenant");
}

#[test]
fn nobody_gets_credentials_without_a_tenant() {
    let role = role();
    assert!(role.assumed_by(FUNCTION, None).is_none());
    assert!(role.assumed_by(FUNCTION, Some("")).is_none());
    assert!(role.assumed_by("arn:aws:iam::123456789012:role/another", Some("acme")).is_none());
    assert!(role.assumed_by(FUNCTION, Some("acme")).is_some());
}
