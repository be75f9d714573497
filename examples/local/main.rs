//! The local cloud: everything that the functions need to run, on one machine, with nothing installed.
//!
//! ```text
//! cargo run --example local
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `settings` | the environment variables that configure a run |
//! | `store` | DynamoDB, embedded or elsewhere, and its tables |
//! | `provider` | the simulated payment provider |
//! | `functions` | the table of functions, and how invocations find an environment |
//! | `environment`, `process`, `runtime_api` | execution environments: child processes on the Lambda Runtime API |
//! | `front`, `gateway` | the HTTP address: API Gateway, Lambda's Invoke API, the provider's ledger |
//!
//! A child process is this program again, with `LOCAL_FUNCTION` naming the function that it is.

mod environment;
mod front;
mod functions;
mod gateway;
mod process;
mod provider;
mod runtime_api;
mod settings;
mod store;

use crate::{
    front::Cloud,
    functions::{FUNCTIONS, Function},
    process::Launcher,
    settings::Settings,
    store::Store,
};
use std::{
    env,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
};
use tokio::{
    net::TcpListener,
    select,
    signal::unix::{SignalKind, signal},
};

fn main() -> ExitCode {
    if let Ok(name) = env::var("LOCAL_FUNCTION") {
        return functions::run_as(&name);
    }
    bypass_proxies();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every part talks to the others over the loopback, which a proxy in the environment could not reach. The children
/// inherit this.
fn bypass_proxies() {
    let set = ["NO_PROXY", "no_proxy"].iter().find_map(|name| env::var(name).ok());
    let hosts = [set.as_deref().unwrap_or_default(), "127.0.0.1", "localhost"];
    let hosts = hosts.iter().filter(|host| !host.is_empty()).copied().collect::<Vec<_>>().join(",");
    // SAFETY: no other thread runs yet.
    unsafe {
        env::set_var("NO_PROXY", &hosts);
        env::set_var("no_proxy", &hosts);
    }
}

/// Starts everything, serves until a signal comes, and ends every process that it started.
async fn run() -> Result<(), String> {
    let settings = Settings::from_env()?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut launcher = None;
    let served = select! {
        served = serve(&settings, &mut launcher) => served,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    if let Some(launcher) = launcher {
        launcher.stop().await;
    }
    served
}

async fn serve(settings: &Settings, running: &mut Option<Arc<Launcher>>) -> Result<(), String> {
    // Bound first, so that a port in use is found out before anything else is started; served last, so that whoever
    // connects early waits until everything is up.
    let listener = TcpListener::bind(("127.0.0.1", settings.port)).await.map_err(|error| {
        format!("PORT={}: {error}; set PORT to another port, or to 0 for any free one", settings.port)
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let store = Store::start(settings).await?;
    let provider = provider::start().await.map_err(|error| format!("provider: {error}"))?;

    let most = u32::try_from(FUNCTIONS.len() * settings.environments).expect("there are few functions");
    let mut variables = store.environment();
    variables.push(("PROVIDER_URL", provider.clone()));
    variables.push(("LEASE_GRACE_MS", settings.lease_grace.as_millis().to_string()));
    let launcher = Launcher::new(variables, most).map_err(|error| format!("own executable: {error}"))?;
    let launcher = running.insert(Arc::new(launcher));
    let functions: Vec<_> = FUNCTIONS
        .iter()
        .map(|definition| {
            Function::new(definition, launcher, settings.environments, settings.function_timeout)
        })
        .map(Arc::new)
        .collect();
    for function in &functions {
        function.warm_up().await?;
    }

    let cloud = Cloud {
        functions,
        provider: provider.clone(),
        http: reqwest::Client::new(),
        gateway_timeout: settings.gateway_timeout,
    };
    let router = front::router(cloud);
    announce(&format!("http://{address}"), &store, &provider, settings);
    axum::serve(listener, router).await.map_err(|error| error.to_string())
}

/// The first line is for programs, the rest for people.
fn announce(url: &str, store: &Store, provider: &str, settings: &Settings) {
    let (strong, faint, plain) =
        if io::stdout().is_terminal() { ("\x1b[1;32m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
    let kind = if store.embedded { "embedded" } else { "DYNAMODB_ENDPOINT" };
    let functions: Vec<_> = FUNCTIONS.iter().map(|definition| definition.name).collect();
    let payment = format!(
        "curl -i {url}/payments -H 'Authorization: Bearer acme' -H 'Idempotency-Key: order-1' \\\n    \
         -H 'Content-Type: application/json' \\\n    \
         -d '{{\"customerId\":\"c-1\",\"amountCents\":1999,\"currency\":\"EUR\",\"source\":\"tok_ok\"}}'"
    );
    let text = format!(
        "listening on {url}\n\n\
         {faint}dynamodb   {plain} {} ({kind}; tables {}, {})\n\
         {faint}provider   {plain} {provider}\n\
         {faint}functions  {plain} {}, at most {} environments each, {} ms an invocation\n\
         {faint}watch      {plain} {url}/provider/charges  {url}/environments\n\n\
         {strong}Create a payment:{plain}\n\n  {payment}\n\n\
         {strong}The same again, which charges nothing and gets the same answer:{plain}\n\n  {payment}\n\n\
         Ctrl-C ends everything.\n",
        store.endpoint,
        store.idempotency_table,
        store.payments_table,
        functions.join(", "),
        settings.environments,
        settings.function_timeout.as_millis(),
    );
    // A reader that has gone away is no reason to stop.
    let _ = io::stdout().write_all(text.as_bytes());
    let _ = io::stdout().flush();
}
