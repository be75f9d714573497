//! The local cloud: everything that the functions need, on one machine, with nothing to install.
//!
//! ```text
//! idempotency-local --template template.yaml
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `settings` | arguments and environment variables that configure a run |
//! | `store`, `embedded`, `tables` | DynamoDB, embedded or elsewhere, and its tables |
//! | `queues` | SQS |
//! | `bus` | EventBridge: one event bus |
//! | `provider` | the simulated payment provider: charges, queries, webhooks |
//! | `alarms` | CloudWatch's alarms of a template, evaluated over metrics with holes |
//! | `drill` | makes the condition of each alarm happen, and evaluates it |
//! | `faults` | what does not work: in a drill, or because somebody asked for it |
//! | `template` | SAM templates: what runs here |
//! | `sample` | the sample of this project, which only a clone has: `cargo run -p local` |
//! | `announcement` | what a run prints first |
//! | `variables` | the variables of functions and of the operators' command line |
//! | `definition`, `definitions`, `programs` | the table of functions: their programs and variables |
//! | `functions` | the choice of an environment for an invocation |
//! | `environment`, `process`, `program`, `runtime_api` | execution environments: child processes on the Lambda Runtime API |
//! | `status`, `work` | the status of an environment: its process, its invocation, its last end |
//! | `journal`, `recorder` | what happened to each idempotency key, and the calls of the embedded store that tell it |
//! | `log`, `metrics` | in place of CloudWatch: lines to read or for programs, totals of metrics |
//! | `changes` | what has changed, for those who wait for it |
//! | `triggers` | starts the mappings and the schedules |
//! | `mapping` | event source mappings: from the table's stream and the queues to their functions |
//! | `pollers` | those of Kinesis and Kafka, which are programs of their own |
//! | `schedules` | functions that are invoked periodically |
//! | `route`, `routes`, `example` | the routes of the functions, and examples of their bodies |
//! | `cloud` | all that runs, for the address |
//! | `visitors` | who may call an address of this cloud |
//! | `page` | the page at `/` |
//! | `front`, `gateway` | the HTTP address: API Gateway, Lambda's Invoke API, the provider's ledger, outages |
//! | `messages` | the HTTP address's routes for queues: send, look, redrive |
//! | `events` | its routes for events: what the bus was handed, an event of somebody else, what was shipped |
//!
//! A child process is this program again, and `LOCAL_FUNCTION` names its function. This is a library, so that the tests build the
//! program too, and never run an old one.

pub mod alarms;
mod announcement;
mod bus;
mod changes;
mod cloud;
mod definition;
mod definitions;
pub mod drill;
mod embedded;
mod environment;
mod events;
mod example;
mod faults;
mod front;
mod functions;
mod gateway;
mod journal;
mod log;
mod mapping;
mod messages;
mod metrics;
mod page;
mod pollers;
mod process;
mod program;
mod programs;
pub mod provider;
mod queues;
mod recorder;
mod route;
mod routes;
mod runtime_api;
mod sample;
mod schedules;
mod settings;
mod status;
mod store;
mod tables;
mod template;
mod triggers;
mod variables;
mod visitors;
mod work;

pub use sample::Sample;
pub use template::yaml;

