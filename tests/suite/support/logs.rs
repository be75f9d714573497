//! Everything that this process logs, kept so that a test can search it for what must not be there.
//!
//! The subscriber is one for the process and its tests run at once: search for needles that only your test uses.
//! Events at every level and of every target are kept, and spans as they open and close. Records of the `log` crate
//! are not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use tracing_subscriber::fmt::format::FmtSpan;

/// The log of this process, from the first call of [`Logs::capture`] on.
#[derive(Clone, Copy, Debug)]
pub struct Logs {
    /// A file rather than memory: the SDK alone logs tens of kilobytes a request. It has no name, and so goes with
    /// the process.
    file: &'static Arc<File>,
}

impl Logs {
    /// Begins to capture, unless that was done before.
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
        Self { file }
    }

    /// Whether any line holds `needle`, as it stands or escaped as within JSON, once or (`{:?}` of a text) twice.
    pub fn contains(&self, needle: &str) -> bool {
        !self.lines_with(needle).is_empty()
    }

    /// The lines, one JSON object each with `level`, `target`, `fields` and `spans`, that hold `needle`.
    pub fn lines_with(&self, needle: &str) -> Vec<Line> {
        assert!(!needle.is_empty(), "every line holds the empty needle");
        let escaped = escape(needle);
        let needles = [needle, &escaped, &escape(&escaped)];
        let text = self.text().expect("the log can be read");
        text.lines()
            .filter(|line| needles.iter().any(|needle| line.contains(needle)))
            .map(|line| Line {
                fields: serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")),
                text: line.to_owned(),
            })
            .collect()
    }

    /// What was logged so far, whole lines only.
    fn text(&self) -> io::Result<String> {
        let mut bytes =
            vec![0; usize::try_from(self.file.metadata()?.len()).expect("the log fits into memory")];
        self.file.read_exact_at(&mut bytes, 0)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        bytes.truncate(end);
        String::from_utf8(bytes).map_err(io::Error::other)
    }
}

/// One line of the log.
#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    fields: serde_json::Value,
}

impl Line {
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
