//! How far each lane is done.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The place of the last record of each lane that is done, in memory, and in a file if there is one.
#[derive(Debug, Default)]
pub struct Checkpoints {
    places: Mutex<BTreeMap<String, String>>,
    file: Option<PathBuf>,
}

impl Checkpoints {
    /// Those of the file. It may not be there yet.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(file: Option<&Path>) -> Result<Self, String> {
        let text = match file.map(fs::read) {
            None => None,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Some(read) => Some(read.map_err(|error| format!("the checkpoints: {error}"))?),
        };
        let places = text.map(|text| serde_json::from_slice(&text)).transpose();
        let places = places.map_err(|error| format!("the checkpoints are no JSON: {error}"))?;
        Ok(Self { places: Mutex::new(places.unwrap_or_default()), file: file.map(Path::to_owned) })
    }

    /// The last place of this lane that is done.
    pub fn last(&self, lane: &str) -> Option<String> {
        self.places().get(lane).cloned()
    }

    /// Moves some of them.
    ///
    /// # Errors
    /// If the file cannot be written: then another poller repeats more. The next call writes all.
    pub fn pass<'a>(&self, done: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), String> {
        let mut places = self.places();
        places.extend(done.map(|(lane, place)| (lane.to_owned(), place.to_owned())));
        let Some(file) = &self.file else { return Ok(()) };
        let fresh = file.with_extension("new");
        let written =
            fs::write(&fresh, serde_json::json!(*places).to_string()).and_then(|()| fs::rename(fresh, file));
        written.map_err(|error| format!("the checkpoints are not written: {error}"))
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