use crate::{
    announcement::Announcement,
    bus::Bus,
    cloud::Cloud,
    events::Events,
    faults::Faults,
    functions::Function,
    journal::Journal,
    metrics::Metrics,
    process::Launcher,
    queues::Queues,
    routes::Routes,
    settings::{Settings, WRONG_USAGE, Wrong},
    store::Store,
    template::{Place, Stack, Template},
    variables::{IDEMPOTENCY_TABLE, PROVIDER_URL, Variables},
};
use futures_util::future::try_join_all;
use idempotency_cli::terminal::harmless;
use reqwest::redirect::Policy;
use serde_json::json;
use std::{collections::HashMap, env, process::ExitCode, sync::Arc};
use tokio::{
    net::TcpListener,
    select,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

/// The function that has triggers without a template, and its resource.
const RECONCILE: (&str, &str) = ("reconcile", "ReconcileFunction");

/// Whose orders are in the sample's queue. By HTTP, they come with `Authorization: Bearer acme`.
const ORDERS_TENANT: &str = "acme";

/// Runs the local cloud, or one of the functions in this program if `LOCAL_FUNCTION` names it.
pub fn main(sample: Option<&'static Sample>) -> ExitCode {
    if let Ok(name) = env::var("LOCAL_FUNCTION") {
        return functions::run_as(&name, sample);
    }
    bypass_proxies();
    let settings = match Settings::read(sample) {
        Ok(settings) => settings,
        Err(Wrong::Asked(text)) => text.exit(),
        Err(wrong) => {
            eprintln!("error: {}", harmless(&wrong.to_string()));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    log::begin(settings.json, settings.drill().is_some());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let (error, code) = match runtime.block_on(run(&settings)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Stopped::Drill) => return ExitCode::FAILURE,
        Err(Stopped::Usage(error)) => (error, ExitCode::from(WRONG_USAGE)),
        Err(Stopped::Failed(error)) => (error, ExitCode::FAILURE),
    };
    error.lines().for_each(|line| eprintln!("error: {}", harmless(line)));
    code
}

/// Why a run ended.
enum Stopped {
    /// The template and the settings do not fit together.
    Usage(String),
    Failed(String),
    /// An alarm did not come in its drill, or did not end. It is shown already.
    Drill,
}

impl From<String> for Stopped {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

/// Keeps loopback connections off any proxy in the environment, which could not reach them. The children inherit this.
fn bypass_proxies() {
    let set = ["NO_PROXY", "no_proxy"].iter().find_map(|name| env::var(name).ok());
    let hosts = [set.as_deref().unwrap_or_default(), "127.0.0.0/8", "127.0.0.1", "localhost"];
    let hosts = hosts.iter().filter(|host| !host.is_empty()).copied().collect::<Vec<_>>().join(",");
    // SAFETY: no other thread runs yet.
    unsafe {
        env::set_var("NO_PROXY", &hosts);
        env::set_var("no_proxy", &hosts);
    }
}

/// Starts everything, serves until a signal arrives, and ends every process that it started.
async fn run(settings: &Settings) -> Result<(), Stopped> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut launcher = None;
    let served = select! {
        served = run_until_the_end(settings, &mut launcher) => served,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    if let Some(launcher) = launcher {
        launcher.stop().await;
    }
    served
}

async fn run_until_the_end(settings: &Settings, running: &mut Option<Arc<Launcher>>) -> Result<(), Stopped> {
    let Some(arguments) = settings.drill() else {
        let Started { cloud, listener, _triggers } = start(settings, running).await?;
        return serve(listener, cloud).await;
    };
    // Wrong names are reported before anything runs.
    let chosen = drill::chosen(&arguments.names).map_err(Stopped::Usage)?;
    let Started { cloud, listener, _triggers } = start(settings, running).await?;
    select! {
        served = serve(listener, cloud.clone()) => served,
        passed = drill::run(cloud, &chosen, arguments.output) => match passed? {
            true => Ok(()),
            false => Err(Stopped::Drill),
        },
    }
}

async fn serve(listener: TcpListener, cloud: Arc<Cloud>) -> Result<(), Stopped> {
    axum::serve(listener, front::router(cloud)).await.map_err(|error| Stopped::Failed(error.to_string()))
}

/// All that runs.
struct Started {
    cloud: Arc<Cloud>,
    listener: TcpListener,
    /// They end before the processes are ended.
    _triggers: JoinSet<()>,
}

/// Starts everything but the service of its address.
async fn start(settings: &Settings, running: &mut Option<Arc<Launcher>>) -> Result<Started, Stopped> {
    // Bound first, and served last, so that early connections wait until everything is up. A port in use is reported after what is
    // wrong with the template, and before a process starts.
    let bound = TcpListener::bind(("127.0.0.1", settings.port)).await;
    let address = bound.as_ref().ok().and_then(|listener| listener.local_addr().ok());
    let url = address.map(|address| format!("http://{address}")).unwrap_or_default();
    let journal = Arc::<Journal>::default();
    let (faults, metrics) = (Arc::<Faults>::default(), Arc::<Metrics>::default());
    let store = Store::start(settings, &journal, &faults).await?;
    let mut queues = Queues::start(&store.region, faults, metrics.clone()).await?;
    let stack = stack(settings, &store, &queues).map_err(Stopped::Usage)?;
    // As long as an invocation takes at most, so that no message is delivered twice at once. On AWS it is six times as long, because
    // throttled receives count; here, an invocation waits for its environment.
    queues.create(stack.queues.clone(), settings.function_timeout).await?;
    let queues = Arc::new(queues);
    let bus_name = stack.buses.first().cloned().unwrap_or_default();
    let bus = Bus::start(bus_name, stack.rules.clone(), &store.region, queues.clone()).await;
    let bus = bus.map_err(|error| format!("event bus: {error}"))?;
    // The first secret is the newest.
    let secret = settings.webhook_secrets.split(',').next().unwrap_or_default();
    let provider = provider::start_with(&url, secret, journal.clone()).await;
    let provider = provider.map_err(|error| format!("provider: {error}"))?;

    let variables = Variables::new(settings, &store, &queues, &bus, &stack, &provider.url);
    let definitions = definitions::all(&stack, &variables, settings).map_err(Stopped::Usage)?;
    let records = definitions.iter().find_map(|definition| definition.variables.get(IDEMPOTENCY_TABLE));
    let operate = variables.operate(&store, &queues, &bus, records.map(String::as_str));
    if let Some(table) = records {
        journal.is_about(table);
    }
    let max = definitions.iter().map(|definition| definition.environments).sum::<usize>();
    let max = u32::try_from(max).expect("there are few functions");
    let launcher = Launcher::new(max, metrics.clone(), journal.clone(), &provider.url);
    let launcher = launcher.map_err(|error| format!("own executable: {error}"))?;
    let launcher = running.insert(Arc::new(launcher));
    let functions: Vec<_> =
        definitions.iter().map(|definition| Arc::new(Function::new(definition, launcher))).collect();
    let all_routes: Vec<_> = settings.routes.iter().chain(&stack.routes).cloned().collect();
    let routes = Routes::new(all_routes.iter(), &functions).map_err(Stopped::Usage)?;
    settings.bodies.iter().try_for_each(|body| body.check(&all_routes)).map_err(Stopped::Usage)?;
    let listener = bound.map_err(|error| {
        format!("PORT={}: {error}; set PORT to another port, or to 0 for any free one", settings.port)
    })?;
    let streams = store.create(&stack.tables).await?;
    try_join_all(functions.iter().map(|function| function.warm_up())).await?;

    if let Some(deliverer) = functions.iter().find(|function| function.definition.name == "outbox") {
        bus.deliverer(deliverer.clone());
    }
    let is_simulated =
        |definition: &&definition::Definition| definition.variables.get(PROVIDER_URL) == Some(&provider.url);
    let simulated = definitions.iter().filter(is_simulated).map(|definition| definition.name).collect();
    let announcement = Announcement {
        url: &url,
        store: &store,
        stack: &stack,
        queues: &queues.endpoint,
        bus: &bus,
        provider: &provider.url,
        simulated,
        settings,
        definitions,
    };
    if settings.drill().is_none() {
        announcement.print();
    }
    let _triggers = triggers::start(&functions, &stack, &store, &streams, &queues, settings, &url).await;
    let orders_table = stack.tables.iter().find(|table| table.name == "orders");
    let orders_table = orders_table.map(|table| table.full_name.clone());
    let http = reqwest::Client::builder().redirect(Policy::none()).build();
    let cloud = Cloud {
        functions,
        routes,
        provider,
        http: http.map_err(|error| error.to_string())?,
        gateway_timeout: settings.gateway_timeout,
        metrics,
        journal,
        url: url.clone(),
        sees_writes: store.embedded,
        is_sample: settings.sample.is_some(),
        all_routes,
        examples: settings.bodies.clone(),
        claims: settings.claims.clone(),
        operators: store.recorded_client().await,
        operate,
        queues,
        stack,
        events: Events { bus, client: store.client().await, orders_table },
        tenants: tokio::sync::Mutex::default(),
        tables: tokio::sync::Mutex::default(),
    };
    Ok(Started { cloud: Arc::new(cloud), listener, _triggers })
}

/// What runs here: the user's template, or the sample's, or the nested stack alone.
fn stack(settings: &Settings, store: &Store, queues: &Queues) -> Result<Stack, String> {
    let mut ignored = settings.ignored.clone();
    let mut parameters: HashMap<_, _> =
        settings.parameters.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let template = match (&settings.template, settings.sample) {
        (Some(file), _) => Template::read(file)?,
        (None, Some(sample)) => {
            parameters.entry("OrdersTenant".to_owned()).or_insert_with(|| json!(ORDERS_TENANT));
            Template::sample(sample.template)
        }
        (None, None) => {
            let has_reconcile = settings.functions.iter().any(|own| own.name == RECONCILE.0);
            ignored.extend((!has_reconcile).then(|| RECONCILE.1.to_owned()));
            Template::bare()
        }
    };
    let place = Place {
        prefix: &settings.table_prefix,
        region: &store.region,
        sqs: &queues.endpoint,
        ignored: &ignored,
    };
    template::stack(&template, parameters, &place)
}
