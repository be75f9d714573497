use proptest::{collection, prelude::*};

use super::*;

fn canonical(body: impl AsRef<[u8]>) -> Option<String> {
    let form = canonical_json(body.as_ref(), &[])?;
    Some(String::from_utf8(form).expect("a canonical form is UTF-8"))
}

#[track_caller]
fn assert_form(body: &str, form: &str) {
    assert_eq!(canonical(body).as_deref(), Some(form), "{body}");
}

#[track_caller]
fn assert_no_form(body: impl AsRef<[u8]>) {
    let body = body.as_ref();
    assert_eq!(canonical(body), None, "{}", String::from_utf8_lossy(body));
}

fn without(body: &str, pointers: &[&str]) -> Option<String> {
    let left_out: Vec<_> = pointers.iter().map(|text| JsonPointer::parse(text).unwrap()).collect();
    canonical_json(body.as_bytes(), &left_out).map(|form| String::from_utf8(form).unwrap())
}

// The sample of RFC 8785, 3.2.2, but for its first number: JCS rounds it to 333333333.3333333.
#[test]
fn the_rfc_8785_sample_has_the_form_that_the_rfc_gives() {
    assert_form(
        r#"{
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }"#,
        concat!(
            r#"{"literals":[null,true,false],"#,
            r#""numbers":[33333333333333329e-8,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        ),
    );
}

// The sample of RFC 8785, 3.2.3; an emoji sorts before U+FB33, by its surrogates.
#[test]
fn members_are_in_the_order_of_their_names_utf16_code_units() {
    assert_form(
        r#"{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
            "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
            "\u00f6": "Latin Small Letter O With Diaeresis"}"#,
        concat!(
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",",
            "\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",",
            "\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
        ),
    );
    assert_form(r#"{"b":{"d":1,"c":2},"a":[{"z":3,"":4}]}"#, r#"{"a":[{"":4,"z":3}],"b":{"c":2,"d":1}}"#);
}

// RFC 8785, Appendix B.
#[test]
fn numbers_that_are_doubles_have_the_form_of_rfc_8785() {
    for (bits, form) in [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        assert_eq!(form.parse(), Ok(f64::from_bits(bits)));
        assert_form(form, form);
        assert_form(&with_zeros(form), form);
    }
}

/// The number with zeros after its digits. Std's own spelling of a double won't do: of two shortest decimals that are equally
/// near, ECMAScript takes the even one, and std does not.
fn with_zeros(literal: &str) -> String {
    let (mantissa, exponent) = literal.split_once('e').unwrap_or((literal, "0"));
    let point = if mantissa.contains('.') { "" } else { "." };
    format!("{mantissa}{point}00E{exponent}")
}

