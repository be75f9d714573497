//! A local cloud under load whose processes are killed at random moments.

use super::{local_cloud::LocalCloud, random::Random};
use std::{
    cell::Cell,
    io::{IsTerminal, Write},
    process::{Command, Stdio},
    time::Duration,
};

/// The longest time between two kills, unless nothing gets done.
const BETWEEN_KILLS: Duration = Duration::from_millis(150);

/// Short durations, so that a storm is short.
pub const SPANS: [(&str, &str); 11] = [
    ("ENVIRONMENTS", "6"),
    ("FUNCTION_TIMEOUT_MS", "6000"),
    ("LEASE_GRACE_MS", "500"),
    ("PROVIDER_TIMEOUT_MS", "3000"),
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

    /// How many answers arrived.
    pub fn came(&self) -> usize {
        self.came.get()
    }

    /// Kills this many processes of these functions, at random, and then the storm is over. At least so much `more` is `done` between two of
    /// them: otherwise a busy machine could kill each process before it has begun, and nothing would be interrupted.
    pub async fn kill(
        &self,
        victims: &[&str],
        kills: usize,
        mut random: Random,
        (done, more): (impl AsyncFn() -> usize, usize),
    ) {
        let mut killed = Vec::new();
        while killed.len() < kills {
            let before = done().await;
            tokio::time::sleep(random.up_to(BETWEEN_KILLS)).await;
            while done().await < before + more {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let mut living = self.cloud.processes(random.of(victims)).await;
            living.retain(|process| !killed.contains(process));
            if living.is_empty() {
                continue;
            }
            let process = random.of(&living);
            if kill(process) {
                killed.push(process);
                progress(&format!("\r{} of {kills} killed ", killed.len()));
            }
        }
        progress("\r");
        self.over.set(true);
    }
}

/// Victims: this function, and now and then one of those that clean up after it.
pub fn mostly(victim: &'static str) -> [&'static str; 12] {
    let mut victims = [victim; 12];
    victims[..2].copy_from_slice(&["stale", "reconcile"]);
    victims
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
