//! Bodies that only look equal: they are not what their type says, or readers disagree about them.

use super::*;

const FORM: &str = "application/x-www-form-urlencoded";

/// A content type, a content coding and two bodies.
type Case<'a> = (&'a str, &'a str, &'a [u8], &'a [u8]);

fn sent(content_type: &str, coding: &str, body: &[u8]) -> Fingerprint {
    let headers = [("content-type", content_type), ("content-encoding", coding)];
    print_as(&FingerprintRule::new().leave_out("/sentAt"), &headers, body)
}

/// Each two differ, and a retry of each is the same.
fn assert_differ(cases: &[Case<'_>]) {
    for (content_type, coding, one, other) in cases {
        let print = |body| sent(content_type, coding, body);
        assert_ne!(
            print(one),
            print(other),
            "{content_type:?} {coding:?}: {} {}",
            one.escape_ascii(),
            other.escape_ascii()
        );
        assert_eq!(print(one), print(one));
    }
}

// T70
#[test]
fn a_body_that_no_serializer_of_forms_writes_counts_by_its_bytes() {
    for (one, other) in [
        (r#"{"iban":"A+B"}"#, r#"{"iban":"A B"}"#),
        (r#"{"q":"1&b&a&z"}"#, r#"{"q":"1&a&b&z"}"#),
        (r#"["%61"]"#, r#"["a"]"#),
        ("<a>1+1</a>", "<a>1%2B1</a>"),
        ("1+1", "1%201"),
        ("b&a", "a&b"),
        ("YWI+YQ==&Yg==", "Yg==&YWI+YQ=="),
        ("a", "a="),
        ("", "&"),
        ("a=1&&b=2", "a=1&b=2"),
        ("a=1&", "a=1"),
        ("a=b=c", "a=b%3Dc"),
        ("a=%zz", "a=%25zz"),
        ("a=%&b=1", "b=1&a=%"),
        ("a=é", "a=%C3%A9"),
        ("a=x y", "a=x+y"),
        ("a=1;b=2", "a=1%3Bb=2"),
        ("a=b@c", "a=b%40c"),
        ("a=1\n", "a=1%0A"),
        ("a=%ff", "a=%fe"),
        ("a=%EF%BF%BD", "a=%ff"),
        ("%ff=1", "%fe=1"),
    ] {
        assert_differ(&[(FORM, "", one.as_bytes(), other.as_bytes())]);
    }
    assert_differ(&[(FORM, "", b"a=\xff", b"a=%ff")]);
}

// T70
#[test]
fn a_form_whose_order_a_reader_may_use_counts_by_its_bytes() {
    for (one, other) in [
        ("a%5B%5D%5Bx%5D=1&a%5B%5D%5By%5D=2", "a%5B%5D%5By%5D=2&a%5B%5D%5Bx%5D=1"),
        ("a.b=1&a_b=2", "a_b=2&a.b=1"),
        ("a+b=1&a_b=2", "a_b=2&a+b=1"),
        ("A=1&a=2", "a=2&A=1"),
        ("=1&a=2", "a=2&=1"),
        ("a=1&%C3%A9=2", "%C3%A9=2&a=1"),
    ] {
        assert_differ(&[(FORM, "", one.as_bytes(), other.as_bytes())]);
    }
}

// T70
#[test]
fn text_in_another_charset_counts_by_its_bytes() {
    let json: (&[u8], &[u8]) = (br#"{"a":1,"b":"\u00e9"}"#, "{\"b\":\"é\",\"a\":1}".as_bytes());
    for parameters in [
        "charset=utf-16",
        "charset=iso-8859-1",
        "charset=\"latin1\"",
        "charset=utf-7",
        "charset=utf-8; charset=utf-16",
        "charset=utf-16; charset=utf-8",
        "CHARSET=UTF-16",
        "charset=\"\"",
        "charset=",
        "charset=\"utf\\-8\"",
        "charset",
        "charset=utf-8 charset=utf-16",
        "charset=\"utf-8",
    ] {
        let (json_type, form_type) = (format!("{JSON}; {parameters}"), format!("{FORM}; {parameters}"));
        assert_differ(&[(&json_type, "", json.0, json.1), (&form_type, "", b"a=1&b=2", b"b=2&a=1")]);
    }
    assert_differ(&[
        (JSON, "", b"\xEF\xBB\xBF{\"a\":1}", b"{\"a\":1}"),
        (JSON, "", b"\xEF\xBB\xBF{\"a\":1}", b"\xEF\xBB\xBF{ \"a\":1}"),
        (JSON, "", b"\xff\xfe{\0}\0", b"\xff\xfe{\0 \0}\0"),
    ]);
}

// T70
#[test]
fn a_body_of_a_doubtful_type_counts_by_its_bytes() {
    for content_type in [
        "",
        "json",
        "text/json",
        "text/plain",
        "application/json-seq",
        "application/x-ndjson",
        "application/geo+json-seq",
        "application/+json",
        "application/x+json+xml",
        "application/json x",
        // Two lines of the header.
        "application/json, text/plain",
        "application/json,application/json",
        "text/plain, application/merge-patch+json",
        "application/json; charset=utf-8, text/plain",
        "application/json; a=\"1\", text/plain; b=\"2\"",
        "application/x-www-form-urlencoded, application/json",
    ] {
        assert_differ(&[
            (content_type, "", b"[1, 2]", b"[1,2]"),
            (content_type, "", b"{\"a\":1,\"sentAt\":1}", b"{\"a\":1,\"sentAt\":2}"),
        ]);
    }
    for content_type in
        ["", "text/plain", "application/x-www-form-urlencoded, text/plain", "application/x-form"]
    {
        assert_differ(&[(content_type, "", b"a=1&b=2", b"b=2&a=1")]);
    }
    assert_differ(&[
        (JSON, "", b"{} {}", b"{}{}"),
        (JSON, "", b"{}\0", b"{ }\0"),
        (JSON, "", b"{\"a\":1,\"a\":2}", b"{\"a\":2,\"a\":1}"),
        // Nothing is left out of what is not JSON.
        (JSON, "", b"{\"sentAt\":1}x", b"{\"sentAt\":2}x"),
        (FORM, "", b"sentAt=1", b"sentAt=2"),
        (
            "multipart/mixed; boundary=b",
            "",
            b"--b\r\n\r\n{\"sentAt\":1}\r\n--b--",
            b"--b\r\n\r\n{\"sentAt\":2}\r\n--b--",
        ),
    ]);
}

// T70
#[test]
fn a_multipart_body_that_parsers_may_split_differently_counts_by_its_bytes() {
    let whole = "--{b}\r\nA: 1\r\n\r\none\r\n--{b}--\r\n";
    for (parameters, body) in [
        ("boundary={b}", format!("preamble\r\n{whole}")),
        ("boundary={b}", format!("\r\n\r\n{whole}")),
        ("boundary={b}", format!("\n{whole}")),
        ("boundary={b}", format!("{whole}epilogue")),
        ("boundary={b}", format!("{whole}\n")),
        ("boundary={b}", format!("{whole}\r\n\r")),
        ("boundary={b}", "--{b} \t\r\none\r\n--{b}--".to_owned()),
        ("boundary={b}", "--{b}\r\none\r\n--{b}-- ".to_owned()),
        // The boundary of the first body elsewhere than between its parts.
        ("boundary={b}", "--{b}\r\none --first two\r\n--{b}--".to_owned()),
        ("boundary={b}", "--{b}\r\none\r\n--firstc\r\ntwo\r\n--{b}--".to_owned()),
        ("boundary={b}", "--{b}\r\none\n--first\ntwo\r\n--{b}--".to_owned()),
        ("boundary={b}", "--{b}\r\none\r\n--first x\r\ntwo\r\n--{b}--".to_owned()),
        ("boundary={b}", "--{b}\none\n--{b}--".to_owned()),
        ("boundary={b}", format!("{whole}{whole}")),
        // Cut off.
        ("boundary={b}", "--{b}\r\none".to_owned()),
        ("boundary={b}", "--{b}\r\none\r\n--{b}".to_owned()),
        ("boundary={b}", "--{b}\r\none\r\n--{b}\r\n".to_owned()),
        ("boundary={b}", "--{b}\r\none\r\n--{b}-".to_owned()),
        ("boundary={b}", "--{b}\r\n--{b}--".to_owned()),
        ("boundary={b}", String::new()),
        // Which boundary it is depends on the parser.
        ("boundary={b}; boundary={b}", whole.to_owned()),
        ("boundary={b}, multipart/mixed; boundary=z", whole.to_owned()),
        ("boundary=\"{b};q\"", whole.replace("{b}", "{b};q")),
        ("boundary=\"{b} q\"", whole.replace("{b}", "{b} q")),
        ("boundary=\"\\{b}\"", whole.to_owned()),
        ("boundary=\"{b}é\"", whole.replace("{b}", "{b}é")),
        (
            "boundary={b}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            whole.replace("{b}", &format!("{{b}}{}", "x".repeat(71))),
        ),
    ] {
        let print = |boundary: &str| {
            let content_type = format!("multipart/mixed; {}", parameters.replace("{b}", boundary));
            sent(&content_type, "", body.replace("{b}", boundary).as_bytes())
        };
        assert_ne!(print("first"), print("another"), "{parameters} {body:?}");
    }
    let twice = "--a\r\n--b\r\none\r\n--a--\r\n--b--";
    assert_ne!(
        sent("multipart/mixed; boundary=a; boundary=b", "", twice.as_bytes()),
        sent("multipart/mixed; boundary=b; boundary=a", "", twice.as_bytes())
    );
    let as_type = |content_type: &str| {
        sent(&format!("{content_type}; boundary=b"), "", whole.replace("{b}", "b").as_bytes())
    };
    assert_ne!(as_type("text/plain"), as_type("multipart/mixed"));
    // The parts count by their bytes, a boundary of their own and a transfer encoding among them.
    let part = |headers: &str, text: &str| {
        let body = format!("--b\r\n{headers}\r\n\r\n{text}\r\n--b--");
        sent("multipart/mixed; boundary=b", "", body.as_bytes())
    };
    let nested = |boundary: &str| {
        part(
            &format!("Content-Type: multipart/mixed; boundary={boundary}"),
            &format!("--{boundary}\r\n\r\n--{boundary}--"),
        )
    };
    assert_ne!(nested("x"), nested("y"));
    assert_ne!(
        part("Content-Transfer-Encoding: base64", "YQ=="),
        part("Content-Transfer-Encoding: 7bit", "a")
    );
    assert_ne!(part("A: 1\r\nB: 2", ""), part("B: 2\r\nA: 1", ""));
}

// T70
#[test]
fn a_body_that_unpackers_read_differently_counts_by_its_bytes() {
    let json = |text: &str| (gzip(1, text.as_bytes()), gzip(2, text.as_bytes()));
    let (one, other) = json("{\"a\":1}");
    let behind = |tail: &[u8]| ([&one[..], tail].concat(), [&other[..], tail].concat());
    let corrupt = |mut body: Vec<u8>| {
        let end = body.len() - 1;
        body[end] ^= 1;
        body
    };
    // More than a plain body may be.
    let long = vec![b' '; 6 * 1024 * 1024 + 1];
    for (what, (one, other)) in [
        ("two members, and one of both", ([gzip(1, b"[1"), gzip(1, b"]")].concat(), gzip(1, b"[1]"))),
        ("two members, and the first", ([&one[..], &gzip(1, b"")].concat(), one.clone())),
        ("two members in another packing", behind(&gzip(1, b" "))),
        ("bytes behind", behind(b"x")),
        ("a zero behind", behind(&[0])),
        ("cut off", (one[..one.len() - 1].to_vec(), other[..other.len() - 1].to_vec())),
        ("another checksum", (corrupt(one.clone()), corrupt(other.clone()))),
        ("packed twice", (gzip(1, &one), gzip(1, &other))),
        ("too long", (gzip(1, &long), gzip(2, &long))),
        ("no gzip", (b"{\"a\":1}".to_vec(), b"{ \"a\":1}".to_vec())),
    ] {
        assert_ne!(sent(JSON, "gzip", &one), sent(JSON, "gzip", &other), "{what}");
    }
    assert_differ(&[
        (JSON, "gzip, gzip", &one, &other),
        (JSON, "gzip,gzip", &gzip(1, &one), &gzip(1, &other)),
        (JSON, "deflate", &one, &other),
        ("application/gzip", "", &one, &other),
    ]);
    // What is in a coding that is not read here is not known to be JSON.
    for coding in ["br", "zstd", "deflate", "identity", "gzip, br", "gzip"] {
        assert_differ(&[(JSON, coding, b"[1]", b"[ 1]"), (FORM, coding, b"a=1&b=2", b"b=2&a=1")]);
        assert_ne!(sent(JSON, coding, b"[1]"), sent(JSON, "", b"[1]"), "{coding}");
    }
}
