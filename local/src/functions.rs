//! The distribution of a function's invocations to execution environments.

use crate::{
    alarms::aws,
    definition::{Definition, built_in},
    environment::{Environment, Outcome},
    metrics::Metrics,
    process::Launcher,
    sample::Sample,
    settings::WRONG_USAGE,
    status::{Figures, Status},
};
use bytes::Bytes;
use std::{
    io::{self, Read},
    process::ExitCode,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tokio::{sync::Semaphore, task::JoinHandle};
use uuid::Uuid;

/// Invocations that may wait for an environment, for each function.
const QUEUE: usize = 1_000;

/// Runs this process as the function of that name, for as long as its parent lives.
pub fn run_as(name: &str, sample: Option<&Sample>) -> ExitCode {
    let Some(run) = built_in(name, sample) else {
        eprintln!("error: LOCAL_FUNCTION={name}: no such function");
        return ExitCode::from(WRONG_USAGE);
    };
    thread::spawn(|| {
        // The parent writes nothing, so this returns only when the parent has ended.
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A function with its environments.
pub struct Function {
    pub definition: &'static Definition,
    idle: Mutex<Vec<Environment>>,
    statuses: Vec<Arc<Status>>,
    running: Semaphore,
    admitted: Semaphore,
    is_stopped: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Function {
    pub fn new(definition: &'static Definition, launcher: &Arc<Launcher>) -> Self {
        let environments = definition.environments;
        let statuses: Vec<_> = (1..=environments)
            .map(|number| Arc::new(Status::new(definition.name, number, launcher.journal.clone())))
            .collect();
        // The last one is taken first, so the first environment goes to the end.
        let idle = statuses
            .iter()
            .rev()
            .map(|status| Environment::new(status.clone(), definition, launcher.clone()))
            .collect();
        Self {
            definition,
            idle: Mutex::new(idle),
            statuses,
            running: Semaphore::new(environments),
            admitted: Semaphore::new(environments + QUEUE),
            is_stopped: AtomicBool::new(false),
            metrics: launcher.metrics.clone(),
        }
    }

    /// Starts one environment, so that a function that cannot start fails now and not at the first request.
    pub async fn warm_up(&self) -> Result<(), String> {
        let mut environment = self.take();
        let started = environment.warm_up().await;
        self.idle().push(environment);
        started.map_err(|error| format!("function {}: {error}", self.definition.name))
    }

    /// Starts an invocation. It runs to its end even if no caller waits for it.
    pub fn invoke(self: &Arc<Self>, payload: Bytes) -> JoinHandle<Outcome> {
        self.invoke_as(Uuid::new_v4(), payload)
    }

    /// The same, for a caller that chooses the invocation's id.
    pub fn invoke_as(self: &Arc<Self>, request_id: Uuid, payload: Bytes) -> JoinHandle<Outcome> {
        let function = self.clone();
        tokio::spawn(async move {
            let outcome = function.run(request_id, payload).await;
            let failed = |failed: bool| f64::from(u8::from(failed));
            let metric = |name| aws::of_function(function.definition.name, name);
            function.metrics.note(metric("Errors"), failed(matches!(outcome, Outcome::Error(_))));
            function.metrics.note(metric("Throttles"), failed(matches!(outcome, Outcome::Throttled)));
            outcome
        })
    }

    async fn run(&self, request_id: Uuid, payload: Bytes) -> Outcome {
        let admitted = self.admitted.try_acquire().ok().filter(|_| !self.is_stopped());
        let Some(_admitted) = admitted else { return Outcome::Throttled };
        let _running = self.running.acquire().await.expect("the semaphore is never closed");
        let mut environment = self.take();
        let outcome = environment.invoke(request_id.to_string(), payload).await;
        self.idle().push(environment);
        outcome
    }

    /// Whether it gets no concurrency.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Gives it no concurrency, or gives it back.
    pub fn stop(&self, stops: bool) {
        self.is_stopped.store(stops, Ordering::Relaxed);
    }

    /// The environment of this number.
    pub fn environment(&self, number: usize) -> Option<&Status> {
        self.statuses.iter().find(|status| status.number == number).map(AsRef::as_ref)
    }

    /// The environments that were ever started.
    pub fn environments(&self) -> impl Iterator<Item = Figures> {
        self.statuses.iter().map(|status| status.figures()).filter(|figures| figures.starts > 0)
    }

    /// Kills its processes, as a crash would.
    pub fn kill(&self) {
        self.statuses.iter().for_each(|status| drop(status.kill()));
    }

    /// A warm environment, if there is one. The caller must hold a permit of `running`.
    fn take(&self) -> Environment {
        let mut idle = self.idle();
        let warm = idle.iter().rposition(Environment::is_warm);
        // Without a warm one, takes the one used last, so that a crashed environment restarts first.
        let index = warm.unwrap_or(idle.len() - 1);
        idle.remove(index)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Environment>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
