//! The local cloud: everything that the functions need, on one machine, with nothing to install.
//!
//! ```text
//! cargo run -p local
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `settings` | arguments and environment variables that configure a run |
//! | `store`, `embedded`, `tables` | DynamoDB, embedded or elsewhere, and its tables |
//! | `queues` | SQS |
//! | `bus` | EventBridge: one event bus |
//! | `provider` | the simulated payment provider: charges, queries, webhooks |
//! | `functions` | the table of functions, and the choice of an environment for an invocation |
//! | `environment`, `process`, `program`, `runtime_api` | execution environments: child processes on the Lambda Runtime API |
//! | `status`, `work` | the status of an environment: its process, its invocation, its last end |
//! | `log`, `metrics` | in place of CloudWatch: lines to read or for programs, totals of metrics |
//! | `triggers` | starts the mappings and the schedules |
//! | `mapping` | event source mappings: from the table's stream and the queues to their functions |
//! | `schedules` | functions that are invoked periodically |
//! | `route`, `own_routes` | the routes of the user's functions |
//! | `front`, `gateway` | the HTTP address: API Gateway, Lambda's Invoke API, the provider's ledger and outages |
//! | `messages` | the HTTP address's routes for queues: send, look, redrive |
//! | `events` | its routes for events: what the bus was handed, an event of somebody else, what was shipped |
//!
//! A child process is this program again, and `LOCAL_FUNCTION` names its function. This is a library, so that the tests build the
//! program too, and never run an old one.

mod bus;
mod embedded;
mod environment;
mod events;
mod front;
mod functions;
mod gateway;
mod log;
mod mapping;
mod messages;
mod metrics;
mod own_routes;
mod process;
mod program;
pub mod provider;
mod queues;
mod route;
mod runtime_api;
mod schedules;
mod settings;
mod status;
mod store;
mod tables;
mod triggers;
mod work;

use crate::{
    bus::Bus,
    events::Events,
    front::Cloud,
    functions::{Definition, Function},
    metrics::Metrics,
    own_routes::OwnRoutes,
    process::Launcher,
    queues::Queues,
    settings::{Settings, WRONG_USAGE, Wrong},
    store::Store,
};
use futures_util::future::try_join_all;
use lambda_idempotency::internal::terminal::harmless;
use serde_json::json;
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

