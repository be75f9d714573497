//! The functions of this cloud, the sample's and those of `--function`, and the distribution of their invocations to execution environments.

use crate::{
    environment::{Environment, Outcome},
    process::Launcher,
    program::{Program, Run},
    settings::{Own, Settings, WRONG_USAGE},
    status::{Figures, Status},
};
use bytes::Bytes;
use std::{
    io::{self, Read},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};
use tokio::{sync::Semaphore, task::JoinHandle};
use uuid::Uuid;

/// The functions of the sample.
const SAMPLE: &[Definition] = &[
    sample("payments", &["payments", "transfers", "accounts", "operations"], MANY, || {
        Box::pin(payments::run())
    }),
    sample("orders", &["orders", "stock"], MANY, || Box::pin(orders::run())),
    sample("order-queue", &[], FEW, || Box::pin(orders::order_queue())),
    sample("stale", &[], FEW, || Box::pin(stale::run())),
    sample("reconcile", &[], FEW, || Box::pin(reconcile::reconcile())),
    sample("webhook", &["webhooks"], FEW, || Box::pin(reconcile::webhook())),
    sample("reports", &["reports"], MANY, || Box::pin(reports::run())),
    sample("report-worker", &[], FEW, || Box::pin(reports::worker())),
    sample("outbox", &[], FEW, || Box::pin(outbox::run())),
    sample("shipping", &[], FEW, || Box::pin(shipping::run())),
    sample("compare", &[], FEW, || Box::pin(compare::run())),
];

/// As many environments as the settings allow.
const MANY: usize = usize::MAX;

/// Environments of a function that no client waits for.
const FEW: usize = 2;

/// Invocations that may wait for an environment, for each function.
const QUEUE: usize = 1_000;

#[derive(Clone)]
pub struct Definition {
    pub name: &'static str,
    /// The first segments of the paths that the gateway routes to it.
    pub paths: &'static [&'static str],
    /// How many environments it may have, even if the settings allow more.
    max: usize,
    pub program: Program,
}

const fn sample(name: &'static str, paths: &'static [&'static str], max: usize, run: Run) -> Definition {
    Definition { name, paths, max, program: Program::Own(run) }
}

/// Every function of this cloud: those of the sample, and those of `--function`, which replace one of their name.
pub fn all(settings: &Settings) -> &'static [Definition] {
    let mut all = SAMPLE.to_vec();
    for Own { name, program } in &settings.functions {
        let program = Program::File(program.clone());
        match all.iter_mut().find(|definition| definition.name == name) {
            Some(definition) => definition.program = program,
            None => {
                all.push(Definition { name: name.clone().leak(), paths: &[], max: MANY, program });
            }
        }
    }
    // They live as long as this process.
    all.leak()
}

impl Definition {
    /// How many environments it may have at once.
    pub fn environments(&self, settings: &Settings) -> usize {
        settings.environments.min(self.max)
    }
}

/// Runs this process as the function of that name, for as long as its parent lives.
pub fn run_as(name: &str) -> ExitCode {
    let Some(Definition { program: Program::Own(run), .. }) =
        SAMPLE.iter().find(|definition| definition.name == name)
    else {
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
}

impl Function {
    pub fn new(definition: &'static Definition, launcher: &Arc<Launcher>, settings: &Settings) -> Self {
        let environments = definition.environments(settings);
        let timeout = settings.function_timeout;
        let statuses: Vec<_> =
            (1..=environments).map(|number| Arc::new(Status::new(definition.name, number))).collect();
        // The last one is taken first, so the first environment goes to the end.
        let idle = statuses
            .iter()
            .rev()
            .map(|status| Environment::new(status.clone(), &definition.program, launcher.clone(), timeout))
            .collect();
        Self {
            definition,
            idle: Mutex::new(idle),
            statuses,
            running: Semaphore::new(environments),
            admitted: Semaphore::new(environments + QUEUE),
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
            let Ok(_admitted) = function.admitted.try_acquire() else { return Outcome::Throttled };
            let _running = function.running.acquire().await.expect("the semaphore is never closed");
            let mut environment = function.take();
            let outcome = environment.invoke(request_id.to_string(), payload).await;
            function.idle().push(environment);
            outcome
        })
    }

    /// The environments that were ever started.
    pub fn environments(&self) -> impl Iterator<Item = Figures> {
        self.statuses.iter().map(|status| status.figures()).filter(|figures| figures.starts > 0)
    }

    /// Kills its processes, as a crash would.
    pub fn kill(&self) {
        self.statuses.iter().for_each(|status| status.kill());
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
