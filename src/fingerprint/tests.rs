use std::{borrow::Cow, io::Write};

use flate2::{Compression, GzBuilder};

use super::*;

mod bodies;
mod hashed;
mod oracle;
mod property;
mod strict;

const JSON: &str = "application/json";

fn print_as(rule: &FingerprintRule, headers: &[(&str, &str)], body: &[u8]) -> Fingerprint {
    let header = |name: &str| {
        headers.iter().find(|(given, _)| *given == name).map(|(_, value)| Cow::Owned((*value).to_owned()))
    };
    let content = Content::new("POST", "/payments", body).headers(&header);
    content.fingerprints("pay", rule, &[]).current()
}

fn print(rule: &FingerprintRule, content_type: &str, body: &str) -> Fingerprint {
    print_as(rule, &[("content-type", content_type)], body.as_bytes())
}

fn current(content: &Content<'_>) -> Fingerprint {
    content.fingerprints("pay", &FingerprintRule::new(), &[]).current()
}

/// A gzip member that was made at this time.
fn gzip(time: u32, body: &[u8]) -> Vec<u8> {
    let mut packer = GzBuilder::new().mtime(time).write(Vec::new(), Compression::fast());
    packer.write_all(body).unwrap();
    packer.finish().unwrap()
}

#[test]
fn conditions_and_ranges_count_without_being_declared() {
    let sent = |headers: &[(&str, &str)]| print_as(&FingerprintRule::new(), headers, b"");
    let names = [
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
        "if-range",
        "content-range",
    ];
    let mut seen = vec![sent(&[])];
    for name in names {
        for value in ["\"1\"", "\"2\"", ""] {
            let print = sent(&[(name, value)]);
            assert_eq!(print, sent(&[("x-trace", "1"), (name, value)]), "{name}");
            assert!(!seen.contains(&print), "{name}: {value:?}");
            seen.push(print);
        }
    }
    let declared = FingerprintRule::new().header("If-Match");
    assert_ne!(
        print_as(&declared, &[("if-match", "1")], b""),
        print_as(&declared, &[("if-match", "2")], b"")
    );
}

#[test]
fn operation_method_path_and_query_count_and_never_run_together() {
    let pair = |name: &'static str, value: &'static str| (Cow::Borrowed(name), Cow::Borrowed(value));
    let (ab, abc) = ([pair("a", "b")], [pair("a", "b"), pair("c", "")]);
    let of = Content::new;
    let prints = [
        current(&of("POST", "/payments", b"")),
        current(&of("PATCH", "/payments", b"")),
        current(&of("POST", "/payments/1", b"")),
        current(&Content { query: &ab, ..of("POST", "/payments", b"") }),
        current(&Content { query: &abc, ..of("POST", "/payments", b"") }),
        current(&of("POST", "/payments?a=b", b"")),
        current(&of("POST", "/pay", b"ments")),
        of("POST", "/payments", b"").fingerprints("refund", &FingerprintRule::new(), &[]).current(),
    ];
    for (index, print) in prints.iter().enumerate() {
        assert!(!prints[index + 1..].contains(print), "{index}");
    }
}

#[test]
fn members_that_are_left_out_do_not_count() {
    let rule = FingerprintRule::new().leave_out("/sentAt");
    let print = |body| print(&rule, JSON, body);
    assert_eq!(print(r#"{"a":1,"sentAt":1}"#), print(r#"{"a":1,"sentAt":2}"#));
    assert_ne!(print(r#"{"a":1}"#), print(r#"{"a":2}"#));
}

#[test]
fn headers_count_if_the_rule_declares_them() {
    let (plain, rule) =
        (FingerprintRule::new(), FingerprintRule::new().header("Api-Version").header("prefer"));
    let sent = |rule: &FingerprintRule, version: &str| print_as(rule, &[("api-version", version)], b"");
    assert_eq!(sent(&plain, "1"), sent(&plain, "2"));
    assert_eq!(sent(&rule, "1"), sent(&rule, "1"));
    assert_ne!(sent(&rule, "1"), sent(&rule, "2"));
    assert_ne!(sent(&rule, ""), print_as(&rule, &[], b""), "an empty header is not a missing one");
    assert_ne!(print_as(&rule, &[("prefer", "1")], b""), sent(&rule, "1"));
}

// T36
#[test]
fn each_custom_rule_has_its_own_id_and_decides_what_counts() {
    let rule = |id| FingerprintRule::custom(id, |content| content.body[..1].to_vec());
    assert_eq!(print(&rule(1), JSON, "1 first"), print(&rule(1), "text/plain", "1 second"));
    assert_ne!(print(&rule(1), JSON, "1 first"), print(&rule(1), JSON, "2 first"));
    let plain = FingerprintRule::new();
    for (one, other) in [
        (plain.clone().header("a").header("b"), plain.clone().header("B").header("A")),
        (plain.clone().leave_out("/a").leave_out("/b"), plain.clone().leave_out("/b").leave_out("/a")),
    ] {
        assert_eq!(one.id(), other.id());
        assert_eq!(print(&one, JSON, r#"{"a":1,"c":2}"#), print(&other, JSON, r#"{"a":1,"c":2}"#));
    }
    let ids =
        [plain.id(), plain.clone().header("a").id(), plain.leave_out("/a").id(), rule(1).id(), rule(2).id()];
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[index + 1..].contains(id), "{ids:?}");
    }
}

// T36
#[test]
fn a_request_is_compared_by_the_rule_that_the_record_has() {
    let old = FingerprintRule::new();
    let new = FingerprintRule::new().leave_out("/sentAt");
    let content = Content::new("POST", "", br#"{"a":1,"sentAt":1}"#).json();
    let other = Content { body: br#"{"a":1,"sentAt":2}"#, ..content };
    let kept = content.fingerprints("pay", &old, &[]).current();

    let migrating = |content: &Content<'_>| content.fingerprints("pay", &new, std::slice::from_ref(&old));
    assert_eq!(migrating(&content).matches(&kept), Some(true));
    assert_eq!(migrating(&other).matches(&kept), Some(false));
    assert_eq!(content.fingerprints("pay", &new, &[]).matches(&kept), None);
}

#[test]
fn rules_that_contradict_themselves_are_refused_at_start_up() {
    let custom = || FingerprintRule::custom(1, |_| Vec::new());
    let refused: [fn(FingerprintRule) -> FingerprintRule; 4] = [
        |rule| rule.header("a"),
        |rule| rule.leave_out("/a"),
        |_| FingerprintRule::new().header("two words"),
        |_| FingerprintRule::new().leave_out(""),
    ];
    for refused in refused {
        let rule = std::panic::AssertUnwindSafe(custom());
        assert!(std::panic::catch_unwind(move || drop(refused({ rule }.0))).is_err());
    }
}
