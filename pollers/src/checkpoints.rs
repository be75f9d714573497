//! How far each lane is done.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};

/// The place of the last record of each lane that is done, in memory, and in a file if there is one.
#[derive(Debug)]
pub struct Checkpoints {
    /// The stream or the topic.
    source: String,
    places: Mutex<BTreeMap<String, String>>,
    file: Option<PathBuf>,
}

impl Checkpoints {
    /// Those of this source, from the file. It may not be there yet.
    ///
    /// # Errors
    /// If it cannot be read, or has those of another source.
    pub fn of(source: String, file: Option<&Path>) -> Result<Self, String> {
        let places = file.map_or(Ok(BTreeMap::new()), |file| read(file, &source))?;
        Ok(Self { source, places: Mutex::new(places), file: file.map(Path::to_owned) })
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
        self.write(&places)
    }

    /// Removes all of them, because the source is new.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn forget(&self) -> Result<(), String> {
        let mut places = self.places();
        places.clear();
        self.write(&places)
    }

    fn write(&self, places: &BTreeMap<String, String>) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let (fresh, kept) = (file.with_extension("new"), json!({ "source": self.source, "places": places }));
        let written = fs::write(&fresh, kept.to_string()).and_then(|()| fs::rename(fresh, file));
        written.map_err(|error| format!("the checkpoints are not written: {error}"))
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places in a file, which must be of this source.
fn read(file: &Path, source: &str) -> Result<BTreeMap<String, String>, String> {
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        read => read.map_err(|error| format!("the checkpoints: {error}"))?,
    };
    let wrong = |error| format!("{} has no checkpoints: {error}", file.display());
    let mut kept: Value = serde_json::from_slice(&text).map_err(wrong)?;
    if kept["source"] != source {
        return Err(format!(
            "the checkpoints in {} are of {}, and not of \"{source}\": delete this file, or name another one",
            file.display(),
            kept["source"]
        ));
    }
    serde_json::from_value(kept["places"].take()).map_err(wrong)
}
