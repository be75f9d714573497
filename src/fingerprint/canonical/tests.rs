use proptest::prelude::*;

use super::*;

fn canonical(body: &str) -> Option<String> {
    leaving_out(body, &[])
}

fn leaving_out(body: &str, pointers: &[&str]) -> Option<String> {
    let pointers: Vec<_> = pointers.iter().map(|pointer| JsonPointer::parse(pointer).unwrap()).collect();
    canonical_json(body.as_bytes(), &pointers).map(|bytes| String::from_utf8(bytes).unwrap())
}

// R3: RFC 8785, section 3.2.2.
#[test]
fn the_sample_of_rfc_8785_comes_out_as_printed_there_but_for_the_number_no_double_has() {
    let sample = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    // The RFC rounds the first number to 333333333.3333333; its exact value is kept here.
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[33333333333333329e-8,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
    );
    assert_eq!(canonical(sample).as_deref(), Some(expected));
}

// R3: RFC 8785, section 3.2.3.
#[test]
fn members_are_sorted_by_utf_16_code_units() {
    let sample = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
    let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}";
    assert_eq!(canonical(sample).as_deref(), Some(expected));
}

// T25
#[test]
fn numbers_that_differ_never_share_a_form() {
    let numbers = [
        "9007199254740992",
        "9007199254740993",
        "-9007199254740993",
        "1E400",
        "1E401",
        "-1E400",
        "1e-400",
        "0",
        "0.1",
        "0.10000000000000001",
        "0.1000000000000000055511151231257827",
        "1e9223372036854775807",
        "123456789012345678901234567890",
        "123456789012345678901234567891",
    ];
    let forms: std::collections::HashSet<_> =
        numbers.iter().map(|number| canonical(number).unwrap()).collect();
    assert_eq!(forms.len(), numbers.len());
}

// T25
#[test]
fn numbers_of_one_value_share_a_form_however_they_are_written() {
    for (form, literals) in [
        ("1", ["1", "1.0", "10e-1", "0.1E+1", "1e0"]),
        ("0", ["0", "-0", "0.0", "0e9223372036854775808", "-0.0E-5"]),
        ("1e400", ["1E400", "10e399", "0.1e401", "1.000e+400", "1e400"]),
        (
            "9007199254740993e0",
            [
                "9007199254740993",
                "9007199254740993.0",
                "90071992547409930e-1",
                "9007199254740993e0",
                "9.007199254740993E15",
            ],
        ),
    ] {
        for literal in literals {
            assert_eq!(canonical(literal).as_deref(), Some(form), "{literal}");
        }
    }
}

// T25
#[test]
fn what_is_not_i_json_has_no_canonical_form() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(canonical(&deep(128)).is_some());
    let deeper = [deep(129), deep(200), deep(100_000)];
    let rest = [
        "",
        " ",
        "{nonsense",
        "[1,]",
        "{\"a\":1,}",
        "01",
        "+1",
        ".5",
        "NaN",
        "1 2",
        "{} {}",
        "'a'",
        "\"a",
        "\"\n\"",
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"\u0061":3}"#,
        r#"{"x":{"a":1,"a":2}}"#,
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#"{"\ud83d":1}"#,
        "\u{feff}{}",
        "1e9223372036854775808",
        "1e-99999999999999999999",
    ];
    for body in deeper.iter().map(String::as_str).chain(rest) {
        assert_eq!(canonical(body), None, "{body:.40}");
    }
    assert_eq!(canonical_json(b"\"\xff\"", &[]), None);
}

