//! Child processes that die with the test process, even if it is killed.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The shell becomes the program, so the child's id and exit status are the program's. Before that it starts a watcher, which ends the
/// program once this process's end of the pipe on the program's standard input closes: when it is dropped, or when the kernel closes it
/// because the test process was killed.
const DIE_WITH_PARENT: &str =
    r#"exec 3<&0; { cat <&3; kill $$; } >/dev/null 2>&1 & exec "$0" "$@" </dev/null 3<&-"#;

const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A running program. When this is dropped, the program first gets a SIGTERM, and is then killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts `program`; `configure` sets arguments, environment and destinations of its output.
    pub fn start(program: impl AsRef<OsStr>, configure: impl FnOnce(&mut Command)) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(DIE_WITH_PARENT).arg(program);
        configure(&mut command);
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let lifeline = child.stdin.take();
        Ok(Self { child, lifeline })
    }

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The program's exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child's state can be asked")
    }

    /// The pipes that `configure` asked for: standard output and standard error.
    pub fn output(&mut self) -> impl Iterator<Item = Box<dyn Read + Send>> + use<> {
        let out = self.child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let err = self.child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        out.into_iter().chain(err)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let completion_timeout = Instant::now() + ENDS_WITHIN;
        while Instant::now() < completion_timeout {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The last resort. A failure can no longer be reported.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
