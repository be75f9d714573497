//! Everything that this process logs, kept so that a test can search it for what must not be there.
//!
//! The subscriber is one for the process and its tests run at once: search for needles that only your test uses.
//! Events at every level and of every target are kept, and spans as they open and close. Records of the `log` crate
//! are not.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use memchr::{memchr, memmem, memrchr};
use tracing_subscriber::fmt::format::FmtSpan;

/// The log of this process, from the call of [`Logs::capture`] on that returned it.
#[derive(Clone, Copy, Debug)]
pub struct Logs {
    /// A file rather than memory: the SDK alone logs tens of kilobytes a request. It has no name, and so goes with
    /// the process.
    file: &'static Arc<File>,
    /// The file's length at the capture. What stands before is other tests', and there may be hundreds of megabytes of it.
    from: u64,
}

impl Logs {
    /// Begins to capture, unless another test did so before.
    pub fn capture() -> Self {
        static FILE: OnceLock<Arc<File>> = OnceLock::new();
        let file = FILE.get_or_init(|| {
            let file = Arc::new(tempfile::tempfile().expect("a file for the log"));
            tracing_subscriber::fmt()
                .json()
                .with_max_level(tracing::Level::TRACE)
                .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
                .with_writer(file.clone())
                .try_init()
                .expect("no other subscriber is installed in the test process");
            file
        });
        Self { file, from: file.metadata().expect("the log has a length").len() }
    }

    /// Whether any line holds `needle`, as it stands or escaped as within JSON, once or (`{:?}` of a text) twice.
    pub fn contains(&self, needle: &str) -> bool {
        !self.lines_with(needle).is_empty()
    }

    /// The lines, one JSON object each with `level`, `target`, `fields` and `spans`, that hold `needle`.
    pub fn lines_with(&self, needle: &str) -> Vec<Line> {
        assert!(!needle.is_empty(), "every line holds the empty needle");
        let escaped = escape(needle);
        let needles = BTreeSet::from([escape(&escaped), escaped, needle.to_owned()]);
        let log = self.read().expect("the log can be read");
        let mut lines = BTreeSet::new();
        for at in needles.iter().flat_map(|needle| memmem::find_iter(&log, needle)) {
            let begin = memrchr(b'\n', &log[..at]).map_or(0, |last| last + 1);
            let end = at + memchr(b'\n', &log[at..]).expect("each line has an end");
            lines.insert((begin, end));
        }
        let text = |(begin, end)| String::from_utf8(log[begin..end].to_vec()).expect("a line is text");
        lines.into_iter().map(|line| Line::of(text(line))).collect()
    }

    /// What was logged since the capture, whole lines only.
    fn read(&self) -> io::Result<Vec<u8>> {
        // With the byte before: a line of which a part was written by then is none of these.
        let from = self.from.saturating_sub(1);
        let length = self.file.metadata()?.len() - from;
        let mut bytes = vec![0; usize::try_from(length).expect("the log fits into memory")];
        self.file.read_exact_at(&mut bytes, from)?;
        bytes.truncate(memrchr(b'\n', &bytes).map_or(0, |last| last + 1));
        if self.from > 0 {
            bytes.drain(..memchr(b'\n', &bytes).map_or(0, |first| first + 1));
        }
        Ok(bytes)
    }
}

/// One line of the log.
#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    fields: serde_json::Value,
}

impl Line {
    fn of(text: String) -> Self {
        let fields = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        Self { text, fields }
    }

    /// The module that logged it.
    pub fn target(&self) -> &str {
        self.fields["target"].as_str().expect("every line has a target")
    }

    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub fn level(&self) -> &str {
        self.fields["level"].as_str().expect("every line has a level")
    }
}

fn escape(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
