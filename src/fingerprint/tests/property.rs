//! Fingerprints compared with the [oracle](super::oracle), on bodies that are valid, nearly valid, or not what their type says.

use proptest::{
    collection,
    prelude::*,
    sample::{Index, select},
    test_runner::{RngSeed, TestRunner},
};

use super::{
    oracle::{Meaning, Sent},
    *,
};

const TYPES: [&[&str]; 4] = [
    &[
        "application/json",
        "Application/JSON ; Charset=\"UTF-8\"",
        "application/json; charset=utf-16",
        "application/json; v=1; w=2",
        "application/json;w=\"2\"; V=1;",
        "application/json, text/plain",
        "text/plain, application/x+json",
        "application/x+json",
        "application/json; charset",
    ],
    &[
        "application/x-www-form-urlencoded",
        "Application/x-www-form-urlencoded;",
        "application/x-www-form-urlencoded; charset=utf-8",
        "application/x-www-form-urlencoded; charset=latin1",
        "application/x-www-form-urlencoded, application/json",
    ],
    &[
        "multipart/mixed; boundary=b",
        "multipart/mixed; boundary=\"b\"",
        "multipart/mixed; boundary=bb",
        "multipart/mixed; boundary=a; boundary=b",
        "multipart/mixed; boundary=\"b b\"",
        "multipart/mixed; boundary=c",
    ],
    &["", "text/plain", "json"],
];

const BODIES: [&[&str]; 3] = [
    &[
        r#"{"a":1,"b":2}"#,
        r#"{"b":2.0,"a":10e-1}"#,
        r#"{ "a" : 1 , "b" : 2 }"#,
        r#"{"a":[1,-0,"é",null],"b":{"c":true}}"#,
        r#"{"b":{"c":true},"a":[1.0,0,"\u00e9",null]}"#,
        r#"{"iban":"A+B"}"#,
        r#"{"iban":"A B"}"#,
        r#"{"id":9007199254740993}"#,
        r#"{"id":9007199254740992}"#,
        "[1,2]",
        "1",
        "1.0",
        "[]",
    ],
    &[
        "a=1&b=2",
        "b=2&a=1",
        "a=x+y&b=%c3%a9",
        "b=%C3%A9&a=x%20y",
        "a=1&a=2&b=3",
        "a=1&b=3&a=2",
        "a",
        "a=",
        "=1",
    ],
    &[
        "--b\r\n\r\none\r\n--b--",
        "--b\r\n\r\none\r\n--b--\r\n",
        "--bb\r\n\r\none\r\n--bb--",
        "--c\r\n\r\none\r\n--c--",
        "--b\r\n\r\none\r\n--b\r\nA: 1\r\n\r\n--bb\r\n--b--",
        "--bb\r\n\r\none\r\n--bb\r\nA: 1\r\n\r\n--b\r\n--bb--",
        "--c--",
        "--b--",
    ],
];

const TOKENS: [&str; 38] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    " ",
    "\u{feff}",
    "0",
    "1",
    ".0",
    "e0",
    "-",
    "+",
    "&",
    "=",
    "%",
    "%20",
    "%2B",
    "%61",
    "%ff",
    "a=1",
    "&a=1",
    "b=",
    "A=2",
    "[]",
    ";",
    "\r\n",
    "\n",
    "--b",
    "--bb",
    "--",
    "\r\n--b\r\n",
    "\"a\":1,",
    "é",
    "\0",
];

