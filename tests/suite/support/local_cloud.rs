//! The local cloud as a user starts it: the built program, in a separate process.

use super::process::Process;
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The program, which cargo builds before the suite. It is also each function of the sample.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_suite-local");

const READY_WITHIN: Duration = Duration::from_secs(180);
const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// How many lines of its output a failed test shows.
const LAST_LINES: usize = 60;

/// A running local cloud. It ends with this value, or with the test process.
pub struct LocalCloud {
    url: String,
    provider: String,
    queues: String,
    http: Client,
    output: Output,
    process: Process,
}

impl Drop for LocalCloud {
    /// Prints the local cloud's last lines if the test has failed. They may show the reason.
    fn drop(&mut self) {
        if thread::panicking() {
            let text = self.output.text();
            let last: Vec<_> = text.lines().rev().take(LAST_LINES).collect();
            eprintln!("the local cloud ({:?} if ended) printed last:", self.process.ended());
            last.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

/// A line of the provider's ledger: a charge that was really made.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    pub id: String,
    pub key: Option<String>,
    pub amount_cents: u64,
    pub currency: String,
    pub source: String,
    pub tenant: String,
}

impl LocalCloud {
    /// Starts one on a free port, with these variables (`local --help` lists them). Returns when it is healthy.
    pub async fn start(variables: &[(&str, &str)]) -> Self {
        Self::configured(variables, |_| {}).await
    }

    /// The same, with what `configure` adds: arguments, or another destination for standard error.
    pub async fn configured(variables: &[(&str, &str)], configure: impl FnOnce(&mut Command)) -> Self {
        let mut process = Process::start(PROGRAM, |program| {
            program
                .env("PORT", "0")
                .envs(variables.iter().copied())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            configure(program);
        })
        .expect("the local cloud can be run");
        let output = Output::default();
        process.output().for_each(|pipe| output.keep(pipe));

        let completion_timeout = Instant::now() + READY_WITHIN;
        let http = Client::new();
        loop {
            // In the order in which they are printed.
            let addresses = ["listening on", "provider", "queues"].map(|label| output.address(label));
            if let [Some(url), Some(provider), Some(queues)] = addresses {
                let health = http.get(format!("{url}/health")).send().await;
                if health.is_ok_and(|health| health.status() == 200) {
                    return Self { url, provider, queues, http, output, process };
                }
            }
            if let Some(status) = process.ended() {
                panic!("the local cloud ended while it started, {status}:\n{}", output.text());
            }
            assert!(
                Instant::now() < completion_timeout,
                "the local cloud is not up in time:\n{}",
                output.text()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The provider's URL.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The URL of SQS.
    pub fn queues(&self) -> &str {
        &self.queues
    }

    /// The process id of the local cloud.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Its output so far.
    pub fn printed(&self) -> String {
        self.output.text()
    }

    /// Waits until it ends unprompted.
    pub async fn ended(&mut self) -> ExitStatus {
        let completion_timeout = Instant::now() + ENDS_WITHIN;
        loop {
            if let Some(status) = self.process.ended() {
                return status;
            }
            assert!(Instant::now() < completion_timeout, "the local cloud does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A request to this path. `.bearer_auth("tenant")` makes it a tenant's request.
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.url))
    }

    pub fn post(&self, path: &str) -> RequestBuilder {
        self.http.post(format!("{}{path}", self.url))
    }

    /// The provider's ledger.
    pub async fn charges(&self) -> Vec<Charge> {
        #[derive(Deserialize)]
        struct Ledger {
            charges: Vec<Charge>,
        }
        let answer = self.get("/provider/charges").send().await.expect("the ledger can be asked for");
        let ledger: Ledger = answer.json().await.expect("the ledger has its documented form");
        ledger.charges
    }
}

/// A program's output, read continuously so that the program never blocks on a full pipe.
#[derive(Clone, Default)]
struct Output {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Output {
    fn keep(&self, pipe: Box<dyn Read + Send>) {
        let lines = self.lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                lines.lock().unwrap().push(String::from_utf8_lossy(&line).into_owned());
            }
        });
    }

    /// The address in the line that starts with `label`. In JSON lines, the value of the label's first part.
    fn address(&self, label: &str) -> Option<String> {
        let name = label.split(' ').next().unwrap_or_default();
        let lines = self.lines.lock().unwrap();
        lines.iter().find_map(|line| {
            if let Some(address) = line.strip_prefix(label) {
                return Some(address.strip_prefix(' ')?.trim().to_owned());
            }
            let parsed: Value = serde_json::from_str(line).ok()?;
            parsed["listening"].as_str().and(parsed[name].as_str()).map(str::to_owned)
        })
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}
