//! `compare`: two ledgers in files of JSON lines.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use crate::terminal::{harmless, harmless_json};
use futures_util::stream;
use ledgers::{CompareError, Difference, Entry, Side, Summary, compare};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    args::Compare,
    failure::Failure,
    output::{Screen, cell},
    values::object,
};

type Fields = Map<String, Value>;

/// A line of a file: an object with an `id`; everything else in it is what is compared.
#[derive(Deserialize)]
struct Line {
    id: Value,
    #[serde(flatten)]
    fields: Fields,
}

pub async fn run(screen: &Screen, args: &Compare) -> Result<(), Failure> {
    let (ours, theirs) = (entries(&args.ours)?, entries(&args.theirs)?);
    let found = |difference: Difference<'_, Fields>| print(screen, &difference);
    let compared = compare(stream::iter(ours), stream::iter(theirs), found).await;
    let summary = compared.map_err(|error| match error {
        // The message names the file.
        CompareError::Side(_, error) => error,
        error => Failure::from_error(&error),
    })?;
    print_summary(screen, &summary)?;
    if summary.agrees() { Ok(()) } else { Err(Failure::NotAsExpected("the ledgers differ".into())) }
}

/// The lines of a file, one after the other.
fn entries(path: &Path) -> Result<impl Iterator<Item = Result<Entry<Fields>, Failure>> + use<'_>, Failure> {
    let wrong = move |what: String| Failure::Error(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    let numbered = BufReader::new(file).lines().zip(1_u64..);
    Ok(numbered.filter(|(line, _)| !line.as_ref().is_ok_and(|line| line.trim().is_empty())).map(
        move |(line, number)| {
            let line = line.map_err(|error| wrong(error.to_string()))?;
            entry(&line).map_err(|why| wrong(format!("line {number} is not an entry of a ledger: {why}")))
        },
    ))
}

fn entry(line: &str) -> Result<Entry<Fields>, String> {
    let Line { id, fields } = object(line).map_err(|why| {
        // The message already has the number of the line in the file.
        why.replace(" at line 1 column ", " at column ")
    })?;
    match id {
        Value::String(id) => Ok(Entry { id, value: fields }),
        _ => Err("`id` is not a string".into()),
    }
}

fn print(screen: &Screen, difference: &Difference<'_, Fields>) -> io::Result<()> {
    let text = |fields: &Fields| serde_json::to_string(fields);
    let line = if screen.is_json() {
        harmless_json(&serde_json::to_string(difference)?)
    } else {
        let line = match difference {
            Difference::OnlyOurs { id, ours } => format!("only ours    {id}  {}", text(ours)?),
            Difference::OnlyTheirs { id, theirs } => format!("only theirs  {id}  {}", text(theirs)?),
            Difference::Differs { id, ours, theirs } => {
                format!("differs      {id}  ours {}  theirs {}", text(ours)?, text(theirs)?)
            }
            Difference::Duplicate { id, side, value } => {
                let side = if *side == Side::Ours { "ours" } else { "theirs" };
                format!("twice        {id}  {side} {}", text(value)?)
            }
        };
        harmless(&line)
    };
    screen.print(&line).map_err(io::Error::other)
}

fn print_summary(screen: &Screen, summary: &Summary) -> Result<(), Failure> {
    if screen.is_json() {
        return screen.print_json(&json!({ "summary": summary }), true);
    }
    screen.print_table(&screen.fields(vec![
        ("ours", cell(summary.ours)),
        ("theirs", cell(summary.theirs)),
        ("equal", cell(summary.equal)),
        ("only ours", cell(summary.only_ours)),
        ("only theirs", cell(summary.only_theirs)),
        ("differ", cell(summary.differs)),
        ("twice", cell(summary.duplicates)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_the_help_says() {
        let same = |ours: &str, theirs: &str| {
            let line = |x: &str| entry(&format!(r#"{{"id":"a","x":{x},"y":1}}"#)).unwrap();
            line(ours) == line(theirs)
        };
        assert!(same("1.10", "1.1") && same(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#));
        assert!(!same("1", "1.0") && !same("1", r#""1""#) && !same("[1,2]", "[2,1]"));
        assert!(!same("18446744073709551615", "18446744073709551614"));
        assert!(same("12345678901234567890123", "12345678901234567890124"));
    }

    #[test]
    fn a_malformed_line_is_reported_in_plain_words() {
        assert_eq!(entry(r#"{"x":1,"id":"a"}"#).unwrap().id, "a");
        for (wrong, why) in [
            ("[1]", "it is not a JSON object"),
            (r#"["a",{}]"#, "it is not a JSON object"),
            ("1", "it is not a JSON object"),
            (r#"{"id":1}"#, "`id` is not a string"),
            (r#"{"x":1}"#, "missing field `id` at column 7"),
            (r#"{"id":"a""#, "at column 9"),
        ] {
            let message = entry(wrong).unwrap_err();
            assert!(message.contains(why) && !message.to_lowercase().contains("line"), "{message}");
        }
    }
}
