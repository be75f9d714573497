//! A local cloud under load whose processes are killed at random moments.

use super::{local_cloud::LocalCloud, random::Random};
use std::{
    cell::Cell,
    io::{IsTerminal, Write},
    process::{Command, Stdio},
    time::Duration,
};

/// The longest time between two kills.
const BETWEEN_KILLS: Duration = Duration::from_millis(150);

/// The same for functions that no client waits for. Lambda tries a batch of a stream a few times: kills may interrupt some of them, not all.
const BETWEEN_KILLS_AT_WORK: Duration = Duration::from_millis(500);

/// Short durations, so that a storm is short.
pub const SPANS: [(&str, &str); 11] = [
    ("ENVIRONMENTS", "6"),
    ("FUNCTION_TIMEOUT_MS", "2500"),
    ("LEASE_GRACE_MS", "500"),
    ("PROVIDER_TIMEOUT_MS", "1500"),
    ("WINDOW_MS", "200"),
    ("POLL_MS", "200"),
    ("SWEEP_MS", "1000"),
    ("RECONCILE_FIRST_BACKOFF_MS", "200"),
    ("RECONCILE_MAX_BACKOFF_MS", "500"),
    ("RECONCILE_ASKS", "1000"),
    ("NOT_FOUND_GRACE_MS", "1500"),
];

/// A storm of kills.
pub struct Storm {
    pub cloud: LocalCloud,
    over: Cell<bool>,
    /// Answers lost to a kill.
    lost: Cell<usize>,
    /// Answers that arrived.
    came: Cell<usize>,
}

impl Storm {
    pub fn over(cloud: LocalCloud) -> Self {
        Self { cloud, over: Cell::new(false), lost: Cell::new(0), came: Cell::new(0) }
    }

    /// Whether clients should stop.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Counts the status of an answer.
    pub fn count(&self, status: u16) {
        let count = if status == 502 { &self.lost } else { &self.came };
        count.set(count.get() + 1);
    }

    /// How many answers were lost to a kill.
    pub fn lost(&self) -> usize {
        self.lost.get()
    }

    /// Kills this many processes of the function, and then the storm is over. From time to time, also kills one of the functions that clean
    /// up after it.
    pub async fn kill(&self, victim: &str, kills: usize, mut random: Random) {
        let mut killed = Vec::new();
        while killed.len() < kills {
            let came = self.came.get();
            tokio::time::sleep(random.up_to(BETWEEN_KILLS)).await;
            // Without this wait, a busy machine could kill each process before it has begun. There would be no load.
            while self.came.get() == came {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let function = match random.below(12) {
                0 => "stale",
                1 => "reconcile",
                _ => victim,
            };
            let mut living = self.cloud.processes(function).await;
            living.retain(|process| !killed.contains(process));
            if living.is_empty() {
                continue;
            }
            let process = random.of(&living);
            if kill(process) && function == victim {
                killed.push(process);
                progress(&format!("\r{} of {kills} killed ", killed.len()));
            }
        }
        progress("\r");
        self.over.set(true);
    }

    /// Kills this many processes of a function that no client waits for, each once more is `done` than before. Then the storm is over.
    pub async fn kill_at_work(
        &self,
        victim: &str,
        kills: usize,
        mut random: Random,
        done: impl AsyncFn() -> usize,
    ) {
        let mut killed = 0;
        while killed < kills {
            let before = done().await;
            tokio::time::sleep(random.up_to(BETWEEN_KILLS_AT_WORK)).await;
            while done().await == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let living = self.cloud.processes(victim).await;
            if !living.is_empty() && kill(random.of(&living)) {
                killed += 1;
                progress(&format!("\r{killed} of {kills} killed "));
            }
        }
        progress("\r");
        self.over.set(true);
    }
}

/// Returns whether the process still existed.
fn kill(process: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.args(["-9", &process.to_string()]).stderr(Stdio::null());
    kill.status().expect("kill can be run").success()
}

/// Prints to a terminal, bypassing the test harness, which captures output.
pub fn progress(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = terminal.write_all(text.as_bytes());
    }
}

/// The environment variable of this name, or this number.
pub fn number_of(variable: &str, default: usize) -> usize {
    std::env::var(variable)
        .map_or(default, |number| number.parse().unwrap_or_else(|_| panic!("{variable} is a whole number")))
}
