//! One child process: this program again, as one function, on a Runtime API of its own.
//!
//! A child never outlives its parent. While the parent runs, a task holds the child and kills it on request. If the parent
//! dies suddenly, the pipe on the child's standard input closes, and the child exits.

use crate::{
    definition::Definition,
    journal,
    log::{self, Source},
    metrics::{Document, Metrics},
    program::Program,
    provider,
    runtime_api::{Answer, Invocation, Poll, RuntimeApi},
    status::Status,
};
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, ChildStdin, Command},
    select,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch},
    task::JoinHandle,
    time,
};

/// Lambda gives a function this long to start.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for a dead process's last lines. They are in the pipe already.
const LAST_WORDS: Duration = Duration::from_secs(1);
const MEMORY_SIZE: &str = "256";

/// Starts child processes, and stops all of them.
pub struct Launcher {
    executable: PathBuf,
    /// Each process holds a permit. If a task holds all of them, no process is left and none can start.
    permits: Arc<Semaphore>,
    max: u32,
    stop: watch::Sender<bool>,
    /// The metrics that functions write to standard output, and those of their invocations.
    pub metrics: Arc<Metrics>,
    pub journal: journal::Shared,
    /// The provider's URL. Each environment gets one of its own, so that the journal knows whose a call is.
    provider: String,
}

/// A function's process.
pub struct Process {
    pub api: RuntimeApi,
    /// The call to `next` that waits for the coming invocation, once the process has made it.
    poll: Option<Poll>,
    exit: watch::Receiver<Option<ExitStatus>>,
    kill: Arc<Notify>,
    /// When its program was built; `None` for this program.
    built: Option<SystemTime>,
}

/// Why a process never asked for work.
pub enum InitFailure {
    NotStarted(io::Error),
    Reported(Bytes),
    Exited(ExitStatus),
    TimedOut,
}

impl Launcher {
    /// A launcher for at most `max` processes at once.
    pub fn new(
        max: u32,
        metrics: Arc<Metrics>,
        journal: journal::Shared,
        provider: &str,
    ) -> io::Result<Self> {
        Ok(Self {
            executable: std::env::current_exe()?,
            permits: Arc::new(Semaphore::new(max as usize)),
            max,
            stop: watch::Sender::new(false),
            metrics,
            journal,
            provider: provider.to_owned(),
        })
    }

    /// Kills every process and waits until the last has gone. None starts afterwards.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let all = self.permits.acquire_many(self.max).await.expect("the semaphore is never closed");
        all.forget();
    }

    /// Starts a process of the function whose environment `status` describes.
    pub async fn start(&self, status: &Arc<Status>, definition: &Definition) -> io::Result<Process> {
        let stopping = || io::Error::other("the local cloud is stopping");
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| stopping())?;
        let stop = self.stop.subscribe();
        if *stop.borrow() {
            return Err(stopping());
        }
        let api = RuntimeApi::listen().await?;
        // Before it is executed: what is built meanwhile is noticed.
        let built = definition.program.built();
        let mut child = self.command(status, definition, &api).spawn()?;
        let id = child.id().expect("a process that has not been waited for has an id");
        let (kills, freezes) = status.started(id);
        let metrics = self.metrics.clone();
        let logs = [
            tokio::spawn(copy(
                child.stdout.take().expect("stdout is piped"),
                status.source(id),
                Some(metrics),
            )),
            tokio::spawn(copy(child.stderr.take().expect("stderr is piped"), status.source(id), None)),
        ];
        let kill = Arc::new(Notify::new());
        let (sender, exit) = watch::channel(None);
        // Taken out, because waiting for a child closes its standard input.
        let stdin = child.stdin.take().expect("stdin is piped");
        let guard = Guard {
            child,
            _stdin: stdin,
            logs,
            kill: kill.clone(),
            stop,
            status: status.clone(),
            kills,
            freezes,
            permit,
        };
        tokio::spawn(guard.wait(sender));
        Ok(Process { api, poll: None, exit, kill, built })
    }

    fn command(&self, status: &Status, definition: &Definition, api: &RuntimeApi) -> Command {
        let Status { function, number, .. } = status;
        let mut command = match &definition.program {
            Program::Own(name) => {
                let mut command = Command::new(&self.executable);
                command.env("LOCAL_FUNCTION", name);
                command
            }
            Program::File(program) => Command::new(program),
        };
        let of_provider = definition.variables.iter().filter(|(_, value)| **value == self.provider);
        let of_provider = of_provider.map(|(name, url)| (name, provider::from(url, function, *number)));
        command
            .envs(&definition.variables)
            .envs(of_provider)
            .env("AWS_LAMBDA_RUNTIME_API", api.address.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", function)
            // The SDK names it to every service that the function calls.
            .env("AWS_SDK_UA_APP_ID", function)
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", MEMORY_SIZE)
            .env("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{function}"))
            .env("AWS_LAMBDA_LOG_STREAM_NAME", format!("[$LATEST]{number}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C at the terminal is for the parent, which then ends its children in order.
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

impl Process {
    /// Whether its program was built anew since it was started. While it is being built, there may be no file.
    pub fn is_outdated(&self, program: &Program) -> bool {
        program.built().is_some_and(|built| Some(built) != self.built)
    }

    /// Waits until the process asks for work.
    pub async fn ready(&mut self) -> Result<(), InitFailure> {
        if self.poll.as_ref().is_some_and(|poll| !poll.is_closed()) {
            return Ok(());
        }
        select! {
            biased;
            status = exited(&mut self.exit) => Err(match self.api.init_error() {
                Some(payload) => InitFailure::Reported(payload),
                None => InitFailure::Exited(status),
            }),
            poll = self.api.polls.recv() => {
                self.poll = poll;
                Ok(())
            }
            () = time::sleep(INIT_TIMEOUT) => {
                self.kill().await;
                Err(InitFailure::TimedOut)
            }
        }
    }

    /// Gives the invocation to the process, or returns it if the process has died meanwhile.
    pub fn defer(&mut self, invocation: Invocation) -> Result<oneshot::Receiver<Answer>, Invocation> {
        match self.poll.take() {
            Some(poll) if self.exit.borrow().is_none() => self.api.defer(poll, invocation),
            _ => Err(invocation),
        }
    }

    pub async fn exited(&mut self) -> ExitStatus {
        exited(&mut self.exit).await
    }

    /// Sends SIGKILL, and waits for the end.
    pub async fn kill(&mut self) {
        self.kill.notify_one();
        self.exited().await;
    }
}

impl InitFailure {
    /// What whoever started it should look at.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotStarted(_) => "; is it a program, and built for this machine?",
            Self::Reported(_) | Self::Exited(_) => "; its own lines are above",
            Self::TimedOut => {
                "; is it a Lambda function, which calls lambda_runtime::run or lambda_http::run?"
            }
        }
    }

    pub fn message(&self) -> String {
        match self {
            Self::NotStarted(error) => format!("Runtime could not be started: {error}"),
            Self::Reported(payload) => String::from_utf8_lossy(payload).into_owned(),
            Self::Exited(status) => describe(*status),
            Self::TimedOut => format!(
                "Task timed out after {:.2} seconds: it asked for no invocation",
                INIT_TIMEOUT.as_secs_f64()
            ),
        }
    }
}

/// The exit, as Lambda describes it.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "Runtime exited without providing a reason".to_owned(),
        (Some(code), _) => format!("Runtime exited with error: exit status {code}"),
        (None, Some(6)) => "Runtime exited with error: signal: aborted".to_owned(),
        (None, Some(9)) => "Runtime exited with error: signal: killed".to_owned(),
        (None, Some(11)) => "Runtime exited with error: signal: segmentation fault".to_owned(),
        (None, Some(15)) => "Runtime exited with error: signal: terminated".to_owned(),
        (None, signal) => format!("Runtime exited with error: signal: {}", signal.unwrap_or_default()),
    }
}

