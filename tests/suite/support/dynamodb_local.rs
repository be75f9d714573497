//! DynamoDB Local: two for the test process, each started by the first test that gets it.
//!
//! `tests/dynamodb-local/pom.xml` sets its version. If Java or Maven is missing, the
//! tests that need it are ignored with that reason (`build.rs`). If it cannot run for another reason, they fail with one line that names
//! the reason. The names of those tests contain `dynamodb_local`, so that they can be left out deliberately.

use super::client::connect;
use super::java::Java;
use super::process::Process;
use super::tables;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use std::path::Path;
use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};
use std::{fs, io, thread};

const DYNAMODB_LOCAL: Java = Java {
    name: "dynamodb-local",
    pom: include_str!("../../dynamodb-local/pom.xml"),
    alternatives: "or set DYNAMODB_LOCAL_ENDPOINT to a running one, or leave these tests out with \
                   `cargo test -- --skip dynamodb_local`",
    prepare: name_native_libraries,
    answers,
};

/// Each does one thing at a time, and most tests wait for it: with one, half of the machine is idle.
const SERVERS: usize = 2;

/// The address of one of them, in turns: `DYNAMODB_LOCAL_ENDPOINT`, or one started here. A test asks once.
pub fn endpoint() -> &'static str {
    static STARTED: [OnceLock<Result<Server, String>>; SERVERS] = [const { OnceLock::new() }; SERVERS];
    static TURN: AtomicUsize = AtomicUsize::new(0);
    match STARTED[TURN.fetch_add(1, Ordering::Relaxed) % SERVERS].get_or_init(find) {
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
    let client = connect(&running.endpoint).client();
    in_a_runtime(async move { warm_up(&client).await });
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

fn answers(endpoint: &str) -> bool {
    let client = connect(endpoint).max_attempts(1).client();
    in_a_runtime(async move { client.list_tables().send().await.is_ok() })
}

/// The first transaction of a new JVM takes seconds on a slow machine, which is longer than a guard waits.
async fn warm_up(client: &Client) {
    let table = tables::domain_table(client).await;
    let put = Put::builder().table_name(table.name()).item("id", AttributeValue::S("first".to_owned()));
    let put = TransactWriteItem::builder().put(put.build().expect("a put")).build();
    // Not asserted: the tests that follow do that.
    let _ = client.transact_write_items().transact_items(put).send().await;
}

/// On a separate thread, because the first test to ask is already inside a runtime.
fn in_a_runtime<T: Send + 'static>(asked: impl Future<Output = T> + Send + 'static) -> T {
    let asked = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime to ask with").block_on(asked)
    });
    asked.join().expect("the question does not panic")
}
