//! An execution environment: one process and one invocation at a time. After the process has died, it starts a new one.

use crate::{
    definition::Definition,
    process::{InitFailure, Launcher, Process, describe},
    runtime_api::{Answer, Invocation},
    status::Status,
    work::Work,
};
use bytes::Bytes;
use serde_json::json;
use std::{sync::Arc, time::SystemTime};
use tokio::{select, time};

/// An execution environment of a function.
pub struct Environment {
    status: Arc<Status>,
    definition: &'static Definition,
    launcher: Arc<Launcher>,
    process: Option<Process>,
}

/// How an invocation ended.
pub enum Outcome {
    /// The function's own answer.
    Response(Bytes),
    /// The function failed, crashed or ran out of time: Lambda's error payload.
    Error(Bytes),
    /// Too many invocations at once.
    Throttled,
}

impl Environment {
    pub fn new(status: Arc<Status>, definition: &'static Definition, launcher: Arc<Launcher>) -> Self {
        Self { status, definition, launcher, process: None }
    }

    pub fn is_warm(&self) -> bool {
        self.status.is_warm()
    }

    /// Starts the process before the first invocation; the error says why it cannot start, and what to look at.
    pub async fn warm_up(&mut self) -> Result<(), String> {
        self.ready().await.map(|_| ()).map_err(|failure| format!("{}{}", failure.message(), failure.hint()))
    }

    pub async fn invoke(&mut self, request_id: String, payload: Bytes) -> Outcome {
        let work = Work::new(request_id.clone(), &payload);
        // A process that died while idle never got the invocation, so a second one may try.
        for _ in 0..2 {
            let timeout = self.definition.timeout;
            let function = self.status.function;
            let process = match self.ready().await {
                Ok(process) => process,
                Err(failure) => return self.init_failed(&work, failure),
            };
            let ends = time::Instant::now() + timeout;
            let deadline = SystemTime::now() + timeout;
            let invocation =
                Invocation { request_id: request_id.clone(), function, deadline, payload: payload.clone() };
            if let Ok(answer) = process.defer(invocation) {
                self.status.took(&work);
                return self.finish(&work, answer, ends).await;
            }
        }
        self.fail(&work, "Runtime.ExitError", "Runtime exited before it took the invocation")
    }

    async fn finish(
        &mut self,
        work: &Work,
        answer: tokio::sync::oneshot::Receiver<Answer>,
        ends: time::Instant,
    ) -> Outcome {
        let process = self.process.as_mut().expect("it has just taken the invocation");
        select! {
            biased;
            Ok(answer) = answer => {
                self.status.answered();
                match answer {
                    Answer::Response(payload) => Outcome::Response(payload),
                    Answer::Error(payload) => Outcome::Error(payload),
                }
            }
            status = process.exited() => {
                self.status.lost(work);
                self.fail(work, "Runtime.ExitError", &describe(status))
            }
            () = time::sleep_until(ends) => {
                process.kill().await;
                let message = format!("Task timed out after {:.2} seconds", self.definition.timeout.as_secs_f64());
                self.status.timed_out(work, &message);
                self.fail(work, "Sandbox.Timedout", &message)
            }
        }
    }

    /// The process that waits for work: the current one, or a new one.
    async fn ready(&mut self) -> Result<&mut Process, InitFailure> {
        if let Some(process) = &mut self.process {
            if process.is_outdated(&self.definition.program) {
                // The program was built anew: as after a deployment, the next invocation goes to it.
                process.kill().await;
                self.process = None;
            } else if process.ready().await.is_err() {
                self.process = None;
            }
        }
        if self.process.is_none() {
            let started = self.launcher.start(&self.status, self.definition).await;
            let mut process = started.map_err(InitFailure::NotStarted)?;
            process.ready().await?;
            self.status.ready();
            self.process = Some(process);
        }
        Ok(self.process.as_mut().expect("it has just been put there"))
    }

    fn init_failed(&self, work: &Work, failure: InitFailure) -> Outcome {
        self.status.not_started(work, &failure.message());
        match failure {
            InitFailure::Reported(payload) => Outcome::Error(payload),
            InitFailure::TimedOut => self.fail(work, "Sandbox.Timedout", &failure.message()),
            _ => self.fail(work, "Runtime.ExitError", &failure.message()),
        }
    }

    fn fail(&self, work: &Work, error_type: &str, message: &str) -> Outcome {
        let payload = json!({
            "errorType": error_type,
            "errorMessage": format!("RequestId: {} Error: {message}", work.request_id),
        });
        Outcome::Error(payload.to_string().into())
    }
}
