//! The embedded DynamoDB: one for the test process, started by the first test that needs it.

use dynoxide::Database;
use std::sync::OnceLock;
use std::thread;
use tokio::net::TcpListener;
use tokio::runtime;

/// The address of the embedded DynamoDB that the tests share.
pub fn endpoint() -> &'static str {
    static SHARED: OnceLock<Embedded> = OnceLock::new();
    &SHARED.get_or_init(start).endpoint
}

/// An embedded DynamoDB, which runs until the process ends.
pub struct Embedded {
    pub endpoint: String,
    /// For operations that have no API call. `sweep_ttl()` sweeps every table, so a test that uses it starts a separate store.
    pub database: Database,
}

/// Starts one, on a separate thread and runtime, because the runtime of a test ends with that test.
pub fn start() -> Embedded {
    let database = Database::memory().expect("an embedded database in memory");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port for the embedded DynamoDB");
    listener.set_nonblocking(true).expect("a listener that tokio can take over");
    let endpoint = format!("http://{}", listener.local_addr().expect("the embedded DynamoDB's address"));

    let served = database.clone();
    thread::Builder::new()
        .name("embedded-dynamodb".into())
        .spawn(move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for the embedded DynamoDB");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("the embedded DynamoDB's listener");
                dynoxide::server::serve_with_shutdown(listener, served, std::future::pending())
                    .await
                    .expect("the embedded DynamoDB serves until the process ends");
            });
        })
        .expect("a thread for the embedded DynamoDB");
    Embedded { endpoint, database }
}
