//! The operators' command line as an operator runs it: the built program, in a separate process.

use serde_json::Value;
use std::process::Stdio;
use tokio::process::Command;

/// The program, which cargo builds before the suite.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_suite-idempotency");

/// The program against one table.
#[derive(Clone, Debug)]
pub struct CommandLine {
    endpoint: String,
    table: String,
    /// The list of topics, or nothing.
    topics: String,
}

/// How a command ended.
#[derive(Debug)]
pub struct Replied {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandLine {
    pub fn new(endpoint: &str, table: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), table: table.to_owned(), topics: String::new() }
    }

    /// The name of the table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The same table through another endpoint.
    pub fn through(&self, endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), ..self.clone() }
    }

    /// The same with this list of topics.
    pub fn with_topics(&self, topics: &str) -> Self {
        Self { topics: topics.to_owned(), ..self.clone() }
    }

    /// A command that can be configured further. It ends with the test.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .env_clear()
            .env("AWS_ACCESS_KEY_ID", "tests")
            .env("AWS_SECRET_ACCESS_KEY", "tests")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("USER", "olga")
            .env("IDEMPOTENCY_TABLE", &self.table)
            .env("OUTBOX_TOPICS", &self.topics)
            .args(["--region", "eu-central-1", "--endpoint-url", &self.endpoint])
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> Replied {
        let output = self.command(arguments).output().await.expect("the command line can be run");
        let text = |bytes| String::from_utf8(bytes).expect("output is text");
        Replied { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command with `--output json`, which must succeed, and parses its output.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--output", "json"]].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}: {ran:?}");
        serde_json::from_str(&ran.stdout).expect("standard output is one JSON document")
    }
}

impl Replied {
    /// Fails unless it was refused with this exit code and one line that contains `text`, and printed nothing else.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, text: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains(text), "{self:?}");
        assert_eq!((self.stderr.lines().count(), self.stdout.as_str()), (1, ""), "{self:?}");
    }
}
