//! Which bodies are one: those that their own type calls equal.

use super::*;

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
    assert_eq!(json(JSON), json("application/json;charset=\"UTF8\""));
    assert_eq!(json("application/json; a=1; charset=utf-8; b=2"), json("application/json;B=\"2\";a=1"));
    for other in [
        "application/merge-patch+json",
        "application/json-patch+json",
        "text/plain",
        "",
        "application/json; version=2",
        "application/json; charset=us-ascii",
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
    for (one, other) in [
        (&b"a=1&b=2"[..], &b"b=2&a=1"[..]),
        (b"a=1&b=x+y", b"b=x%20y&a=1"),
        (b"a=%c3%a9", b"a=%C3%A9"),
        // As `encodeURIComponent`, RFC 3986 and the URL Standard write it.
        (b"a=~!*'()", b"a=%7E%21*%27%28%29"),
        (b"user_id=1&user-name=2", b"user-name=2&user%5Fid=1"),
        (b"a=1&a=2&b=3", b"a=1&b=3&a=2"),
        (b"a=%3D", b"a=%3d"),
        (b"a%5B%5D=x+y&a%5B%5D=2", b"a%5b%5d=x%20y&a%5B%5D=2"),
    ] {
        assert_eq!(form(one), form(other), "{} {}", one.escape_ascii(), other.escape_ascii());
    }
    assert_eq!(form(b"a=1&b=2"), print("Application/X-WWW-Form-Urlencoded", b"b=2&a=1"));
    for (one, other) in [
        (&b"a=1&b=2"[..], &b"a=2&b=1"[..]),
        (b"a=1&a=2", b"a=2&a=1"),
        (b"a=1&b=2", b"a=1%26b=2"),
        (b"a=1", b"a=1&a=1"),
        (b"ab=c", b"a=bc"),
        (b"a=+", b"a=%2B"),
        (b"A=1", b"a=1"),
    ] {
        assert_ne!(form(one), form(other), "{} {}", one.escape_ascii(), other.escape_ascii());
    }
    let many = |names: std::ops::Range<u32>| {
        names.map(|name| format!("n{name}=1")).collect::<Vec<_>>().join("&").into_bytes()
    };
    let turned = |half: u32| [many(half..2 * half), many(0..half)].join(&b'&');
    assert_eq!(form(&many(0..10_000)), form(&turned(5_000)));
    assert_ne!(form(&many(0..10_002)), form(&turned(5_001)), "they are compared as they were sent");
    let packed = |body: &[u8]| {
        let headers = [("content-type", "application/x-www-form-urlencoded"), ("content-encoding", "gzip")];
        print_as(&FingerprintRule::new(), &headers, &gzip(1, body))
    };
    assert_eq!(packed(b"a=1&b=2"), form(b"b=2&a=1"));
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
    // As browsers send a form without fields, and with a line break at the end or without.
    let empty = |boundary: &str, end: &str| {
        print(
            &rule,
            &format!("multipart/form-data; boundary=\"{boundary}\""),
            &format!("--{boundary}--{end}"),
        )
    };
    assert_eq!(empty("x1", ""), empty("=_x:2", "\r\n"));
    // As some clients write it, with line breaks around it.
    let around = |before: &str, boundary: &str, after: &str| {
        let content_type = format!("multipart/mixed; boundary={boundary}");
        print(&rule, &content_type, &format!("{before}--{boundary}\r\none\r\n--{boundary}--{after}"))
    };
    assert_eq!(around("", "x1", "\r\n\r\n"), around("", "x2", "\r\n\r\n"));
    assert_eq!(around("\r\n", "x1", "\r\n"), around("\r\n", "x2", "\r\n"));
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
    // Of one length, so that it is the whole that fits.
    let largest = vec![b' '; 6 * 1024 * 1024];
    assert_eq!(sent("gzip", &gzip(1, &largest)), sent("gzip", &gzip(2, &largest)));
    // A body under a form's type, and one in parts, are unpacked too.
    let parts = |boundary: &str, time| {
        let content_type = format!("multipart/mixed; boundary={boundary}");
        let headers = [("content-type", &*content_type), ("content-encoding", "gzip")];
        let body = format!("--{boundary}\r\n\r\na\r\n--{boundary}--");
        print_as(&FingerprintRule::new(), &headers, &gzip(time, body.as_bytes()))
    };
    assert_eq!(parts("x", 1), parts("y", 2));
}