async fn exited(exit: &mut watch::Receiver<Option<ExitStatus>>) -> ExitStatus {
    match exit.wait_for(Option::is_some).await {
        Ok(status) => status.expect("waited for it"),
        // The task that watched the process is gone, so this program is ending.
        Err(_) => ExitStatus::from_raw(9),
    }
}

/// Holds the child until it ends.
struct Guard {
    child: Child,
    _stdin: ChildStdin,
    logs: [JoinHandle<()>; 2],
    kill: Arc<Notify>,
    stop: watch::Receiver<bool>,
    status: Arc<Status>,
    kills: watch::Receiver<()>,
    freezes: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
}

impl Guard {
    async fn wait(mut self, exit: watch::Sender<Option<ExitStatus>>) {
        let (ended, crashed) = loop {
            select! {
                ended = self.child.wait() => break (ended, true),
                Ok(()) = self.kills.changed() => break (end(&mut self.child).await, true),
                () = self.kill.notified() => break (end(&mut self.child).await, false),
                () = stopped(&mut self.stop) => break (end(&mut self.child).await, false),
                // Here, and not by whoever asks: its id is not yet another process's.
                Ok(()) = self.freezes.changed() => signal(&self.child, *self.freezes.borrow_and_update()),
            }
        };
        let ended = ended.unwrap_or(ExitStatus::from_raw(9));
        let _ = time::timeout(LAST_WORDS, async {
            for log in &mut self.logs {
                let _ = log.await;
            }
        })
        .await;
        self.status.ended(crashed.then(|| describe(ended)));
        // The permit first: a task that sees the exit may start the next process at once.
        drop(self.permit);
        exit.send_replace(Some(ended));
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the launcher is gone: that is a stop too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Stops the process, or lets it go on.
fn signal(child: &Child, freezes: bool) {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let signal = if freezes { Signal::STOP } else { Signal::CONT };
    // If it has just ended, there is nothing to stop.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

async fn end(child: &mut Child) -> io::Result<ExitStatus> {
    child.start_kill()?;
    child.wait().await
}

/// Copies a child's lines to the log, and adds up their metrics.
async fn copy(output: impl AsyncRead + Unpin, source: Source, metrics: Option<Arc<Metrics>>) {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while output.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let document = metrics.as_ref().and_then(|metrics| {
            let document = Document::parse(text)?;
            metrics.add(&document);
            Some(document)
        });
        log::write_line(&source, text, document.is_some());
        line.clear();
    }
}
