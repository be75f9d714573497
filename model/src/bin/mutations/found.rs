//! What a whole run has found, so that a run that was interrupted goes on.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::PathBuf,
};

use crate::tree::Tree;

/// The line that says that nothing fails without a mutation.
pub const UNCHANGED: &str = "nothing fails without a mutation";

/// The rules whose mutations were found in this very tree. A change of any file begins anew.
pub struct Found {
    file: PathBuf,
    lines: BTreeSet<String>,
}

impl Found {
    /// What earlier runs over this tree have found.
    pub fn of(tree: &Tree) -> io::Result<Self> {
        let file = tree.target.with_file_name("found");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let mut lines = text.lines();
        let digest = format!("{:016x}", tree.digest);
        if lines.next() == Some(&digest) {
            return Ok(Self { lines: lines.map(str::to_owned).collect(), file });
        }
        fs::write(&file, digest + "\n")?;
        Ok(Self { file, lines: BTreeSet::new() })
    }

    /// Whether this was found.
    pub fn has(&self, line: &str) -> bool {
        self.lines.contains(line)
    }

    /// This is found too.
    pub fn add(&mut self, line: &str) -> io::Result<()> {
        self.lines.insert(line.to_owned());
        writeln!(OpenOptions::new().append(true).open(&self.file)?, "{line}")
    }
}
