//! A part that is fetched once, below the user's cache, and that runs as long as its [`Running`] is kept.

use std::{
    env,
    fs::{self, File},
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{
    process::{Child, ChildStdin, Command},
    time,
};

/// A new JVM needs some seconds; a busy machine needs more.
const READY_WITHIN: Duration = Duration::from_secs(120);
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// The shell becomes the part. Before that it starts a watcher, which ends the part and removes its files once this process's end of the pipe
/// closes, however this process ends.
const ENDS_WITH_US: &str = r#"exec 3<&0; { cat <&3; kill -9 $$; rm -rf "$PART_FOLDER"; } >/dev/null 2>&1 & exec "$0" "$@" </dev/null 3<&-"#;

/// What is fetched.
pub struct Fetched {
    /// The name of its folder below the cache.
    pub name: &'static str,
    /// Files that name its exact version. If one changes, it is fetched again.
    pub manifests: &'static [(&'static str, &'static str)],
    /// The program that fetches it, run in that folder beside the manifests.
    pub program: &'static str,
    pub arguments: &'static [&'static str],
    /// What to install if a program is missing.
    pub packages: &'static str,
}

impl Fetched {
    /// Its folder. It is complete if it is there: it is fetched beside it, and then renamed.
    ///
    /// # Errors
    /// If it cannot be fetched: one line with the reason.
    pub async fn folder(&self) -> Result<PathBuf, String> {
        let parts = cache()?;
        let failed =
            |error: io::Error| format!("{} cannot be put into {}: {error}", self.name, parts.display());
        fs::create_dir_all(&parts).map_err(failed)?;
        let lock = File::create(parts.join(format!("{}.lock", self.name))).map_err(failed)?;
        // Another process fetches it for some seconds at most.
        lock.lock().map_err(failed)?;
        let folder = parts.join(self.name);
        let is =
            |(file, text): &(&str, &str)| fs::read_to_string(folder.join(file)).is_ok_and(|is| is == *text);
        if self.manifests.iter().all(is) {
            return Ok(folder);
        }
        let fresh = tempfile::tempdir_in(&parts).map_err(failed)?;
        for (file, text) in self.manifests {
            fs::write(fresh.path().join(file), text).map_err(failed)?;
        }
        let mut fetch = Command::new(self.program);
        fetch.args(self.arguments).current_dir(fresh.path()).stdin(Stdio::null()).kill_on_drop(true);
        succeeded(self.program, fetch.output().await, self.packages)?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed)?;
        }
        fs::rename(fresh.keep(), &folder).map_err(failed)?;
        Ok(folder)
    }
}

/// The folder of all parts.
fn cache() -> Result<PathBuf, String> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(cache.ok_or("neither XDG_CACHE_HOME nor HOME is set")?.join("lambda-idempotency/parts"))
}

/// # Errors
/// If a program did not run, or failed: its first line that says so.
pub fn succeeded(program: &str, ended: io::Result<Output>, packages: &str) -> Result<(), String> {
    let output = match ended {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => output,
        Err(error) => return Err(format!("{program} does not run ({error}); install {packages}")),
    };
    let printed = [output.stderr, output.stdout].concat();
    let printed = String::from_utf8_lossy(&printed);
    let line = printed.lines().find(|line| line.to_lowercase().contains("error"));
    Err(format!("{program}: {}: {}", output.status, line.unwrap_or("it gives no reason")))
}

/// A part that runs, until this is dropped.
pub struct Running {
    child: Child,
    _lifeline: Option<ChildStdin>,
    output: File,
    /// Its files.
    _folder: TempDir,
}

impl Running {
    /// Starts it with a folder of its own.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut part: Command, folder: TempDir) -> Result<Self, String> {
        let failed = |error: io::Error| format!("a part cannot be started: {error}");
        let output = tempfile::tempfile().map_err(failed)?;
        let (out, err) = (output.try_clone().map_err(failed)?, output.try_clone().map_err(failed)?);
        let part = part
            .env("PART_FOLDER", folder.path())
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true);
        let mut child = part.spawn().map_err(failed)?;
        Ok(Self { _lifeline: child.stdin.take(), child, output, _folder: folder })
    }

    /// Waits until it listens.
    ///
    /// # Errors
    /// If it ends, or takes too long: with its last line.
    pub async fn listens(&mut self, address: SocketAddr) -> Result<(), String> {
        let end = Instant::now() + READY_WITHIN;
        while !listens(address) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{status}: {}", self.last_line()));
            }
            if Instant::now() > end {
                return Err(format!("no answer within {READY_WITHIN:?}: {}", self.last_line()));
            }
            time::sleep(ASKED_EVERY).await;
        }
        Ok(())
    }

    fn last_line(&mut self) -> String {
        use std::io::{Read, Seek};
        let mut text = String::new();
        let read = self.output.rewind().and_then(|()| self.output.read_to_string(&mut text));
        let line = text.lines().rfind(|line| !line.trim().is_empty());
        read.ok().and(line).unwrap_or("no output").to_owned()
    }
}

/// A command of a program that ends with this process, to be given to [`Running::start`].
pub fn command(program: &str, within: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", ENDS_WITH_US, program]).current_dir(within);
    command
}

/// Whether something listens there.
pub fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// # Errors
/// If there is no free port.
pub fn free_port() -> Result<u16, String> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(bound.map_err(|error| format!("no free port: {error}"))?.port())
}

/// Holds other processes back that would start this part, until it is dropped.
///
/// # Errors
/// If its file cannot be made.
pub fn starting(part: &str) -> Result<File, String> {
    let parts = cache()?;
    let file =
        fs::create_dir_all(&parts).and_then(|()| File::create(parts.join(format!("{part}-starts.lock"))));
    let file = file.and_then(|file| file.lock().map(|()| file));
    file.map_err(|error| format!("{}: {error}", parts.display()))
}
