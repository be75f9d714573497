//! The answer that an operator gives to `settle --completed`, from a file.

use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::{self, Read},
    path::Path,
};

use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};
use lambda_idempotency::record::{Answer, Head, SAFE_HEADERS, may_be_kept};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{failure::Failure, values::object};

/// The longest body that fits into a body item.
const MAX_BODY: usize = 400_000;

/// The length of all headers together.
const MAX_HEADERS: usize = 16 * 1024;

/// More than the largest answer, with any white space.
const MAX_FILE: u64 = 8 * 1024 * 1024;

/// The file. Over HTTP: `status` and perhaps `headers`; `body` is a JSON value, `text` any other text. Of a function: `payload` is the JSON
/// value that it returned, `refusal` says why it refused its input. Each member is parsed alone, so that an error can name it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    body: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    text: Option<&'a RawValue>,
}

/// `null` is a body too.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

/// Reads the answer that every retry will get from a file, and adds `more` headers (`name: value`). Headers named in `also`, which
/// the operation keeps too, are allowed.
pub fn read(path: &Path, more: &[String], also: &[String]) -> Result<Answer, Failure> {
    let also: Vec<_> = also.iter().map(|name| name.to_ascii_lowercase()).collect();
    if let Some(never) = also.iter().find(|name| !may_be_kept(name)) {
        return Err(Failure::Usage(format!("--keep-header: no guard keeps the header {never:?}")));
    }
    let more = arguments(more, &also).map_err(|what| Failure::Usage(format!("--header: {what}")))?;

    let wrong = |what: String| Failure::Usage(format!("{}: {what}", path.display()));
    let text = text_of(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text, more, &also).map_err(wrong)
}

/// A file's text, without the byte order mark that some editors write before it: a reader of JSON may leave it out
/// ([RFC 8259, section 8.1](https://www.rfc-editor.org/rfc/rfc8259#section-8.1)).
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// What an operator gives to this option: JSON, or `@` and the name of a file with JSON.
pub fn json(option: &str, given: &str) -> Result<String, Failure> {
    let wrong = |what: String| Failure::Usage(format!("{option}: {what}"));
    let text = match given.strip_prefix('@') {
        Some(path) => text_of(Path::new(path)).map_err(|error| wrong(format!("{path}: {error}")))?,
        None => given.to_owned(),
    };
    let json = serde_json::from_str::<&RawValue>(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(compact(json.get()))
}

/// The headers that were given as arguments. They are checked before the file, so that errors do not name the file.
fn arguments(more: &[String], also: &[String]) -> Result<Vec<(String, String)>, String> {
    let more = more.iter().map(|header| name_and_value(header)).collect::<Result<Vec<_>, _>>()?;
    headers(more.into_iter(), also, None)
}

fn name_and_value(header: &str) -> Result<(String, String), String> {
    match header.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(format!("{header:?} is not `name: value`")),
    }
}

