//! The table of mutations: for each rule of the protocol, the code that keeps it, and what fails without that code.

use std::{error::Error, fs, io, path::Path};

use serde::Deserialize;

/// One rule of the protocol, broken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Mutation {
    /// The rule.
    pub rule: String,
    /// The traps that it guards against: see docs/traps.md.
    pub traps: Vec<String>,
    /// The file that keeps it.
    pub file: String,
    /// The text that keeps it. It occurs once in the file.
    pub find: String,
    /// What takes its place.
    pub replace: String,
    /// What fails then.
    #[serde(flatten)]
    pub finder: Finder,
}

/// What fails if the rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Finder {
    /// A property, in this environment of the model.
    Model { model: String, falls: String },
    /// A property, in this environment of operations that resume.
    Phases { phases: String, falls: String },
    /// A property, in this environment of accepted work.
    Accepted { accepted: String, falls: String },
    /// A property, in this scenario of whole functions.
    Functions { functions: String, falls: String },
    /// A test. Those with `tests::` in their path are unit tests of the protocol or the library, the others belong to the suite.
    Test { test: String },
}

impl Finder {
    /// The property that falls, if it is not a test: its world, environment and name.
    pub fn property(&self) -> Option<(&'static str, &str, &str)> {
        Some(match self {
            Self::Model { model, falls } => ("model", model, falls),
            Self::Phases { phases, falls } => ("phases", phases, falls),
            Self::Accepted { accepted, falls } => ("accepted", accepted, falls),
            Self::Functions { functions, falls } => ("functions", functions, falls),
            Self::Test { .. } => return None,
        })
    }
}

/// A trap that no mutation shows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoMutation {
    /// The trap.
    pub trap: String,
    /// Why there is no line whose change would show it.
    pub because: String,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mutation: Vec<Mutation>,
    no_mutation: Vec<NoMutation>,
}

impl Table {
    fn read() -> Result<Self, Box<dyn Error>> {
        let table = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/mutations.toml"))?;
        Ok(toml::from_str(&table)?)
    }
}

impl NoMutation {
    /// The traps without a mutation.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn all() -> Result<Vec<Self>, Box<dyn Error>> {
        Ok(Table::read()?.no_mutation)
    }
}

impl Mutation {
    /// The table.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn all() -> Result<Vec<Self>, Box<dyn Error>> {
        Ok(Table::read()?.mutation)
    }

    /// Whether the command's argument means this row.
    pub fn is_named(&self, name: &str) -> bool {
        self.rule.contains(name) || self.file.contains(name) || self.traps.iter().any(|trap| trap == name)
    }

    /// Breaks the rule in the tree at `root`. Returns what the file was before.
    ///
    /// # Errors
    /// If the text does not occur exactly once, or the file cannot be read or written.
    pub fn apply(&self, root: &Path) -> io::Result<String> {
        let file = root.join(&self.file);
        let before = fs::read_to_string(&file)?;
        match before.matches(&self.find).count() {
            1 => fs::write(file, before.replace(&self.find, &self.replace)).map(|()| before),
            number => {
                Err(io::Error::other(format!("its text occurs {number} times in {}: not once", self.file)))
            }
        }
    }
}

/// Whether a source below this folder of the repository has this test.
pub fn is_in(folder: &str, test: &str) -> bool {
    let (path, name) = test.rsplit_once("::").unwrap_or_default();
    let module = path.strip_suffix("::tests").unwrap_or(path).replace("::", "/");
    ["", "/mod", "/tests"].iter().any(|file| {
        let source = format!("{}/../{folder}/{module}{file}.rs", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(source).is_ok_and(|text| text.contains(&format!("fn {name}(")))
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::PathBuf};

    use super::*;
    use crate::{
        accepted, functions,
        kernel::{setting::Setting, violation::Violation},
        phases, plain,
    };

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn read(file: &str) -> String {
        fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    #[test]
    fn every_mutation_changes_one_place_of_its_file() {
        let table = Mutation::all().unwrap();
        let rules: BTreeSet<_> = table.iter().map(|mutation| &mutation.rule).collect();
        assert_eq!(rules.len(), table.len(), "two rows of one rule");
        for Mutation { rule, file, find, replace, .. } in &table {
            assert_eq!(read(file).matches(find).count(), 1, "{rule}: {file}: {find}");
            assert_ne!(find, replace, "{rule}");
        }
    }

    #[test]
    fn every_property_and_every_test_that_finds_a_mutation_exists() {
        let names = |settings: &[Setting]| settings.iter().map(|setting| setting.name).collect::<Vec<_>>();
        for Mutation { rule, finder, .. } in Mutation::all().unwrap() {
            if let Finder::Test { test } = &finder {
                assert!(exists(test), "{rule}: {test}");
            }
            let Some((world, environment, falls)) = finder.property() else { continue };
            let known = match world {
                "model" => names(&[&plain::settings::WHOLE[..], &plain::settings::LARGE].concat()),
                "phases" => names(&phases::settings::ALL),
                "accepted" => names(&accepted::settings::ALL),
                _ => functions::all().map(|scenario| scenario.name).collect(),
            };
            assert!(known.contains(&environment), "{rule}: {environment}");
            assert!(Violation::NAMES.contains(&falls), "{rule}: {falls}");
        }
    }

    /// The traps of docs/traps.md.
    fn traps() -> BTreeSet<String> {
        let document = read("docs/traps.md");
        let ids = document.lines().filter_map(|line| Some(line.strip_prefix("**T")?.split_once(". ")?.0));
        ids.map(|number| format!("T{number}")).collect()
    }

    // Otherwise nobody sees whether the test of a trap can fail.
    #[test]
    fn every_trap_has_a_mutation_or_a_reason_to_have_none() {
        let mutations = Mutation::all().unwrap();
        let guarded: BTreeSet<_> = mutations.into_iter().flat_map(|mutation| mutation.traps).collect();
        let excused: BTreeSet<_> = NoMutation::all().unwrap().into_iter().map(|trap| trap.trap).collect();
        assert_eq!(&guarded & &excused, BTreeSet::new());
        assert_eq!(&guarded | &excused, traps());
    }

    /// Whether a source has this test: of the protocol, the library, or the suite.
    fn exists(test: &str) -> bool {
        test.contains("::tests::") && (is_in("protocol/src", test) || is_in("src", test))
            || is_in("tests/suite", test)
    }
}