/// Runs the program `local`, or one of its functions if `LOCAL_FUNCTION` names it.
pub fn main() -> ExitCode {
    if let Ok(name) = env::var("LOCAL_FUNCTION") {
        return functions::run_as(&name);
    }
    bypass_proxies();
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(Wrong::Asked(text)) => text.exit(),
        Err(wrong) => {
            eprintln!("error: {}", harmless(&wrong.to_string()));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    log::begin(settings.json);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    match runtime.block_on(run(&settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", harmless(&error));
            ExitCode::FAILURE
        }
    }
}

/// Keeps loopback connections off any proxy in the environment, which could not reach them. The children inherit this.
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

/// Starts everything, serves until a signal arrives, and ends every process that it started.
async fn run(settings: &Settings) -> Result<(), String> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut launcher = None;
    let served = select! {
        served = serve(settings, &mut launcher) => served,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    if let Some(launcher) = launcher {
        launcher.stop().await;
    }
    served
}

async fn serve(settings: &Settings, running: &mut Option<Arc<Launcher>>) -> Result<(), String> {
    // Bound first, so that a port in use fails before anything else starts. Served last, so that early connections wait until
    // everything is up.
    let listener = TcpListener::bind(("127.0.0.1", settings.port)).await.map_err(|error| {
        format!("PORT={}: {error}; set PORT to another port, or to 0 for any free one", settings.port)
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let url = format!("http://{address}");
    let store = Store::start(settings).await?;
    // As long as an invocation takes at most, so that no message is delivered twice at once. On AWS it is six times as long, because
    // throttled receives count; here, an invocation waits for its environment.
    let queues = Queues::start(&settings.table_prefix, &store.region, settings.function_timeout).await?;
    let queues = Arc::new(queues);
    let bus = Bus::start(format!("{}shop", settings.table_prefix), &store.region, queues.clone()).await;
    let bus = bus.map_err(|error| format!("event bus: {error}"))?;
    // The first secret is the newest.
    let secret = settings.webhook_secrets.split(',').next().unwrap_or_default();
    let provider = provider::start(&url, secret).await.map_err(|error| format!("provider: {error}"))?;

    let seen_by_functions = settings.function_dynamodb_endpoint.as_ref().unwrap_or(&store.endpoint);
    let mut variables = store.environment(seen_by_functions);
    variables.extend(queues.environment());
    // After the queues' own, which it replaces.
    variables.extend(settings.function_sqs_endpoint.clone().map(|url| ("AWS_ENDPOINT_URL_SQS", url)));
    variables.extend(bus.environment());
    variables.extend(settings.environment());
    let provider_url = settings.function_provider_url.as_ref().unwrap_or(&provider.url);
    variables.push(("PROVIDER_URL", provider_url.clone()));
    let definitions = functions::all(settings);
    let max = definitions.iter().map(|definition| definition.environments(settings)).sum::<usize>();
    let max = u32::try_from(max).expect("there are few functions");
    let metrics = Arc::<Metrics>::default();
    let launcher =
        Launcher::new(variables, max, metrics.clone()).map_err(|error| format!("own executable: {error}"))?;
    let launcher = running.insert(Arc::new(launcher));
    let functions: Vec<_> = definitions
        .iter()
        .map(|definition| Arc::new(Function::new(definition, launcher, settings)))
        .collect();
    let own_routes = OwnRoutes::new(&settings.routes, &functions)?;
    try_join_all(functions.iter().map(|function| function.warm_up())).await?;

    let deliverer = functions.iter().find(|function| function.definition.name == "outbox");
    bus.deliverer(deliverer.expect("it is one of this cloud's").clone());
    announce(&url, &store, &queues, &bus, &provider.url, settings, definitions);
    let operate = operate(&store, &queues, &bus);
    // Ends with this function, before the processes are ended.
    let _triggers = triggers::start(&functions, &store, queues.clone(), settings).await;
    let cloud = Cloud {
        functions,
        own_routes,
        provider,
        http: reqwest::Client::new(),
        gateway_timeout: settings.gateway_timeout,
        metrics,
        operate,
        queues,
        events: Events { bus, client: store.client().await, orders_table: store.orders_table.clone() },
    };
    axum::serve(listener, front::router(cloud)).await.map_err(|error| error.to_string())
}

/// The variables with which the operators' command line finds tables, queues and topics, without the proxies of the functions.
fn operate(store: &Store, queues: &Queues, bus: &Bus) -> String {
    let mut variables = store.environment(&store.endpoint);
    variables.extend(queues.environment());
    variables.extend(bus.environment());
    variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect()
}

/// The first line is for programs, the rest is for the reader.
fn announce(
    url: &str,
    store: &Store,
    queues: &Queues,
    bus: &Bus,
    provider: &str,
    settings: &Settings,
    functions: &[Definition],
) {
    if log::is_json() {
        let addresses = json!({ "listening": url, "dynamodb": store.endpoint, "provider": provider, "queues": queues.endpoint, "bus": bus.endpoint });
        let _ = writeln!(io::stdout(), "{addresses}");
        return;
    }
    let (strong, faint, plain) =
        if io::stdout().is_terminal() { ("\x1b[1;32m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
    let kind = if store.embedded { "embedded" } else { "DYNAMODB_ENDPOINT" };
    let functions: Vec<_> = functions.iter().map(|definition| definition.name).collect();
    let payment = format!(
        "curl -i {url}/payments -H 'Authorization: Bearer acme' -H 'Idempotency-Key: order-1' \\\n    \
         -H 'Content-Type: application/json' \\\n    \
         -d '{{\"customerId\":\"c-1\",\"amountCents\":1999,\"currency\":\"EUR\",\"source\":\"tok_ok\"}}'"
    );
    let text = format!(
        "listening on {url}\n\n\
         {faint}dynamodb   {plain} {} ({kind}; tables {}, {}, {}, {})\n\
         {faint}provider   {plain} {provider}\n\
         {faint}queues     {plain} {}\n\
         {faint}bus        {plain} {} ({})\n\
         {faint}reports    {plain} {}\n\
         {faint}functions  {plain} {}; at most {} environments each, {} ms an invocation\n\
         {faint}watch      {plain} {url}/provider/charges  {url}/environments  {url}/metrics  {url}/queues/orders\n\
         \x20           {url}/outbox/delivered  {url}/shipments\n\
         {faint}settings   {plain} cargo run -p local -- --help\n\n\
         {strong}Create a payment:{plain}\n\n  {payment}\n\n\
         {strong}The same again, which charges nothing and gets the same answer:{plain}\n\n  {payment}\n\n\
         {strong}Look at what is unknown or stale, as an operator, in another terminal:{plain}\n\n  \
         eval \"$(curl -s {url}/operate)\"; cargo run -q -p idempotency-cli -- watch\n\n\
         Ctrl-C ends everything.\n",
        store.endpoint,
        store.idempotency_table,
        store.payments_table,
        store.accounts_table,
        store.orders_table,
        queues.endpoint,
        bus.endpoint,
        bus.name,
        settings.reports,
        functions.join(", "),
        settings.environments,
        settings.function_timeout.as_millis(),
    );
    // If the reader has gone away, the cloud still runs.
    let _ = io::stdout().write_all(text.as_bytes());
    let _ = io::stdout().flush();
}
