//! Bodies that are not what their type says, or about which readers disagree: two different ones are never one request.

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderValue, Request},
};
use lambda_idempotency::{fingerprint::FingerprintRule, operation::Operation, store::memory::MemoryStore};

use crate::support::http::{Counter, Guard, PAY, api, guard, guard_of, order, send};

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// A request with these headers, and no others that count.
fn sent(headers: &[(&'static str, &str)], body: &[u8]) -> Request<Body> {
    let mut request = order("order-1").body(Body::from(body.to_vec())).unwrap();
    request.headers_mut().remove("content-type");
    for (name, value) in headers {
        request.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
    }
    request
}

fn counted(guard: Guard) -> (Router, Counter) {
    let runs = Counter::default();
    let counter = runs.clone();
    let app = api(guard, move |_, body: Bytes| {
        counter.add();
        async move { body.len().to_string() }
    });
    (app, runs)
}

/// The second body under the first one's key is refused, and each retry of the first gets its replay.
async fn assert_two(guard: Guard, headers: &[(&'static str, &str)], one: &[u8], other: &[u8]) {
    let (app, runs) = counted(guard);
    let first = send(&app, sent(headers, one)).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (200, None));
    let what = format!("{headers:?} {} {}", one.escape_ascii(), other.escape_ascii());
    let second = send(&app, sent(headers, other)).await;
    assert_eq!(second.status, 422, "{what}");
    second.assert_problem(422, "key-reused");
    send(&app, sent(headers, one)).await.assert_replay_of(&first);
    assert_eq!(runs.count(), 1, "{what}");
}

/// The second request is a retry of the first.
async fn assert_one(one: Request<Body>, other: Request<Body>) {
    let (app, runs) = counted(guard(MemoryStore::new()));
    let first = send(&app, one).await;
    send(&app, other).await.assert_replay_of(&first);
    assert_eq!(runs.count(), 1);
}

// T70: `curl --data` names a form's type for every body.
#[tokio::test]
async fn json_under_a_forms_type_counts_by_its_bytes() {
    for (one, other) in [
        (r#"{"iban":"A+B","amount":1}"#, r#"{"iban":"A B","amount":1}"#),
        (r#"{"q":"1&b&a&z"}"#, r#"{"q":"1&a&b&z"}"#),
        (r#"["%41"]"#, r#"["A"]"#),
        ("<note>1+1</note>", "<note>1 1</note>"),
        ("YWI+&YQ==", "YQ==&YWI+"),
        ("to=a&to", "to&to=a"),
        ("a.b=1&a_b=2", "a_b=2&a.b=1"),
        ("a[x]=1&a[y]=2", "a[y]=2&a[x]=1"),
        ("Amount=1&amount=2", "amount=2&Amount=1"),
    ] {
        assert_two(guard(MemoryStore::new()), &[("content-type", FORM)], one.as_bytes(), other.as_bytes())
            .await;
    }
}

// T70
#[tokio::test]
async fn a_body_under_another_type_or_charset_counts_by_its_bytes() {
    let (one, other) = (br#"{"a":1,"b":"\u00e9"}"#, "{\"b\":\"é\",\"a\":1}".as_bytes());
    for lines in [
        &["application/json; charset=utf-16"][..],
        &["application/json; charset=iso-8859-1"],
        &["application/json; charset=utf-8; charset=utf-16"],
        &["application/json; charset"],
        &["text/plain"],
        &["application/json, text/plain"],
        &["text/plain", "application/merge-patch+json"],
        &["application/json", "application/json"],
        &[],
    ] {
        let headers: Vec<_> = lines.iter().map(|line| ("content-type", *line)).collect();
        assert_two(guard(MemoryStore::new()), &headers, one, other).await;
    }
    for (one, other) in [
        (&b"\xEF\xBB\xBF{\"a\":1}"[..], &b"{\"a\":1}"[..]),
        (b"{\"a\":1}{\"a\":1}", b"{\"a\":1} {\"a\":1}"),
        (b"{\"a\":1}\0", b"{ \"a\":1}\0"),
    ] {
        assert_two(guard(MemoryStore::new()), &[("content-type", JSON)], one, other).await;
    }
}

/// A multipart body, whose delimiters are this boundary's.
fn multipart(boundary: &str, body: &str) -> Request<Body> {
    let content_type = format!("multipart/form-data; boundary={boundary}");
    sent(&[("content-type", &content_type)], body.replace("{b}", boundary).as_bytes())
}

// T70: the parts are the same text, which one boundary splits further for some parsers.
#[tokio::test]
async fn parts_that_not_all_parsers_see_count_by_their_bytes() {
    for body in [
        "--{b}\r\n\r\none --b two\r\n--{b}--",
        "--{b}\r\n\r\none\r\n--bx\r\ntwo\r\n--{b}--",
        "--{b}\r\n\r\none\n--b\ntwo\r\n--{b}--",
        "preamble\r\n--{b}\r\n\r\none\r\n--{b}--",
        "--{b}\r\n\r\none\r\n--{b}--\r\nepilogue",
        "--{b} \r\n\r\none\r\n--{b}--",
        "--{b}\r\n\r\none\r\n--{b}",
    ] {
        let (app, runs) = counted(guard(MemoryStore::new()));
        let first = send(&app, multipart("b", body)).await;
        assert_eq!(send(&app, multipart("c", body)).await.status, 422, "{body:?}");
        send(&app, multipart("b", body)).await.assert_replay_of(&first);
        assert_eq!(runs.count(), 1);
    }
    let form = "--{b}\r\n\r\none\r\n--{b}\r\n\r\ntwo --x\r\n--{b}--\r\n";
    for (one, other) in [("b", "----WebKitFormBoundaryA1"), ("\"b\"", "b")] {
        let of = |quoted: &str| {
            let mut request = multipart(quoted.trim_matches('"'), form);
            let content_type = format!("multipart/form-data; boundary={quoted}").parse().unwrap();
            request.headers_mut().insert("content-type", content_type);
            request
        };
        assert_one(of(one), of(other)).await;
    }
}

fn gzip(time: u32, body: &[u8]) -> Vec<u8> {
    let mut packer = flate2::GzBuilder::new().mtime(time).write(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, body).unwrap();
    packer.finish().unwrap()
}

// T70
#[tokio::test]
async fn a_packed_body_that_unpackers_read_differently_counts_by_its_bytes() {
    let whole = gzip(1, b"[1]");
    let again = gzip(2, b"[1]");
    for (coding, one, other) in [
        ("gzip", [gzip(1, b"[1"), gzip(1, b"]")].concat(), whole.clone()),
        ("gzip", [&whole[..], b"x"].concat(), [&again[..], b"x"].concat()),
        ("gzip", [&whole[..], &[0]].concat(), whole.clone()),
        ("gzip", gzip(1, &whole), gzip(1, &again)),
        ("gzip, gzip", gzip(1, &whole), gzip(2, &whole)),
        ("br", b"[1]".to_vec(), b"[ 1]".to_vec()),
        ("gzip", b"[1]".to_vec(), b"[ 1]".to_vec()),
        ("identity", b"[1]".to_vec(), b"[ 1]".to_vec()),
    ] {
        let headers = [("content-type", JSON), ("content-encoding", coding)];
        assert_two(guard(MemoryStore::new()), &headers, &one, &other).await;
    }
    let packed = |body: &[u8]| sent(&[("content-type", JSON), ("content-encoding", "GZip")], body);
    assert_one(packed(&whole), packed(&again)).await;
}

// T70
#[tokio::test]
async fn nothing_is_left_out_of_a_body_that_is_not_json() {
    for (content_type, one, other) in [
        (FORM, "sentAt=1", "sentAt=2"),
        (FORM, r#"{"sentAt":1}"#, r#"{"sentAt":2}"#),
        ("text/plain", r#"{"sentAt":1}"#, r#"{"sentAt":2}"#),
        ("application/json; charset=utf-16", r#"{"sentAt":1}"#, r#"{"sentAt":2}"#),
        (JSON, r#"{"sentAt":1}}"#, r#"{"sentAt":2}}"#),
        (JSON, r#"{"sentAt":1,"sentAt":1}"#, r#"{"sentAt":2,"sentAt":1}"#),
    ] {
        let operation = Operation::new(PAY).fingerprint(FingerprintRule::new().leave_out("/sentAt"));
        let guard = guard_of(MemoryStore::new(), operation);
        assert_two(guard, &[("content-type", content_type)], one.as_bytes(), other.as_bytes()).await;
    }
}

// T70
#[tokio::test]
async fn a_query_whose_order_a_reader_may_use_counts_as_sent() {
    let to = |query: &str| {
        let mut request = sent(&[("content-type", JSON)], b"{}");
        *request.uri_mut() = format!("/payments?{query}").parse().unwrap();
        request
    };
    for (one, other) in [
        ("a[][x]=1&a[][y]=2&a[][x]=3", "a[][x]=1&a[][x]=3&a[][y]=2"),
        ("a%5B%5D=1&b=2", "b=2&a%5B%5D=1"),
        ("a.b=1&a_b=2", "a_b=2&a.b=1"),
        ("A=1&a=2", "a=2&A=1"),
        ("a=%zz", "a=%25zz"),
        ("a=%", "a=%25"),
        ("a=%ff", "a=%fe"),
        ("a=1%26b=2", "a=1&b=2"),
    ] {
        let (app, runs) = counted(guard(MemoryStore::new()));
        let first = send(&app, to(one)).await;
        assert_eq!(send(&app, to(other)).await.status, 422, "{one} {other}");
        send(&app, to(one)).await.assert_replay_of(&first);
        assert_eq!(runs.count(), 1);
    }
    for (one, other) in [
        ("a=1&b=x+y", "b=x%20y&a=1"),
        ("a%5B%5D=1&a[]=2", "a[]=1&a%5b%5d=2"),
        ("a&b=", "a=&b"),
        ("a=1&&b=2", "b=2&a=1"),
    ] {
        assert_one(to(one), to(other)).await;
    }
}