// R3
#[test]
fn what_is_left_out_does_not_count_and_pointers_speak_of_the_document_as_it_came() {
    assert_eq!(leaving_out(r#"{"a":1,"b":{"c":2,"d":3}}"#, &["/b/c"]).unwrap(), r#"{"a":1,"b":{"d":3}}"#);
    assert_eq!(leaving_out("[1,2,3]", &["/0", "/1"]).unwrap(), "[3]");
    assert_eq!(
        leaving_out(r#"{"a/b":1,"m~n":2,"":3,"k":4}"#, &["/a~1b", "/m~0n", "/"]).unwrap(),
        r#"{"k":4}"#
    );
    for nowhere in ["/b", "/a/b", "/a/0", "/a~1"] {
        assert_eq!(leaving_out(r#"{"a":1}"#, &[nowhere]).unwrap(), r#"{"a":1}"#);
    }
    for nowhere in ["/01", "/+0", "/-", "/3", "/99999999999999999999"] {
        assert_eq!(leaving_out("[1,2]", &[nowhere]).unwrap(), "[1,2]");
    }
}

#[test]
fn a_pointer_that_is_none_is_refused() {
    assert_eq!(JsonPointer::parse(""), Err(JsonPointerError::Whole));
    assert_eq!(JsonPointer::parse("a"), Err(JsonPointerError::NoSlash));
    for text in ["/~", "/~2", "/a~"] {
        assert_eq!(JsonPointer::parse(text), Err(JsonPointerError::Tilde), "{text}");
    }
}

/// A JSON document with something in it, and the same one written in another way.
fn documents() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("JSON has no infinity", |f| f.is_finite()).prop_map(Into::into),
        "\\PC*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map("\\PC*", inner, 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Members backwards, white space everywhere, every character of a string escaped.
fn otherwise(value: &serde_json::Value) -> String {
    let escaped = |text: &str| {
        let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        format!("\"{units}\"")
    };
    match value {
        serde_json::Value::String(text) => escaped(text),
        serde_json::Value::Array(elements) => {
            format!("[ {} ]", elements.iter().map(otherwise).collect::<Vec<_>>().join(" ,\n"))
        }
        serde_json::Value::Object(members) => {
            let members = members.iter().rev();
            let members: Vec<_> = members
                .map(|(name, member)| format!("{}\t:\r\n{}", escaped(name), otherwise(member)))
                .collect();
            format!("{{ {} }}", members.join(" , "))
        }
        other => other.to_string(),
    }
}

/// The same value with no zeros to hide in: by moving the point one place at a time.
fn same_value(a: (i64, i32), b: (i64, i32)) -> bool {
    let value = |(mut digits, mut exponent): (i64, i32)| {
        while digits != 0 && digits % 10 == 0 {
            (digits, exponent) = (digits / 10, exponent + 1);
        }
        if digits == 0 { (0, 0) } else { (digits, exponent) }
    };
    value(a) == value(b)
}

proptest! {
    // R3
    #[test]
    fn the_way_a_document_is_written_does_not_count(document in documents()) {
        prop_assert_eq!(canonical(&document.to_string()), canonical(&otherwise(&document)));
    }

    #[test]
    fn the_canonical_form_is_its_own(document in documents()) {
        let form = canonical(&document.to_string()).unwrap();
        prop_assert_eq!(canonical(&form), Some(form));
    }

    // T25
    #[test]
    fn two_literals_share_a_form_exactly_when_their_values_are_equal(
        a in -2000_i64..2000, ea in -3..3_i32, b in -2000_i64..2000, eb in -3..3_i32, far in any::<bool>(),
    ) {
        // Near zero doubles have the values; a thousand places away none has.
        let away = if far { 1000 } else { 0 };
        let form = |digits, exponent: i32| canonical(&format!("{digits}e{}", exponent + away)).unwrap();
        prop_assert_eq!(form(a, ea) == form(b, eb), same_value((a, ea), (b, eb)));
    }

    // R3
    #[test]
    fn a_double_has_the_form_that_jcs_gives_it(double in any::<f64>().prop_filter("finite", |f| f.is_finite())) {
        let form = ryu_js::Buffer::new().format_finite(double).to_owned();
        prop_assert_eq!(canonical(&form), Some(form));
    }

    #[test]
    fn no_body_makes_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = canonical_json(&body, &[]);
    }
}
