//! A template's file.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A template, and where its files are.
pub struct Template {
    pub text: String,
    /// For messages.
    pub name: String,
    /// Paths in it are relative to this one.
    pub folder: PathBuf,
    /// Whether this program is its functions too.
    pub is_built_in: bool,
    /// Its resource in another template.
    pub nested_as: Option<String>,
}

impl Template {
    /// A template in this program, like its functions.
    pub fn built_in(name: &str, text: &str) -> Self {
        let (text, name) = (text.to_owned(), name.to_owned());
        Self { text, name, folder: PathBuf::new(), is_built_in: true, nested_as: None }
    }

    /// The sample's.
    pub fn sample(text: &str) -> Self {
        Self::built_in("infra/sample.yaml", text)
    }

    /// That of a local cloud to which no template is given.
    pub fn bare() -> Self {
        Self::built_in("bare.yaml", include_str!("../../infra/bare.yaml"))
    }

    /// The template in this file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { text, name: file.display().to_string(), folder, is_built_in: false, nested_as: None })
    }

    #[cfg(test)]
    pub fn of(text: &str) -> Self {
        Self { is_built_in: false, ..Self::built_in("t.yaml", text) }
    }
}
