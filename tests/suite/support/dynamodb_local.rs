//! DynamoDB Local: one for the test process, started by the first test that needs it.
//!
//! `tests/dynamodb-local/pom.xml` sets its version. If Java or Maven is missing, the
//! tests that need it are ignored with that reason (`build.rs`). If it cannot run for another reason, they fail with one line that names
//! the reason. The names of those tests contain `dynamodb_local`, so that they can be left out deliberately.

use super::client::connect;
use super::java::Java;
use super::process::Process;
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, io, thread};

const DYNAMODB_LOCAL: Java = Java {
    name: "dynamodb-local",
    pom: include_str!("../../dynamodb-local/pom.xml"),
    alternatives: "or set DYNAMODB_LOCAL_ENDPOINT to a running one, or leave these tests out with \
                   `cargo test -- --skip dynamodb_local`",
    prepare: name_native_libraries,
    answers,
};

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
    let running = DYNAMODB_LOCAL.run(|java, port, lib| {
        java.arg(format!("-Djava.library.path={}", lib.display()))
            .arg("software.amazon.dynamodb.services.local.main.ServerRunner")
            .args(["-inMemory", "-sharedDb", "-disableTelemetry", "-port", &port.to_string()]);
    })?;
    Ok(Server { endpoint: running.endpoint, _process: Some(running.process) })
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

/// On a separate thread, because the first test to ask is already inside a runtime.
fn answers(endpoint: &str) -> bool {
    let client = connect(endpoint).max_attempts(1).client();
    let asked = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime to ask with").block_on(client.list_tables().send()).is_ok()
    });
    asked.join().expect("the question does not panic")
}
