//! Everything that this process logs, so that a test can search it for text that must not be logged.
//!
//! All tests of the process run concurrently with one subscriber. Search for texts that only your test uses. Events of every level are
//! kept, and spans when they open and close; from [`QUIET`] crates only those from `info` on. Records of the `log` crate are not kept.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use memchr::{memchr, memmem, memrchr};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt::{format::FmtSpan, layer},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Crates whose lines below `info` hold whole requests, so that functions never print them. They would take half of the tests' time.
const QUIET: [&str; 10] = [
    "aws_config",
    "aws_sdk_dynamodb",
    "aws_sdk_s3",
    "aws_sdk_sqs",
    "aws_smithy_http_client",
    "aws_smithy_runtime",
    "aws_smithy_runtime_api",
    "dynoxide",
    "hyper_util",
    "reqwest",
];

/// The log of this process, from the call of [`Logs::capture`] on.
#[derive(Clone, Copy, Debug)]
pub struct Logs {
    /// A file rather than memory, because the SDK alone logs tens of kilobytes per request. It has no name, so it disappears with the
    /// process.
    file: &'static Arc<File>,
    /// The file's length at the capture. The part before it belongs to other tests, and may be hundreds of megabytes.
    from: u64,
}

impl Logs {
    /// Begins to capture, unless another test has done so already.
    pub fn capture() -> Self {
        static FILE: OnceLock<Arc<File>> = OnceLock::new();
        let file = FILE.get_or_init(|| {
            let file = Arc::new(tempfile::tempfile().expect("a file for the log"));
            let quiet = QUIET.map(|target| (target, LevelFilter::INFO));
            let lines = layer()
                .json()
                .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
                .with_writer(file.clone())
                .with_filter(Targets::new().with_default(LevelFilter::TRACE).with_targets(quiet));
            let subscriber = tracing_subscriber::registry().with(lines);
            subscriber.try_init().expect("no other subscriber is installed in the test process");
            file
        });
        Self { file, from: file.metadata().expect("the log has a length").len() }
    }

    /// Whether any line contains `needle`, plain or escaped as in JSON, once or (`{:?}` of a text) twice.
    pub fn contains(&self, needle: &str) -> bool {
        !self.lines_with(needle).is_empty()
    }

    /// The lines that contain `needle`, each a JSON object with `level`, `target`, `fields` and `spans`.
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

    /// The log since the capture, whole lines only.
    fn read(&self) -> io::Result<Vec<u8>> {
        // With the byte before, to skip a line that was only partly written by then.
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

    /// The module that logged the line.
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
