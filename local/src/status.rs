//! What is known of an environment from outside.

use serde::Serialize;
use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// One environment.
pub struct Status {
    pub function: &'static str,
    pub number: usize,
    figures: Mutex<Figures>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    pub function: &'static str,
    pub environment: usize,
    pub pid: Option<u32>,
    pub state: State,
    pub starts: u64,
    /// Processes that ended without being told to.
    pub crashes: u64,
    /// Processes killed at an invocation's deadline.
    pub timeouts: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Idle,
    Busy,
    Dead,
}

impl Status {
    pub fn new(function: &'static str, number: usize) -> Self {
        let figures = Figures {
            function,
            environment: number,
            pid: None,
            state: State::Dead,
            starts: 0,
            crashes: 0,
            timeouts: 0,
        };
        Self { function, number, figures: Mutex::new(figures) }
    }

    pub fn figures(&self) -> Figures {
        self.lock().clone()
    }

    pub fn started(&self, pid: u32) {
        let mut figures = self.lock();
        figures.pid = Some(pid);
        figures.state = State::Starting;
        figures.starts += 1;
    }

    pub fn ended(&self, crashed: bool) {
        let mut figures = self.lock();
        figures.pid = None;
        figures.state = State::Dead;
        figures.crashes += u64::from(crashed);
    }

    pub fn timed_out(&self) {
        self.lock().timeouts += 1;
    }

    /// Where lines come from: function, environment, process.
    pub fn prefix(&self, pid: u32) -> String {
        format!("[{}#{} {pid}]", self.function, self.number)
    }

    /// A line of the environment itself, in the log.
    pub fn say(&self, message: &str) {
        let _ = io::stderr().write_all(format!("[{}#{}] {message}\n", self.function, self.number).as_bytes());
    }

    /// Only from the expected state: the process may have died in between.
    pub fn change(&self, from: State, to: State) {
        let mut figures = self.lock();
        if figures.state == from {
            figures.state = to;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
