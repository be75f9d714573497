use std::{borrow::Cow, io::Write};

use flate2::{Compression, GzBuilder};

use super::*;

const JSON: &str = "application/json";

fn print_as(rule: &FingerprintRule, headers: &[(&str, &str)], body: &[u8]) -> Fingerprint {
    let header = |name: &str| {
        headers.iter().find(|(given, _)| *given == name).map(|(_, value)| Cow::Owned((*value).to_owned()))
    };
    let content = Content::new("POST", "/payments", body).headers(&header);
    Fingerprints::of("pay", &content, rule, &[]).current()
}

fn print(rule: &FingerprintRule, content_type: &str, body: &str) -> Fingerprint {
    print_as(rule, &[("content-type", content_type)], body.as_bytes())
}

fn current(content: &Content<'_>) -> Fingerprint {
    Fingerprints::of("pay", content, &FingerprintRule::new(), &[]).current()
}

#[test]
fn json_counts_by_what_it_says_and_the_rest_by_its_bytes() {
    let rule = FingerprintRule::new();
    for json in [JSON, "application/merge-patch+json; charset=utf-8", "Application/JSON"] {
        let print = |body| print(&rule, json, body);
        assert_eq!(print(r#"{"a":1,"b":2}"#), print(r#"{ "b": 2.0, "a": 1 }"#), "{json}");
        assert_ne!(print(r#"{"a":1,"b":2}"#), print(r#"{"a":1,"b":3}"#), "{json}");
    }
    assert_ne!(print(&rule, "text/plain", r#"{"a":1}"#), print(&rule, "text/plain", r#"{ "a": 1 }"#));
}

// T25
#[test]
fn a_body_that_claims_json_and_is_not_counts_by_its_bytes() {
    let print = |body| print(&FingerprintRule::new(), JSON, body);
    assert_eq!(print("{nonsense"), print("{nonsense"));
    assert_ne!(print("{nonsense"), print("{nonsense "));
}

#[test]
fn the_media_type_counts_with_its_parameters() {
    let print = |content_type: &str, body: &str| print(&FingerprintRule::new(), content_type, body);
    let json = |content_type| print(content_type, "{}");
    assert_eq!(json(JSON), json("APPLICATION/json ; Charset=utf-8"));
    assert_eq!(json("application/json; a=1; charset=x; b=2"), json("application/json;B=\"2\";a=1"));
    for other in [
        "application/merge-patch+json",
        "application/json-patch+json",
        "text/plain",
        "",
        "application/json; version=2",
        "application/json; charset",
        "application/json; charset=\"utf-8",
    ] {
        assert_ne!(json(JSON), json(other), "{other}");
    }
    // A body that is not JSON has no canonical form. A text has no default charset.
    assert_ne!(print(JSON, "{"), print("application/json; charset=utf-8", "{"));
    assert_ne!(print("text/plain", "a"), print("text/plain; charset=utf-8", "a"));
    // A boundary counts unless the body is split at it.
    let parts = "--b\r\na\r\n--b--";
    assert_ne!(print("multipart/mixed; boundary=b", parts), print("multipart/mixed; boundary=c", parts));
    assert_ne!(
        print("multipart/mixed; boundary=b; boundary=c", parts),
        print("multipart/mixed; boundary=c; boundary=b", parts)
    );
    assert_ne!(print("text/plain; boundary=b", parts), print("text/plain; boundary=c", parts));
    assert_ne!(
        print("multipart/related; boundary=b; start=1", parts),
        print("multipart/related; boundary=b; start=2", parts)
    );
}

#[test]
fn a_form_counts_by_its_fields_in_any_order() {
    let print = |content_type: &str, body: &[u8]| {
        print_as(&FingerprintRule::new(), &[("content-type", content_type)], body)
    };
    let form = |body: &[u8]| print("application/x-www-form-urlencoded", body);
    assert_eq!(form(b"a=1&b=x+y"), form(b"b=x%20y&a=1"));
    assert_eq!(form(b"a=1&b=2"), print("Application/X-WWW-Form-Urlencoded", b"b=2&a=1"));
    for (one, other) in [
        (&b"a=1&b=2"[..], &b"a=2&b=1"[..]),
        (b"a=1&a=2", b"a=2&a=1"),
        (b"ab=c", b"a=bc"),
        (b"a=%zz", b"a=%25zz"),
        (b"a=%ff", b"a=%fe"),
        (b"a=\xff", b"a=%ff"),
        (b"a=%EF%BF%BD", b"a=%ff"),
        (b"", b"a"),
    ] {
        assert_ne!(form(one), form(other), "{} {}", one.escape_ascii(), other.escape_ascii());
        assert_eq!(form(one), form(one));
    }
    // The bytes of a form that is not well-formed count, and so does their order.
    assert_ne!(form(b"a=%&b=1"), form(b"b=1&a=%"));
    assert_ne!(print("text/plain", b"a=1&b=2"), print("text/plain", b"b=2&a=1"));
    let packed = |body: &[u8]| {
        let headers = [("content-type", "application/x-www-form-urlencoded"), ("content-encoding", "gzip")];
        print_as(&FingerprintRule::new(), &headers, &gzip(1, body))
    };
    assert_eq!(packed(b"a=1&b=2"), form(b"b=2&a=1"));
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
        Fingerprints::of("refund", &of("POST", "/payments", b""), &FingerprintRule::new(), &[]).current(),
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

#[test]
fn a_multipart_body_counts_without_its_boundary() {
    let rule = FingerprintRule::new();
    let form = |boundary: &str, value: &str| {
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n--{boundary}--\r\n"
        );
        print(&rule, &format!("multipart/form-data; boundary={boundary}"), &body)
    };
    assert_eq!(form("x1", "1"), form("another", "1"));
    assert_ne!(form("x1", "1"), form("x1", "2"));
    // Its pieces do not run into one another.
    let parts = |parts: &[&str]| {
        let body: String = parts.iter().map(|part| format!("--b\r\n{part}\r\n")).collect();
        print(&rule, "multipart/mixed; boundary=b", &format!("{body}--b--"))
    };
    assert_ne!(parts(&["ab", "c"]), parts(&["a", "bc"]));
    assert_ne!(parts(&["ab"]), parts(&["a", "b"]));
    let broken = |boundary: &str| {
        print(&rule, &format!("multipart/form-data; boundary={boundary}"), &format!("--{boundary}\r\nopen"))
    };
    assert_ne!(broken("x1"), broken("x2"), "a body that is not multipart counts by its bytes");
}

fn gzip(time: u32, body: &[u8]) -> Vec<u8> {
    let mut packer = GzBuilder::new().mtime(time).write(Vec::new(), Compression::fast());
    packer.write_all(body).unwrap();
    packer.finish().unwrap()
}

#[test]
fn a_packed_body_counts_by_what_is_packed() {
    let sent = |coding: &str, body: &[u8]| {
        print_as(&FingerprintRule::new(), &[("content-type", JSON), ("content-encoding", coding)], body)
    };
    let packed = sent("gzip", &gzip(1, br#"{"a":1,"b":2}"#));
    assert_eq!(packed, sent("GZIP", &gzip(2, br#"{"b":2,"a":1}"#)));
    assert_eq!(packed, sent("x-gzip", &gzip(2, br#"{"a":1,"b":2}"#)));
    assert_ne!(packed, sent("gzip", &gzip(1, br#"{"a":1,"b":3}"#)));
    assert_eq!(packed, sent("", br#"{"a":1,"b":2}"#), "how it travels does not count");
    // Several gzip members are one body, and bytes after them count.
    let members = |second: &[u8]| sent("gzip", &[gzip(1, b"one"), gzip(1, second)].concat());
    assert_eq!(members(b"two"), sent("gzip", &gzip(2, b"onetwo")));
    assert_ne!(members(b"two"), members(b"three"));
    let tail = |tail: &[u8]| sent("gzip", &[&gzip(1, b"one")[..], tail].concat());
    assert_ne!(tail(b"x"), tail(b"y"));
    // A body that claims gzip and is not, or would not fit, counts by its bytes; so does every other coding.
    let (plain, bomb) = (br#"{"a":1,"b":2}"#, vec![b' '; 6 * 1024 * 1024 + 1]);
    assert_ne!(packed, sent("gzip", plain));
    assert_ne!(sent("gzip", &gzip(1, &bomb)), sent("gzip", &gzip(2, &bomb)));
    assert_eq!(sent("gzip", &gzip(1, &bomb[1..])), sent("gzip", &gzip(2, &bomb[1..])));
    assert_ne!(sent("br", plain), sent("", plain));
    assert_ne!(sent("br", plain), sent("zstd", plain));
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
    let kept = Fingerprints::of("pay", &content, &old, &[]).current();

    let migrating = |content| Fingerprints::of("pay", content, &new, std::slice::from_ref(&old));
    assert_eq!(migrating(&content).matches(&kept), Some(true));
    assert_eq!(migrating(&other).matches(&kept), Some(false));
    assert_eq!(Fingerprints::of("pay", &content, &new, &[]).matches(&kept), None);
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

/// The form as `rule` makes it, made here by hand.
fn by_hand(kind: u8, id: &[u8], parts: &[u8]) -> Fingerprint {
    use sha2::{Digest, Sha256};
    let id = Sha256::digest([&[1, kind], id].concat());
    let digest = Sha256::digest([&[1, kind], parts].concat());
    Fingerprint::new(u32::from_be_bytes([id[0], id[1], id[2], id[3]]), digest.into())
}

fn parts(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| [&(part.len() as u64).to_be_bytes()[..], part].concat()).collect()
}

/// The number of pairs, then their parts.
fn pairs(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let parts: Vec<_> = pairs.iter().map(|&(name, value)| self::parts(&[name, value])).collect();
    [(pairs.len() as u64).to_be_bytes().to_vec(), parts.concat()].concat()
}

/// The number of parts, then the parts.
fn list(items: &[&[u8]]) -> Vec<u8> {
    [(items.len() as u64).to_be_bytes().to_vec(), parts(items)].concat()
}

// T36: records are compared for as long as they live. Once a version is published, a change of the form needs a new number.
#[test]
fn the_form_of_today_never_changes() {
    let query = [(Cow::Borrowed("a"), Cow::Borrowed("b")), (Cow::Borrowed("c"), Cow::Borrowed(""))];
    let header = |name: &str| match name {
        "content-type" => Some(Cow::Borrowed("application/json; v=\"2\"; charset=utf-8")),
        "if-match" => Some(Cow::Borrowed("\"e1\"")),
        "prefer" => Some(Cow::Borrowed("wait=1")),
        _ => None,
    };
    let content = Content::new("POST", "/payments", br#"{"b":1,"a":2,"t":3}"#).headers(&header);
    let content = Content { query: &query, ..content };
    let rule = FingerprintRule::new().leave_out("/t").header("prefer").header("absent");
    let absent = |headers: usize| [vec![0], parts(&[b""])].concat().repeat(headers);
    let expected = by_hand(
        b'r',
        &[list(&[b"/t"]), list(&[b"absent", b"prefer"])].concat(),
        &[
            parts(&[b"pay", b"POST", b"/payments"]),
            pairs(&[(b"a", b"b"), (b"c", b"")]),
            // Content-Range, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since.
            [absent(1), vec![1], parts(&[b"\"e1\""]), absent(4)].concat(),
            [absent(1), vec![1], parts(&[b"wait=1"])].concat(),
            parts(&[b"application/json"]),
            pairs(&[(b"v", b"2")]),
            parts(&[b""]),
            [b"j".to_vec(), parts(&[br#"{"a":2,"b":1}"#])].concat(),
        ]
        .concat(),
    );
    assert_eq!(Fingerprints::of("pay", &content, &rule, &[]).current(), expected);

    let plain = |content_type: &'static str, coding: &'static str, body: &[u8], tagged: Vec<u8>| {
        let header = |name: &str| match name {
            "content-type" => Some(Cow::Borrowed(content_type)),
            "content-encoding" => Some(Cow::Borrowed(coding)),
            _ => None,
        };
        let content = Content::new("POST", "/", body).headers(&header);
        let media_type = content_type.split(';').next().unwrap().as_bytes();
        let head = [
            parts(&[b"pay", b"POST", b"/"]),
            pairs(&[]),
            absent(6),
            parts(&[media_type]),
            pairs(&[]),
            parts(&[coding.as_bytes()]),
        ]
        .concat();
        let id = [list(&[]), list(&[])].concat();
        assert_eq!(current(&content), by_hand(b'r', &id, &[head, tagged].concat()), "{content_type}");
    };
    plain("text/plain", "br", b"text", [b"b".to_vec(), parts(&[b"text"])].concat());
    plain(
        "application/x-www-form-urlencoded",
        "",
        b"b=2&a=1",
        [b"u".to_vec(), pairs(&[(b"a", b"1"), (b"b", b"2")])].concat(),
    );
    let pieces = list(&[b"", b"one", b"two", b""]);
    plain(
        "multipart/mixed; boundary=x",
        "",
        b"--x\r\none\r\n--x\r\ntwo\r\n--x--",
        [b"m".to_vec(), pieces].concat(),
    );

    let custom = FingerprintRule::custom(7, |content| content.body.to_vec());
    let content = Content::new("POST", "/", b"intent");
    let expected = by_hand(b'f', &7u32.to_be_bytes(), &parts(&[b"pay", b"intent"]));
    assert_eq!(Fingerprints::of("pay", &content, &custom, &[]).current(), expected);
}
