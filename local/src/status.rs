//! The status of an environment, seen from outside.
//!
//! If a process ends during an invocation, the task that waits for the answer logs the end, because it can name the invocation.
//! At any other time, the end is logged at once.

use crate::{
    journal,
    log::{self, Level, Source},
    work::Work,
};
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

const NO_PROCESS: &str = "it has no process";

/// One environment.
pub struct Status {
    pub function: &'static str,
    pub number: usize,
    journal: journal::Shared,
    kills: watch::Sender<()>,
    /// Whether its process shall be stopped.
    frozen: watch::Sender<bool>,
    inner: Mutex<Inner>,
}

struct Inner {
    figures: Figures,
    /// Why the process crashed, until that is logged with its work.
    unlogged: Option<String>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    pub function: &'static str,
    pub environment: usize,
    pub pid: Option<u32>,
    pub state: State,
    pub starts: u64,
    /// Processes that crashed or exited.
    pub crashes: u64,
    /// Processes killed at an invocation's deadline.
    pub timeouts: u64,
    /// Whether its process is stopped, as Lambda stops one between invocations.
    #[serde(skip_serializing_if = "is_false")]
    pub frozen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_on: Option<Work>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<End>,
}

/// The last end by a crash, or by a kill at a deadline.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    at: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_on: Option<Work>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Idle,
    Busy,
    Dead,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Dead => "dead",
        }
    }
}

impl Status {
    pub fn new(function: &'static str, number: usize, journal: journal::Shared) -> Self {
        let figures = Figures {
            function,
            environment: number,
            pid: None,
            state: State::Dead,
            starts: 0,
            crashes: 0,
            timeouts: 0,
            frozen: false,
            working_on: None,
            last_end: None,
        };
        let inner = Mutex::new(Inner { figures, unlogged: None });
        Self {
            function,
            number,
            journal,
            kills: watch::Sender::default(),
            frozen: watch::Sender::default(),
            inner,
        }
    }

    pub fn figures(&self) -> Figures {
        self.lock().figures.clone()
    }

    pub fn is_warm(&self) -> bool {
        self.lock().figures.state == State::Idle
    }

    /// A process was started. Returns what is asked of it from now on: its kills, and whether it shall be stopped.
    pub fn started(&self, pid: u32) -> (watch::Receiver<()>, watch::Receiver<bool>) {
        let mut inner = self.lock();
        self.frozen.send_replace(false);
        let orders = (self.kills.subscribe(), self.frozen.subscribe());
        inner.unlogged = None;
        let figures = &mut inner.figures;
        figures.pid = Some(pid);
        figures.frozen = false;
        figures.state = State::Starting;
        figures.starts += 1;
        drop(inner);
        log::note(&self.name(), Level::Info, "started", &[("pid", &pid.to_string())]);
        orders
    }

    /// It asks for work.
    pub fn ready(&self) {
        self.change(State::Starting, State::Idle);
        self.journal.notice();
    }

    /// It got this work.
    pub fn took(&self, work: &Work) {
        if self.change(State::Idle, State::Busy) {
            self.lock().figures.working_on = Some(work.clone());
            self.journal.took(&self.name(), work);
        }
    }

    /// It has answered. It may have ended since.
    pub fn answered(&self) {
        self.change(State::Busy, State::Idle);
        self.journal.is_free(&self.name());
        let mut inner = self.lock();
        inner.figures.working_on = None;
        let unlogged = inner.unlogged.take();
        drop(inner);
        self.journal.notice();
        if let Some(reason) = unlogged {
            self.log_end(&reason, None);
        }
    }

    /// The process has ended; `crash` says why, unless it was killed on purpose.
    pub fn ended(&self, crash: Option<String>) {
        let mut inner = self.lock();
        let busy = inner.figures.state == State::Busy;
        inner.figures.pid = None;
        inner.figures.state = State::Dead;
        inner.figures.frozen = false;
        inner.figures.crashes += u64::from(crash.is_some());
        inner.unlogged.clone_from(&crash);
        drop(inner);
        self.journal.notice();
        if let (false, Some(reason)) = (busy, crash) {
            self.log_end(&reason, None);
        }
    }

    /// It will not answer: it has ended during this work.
    pub fn lost(&self, work: &Work) {
        let mut inner = self.lock();
        inner.figures.working_on = None;
        let unlogged = inner.unlogged.take();
        drop(inner);
        if let Some(reason) = unlogged {
            self.log_end(&reason, Some(work));
        }
        self.journal.is_free(&self.name());
    }

    /// It was killed at this work's deadline.
    pub fn timed_out(&self, work: &Work, message: &str) {
        let mut inner = self.lock();
        inner.figures.timeouts += 1;
        inner.figures.working_on = None;
        drop(inner);
        self.log_end(message, Some(work));
        self.journal.is_free(&self.name());
    }

    /// It could not be started for this work.
    pub fn not_started(&self, work: &Work, message: &str) {
        self.journal.took(&self.name(), work);
        self.log_end(&format!("cannot start: {message}"), Some(work));
        self.journal.is_free(&self.name());
    }

    /// Kills the process.
    ///
    /// # Errors
    /// If there is none.
    pub fn kill(&self) -> Result<(), String> {
        let inner = self.lock();
        inner.figures.pid.ok_or_else(|| NO_PROCESS.to_owned())?;
        self.kills.send_replace(());
        Ok(())
    }

    /// Stops the process, or lets it go on.
    ///
    /// # Errors
    /// If there is no process.
    pub fn freeze(&self, freezes: bool) -> Result<(), String> {
        let mut inner = self.lock();
        inner.figures.pid.ok_or_else(|| NO_PROCESS.to_owned())?;
        inner.figures.frozen = freezes;
        self.frozen.send_replace(freezes);
        drop(inner);
        self.journal.happened(&self.name(), if freezes { "is frozen" } else { "goes on" });
        Ok(())
    }

    pub fn source(&self, pid: u32) -> Source {
        Source { function: self.function, environment: self.number, pid }
    }

    fn log_end(&self, reason: &str, work: Option<&Work>) {
        let (id, what) = work.map(|work| (work.request_id.clone(), work.what.clone())).unwrap_or_default();
        let fields = [("request", &*id), ("on", &what)];
        self.journal.happened(&self.name(), reason);
        log::say(&self.name(), Level::Error, reason, if work.is_some() { &fields } else { &[] });
        let (reason, working_on) = (reason.to_owned(), work.cloned());
        self.lock().figures.last_end = Some(End { at: log::time(), reason, working_on });
    }

    /// Such as `payments#1`.
    pub fn name(&self) -> String {
        format!("{}#{}", self.function, self.number)
    }

    /// Changes the state only from the expected one, because the process may have died in between.
    fn change(&self, from: State, to: State) -> bool {
        let figures = &mut self.lock().figures;
        let changes = figures.state == from;
        if changes {
            figures.state = to;
        }
        changes
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
