//! What users build: the package outside the workspace has the README's dependencies.

use std::fs;

// T71: with one feature more, its tests would hide what they are to find.
#[test]
fn the_package_outside_the_workspace_has_the_readmes_dependencies() {
    let read =
        |file: &str| fs::read_to_string(format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"))).expect(file);
    let outside = read("tests/outside/Cargo.toml");
    let (_, block) = outside.split_once("\n[dependencies]\n").expect("a block");
    let dependencies: Vec<_> = block.lines().take_while(|line| line.contains(" = ")).collect();
    let readme = read("README.md").replace("../lambda-idempotency", "../..");
    let of_users: Vec<_> =
        readme.lines().filter_map(|line| line.strip_prefix("cargo add ")).map(added).collect();
    assert_eq!(dependencies, of_users);
    // What it shows, in case it is never run: the library's own feature, which others of the workspace switch on too.
    let own = read("Cargo.toml");
    let json = own.lines().find(|line| line.starts_with("serde_json = ")).expect("the dependency");
    assert!(json.contains("\"float_roundtrip\""), "{json}");
}

/// The line of a manifest that `cargo add` writes with these arguments.
fn added(arguments: &str) -> String {
    let mut words = arguments.split_whitespace().take_while(|word| *word != "#");
    let (name, version) =
        words.next().map(|word| word.split_once('@').unwrap_or((word, ""))).expect("a name");
    let (mut from, mut others, mut features) = (format!("version = {version:?}"), "", String::new());
    while let Some(word) = words.next() {
        match word {
            "--path" => from = format!("path = {:?}", words.next().expect("a path")),
            "-F" => features = format!(", features = [{:?}]", words.next().expect("a feature")),
            "--no-default-features" => others = ", default-features = false",
            other => panic!("{other:?}"),
        }
    }
    match (from.strip_prefix("version = "), others.is_empty() && features.is_empty()) {
        (Some(version), true) => format!("{name} = {version}"),
        _ => format!("{name} = {{ {from}{others}{features} }}"),
    }
}
