//! One side, spilled into files by a hash of its ids.

use std::{
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufRead, BufReader, BufWriter, Seek, Write},
    iter,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::entry::Entry;

/// The number of files of one side. Memory holds one of this many parts. Both sides together open twice as many files.
const BUCKETS: u64 = 128;

/// The size of a file's buffer. All buffers of both sides together take 4 MiB.
const BUFFER: usize = 16 * 1024;

/// The entries of a side, one per line.
pub(crate) struct Spill {
    /// Files are created when needed, so that a quiet day takes few.
    files: Vec<Option<BufWriter<File>>>,
    entries: u64,
}

impl Spill {
    pub(crate) fn new() -> Self {
        Self { files: iter::repeat_with(|| None).take(BUCKETS as usize).collect(), entries: 0 }
    }

    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn add<V: Serialize>(&mut self, entry: &Entry<V>) -> io::Result<()> {
        let file = match &mut self.files[bucket_of(&entry.id)] {
            Some(file) => file,
            none => none.insert(BufWriter::with_capacity(BUFFER, tempfile::tempfile()?)),
        };
        serde_json::to_writer(&mut *file, entry)?;
        file.write_all(b"\n")?;
        self.entries += 1;
        Ok(())
    }

    /// The buckets, in the same order on both sides.
    pub(crate) fn buckets(self) -> impl Iterator<Item = Bucket> {
        self.files.into_iter().map(Bucket)
    }
}

/// The bucket of an id, the same on both sides.
fn bucket_of(id: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    (hasher.finish() % BUCKETS) as usize
}

/// The entries with the same hash.
pub(crate) struct Bucket(Option<BufWriter<File>>);

impl Bucket {
    /// Reads the bucket from its beginning. Its disk space is freed when the entries are dropped.
    pub(crate) fn entries(self) -> io::Result<Entries> {
        let reader = match self.0 {
            Some(writer) => {
                let mut file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                Some(BufReader::with_capacity(BUFFER, file))
            }
            None => None,
        };
        Ok(Entries { reader, line: Vec::new() })
    }
}

/// A bucket's entries, in the order of their arrival.
pub(crate) struct Entries {
    reader: Option<BufReader<File>>,
    line: Vec<u8>,
}

impl Entries {
    pub(crate) fn next<V: DeserializeOwned>(&mut self) -> io::Result<Option<Entry<V>>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        self.line.clear();
        // JSON escapes a line break in an id, so a line is an entry.
        if reader.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&self.line)?))
    }
}
