//! The names of the tests, and that each test that the documents name runs.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const CONTRACT: &str = include_str!("../../../docs/contract.md");
const TRAPS: &str = include_str!("../../../docs/traps.md");

/// A name says what is promised. Its body shows how the promise could be broken.
const MAX_WORDS: usize = 12;

#[test]
fn every_requirement_of_the_contract_names_a_test_that_runs() {
    let (suite, rows) = (suite(), rows(CONTRACT, |row| row.contains("holds") || row.contains("deviates")));
    assert_eq!(rows.iter().map(|row| tests_of(row, &suite)).collect::<Vec<_>>(), [1; 35]);
}

#[test]
fn every_trap_names_tests_that_run() {
    // "**T1. The trap.**", what prevents it, and its tests: a line each.
    let suite = suite();
    let traps: Vec<_> = TRAPS
        .split("\n\n")
        .filter_map(|trap| trap.strip_prefix("**T")?.split_once(". "))
        .map(|(number, trap)| (number, trap.trim_end().lines().collect::<Vec<_>>()))
        .collect();
    for (number, lines) in &traps {
        assert!(lines.len() == 3 && tests_of(lines[2], &suite) > 0, "T{number}: {lines:?}");
    }
    let numbers = (1..=84).chain(86..=86).map(|number: u8| number.to_string());
    assert_eq!(traps.iter().map(|(number, _)| *number).collect::<Vec<_>>(), numbers.collect::<Vec<_>>());
}

#[test]
fn a_tests_name_has_at_most_twelve_words() {
    let mut sources = Vec::new();
    for folder in [
        "benches",
        "cli",
        "examples",
        "functions",
        "local",
        "pollers",
        "protocol",
        "sample",
        "src",
        "starter",
        "starter-events",
        "tests",
    ] {
        find_sources(&repository().join(folder), &mut sources);
    }
    let tests: Vec<_> = sources.iter().flat_map(|source| tests_in(&read(source))).collect();
    // A reader that finds no tests would find no long name either.
    assert!(tests.len() > 700, "{} tests", tests.len());
    let long = tests.iter().filter(|test| test.name.split('_').count() > MAX_WORDS);
    assert_eq!(long.map(|test| &*test.name).collect::<Vec<_>>(), [""; 0]);
}

fn rows(document: &'static str, chosen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    document.lines().filter(|line| line.starts_with('|') && chosen(line)).collect()
}

/// How many tests the last cell of a row names, or a line without cells. Fails if one of them does not run.
fn tests_of(row: &str, suite: &BTreeSet<String>) -> usize {
    let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
    let named = cell.split('`').skip(1).step_by(2);
    named
        .inspect(|named| assert!(suite.contains(*named) || is_unit_test(named), "{named} does not run"))
        .count()
}

/// The tests of this program that run, as the program lists them. Those on a store are named without the store. Without Java, those on
/// DynamoDB Local are ignored, but they count here.
fn suite() -> BTreeSet<String> {
    let list = |arguments: &[&str]| -> BTreeSet<String> {
        let program = env::current_exe().expect("the test program has a path");
        let ran = Command::new(program).args(["--list", "--format", "terse"]).args(arguments).output();
        let text = String::from_utf8(ran.expect("it can be run").stdout).expect("text");
        text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
    };
    let ignored = list(&["--ignored"]);
    let of_stores = |test: &str| {
        ["::on_embedded", "::on_dynamodb_local"]
            .iter()
            .find_map(|&store| test.strip_suffix(store))
            .map(str::to_owned)
    };
    let runs = |test: &String| !ignored.contains(test) || test.ends_with("::on_dynamodb_local");
    list(&[]).into_iter().filter(runs).map(|test| of_stores(&test).unwrap_or(test)).collect()
}

/// Whether the library has this unit test, without any condition.
fn is_unit_test(named: &str) -> bool {
    let Some((path, name)) = named.rsplit_once("::") else { return false };
    let sources = match path.strip_suffix("::tests") {
        Some(path) => ["{}.rs", "{}/mod.rs", "{}/tests.rs"].map(|file| file.replace("{}", path)),
        // A file of the module `tests`.
        None if path.contains("::tests::") => [format!("{path}.rs"), String::new(), String::new()],
        None => return false,
    };
    let of = |folder: &str| {
        sources.clone().map(|source| repository().join(folder).join(source.replace("::", "/")))
    };
    let sources = of("src").into_iter().chain(of("protocol/src")).collect::<Vec<_>>();
    let tests = sources.iter().filter(|source| source.is_file()).flat_map(|source| tests_in(&read(source)));
    tests.into_iter().any(|test| test.name == name && test.runs)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(source: &Path) -> String {
    fs::read_to_string(source).unwrap_or_else(|error| panic!("{}: {error}", source.display()))
}

fn find_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A test as its source declares it.
struct Test {
    name: String,
    /// No attribute ignores it, or leaves it out of some builds.
    runs: bool,
}

/// Every test of a source: a function below an attribute for tests.
fn tests_in(source: &str) -> Vec<Test> {
    let (mut tests, mut attributes) = (Vec::new(), String::new());
    for line in source.lines().map(str::trim) {
        let is_open = !attributes.is_empty() && !attributes.ends_with(']');
        if is_open || line.starts_with("#[") {
            attributes += line;
        } else if !line.starts_with("//") {
            let is_test = ["#[test]", "#[tokio::test", "#[apply(on_", "#[apply(alone_on_"]
                .iter()
                .any(|attribute| attributes.contains(attribute));
            if let (true, Some(name)) = (is_test, name_of(line)) {
                let runs = !attributes.contains("#[ignore") && !attributes.contains("#[cfg");
                tests.push(Test { name: name.to_owned(), runs });
            }
            attributes.clear();
        }
    }
    tests
}

/// The name of the function that begins on this line.
fn name_of(line: &str) -> Option<&str> {
    let (before, function) = line.split_once("fn ")?;
    let is_item = before.split_whitespace().all(|keyword| matches!(keyword, "pub" | "async"));
    is_item.then(|| function.split_once('('))?.map(|(name, _)| name)
}
