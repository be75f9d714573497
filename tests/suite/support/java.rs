//! Servers in Java: Maven copies each below the target directory, once, and it ends with the test process.

use super::process::Process;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const READY_WITHIN: Duration = Duration::from_secs(180);
/// How often to try. Another process can take the free port before the server does.
const STARTS: usize = 3;

/// A server in Java.
pub struct Java {
    /// Its folder in `tests`, which has its pom, and below the target directory.
    pub name: &'static str,
    /// Its pom. If its version changes, the server is copied anew.
    pub pom: &'static str,
    /// What can be done if it cannot run.
    pub alternatives: &'static str,
    /// Done once to the folder of its libraries.
    pub prepare: fn(&Path) -> io::Result<()>,
    /// Whether it answers at this address.
    pub answers: fn(&str) -> bool,
}

/// A server that runs, and its address.
pub struct Running {
    pub endpoint: String,
    pub process: Process,
}

impl Java {
    /// Starts it. `arguments` are those of `java`, for this port and these libraries.
    pub fn run(&self, arguments: impl Fn(&mut Command, u16, &Path)) -> Result<Running, String> {
        self.require("java", "-version")?;
        let lib = self.install()?;
        let mut failure = String::new();
        for _ in 0..STARTS {
            match self.start(&lib, &arguments) {
                Ok(running) => return Ok(running),
                Err(reason) => failure = reason,
            }
        }
        Err(format!("it does not start ({failure}); {}", self.alternatives))
    }

    fn require(&self, program: &str, argument: &str) -> Result<(), String> {
        let found = Command::new(program)
            .arg(argument)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match found {
            Ok(status) if status.success() => Ok(()),
            _ => Err(format!(
                "no `{program}`; get it with `apt-get install -y openjdk-17-jdk-headless maven`, {}",
                self.alternatives
            )),
        }
    }

    /// Returns the folder with its libraries. They are complete if the folder contains the same pom. It is written last, and another
    /// version's differs.
    fn install(&self) -> Result<PathBuf, String> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("cargo's folder for tests lies in its target");
        let home = target.join(self.name);
        let failed = |error: io::Error| {
            format!("it cannot be put into {} ({error}); {}", home.display(), self.alternatives)
        };

        let lock = File::create(target.join(format!("{}.lock", self.name))).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if fs::read_to_string(home.join("pom.xml")).is_ok_and(|pom| pom == self.pom) {
            return Ok(home.join("lib"));
        }
        self.require("mvn", "-version")?;
        let fresh = tempfile::tempdir_in(target).map_err(failed)?;
        self.copy_libraries(fresh.path())?;
        (self.prepare)(&fresh.path().join("lib")).map_err(failed)?;
        fs::write(fresh.path().join("pom.xml"), self.pom).map_err(failed)?;
        if home.exists() {
            fs::remove_dir_all(&home).map_err(failed)?;
        }
        fs::rename(fresh.keep(), &home).map_err(failed)?;
        Ok(home.join("lib"))
    }

    fn copy_libraries(&self, to: &Path) -> Result<(), String> {
        let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.name).join("pom.xml");
        let copied = Command::new("mvn")
            .args(["--quiet", "--batch-mode", "--file"])
            .arg(pom)
            .arg("dependency:copy-dependencies")
            .arg(format!("-DoutputDirectory={}", to.join("lib").display()))
            .stdin(Stdio::null())
            .output();
        match copied {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let printed = String::from_utf8_lossy(&output.stdout);
                let error = printed.lines().find(|line| line.contains("ERROR")).unwrap_or("no reason given");
                Err(format!(
                    "Maven cannot fetch it ({error}); give Maven its repository, {}",
                    self.alternatives
                ))
            }
            Err(error) => Err(format!("Maven does not run ({error}); {}", self.alternatives)),
        }
    }

    fn start(&self, lib: &Path, arguments: &impl Fn(&mut Command, u16, &Path)) -> Result<Running, String> {
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let output = tempfile::tempfile().map_err(|error| format!("no temporary file: {error}"))?;
        let errors = output.try_clone().map_err(|error| format!("no temporary file: {error}"))?;
        let mut process = Process::start("java", |java| {
            // It runs for minutes only: the second compiler would take longer than it saves.
            java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]).arg("-cp").arg(lib.join("*"));
            arguments(java, port, lib);
            java.stdout(output.try_clone().expect("a second handle")).stderr(errors);
        })
        .map_err(|error| format!("java does not run: {error}"))?;

        let endpoint = format!("http://127.0.0.1:{port}");
        let end = Instant::now() + READY_WITHIN;
        while Instant::now() < end {
            if let Some(status) = process.ended() {
                return Err(format!("{status}: {}", last_line(&output)));
            }
            if (self.answers)(&endpoint) {
                return Ok(Running { endpoint, process });
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(format!("no answer within {READY_WITHIN:?}: {}", last_line(&output)))
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn last_line(output: &File) -> String {
    use std::io::{Read, Seek};
    let mut text = String::new();
    let mut output = output;
    let read = output.rewind().and_then(|()| output.read_to_string(&mut text));
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    read.ok().and(line).unwrap_or("no output").to_owned()
}