/// A small change.
#[derive(Clone, Debug)]
enum Edit {
    Insert(&'static str, Index),
    Append(&'static str),
    Remove(Index),
    Replace(Index, u8),
    /// Turns the pieces between these bytes round.
    Reverse(u8),
    Pack(u32),
    PackTwice,
    /// Packs the two halves as two members.
    Halves(Index),
    Code(&'static str),
}

impl Edit {
    fn apply(&self, sent: &mut Sent) {
        let body = &mut sent.body;
        let place = |index: &Index| index.index(body.len() + 1);
        match self {
            Self::Insert(token, at) => {
                let at = place(at);
                body.splice(at..at, token.bytes());
            }
            Self::Append(token) => body.extend_from_slice(token.as_bytes()),
            Self::Remove(at) if !body.is_empty() => drop(body.remove(at.index(body.len()))),
            Self::Replace(at, byte) if !body.is_empty() => {
                let at = at.index(body.len());
                body[at] = *byte;
            }
            Self::Remove(_) | Self::Replace(..) => {}
            Self::Reverse(separator) => {
                let mut pieces: Vec<_> = body.split(|byte| byte == separator).collect();
                pieces.reverse();
                *body = pieces.join(separator);
            }
            Self::Pack(time) => {
                *sent = Sent { coding: "gzip".to_owned(), body: gzip(*time, body), ..sent.clone() }
            }
            Self::PackTwice => {
                *sent = Sent { coding: "gzip".to_owned(), body: gzip(1, &gzip(1, body)), ..sent.clone() };
            }
            Self::Halves(at) => {
                let (first, second) = body.split_at(place(at));
                *sent = Sent {
                    coding: "GZIP".to_owned(),
                    body: [gzip(1, first), gzip(1, second)].concat(),
                    ..sent.clone()
                };
            }
            Self::Code(coding) => sent.coding = (*coding).to_owned(),
        }
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (select(&TOKENS[..]), any::<Index>()).prop_map(|(token, at)| Edit::Insert(token, at)),
        1 => select(&TOKENS[..]).prop_map(Edit::Append),
        2 => any::<Index>().prop_map(Edit::Remove),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        3 => select(&b"&,"[..]).prop_map(Edit::Reverse),
        4 => (0..3u32).prop_map(Edit::Pack),
        1 => Just(Edit::PackTwice),
        1 => any::<Index>().prop_map(Edit::Halves),
        1 => select(&["", "gzip", "br", "identity"][..]).prop_map(Edit::Code),
    ]
}

/// Two bodies of one kind: of one text half of the time, and mostly under a type of that kind.
fn two() -> impl Strategy<Value = (Sent, Sent)> {
    let kinds = prop_oneof![8 => (0..3usize).prop_map(|kind| (kind, kind)), 1 => (0..3usize, 0..4usize)];
    kinds.prop_flat_map(|(kind, type_kind)| {
        let one = move || {
            let edits = prop_oneof![3 => Just(Vec::new()), 2 => collection::vec(edit(), 1..3)];
            let changed_type = prop_oneof![2 => Just(None), 1 => select(TYPES[type_kind]).prop_map(Some)];
            (select(BODIES[kind]), changed_type, edits)
        };
        (one(), one(), any::<bool>()).prop_map(move |(one, other, same)| {
            let (other_body, other_type, other_edits) = other;
            let other = (if same { one.0 } else { other_body }, other_type, other_edits);
            let [one, other] = [one, other].map(|(body, content_type, edits)| {
                let content_type = content_type.map_or_else(|| type_of(kind, body), str::to_owned);
                let mut sent = Sent { content_type, coding: String::new(), body: body.as_bytes().to_vec() };
                edits.iter().for_each(|edit| edit.apply(&mut sent));
                sent
            });
            (one, other)
        })
    })
}

/// The type in which this text is valid.
fn type_of(kind: usize, body: &str) -> String {
    let boundary = body.split("\r\n").next().unwrap_or_default().trim_matches('-');
    match kind {
        2 => format!("multipart/mixed; boundary={boundary}"),
        _ => TYPES[kind][0].to_owned(),
    }
}

fn print_of(sent: &Sent) -> Fingerprint {
    let headers = [("content-type", &*sent.content_type), ("content-encoding", &*sent.coding)];
    print_as(&FingerprintRule::new(), &headers, &sent.body)
}

// T25, T70
#[test]
fn two_bodies_share_a_fingerprint_exactly_if_their_type_calls_them_equal() {
    let config = ProptestConfig {
        cases: 10_000,
        rng_seed: RngSeed::Fixed(70),
        failure_persistence: None,
        ..Default::default()
    };
    let (mut equal, mut canonical) = (0, 0);
    let counted = std::cell::RefCell::new((&mut equal, &mut canonical));
    let result = TestRunner::new(config).run(&two(), |(one, other)| {
        let meanings = (Meaning::of(&one), Meaning::of(&other));
        let is_one = print_of(&one) == print_of(&other);
        prop_assert_eq!(is_one, meanings.0 == meanings.1, "{:?}", meanings);
        let mut counted = counted.borrow_mut();
        *counted.1 += usize::from(meanings.0.has_a_form());
        *counted.0 += usize::from(is_one && one.body != other.body);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(equal > 300 && canonical > 4_000, "it shows little: {equal} {canonical}");
}