// RFC 8785, 3.2.2.2
#[test]
fn strings_have_the_fewest_escapes() {
    assert_form(
        r#""\u0000\u0008\u0009\u000a\u000b\u000c\u000d\u001F\u0020\u0022\u002f\u005c\u007f""#,
        "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f \\\"/\\\\\u{7f}\"",
    );
    assert_form(r#""\u2028\u2029\uD834\uDD1E\uffff""#, "\"\u{2028}\u{2029}𝄞\u{ffff}\"");
}

#[test]
fn white_space_is_dropped_and_empty_containers_stay() {
    assert_form(" \t\r\n[ { } , [ ] , \"\" , { \"\" : [ ] } ]\n", r#"[{},[],"",{"":[]}]"#);
    assert_form("true", "true");
    assert_form("\",\"", "\",\"");
    assert_form("[\",\",\"[\"]", "[\",\",\"[\"]");
}

// T25
#[test]
fn integers_beyond_2_to_the_53_that_differ_by_one_differ() {
    assert_form(r#"{"id": 9007199254740992}"#, r#"{"id":9007199254740992}"#);
    assert_form(r#"{"id": 9007199254740993}"#, r#"{"id":9007199254740993e0}"#);
    let digits = "1234567890".repeat(50);
    assert_form(&format!("{digits}1"), &format!("{digits}1e0"));
    assert_form(&format!("-{digits}2"), &format!("-{digits}2e0"));
}

// T25
#[test]
fn spellings_of_one_number_have_one_form() {
    for (form, spellings) in [
        ("1", &["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000e000", "1e-0"][..]),
        ("0", &["0", "-0", "0.0", "-0.0e5", "0e99999999999999999999"]),
        ("-15", &["-15", "-1.5e1", "-150e-1"]),
        ("100", &["100", "1e2", "1.00E2", "100.00"]),
        ("1e400", &["1E400", "10e399", "0.1e+401"]),
        ("5.5e-20", &["0.000000000000000000055", "55e-21", "5.50e-20"]),
        ("1e+21", &["1e21", "1000000000000000000000", "1000000000000000000000.0"]),
        ("1e-400", &["1e-400", "0.01e-398"]),
        ("1000000000000000055e-19", &["0.1000000000000000055", "1.0000000000000000550e-1"]),
        ("49e-325", &["4.9e-324"]),
    ] {
        for spelling in spellings {
            assert_form(spelling, form);
        }
    }
}

// T25
#[test]
fn numbers_that_no_double_holds_keep_their_value() {
    assert_form("[1E400,1E401,-1e-400]", "[1e400,1e401,-1e-400]");
    assert_form("0.1", "0.1");
    assert_form("0.1000000000000000055", "1000000000000000055e-19");
    // The number after the greatest double is not a double, whatever a formatter prints for it.
    assert_form("1.797693134862316e308", "1797693134862316e293");
    assert_form("1.797693134862315807e308", "1797693134862315807e290");
}

// T25
#[test]
fn exponents_are_exact_within_64_bits_and_refused_beyond() {
    assert_form("1e9223372036854775807", "1e9223372036854775807");
    assert_form("10e9223372036854775806", "1e9223372036854775807");
    assert_form("1e-9223372036854775808", "1e-9223372036854775808");
    assert_no_form("1e9223372036854775808");
    assert_no_form("10e9223372036854775807");
    assert_no_form("0.1e-9223372036854775808");
    assert_no_form("1e99999999999999999999");
    assert_no_form(format!("[1e-{}]", "9".repeat(1_000_000)));
    assert_form(&format!("1e{}5", "0".repeat(1_000_000)), "100000");
}

// T25: were any of this quadratic, it would not end.
#[test]
fn numbers_of_a_megabyte_are_read_in_one_pass() {
    let zeros = "0".repeat(1_000_000);
    assert_form(&format!("0.{zeros}1e1000000"), "0.1");
    assert_form(&format!("1{zeros}.{zeros}e-1000000"), "1");
    assert_form(&format!("1{zeros}1"), &format!("1{zeros}1e0"));
    assert_form(&format!("[0.{zeros}1,-1{zeros}]"), "[1e-1000001,-1e1000000]");
}

// T25
#[test]
fn duplicate_names_have_no_canonical_form() {
    assert_no_form(r#"{"a":1,"a":1}"#);
    assert_no_form(r#"{"a":1,"b":2,"a":3}"#);
    assert_no_form(r#"{"a":1,"\u0061":1}"#);
    assert_no_form(r#"[{"x":{"😀":1,"\ud83d\ude00":1}}]"#);
    assert_form(r#"{"a":{"a":1},"b":{"a":1}}"#, r#"{"a":{"a":1},"b":{"a":1}}"#);
}

// T25
#[test]
fn nesting_beyond_128_has_no_canonical_form() {
    let arrays = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    assert_form(&arrays(128), &arrays(128));
    assert_form(&objects(128), &objects(128));
    assert_form(&format!("[{},{}]", arrays(127), arrays(127)), &format!("[{},{}]", arrays(127), arrays(127)));
    for depth in [129, 200, 1_000_000] {
        assert_no_form(arrays(depth));
        assert_no_form(objects(depth));
    }
}

// T25
#[test]
fn half_a_surrogate_pair_has_no_canonical_form() {
    for escapes in [
        r"\ud800",
        r"\uDBFF",
        r"\udc00",
        r"\udfff",
        r"\ud83dx",
        r"\ud83d\n",
        r"\ud83d\ud83d",
        r"\ude00\ud83d",
        r"\ud83d\u0041",
        r"\ud83d ude00",
        r"\ud83d\Ude00",
    ] {
        assert_no_form(format!(r#""{escapes}""#));
        assert_no_form(format!(r#"["{escapes} and a long text behind"]"#));
        assert_no_form(format!(r#"{{"{escapes}":1}}"#));
    }
    // WTF-8: a surrogate as bytes.
    assert_no_form(b"\"\xED\xA0\x80\"");
}

// T25
#[test]
fn what_claims_to_be_json_and_is_not_has_no_canonical_form() {
    for body in [
        "",
        " ",
        "\u{feff}{}",
        "{",
        "}",
        "[",
        "[1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1,,2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "[}",
        "{]",
        "1 2",
        "{}{}",
        "[]]",
        "{}x",
        "01",
        "-01",
        "+1",
        "-",
        "1.",
        ".5",
        "1.e5",
        "1e",
        "1e+",
        "0x10",
        "1_000",
        "NaN",
        "Infinity",
        "-Infinity",
        "nul",
        "nulll",
        "True",
        "truefalse",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12G4\"",
        "\"\\u+123\"",
        "\"\n\"",
        "\"\t\"",
        "\"\0\"",
        "// c\n1",
        "/**/1",
        "\u{c}1",
        "\u{a0}1",
        "1\0",
        "name=value&x=1",
    ] {
        assert_no_form(body);
    }
    for body in [
        &b"\"\xff\""[..],
        b"\"\xc0\x80\"",
        b"\"\\n\xff\"",
        b"\"\xff\\n\"",
        b"{\"\xc3\":1}",
        b"\xff\xfe1\0",
        b"[1]\xff",
    ] {
        assert_no_form(body);
    }
}

#[test]
fn members_and_elements_can_be_left_out() {
    let body = r#"{"b":{"time":1,"x":[10,11,12,{"trace":1,"y":2}]},"a":1,"time":{"z":1}}"#;
    for (pointers, form) in [
        (&["/time"][..], r#"{"a":1,"b":{"time":1,"x":[10,11,12,{"trace":1,"y":2}]}}"#),
        (&["/b/time", "/time/z"], r#"{"a":1,"b":{"x":[10,11,12,{"trace":1,"y":2}]},"time":{}}"#),
        (&["/b/x/3/trace", "/b/x/1"], r#"{"a":1,"b":{"time":1,"x":[10,12,{"y":2}]},"time":{"z":1}}"#),
        (&["/b", "/time", "/time/z", "/a"], "{}"),
        (&["/b/x/3", "/b/x/3/y"], r#"{"a":1,"b":{"time":1,"x":[10,11,12]},"time":{"z":1}}"#),
    ] {
        assert_eq!(without(body, pointers).as_deref(), Some(form), "{pointers:?}");
    }
}

#[test]
fn pointers_speak_of_the_places_in_the_body_as_it_came() {
    assert_eq!(without(r#"{"a":[1,2,3]}"#, &["/a/0", "/a/1"]).unwrap(), r#"{"a":[3]}"#);
    assert_eq!(without(r#"{"a":[1,2,3]}"#, &["/a/1", "/a/0", "/a/2"]).unwrap(), r#"{"a":[]}"#);
    assert_eq!(without("[[1,2],[1,2]]", &["/0/1", "/1/0"]).unwrap(), "[[1],[2]]");
}

#[test]
fn a_pointer_that_leads_nowhere_is_ignored() {
    let body = r#"{"a":[1,{"b":2}],"c":"text"}"#;
    for pointer in
        ["/x", "/a/2", "/a/01", "/a/+1", "/a/-", "/a/b", "/a/1/b/c", "/c/0", "/", "/a/", "/b", "/A"]
    {
        assert_eq!(without(body, &[pointer]).unwrap(), body, "{pointer}");
    }
    assert_eq!(without("1", &["/0"]).unwrap(), "1");
    // Not a path that exists only when steps of different values are put together.
    let body = r#"{"a":{"x":1},"b":{"c":{"x":1}},"c":{"x":1}}"#;
    assert_eq!(without(body, &["/a/c/x", "/b/x"]).unwrap(), body);
}

// RFC 6901, 5
#[test]
fn pointers_reach_names_of_any_kind() {
    let body = r#"{"":0,"a/b":1,"m~n":2,"~1":3,"0":4,"01":5,"\u00e9":6,"%25":7}"#;
    for (pointer, name) in [
        ("/", ""),
        ("/a~1b", "a/b"),
        ("/m~0n", "m~n"),
        ("/~01", "~1"),
        ("/0", "0"),
        ("/01", "01"),
        ("/é", "é"),
        ("/%25", "%25"),
    ] {
        let form = without(body, &[pointer]).unwrap();
        assert!(!form.contains(&format!("\"{name}\":")), "{pointer}: {form}");
        assert_eq!(form.matches(':').count(), 7, "{pointer}: {form}");
    }
}

#[test]
fn what_is_left_out_must_be_i_json_too() {
    assert_eq!(without(r#"{"t":{"a":1,"a":2}}"#, &["/t"]), None);
    assert_eq!(without(r#"{"t":1,"t":2}"#, &["/t"]), None);
    assert_eq!(without(r#"{"t":"\ud800"}"#, &["/t"]), None);
}

#[test]
fn an_invalid_pointer_is_refused_with_the_reason() {
    let cases: [(&[&str], &str); 3] = [
        (&[""], "whole document"),
        (&["a/b", "#/a"], "must begin with `/`"),
        (&["/a~", "/~", "/a~2", "/~0~/b", "/a/~~0"], "`~` must be followed by"),
    ];
    for (pointers, reason) in cases {
        for pointer in pointers {
            let error = JsonPointer::parse(pointer).expect_err(pointer);
            assert!(error.contains(reason), "{pointer}: {error}");
        }
    }
    assert_eq!(JsonPointer::parse("/a~1b/0").unwrap().as_str(), "/a~1b/0");
}

// T25: were any of this quadratic, it would not end.
#[test]
fn six_megabytes_of_small_things_are_read_in_one_pass() {
    let names: Vec<_> = (0..400_000).map(|n| format!("\"{n:06}\":1")).collect();
    let mut reversed = names.clone();
    reversed.reverse();
    assert_form(&format!("{{{}}}", reversed.join(",")), &format!("{{{}}}", names.join(",")));
    let empty = format!("[{}[]]", "[],".repeat(1_000_000));
    assert_form(&empty, &empty);
}

/// A document, from which its canonical form and all spellings of it can be written.
#[derive(Clone, Debug)]
enum Document {
    Word(&'static str),
    Integer(i64),
    Text(String),
    Array(Vec<Document>),
    Object(Vec<(String, Document)>),
}

const EXACT: i64 = 1 << 53;

fn text() -> impl Strategy<Value = String> {
    let char = prop_oneof![
        any::<char>(),
        proptest::char::range('\0', '\u{7f}'),
        proptest::char::range('\u{d7f0}', '\u{10010}')
    ];
    collection::vec(char, 0..6).prop_map(String::from_iter)
}

fn document() -> impl Strategy<Value = Document> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Document::Word),
        prop_oneof![-EXACT..=EXACT, -1000..=1000i64].prop_map(Document::Integer),
        text().prop_map(Document::Text),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..6).prop_map(Document::Array),
            collection::btree_map(text(), inner, 0..6)
                .prop_map(|all| Document::Object(all.into_iter().collect())),
        ]
    })
}

/// The canonical form, written the plain way.
fn expected(document: &Document) -> String {
    let join = |parts: Vec<String>| parts.join(",");
    match document {
        Document::Word(word) => (*word).to_owned(),
        Document::Integer(value) => value.to_string(),
        Document::Text(text) => serde_json::to_string(text).unwrap(),
        Document::Array(elements) => format!("[{}]", join(elements.iter().map(expected).collect())),
        Document::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            let member = |(name, value): &(String, Document)| {
                format!("{}:{}", serde_json::to_string(name).unwrap(), expected(value))
            };
            format!("{{{}}}", join(members.into_iter().map(member).collect()))
        }
    }
}

/// One of the ways to write a document, drawn from a seed.
struct Speller(u64);

impl Speller {
    /// A draw below `bound` (SplitMix64).
    fn draw(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }

    fn space(&mut self) -> &'static str {
        ["", "", " ", "\n", "\t", "\r\n", "\r"][self.draw(7)]
    }

    fn spell(&mut self, document: &Document) -> String {
        let value = match document {
            Document::Word(word) => (*word).to_owned(),
            Document::Integer(value) => {
                let zeros = self.draw(4);
                match self.draw(4) {
                    0 => format!("{value}"),
                    1 => format!("{value}.{}", "0".repeat(zeros + 1)),
                    // `00e-1` is no JSON.
                    2 if *value != 0 => format!("{value}{}e-{zeros}", "0".repeat(zeros)),
                    _ => format!("{value}.0E+0"),
                }
            }
            Document::Text(text) => self.spell_text(text),
            Document::Array(elements) => {
                let elements: Vec<_> = elements.iter().map(|element| self.spell(element)).collect();
                format!("[{}{}]", self.space(), elements.join(","))
            }
            Document::Object(members) => {
                let mut left: Vec<_> = members.iter().collect();
                let mut spelled = Vec::new();
                while !left.is_empty() {
                    let (name, value) = left.swap_remove(self.draw(left.len()));
                    let (name, value) = (self.spell_text(name), self.spell(value));
                    spelled.push(format!("{}{name}{}:{value}", self.space(), self.space()));
                }
                format!("{{{}{}}}", self.space(), spelled.join(","))
            }
        };
        format!("{}{value}{}", self.space(), self.space())
    }

    fn spell_text(&mut self, text: &str) -> String {
        let mut spelled = String::from("\"");
        for char in text.chars() {
            let short = "\"\\/\u{8}\u{c}\n\r\t".find(char).map(|at| &r#""\/bfnrt"#[at..=at]);
            match (self.draw(3), short) {
                (0, Some(short)) => spelled += &format!("\\{short}"),
                (1, _) if !matches!(char, '\0'..='\x1f' | '"' | '\\') => spelled.push(char),
                _ => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        spelled += &if self.draw(2) == 0 {
                            format!("\\u{unit:04x}")
                        } else {
                            format!("\\u{unit:04X}")
                        };
                    }
                }
            }
        }
        spelled + "\""
    }
}

/// Sign and digits of a literal times ten to the 2000th, an integer for every literal that is drawn here.
fn scaled(literal: &str) -> (bool, String) {
    let lower = literal.to_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let places = mantissa.find('.').map_or(0, |at| mantissa.len() - at - 1);
    let zeros = 2000 + exponent.parse::<i32>().unwrap() - i32::try_from(places).unwrap();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let scaled = digits + &"0".repeat(usize::try_from(zeros).unwrap());
    let scaled = scaled.trim_start_matches('0').to_owned();
    (mantissa.starts_with('-') && !scaled.is_empty(), scaled)
}

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        "-?(0|[1-9][0-9]{14,17})(\\.[0-9]{1,3})?([eE][+-]?[0-9])?",
        "-?(0|1|10|100)(\\.(0|00|1|01|10))?([eE][+-]?[0-2])?",
    ]
}

/// Two literals: any two, two of the same value, or two whose values are neighbours.
fn two_literals() -> impl Strategy<Value = (String, String)> {
    let spelled_again = (literal(), 0..30usize, 0..3usize).prop_map(|(first, zeros, change)| {
        let lower = first.to_lowercase();
        let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
        let mut digits = format!("{whole}{fraction}{}", "0".repeat(zeros));
        if change == 1 {
            digits += "1";
        }
        let places = i32::try_from(digits.len() - whole.len()).unwrap();
        let exponent = exponent.parse::<i32>().unwrap() - places;
        let digits = digits.trim_start_matches('0');
        let second = format!("{sign}{}e{exponent}", if digits.is_empty() { "0" } else { digits });
        (first, second)
    });
    let small = "-?(0|1|10|100)(\\.(0|00|1|01|10))?([eE][+-]?[0-2])?";
    prop_oneof![(literal(), literal()), (small, small), spelled_again]
}

proptest! {
    #[test]
    fn every_spelling_of_a_document_has_its_canonical_form(document in document(), seed: u64) {
        let spelled = Speller(seed).spell(&document);
        prop_assert_eq!(canonical(spelled), Some(expected(&document)));
    }

    #[test]
    fn a_canonical_form_is_its_own(document in document(), numbers in collection::vec(literal(), 0..4)) {
        let body = format!("[{},{}]", Speller(1).spell(&document), numbers.join(",")).replace(",]", "]");
        let form = canonical(&body);
        if let Some(form) = &form {
            prop_assert_eq!(&canonical(form), &Some(form.clone()));
        }
    }

    // T25
    #[test]
    fn two_numbers_share_a_form_exactly_when_they_are_equal((a, b) in two_literals()) {
        let (form_a, form_b) = (canonical(&a).unwrap(), canonical(&b).unwrap());
        prop_assert_eq!(scaled(&a) == scaled(&b), form_a == form_b, "{} {}: {} {}", a, b, form_a, form_b);
        prop_assert_eq!(scaled(&a), scaled(&form_a));
    }

    #[test]
    fn every_double_has_the_form_of_ecmascript(bits: u64) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let mut buffer = ryu_js::Buffer::new();
        let form = buffer.format_finite(double);
        let forms = [canonical(form), canonical(with_zeros(form))];
        prop_assert_eq!(forms, [Some(form.to_owned()), Some(form.to_owned())]);
    }

    // T25
    #[test]
    fn only_json_has_a_canonical_form(body in "([\\[\\]{},:\"0-9eE.+-]|true|null|\"a\"|\"b\":|\\\\|\\\\u[dD89]{4}| ){0,12}") {
        let form = canonical(&body);
        prop_assert!(form.is_none() || serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok(), "{}", body);
    }

    // T25
    #[test]
    fn no_bytes_make_it_panic(body: Vec<u8>) {
        let form = canonical_json(&body, &[JsonPointer::parse("/0").unwrap()]);
        prop_assert!(form.is_none() || str::from_utf8(&body).is_ok());
    }
}
