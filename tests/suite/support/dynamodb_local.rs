//! DynamoDB Local: one for the test process, started by the first test that needs it.
//!
//! Maven copies it below the target directory, once. `tests/dynamodb-local/pom.xml` sets its version. If Java or Maven is missing, the
//! tests that need it are ignored with that reason (`build.rs`). If it cannot run for another reason, they fail with one line that names
//! the reason. The names of those tests contain `dynamodb_local`, so that they can be left out deliberately.

use super::client::connect;
use super::process::Process;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

const POM: &str = include_str!("../../dynamodb-local/pom.xml");
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often to try. Another process can take the free port before the server does.
const STARTS: usize = 3;
const ALTERNATIVES: &str = "or set DYNAMODB_LOCAL_ENDPOINT to a running one, or leave these tests out with \
                        `cargo test -- --skip dynamodb_local`";

/// The address of DynamoDB Local: `DYNAMODB_LOCAL_ENDPOINT`, or one started here.
pub fn endpoint() -> &'static str {
    static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
    match SERVER.get_or_init(find) {
        Ok(server) => &server.endpoint,
        Err(missing) => panic!("DynamoDB Local is missing: {missing}"),
    }
}

struct Server {
    endpoint: String,
    _process: Option<Process>,
}

fn find() -> Result<Server, String> {
    if let Ok(endpoint) = std::env::var("DYNAMODB_LOCAL_ENDPOINT") {
        return Ok(Server { endpoint, _process: None });
    }
    if cfg!(all(target_os = "linux", not(target_arch = "x86_64"))) {
        return Err(
            "its SQLite is not to be had for Linux on this processor; set DYNAMODB_LOCAL_ENDPOINT to a \
                    running one, or leave these tests out with `cargo test -- --skip dynamodb_local`"
                .into(),
        );
    }
    require("java", "-version")?;
    let lib = install()?;
    let mut failure = String::new();
    for _ in 0..STARTS {
        match start(&lib) {
            Ok(server) => return Ok(server),
            Err(reason) => failure = reason,
        }
    }
    Err(format!("it does not start ({failure}); {ALTERNATIVES}"))
}

fn require(program: &str, argument: &str) -> Result<(), String> {
    let found = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!(
            "no `{program}`; get it with `apt-get install -y openjdk-17-jdk-headless maven`, {ALTERNATIVES}"
        )),
    }
}

/// Returns the folder with its libraries. They are complete if the folder contains the same pom. It is written last, and another version's
/// differs.
fn install() -> Result<PathBuf, String> {
    let target =
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("cargo's folder for tests lies in its target");
    let home = target.join("dynamodb-local");
    let failed =
        |error: io::Error| format!("it cannot be put into {} ({error}); {ALTERNATIVES}", home.display());

    let lock = File::create(target.join("dynamodb-local.lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if fs::read_to_string(home.join("pom.xml")).is_ok_and(|pom| pom == POM) {
        return Ok(home.join("lib"));
    }
    require("mvn", "-version")?;
    let fresh = tempfile::tempdir_in(target).map_err(failed)?;
    copy_libraries(fresh.path())?;
    name_native_libraries(&fresh.path().join("lib")).map_err(failed)?;
    fs::write(fresh.path().join("pom.xml"), POM).map_err(failed)?;
    if home.exists() {
        fs::remove_dir_all(&home).map_err(failed)?;
    }
    fs::rename(fresh.keep(), &home).map_err(failed)?;
    Ok(home.join("lib"))
}

fn copy_libraries(to: &Path) -> Result<(), String> {
    let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join("dynamodb-local/pom.xml");
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
            Err(format!("Maven cannot fetch it ({error}); give Maven its repository, {ALTERNATIVES}"))
        }
        Err(error) => Err(format!("Maven does not run ({error}); {ALTERNATIVES}")),
    }
}

/// SQLite's native libraries have their version in the file name, but are looked up without it.
fn name_native_libraries(lib: &Path) -> io::Result<()> {
    for entry in fs::read_dir(lib)? {
        let path = entry?.path();
        let native = path.extension().is_some_and(|kind| kind != "jar");
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| native) {
            fs::copy(&path, lib.join(name.replace("-1.0.392", "")))?;
        }
    }
    Ok(())
}

fn start(lib: &Path) -> Result<Server, String> {
    let port = free_port().map_err(|error| format!("no free port: {error}"))?;
    let output = tempfile::tempfile().map_err(|error| format!("no temporary file: {error}"))?;
    let errors = output.try_clone().map_err(|error| format!("no temporary file: {error}"))?;
    let mut process = Process::start("java", |java| {
        // It runs for minutes only: the second compiler would take longer than it saves.
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .arg(format!("-Djava.library.path={}", lib.display()))
            .arg("-cp")
            .arg(lib.join("*"))
            .arg("software.amazon.dynamodb.services.local.main.ServerRunner")
            .args(["-inMemory", "-sharedDb", "-disableTelemetry", "-port", &port.to_string()])
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(errors);
    })
    .map_err(|error| format!("java does not run: {error}"))?;

    let endpoint = format!("http://127.0.0.1:{port}");
    let completion_timeout = Instant::now() + READY_WITHIN;
    while Instant::now() < completion_timeout {
        if let Some(status) = process.ended() {
            return Err(format!("{status}: {}", last_line(&output)));
        }
        if answers(&endpoint) {
            return Ok(Server { endpoint, _process: Some(process) });
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(format!("no answer within {READY_WITHIN:?}: {}", last_line(&output)))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// On a separate thread, because the first test to ask is already inside a runtime.
fn answers(endpoint: &str) -> bool {
    let client = connect(endpoint).max_attempts(1).client();
    let asked = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime to ask with").block_on(client.list_tables().send()).is_ok()
    });
    asked.join().expect("the question does not panic")
}

fn last_line(output: &File) -> String {
    use std::io::{Read, Seek};
    let mut text = String::new();
    let mut output = output;
    let read = output.rewind().and_then(|()| output.read_to_string(&mut text));
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    read.ok().and(line).unwrap_or("no output").to_owned()
}