fn parse(text: &str, more: Vec<(String, String)>, also: &[String]) -> Result<Answer, String> {
    let written: Written = object(text)?;
    if written.payload.is_some() || written.refusal.is_some() {
        return of_function(&written, &more);
    }
    let given = written.status.ok_or("give `status`; or, for a function, `payload` or `refusal`")?;
    let status: Option<u16> = value(given);
    let Some(status) = status.filter(|status| (200..=599).contains(status)) else {
        return Err(format!("{given} is not a status for an answer: give 200 to 599"));
    };
    let (body, content_type) = match (written.body, written.text) {
        (Some(_), Some(_)) => return Err("give `body` or `text`, not both".into()),
        (Some(json), None) => (compact(json.get()), Some("application/json")),
        (None, Some(text)) => {
            let text: String = value(text).ok_or("`text` is not a string")?;
            (text, Some("text/plain; charset=utf-8"))
        }
        (None, None) if matches!(status, 204 | 304) => (String::new(), None),
        // A missing body is more often a mistake than intended, and every retry would get the empty answer.
        (None, None) => {
            return Err(r#"give `body` or `text`; for an empty answer, give "text": """#.into());
        }
    };
    if matches!(status, 204 | 304) && !body.is_empty() {
        return Err(format!("an answer with status {status} has no body"));
    }
    fits(body.len())?;
    let written =
        written.headers.map(|headers| value(headers).ok_or("`headers` is not an object of strings"));
    let written: BTreeMap<String, String> = written.transpose()?.unwrap_or_default();
    let headers = headers(written.into_iter().chain(more), also, content_type)?;
    Ok(Answer::http(status, headers, body))
}

/// The answer of a function: its callers get it from [`Guard::run`](lambda_idempotency::Guard::run).
fn of_function(written: &Written<'_>, more: &[(String, String)]) -> Result<Answer, String> {
    let over_http = [written.status, written.headers, written.body, written.text];
    if over_http.iter().any(Option::is_some) || !more.is_empty() {
        return Err("`payload` and `refusal` are for functions, which have no status, headers or body".into());
    }
    match (written.payload, written.refusal) {
        (Some(payload), None) => {
            let body = compact(payload.get());
            fits(body.len())?;
            Ok(Answer { head: Head::Payload, body: body.into() })
        }
        (None, Some(refusal)) => {
            let reason: Option<String> = value(refusal);
            let reason = reason.filter(|reason| !reason.is_empty());
            let reason = reason.ok_or("`refusal` is not a string that says why")?;
            fits(reason.len())?;
            Ok(Answer::refusal(reason))
        }
        _ => Err("give `payload` or `refusal`, not both".into()),
    }
}

fn fits(length: usize) -> Result<(), String> {
    if length > MAX_BODY {
        return Err(format!("the body has {length} bytes; {MAX_BODY} can be kept"));
    }
    Ok(())
}

fn value<T: DeserializeOwned>(json: &RawValue) -> Option<T> {
    serde_json::from_str(json.get()).ok()
}

/// The headers, if all of them may be replayed.
fn headers(
    written: impl Iterator<Item = (String, String)>,
    also: &[String],
    content_type: Option<&str>,
) -> Result<Vec<(String, String)>, String> {
    let mut names = HashSet::new();
    let mut headers = Vec::new();
    for (name, value) in written {
        let parsed = HeaderName::try_from(&name).map_err(|_| format!("{name:?} is not a header's name"))?;
        if !SAFE_HEADERS.contains(&parsed.as_str()) && !also.iter().any(|kept| kept == parsed.as_str()) {
            let safe = SAFE_HEADERS.join(", ");
            let hint = match may_be_kept(parsed.as_str()) {
                true => ", and those that its operation keeps: give --keep-header if it does",
                false => "",
            };
            return Err(format!("the header `{parsed}` is not replayed; these are: {safe}{hint}"));
        }
        if HeaderValue::try_from(&value).is_err() {
            return Err(format!("the header `{parsed}` has a value that no header can have"));
        }
        if !names.insert(parsed.clone()) {
            return Err(format!("the header `{parsed}` is given twice"));
        }
        headers.push((parsed.to_string(), value));
    }
    if let Some(content_type) = content_type.filter(|_| !names.contains(&CONTENT_TYPE)) {
        headers.push(("content-type".to_owned(), content_type.to_owned()));
    }
    if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_HEADERS {
        return Err(format!("the headers are longer than {MAX_HEADERS} bytes"));
    }
    Ok(headers)
}

/// JSON without insignificant white space. Everything else stays as written, even numbers that no type of ours can
/// represent.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |c: &char| {
        if in_string {
            (in_string, escaped) = (escaped || *c != '"', !escaped && *c == '\\');
            return true;
        }
        in_string = *c == '"';
        !matches!(c, ' ' | '\t' | '\n' | '\r')
    };
    json.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Answer, String> {
        super::parse(text, Vec::new(), &[])
    }

    fn body(text: &str) -> String {
        String::from_utf8(parse(text).unwrap().body.to_vec()).unwrap()
    }

    #[test]
    fn a_json_body_is_kept_as_it_was_written_without_white_space() {
        let text = r#"{"status": 201, "body": { "b": "a \" b\\", "a" : [1.10, 9007199254740993, 1E400] } }"#;
        assert_eq!(body(text), r#"{"b":"a \" b\\","a":[1.10,9007199254740993,1E400]}"#);
        assert_eq!(body(r#"{"status":200,"body":null}"#), "null");
        assert_eq!(body(r#"{"status":200,"text":" a\n b "}"#), " a\n b ");
        assert_eq!(body(r#"{"status":200,"text":""}"#), "");
        for without in [r#"{"status":204}"#, r#"{"status":304}"#] {
            assert_eq!(body(without), "");
        }
    }

    #[test]
    fn a_byte_order_mark_before_a_file_is_left_out() {
        let path = std::env::temp_dir().join(format!("answer-{}.json", std::process::id()));
        std::fs::write(&path, "\u{feff}{\"status\":201,\"body\":{\"id\":1}}").unwrap();
        let answer = read(&path, &[], &[]);
        let given = json("--result", &format!("@{}", path.display()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(answer.ok().map(|answer| answer.body), Some(r#"{"id":1}"#.into()));
        assert_eq!(given.ok().as_deref(), Some(r#"{"status":201,"body":{"id":1}}"#));
    }

    #[test]
    fn the_content_type_follows_the_body_unless_one_is_given() {
        let headers = |text| parse(text).unwrap().head.headers().to_vec();
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers(r#"{"status":201,"body":1}"#), [header("content-type", "application/json")]);
        let own =
            r#"{"status":201,"headers":{"Content-Type":"application/vnd.x+json","location":"/1"},"body":1}"#;
        assert_eq!(
            headers(own),
            [header("content-type", "application/vnd.x+json"), header("location", "/1")]
        );
        assert_eq!(headers(r#"{"status":204}"#), []);
    }

    // T26
    #[test]
    fn headers_of_arguments_are_kept_if_the_guard_would_keep_them() {
        let read = |more: &[&str], also: &[&str]| {
            let also: Vec<_> = also.iter().map(|name| (*name).to_owned()).collect();
            let more: Vec<_> = more.iter().map(|header| (*header).to_owned()).collect();
            let more = arguments(&more, &also)?;
            let answer = super::parse(r#"{"status":204,"headers":{"etag":"1"}}"#, more, &also)?;
            Ok::<_, String>(answer.head.headers().to_vec())
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let location = read(&["Location: https://shop.example/1"], &[]);
        assert_eq!(location, Ok(vec![header("etag", "1"), header("location", "https://shop.example/1")]));
        let own = read(&["X-Request-Id:7"], &["x-request-id"]);
        assert_eq!(own, Ok(vec![header("etag", "1"), header("x-request-id", "7")]));
        for (wrong, why) in [
            ("location", "not `name: value`"),
            ("ETag: 2", "twice"),
            ("x-request-id: 7", "give --keep-header"),
            ("a b: c", "not a header's name"),
            ("link: a\u{7}", "no header can have"),
        ] {
            let message = read(&[wrong], &[]).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
        let message = read(&["Set-Cookie: a=b"], &[]).unwrap_err();
        assert!(message.contains("is not replayed") && !message.contains("--keep-header"), "{message}");
    }

    #[test]
    fn a_function_is_answered_by_a_payload_or_a_refusal() {
        for (text, expected) in [
            (r#"{"payload": { "label" : "a b" }}"#, Answer::payload(&json!({ "label": "a b" })).unwrap()),
            (r#"{"payload":null}"#, Answer::payload(&()).unwrap()),
            (r#"{"refusal":"no such address"}"#, Answer::refusal("no such address")),
        ] {
            assert_eq!(parse(text), Ok(expected));
        }
        for (wrong, why) in [
            (r#"{"payload":1,"refusal":"x"}"#, "not both"),
            (r#"{"payload":1,"status":200}"#, "have no status"),
            (r#"{"refusal":"x","body":1}"#, "have no status"),
            (r#"{"refusal":""}"#, "says why"),
            (r#"{"refusal":null}"#, "says why"),
        ] {
            let message = parse(wrong).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
        let header = vec![("etag".to_owned(), "1".to_owned())];
        assert!(super::parse(r#"{"payload":1}"#, header, &[]).unwrap_err().contains("have no status"));
        let long = format!(r#"{{"refusal":"{}"}}"#, "x".repeat(MAX_BODY + 1));
        assert!(parse(&long).unwrap_err().contains("400001 bytes"));
    }

    #[test]
    fn an_answer_that_cannot_be_replayed_is_refused() {
        let long = format!(r#"{{"status":200,"text":"{}"}}"#, "x".repeat(MAX_BODY + 1));
        for (wrong, why) in [
            (r#"{"status":99}"#, "99"),
            (r#"{"status":100}"#, "100"),
            (r#"{"status":600}"#, "600"),
            (r#"{"body":{}}"#, "status"),
            (r#"{"status":200}"#, "give `body` or `text`"),
            (r#"{"status":201,"headers":{"location":"/1"}}"#, "give `body` or `text`"),
            (r#"{"status":200,"body":1,"text":"1"}"#, "not both"),
            (r#"{"status":204,"body":{}}"#, "no body"),
            (r#"{"status":200,"boddy":1}"#, "boddy"),
            (r#"{"status":200,"text":"","headers":{"set-cookie":"a=b"}}"#, "set-cookie"),
            (r#"{"status":200,"text":"","headers":{"a b":"c"}}"#, "a b"),
            (r#"{"status":200,"text":"","headers":{"link":"a\nb"}}"#, "link"),
            (r#"{"status":200,"text":"","headers":{"ETag":"1","etag":"2"}}"#, "twice"),
            (r#"{"status":200} x"#, "trailing"),
            ("201", "is not a JSON object"),
            (r#"[200,{},"x",null]"#, "is not a JSON object"),
            (r#"{"status":"200","text":""}"#, "\"200\" is not a status"),
            (r#"{"status":70000,"text":""}"#, "70000 is not a status"),
            (r#"{"status":200,"text":null}"#, "`text` is not a string"),
            (r#"{"status":200,"text":["x"]}"#, "`text` is not a string"),
            (r#"{"status":200,"text":"","headers":[["link","/"]]}"#, "`headers` is not an object"),
            (r#"{"status":200,"text":"","headers":{"link":1}}"#, "`headers` is not an object"),
            (&long, "400001 bytes"),
        ] {
            let message = parse(wrong).unwrap_err();
            assert!(message.contains(why), "{message}");
            // The names of our types mean nothing to an operator.
            assert!(
                !["Written", "struct", "u16", "sequence"].iter().any(|name| message.contains(name)),
                "{message}"
            );
        }
    }
}
