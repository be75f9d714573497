//! The settings, each by an argument or by its environment variable.

use crate::{example::Example, route::Route, sample::Sample};
use aws_smithy_types::base64;
use clap::{
    Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{
    env,
    error::Error,
    ffi::{OsStr, OsString},
    fmt::{self, Display},
    ops::RangeInclusive,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};
use uuid::Uuid;

const QUARTER_HOUR: u64 = 900_000;
const DAY: u64 = 86_400_000;

/// The exit code for arguments and variables that cannot work.
pub const WRONG_USAGE: u8 = 2;

/// Starts functions with everything that they need: DynamoDB, queues, an HTTP API, a payment provider.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "idempotency-local",
    version,
    after_help = "Exit codes: 0 after Ctrl-C; 1 an error; 2 wrong usage."
)]
pub struct Settings {
    #[command(subcommand)]
    command: Option<Command>,
    /// What runs without a template, in a clone
    #[arg(skip)]
    pub sample: Option<&'static Sample>,

    /// Where the gateway listens on 127.0.0.1; 0 takes any free port
    #[arg(long, env, default_value = "9000", value_name = "PORT", value_parser = number(0..=u16::MAX))]
    pub port: u16,
    /// Logs one JSON object per line; by default, a terminal gets readable lines
    #[arg(long)]
    pub json: bool,

    /// A DynamoDB to use instead of the embedded one
    #[arg(long, env, value_name = "URL", value_parser = url, help_heading = "Store")]
    pub dynamodb_endpoint: Option<String>,
    /// Prefix of table and queue names, to separate runs that share one DynamoDB
    #[arg(long, env, default_value = "local-", value_name = "TEXT", help_heading = "Store")]
    pub table_prefix: String,

    /// A SAM template to run
    #[arg(long, value_name = "FILE", value_parser = file, help_heading = "Functions")]
    pub template: Option<PathBuf>,
    /// A parameter of the template
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = pair, help_heading = "Functions")]
    pub parameters: Vec<(String, String)>,
    /// A variable of every function, in place of the template's
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, help_heading = "Functions")]
    pub env: Vec<(String, String)>,
    /// The folder with the programs of the template's functions [default: where cargo build puts them]
    #[arg(long, value_name = "FOLDER", help_heading = "Functions")]
    pub programs: Option<PathBuf>,
    /// A resource of the template that is left out
    #[arg(long = "ignore", value_name = "RESOURCE", help_heading = "Functions")]
    pub ignored: Vec<String>,
    /// A function of your own, in place of the template's of this name, or besides: its program, which Lambda's runtime API feeds
    #[arg(long = "function", value_name = "NAME=PROGRAM", value_parser = function, help_heading = "Functions")]
    pub functions: Vec<Own>,
    /// A route, before the template's: `POST /orders=orders`, `ANY /files/{proxy+}=files`
    #[arg(long = "route", value_name = "METHOD PATH=NAME", value_parser = Route::parse, help_heading = "Functions")]
    pub routes: Vec<Route>,
    /// An example of the body that a route takes, for the page at `/` and the first hint: `POST /orders=order.json`
    #[arg(long = "body", value_name = "ROUTE=FILE", value_parser = Example::parse, help_heading = "Functions")]
    pub bodies: Vec<Example>,
    /// A claim of every caller's token, besides `sub`, which is the token's own text
    #[arg(long = "claim", value_name = "NAME=VALUE", value_parser = pair, help_heading = "Functions")]
    pub claims: Vec<(String, String)>,
    /// How many execution environments a function may have at once
    #[arg(long, env, default_value = "4")]
    #[arg(value_name = "COUNT", value_parser = number(1..=64_usize), help_heading = "Functions")]
    pub environments: usize,
    /// A function's time for one invocation
    // Lambda's own limit, except for the lower end, which tests want short.
    #[arg(long = "function-timeout-ms", env = "FUNCTION_TIMEOUT_MS", default_value = "10000")]
    #[arg(value_name = "MS", value_parser = span(QUARTER_HOUR), help_heading = "Functions")]
    pub function_timeout: Duration,
    /// How long after its deadline a function still counts as alive; short here, so that you can watch it
    #[arg(long = "lease-grace-ms", env = "LEASE_GRACE_MS", default_value = "2000")]
    #[arg(value_name = "MS", value_parser = span(QUARTER_HOUR), help_heading = "Functions")]
    pub lease_grace: Duration,
    /// How long the gateway waits for a function, as API Gateway does
    #[arg(long = "gateway-timeout-ms", env = "GATEWAY_TIMEOUT_MS", default_value = "29000")]
    #[arg(value_name = "MS", value_parser = span(QUARTER_HOUR), help_heading = "Functions")]
    pub gateway_timeout: Duration,
    /// DynamoDB's address for functions, such as a proxy's; everything else goes to DynamoDB without it
    #[arg(long, env, value_name = "URL", value_parser = url, help_heading = "Functions")]
    pub function_dynamodb_endpoint: Option<String>,
    /// SQS's address for functions, such as a proxy's
    #[arg(long, env, value_name = "URL", value_parser = url, help_heading = "Functions")]
    pub function_sqs_endpoint: Option<String>,
    /// The provider's address for functions, such as a proxy's
    #[arg(long, env, value_name = "URL", value_parser = url, help_heading = "Functions")]
    pub function_provider_url: Option<String>,

    /// How long records of the table's stream are gathered before they go to the function `stale`
    // Lambda's own limit.
    #[arg(long = "window-ms", env = "WINDOW_MS", default_value = "1000")]
    #[arg(value_name = "MS", value_parser = span(300_000), help_heading = "Finding dead workers")]
    pub window: Duration,
    /// For how long a change of the table is retried before it becomes a dead letter
    // The template's.
    #[arg(long = "record-age-ms", env = "RECORD_AGE_MS", default_value = "14400000")]
    #[arg(value_name = "MS", value_parser = span(DAY), help_heading = "Finding dead workers")]
    pub record_age: Duration,
    /// Time between two sweeps of the table by `stale`, and before the first
    #[arg(long = "sweep-ms", env = "SWEEP_MS", default_value = "30000")]
    #[arg(value_name = "MS", value_parser = span(DAY), help_heading = "Finding dead workers")]
    pub sweep: Duration,

    /// Time between two polls of `reconcile` for outcomes to ask about, and before the first; 15 s more while no record changes
    #[arg(long = "poll-ms", env = "POLL_MS", default_value = "1000")]
    #[arg(value_name = "MS", value_parser = span(DAY), help_heading = "Asking the provider")]
    pub poll: Duration,
    /// First wait between two questions about an unknown outcome; each later one is twice as long
    #[arg(long = "reconcile-first-backoff-ms", env = "RECONCILE_FIRST_BACKOFF_MS", default_value = "1000")]
    #[arg(value_name = "MS", value_parser = span(DAY), help_heading = "Asking the provider")]
    pub reconcile_first_backoff: Duration,
    /// The longest wait between two questions
    #[arg(long = "reconcile-max-backoff-ms", env = "RECONCILE_MAX_BACKOFF_MS", default_value = "5000")]
    #[arg(value_name = "MS", value_parser = span(DAY), help_heading = "Asking the provider")]
    pub reconcile_max_backoff: Duration,
    /// How many questions are asked before an outcome is escalated
    #[arg(long, env, default_value = "20")]
    #[arg(value_name = "COUNT", value_parser = number(1..=1_000_u32), help_heading = "Asking the provider")]
    pub reconcile_asks: u32,
    /// How long a charge that the provider does not know may still be in flight
    #[arg(long = "not-found-grace-ms", env = "NOT_FOUND_GRACE_MS", default_value = "5000")]
    #[arg(value_name = "MS", value_parser = span(DAY), help_heading = "Asking the provider")]
    pub not_found_grace: Duration,

    /// How long a function waits for the provider
    #[arg(long = "provider-timeout-ms", env = "PROVIDER_TIMEOUT_MS", default_value = "5000")]
    #[arg(value_name = "MS", value_parser = span(QUARTER_HOUR), help_heading = "Provider")]
    pub provider_timeout: Duration,
    /// Secrets separated by commas: the provider signs with the first, each verifies [default: a fresh one]
    #[arg(long, env, value_name = "SECRETS")]
    #[arg(hide_env_values = true, hide_default_value = true, default_value_t = fresh_secret())]
    #[arg(value_parser = secrets, help_heading = "Provider")]
    pub webhook_secrets: String,
    /// Keys separated by commas: the first seals charges' metadata, each opens it [default: a fresh one]
    #[arg(long, env, value_name = "KEYS")]
    #[arg(hide_env_values = true, hide_default_value = true, default_value_t = fresh_key())]
    #[arg(value_parser = sealing_keys, help_heading = "Provider")]
    pub sealing_keys: String,
    /// Where `compare` puts its reports: a folder or `s3://bucket/prefix`
    #[arg(long, env, value_name = "PLACE", default_value_t = reports_folder(), help_heading = "Provider")]
    pub reports: String,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Makes what each alarm of the sample watches go wrong, and shows that the alarm comes and ends
    ///
    /// It runs the sample on any free port, with durations of its own, and evaluates the alarms of its templates as CloudWatch
    /// does. Its minutes are not the clock's: what would take hours is repeated.
    #[command(
        after_help = "Exit codes: 0 each alarm came and ended; 1 one did not, or an error; 2 wrong usage."
    )]
    Drill(Drill),
}

/// The arguments of a drill.
#[derive(Debug, Clone, Args)]
pub struct Drill {
    /// Alarms, by their names in the template [default: all]
    #[arg(value_name = "ALARM")]
    pub names: Vec<String>,
    /// Lines to read, or one JSON object per alarm
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The form of the results of a drill.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// A function of the user's.
#[derive(Debug, Clone)]
pub struct Own {
    pub name: String,
    pub program: PathBuf,
}

/// Why a run does not begin.
pub enum Wrong {
    /// One line that names what is wrong.
    Setting(String),
    /// Nothing is wrong: help or the version was requested.
    Asked(clap::Error),
}

impl Settings {
    /// Reads arguments and environment. Call it before any thread starts, because it removes empty variables.
    pub fn read(sample: Option<&'static Sample>) -> Result<Self, Wrong> {
        for variable in variables() {
            match env::var_os(&variable) {
                // SAFETY: no other thread runs yet.
                Some(value) if value.is_empty() => unsafe { env::remove_var(&variable) },
                Some(value) if value.to_str().is_none() => {
                    return Err(Wrong::Setting(format!("{}: must be text", variable.display())));
                }
                _ => {}
            }
        }
        Self::parse_from(env::args_os(), sample)
    }

    fn parse_from(
        arguments: impl IntoIterator<Item = OsString>,
        sample: Option<&'static Sample>,
    ) -> Result<Self, Wrong> {
        let matches = Self::command().try_get_matches_from(arguments);
        let settings = matches.and_then(|matches| Self::from_arg_matches(&matches));
        let mut settings = settings.map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Wrong::Asked(error),
            _ => Wrong::Setting(one_line(&error)),
        })?;
        settings.sample = sample.filter(|_| settings.template.is_none());
        settings.check_functions().map_err(Wrong::Setting)?;
        if settings.drill().is_some() {
            if settings.template.is_some() {
                return Err(Wrong::Setting("--template: a drill runs the sample alone".to_owned()));
            }
            if settings.sample.is_none() {
                let clone = "drill: only a clone has the sample: cargo run -p local -- drill";
                return Err(Wrong::Setting(clone.to_owned()));
            }
            settings.suit_a_drill();
        }
        Ok(settings)
    }

    /// The arguments of the drill, if that is what runs.
    pub fn drill(&self) -> Option<&Drill> {
        self.command.as_ref().map(|Command::Drill(drill)| drill)
    }

    /// A drill has its own port, and invokes what a schedule would. Nobody watches: workers die soon, and outcomes are soon escalated.
    fn suit_a_drill(&mut self) {
        let never = Duration::from_millis(DAY);
        let millis = Duration::from_millis;
        self.port = 0;
        (self.poll, self.sweep) = (never, never);
        (self.function_timeout, self.provider_timeout) = (millis(4_000), millis(1_000));
        (self.lease_grace, self.window) = (millis(200), millis(100));
        (self.reconcile_first_backoff, self.reconcile_max_backoff) = (millis(100), millis(200));
        (self.reconcile_asks, self.not_found_grace) = (3, millis(500));
    }

    /// Whether the functions of the user have names of their own.
    fn check_functions(&self) -> Result<(), String> {
        for (place, Own { name, .. }) in self.functions.iter().enumerate() {
            if self.functions[..place].iter().any(|other| other.name == *name) {
                return Err(format!("--function: two functions have the name {name}"));
            }
        }
        Ok(())
    }

    /// The settings that functions get as environment variables.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let milliseconds = |span: Duration| span.as_millis().to_string();
        vec![
            ("PROVIDER_TIMEOUT_MS", milliseconds(self.provider_timeout)),
            ("LEASE_GRACE_MS", milliseconds(self.lease_grace)),
            ("RECONCILE_FIRST_BACKOFF_MS", milliseconds(self.reconcile_first_backoff)),
            ("RECONCILE_MAX_BACKOFF_MS", milliseconds(self.reconcile_max_backoff)),
            ("RECONCILE_ASKS", self.reconcile_asks.to_string()),
            ("NOT_FOUND_GRACE_MS", milliseconds(self.not_found_grace)),
            ("WEBHOOK_SECRETS", self.webhook_secrets.clone()),
            ("SEALING_KEYS", self.sealing_keys.clone()),
            ("REPORTS", self.reports.clone()),
        ]
    }
}

impl Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(line) => f.write_str(line),
            Self::Asked(text) => text.fmt(f),
        }
    }
}

fn variables() -> Vec<OsString> {
    let command = Settings::command();
    command.get_arguments().filter_map(|argument| argument.get_env().map(ToOwned::to_owned)).collect()
}

/// One line that names a setting as its user wrote it, and says what it must be. For any other error, clap's first line.
fn one_line(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(&**text),
        _ => None,
    };
    let command = Settings::command();
    let flag = context(ContextKind::InvalidArg).and_then(|text| text.split_whitespace().next());
    let argument = flag.and_then(|flag| {
        command.get_arguments().find(|argument| argument.get_long() == flag.strip_prefix("--"))
    });
    if let (Some(flag), Some(argument), Some(must)) = (flag, argument, error.source()) {
        let given = env::args().any(|given| given.split('=').next() == Some(flag));
        let variable = argument.get_env().filter(|_| !given).map(OsStr::to_string_lossy);
        let name = variable.as_deref().unwrap_or(flag);
        let value = context(ContextKind::InvalidValue).unwrap_or_default();
        // The invalid value of a secret may hold most of the secret.
        return match argument.is_hide_env_values_set() {
            true => format!("{name}: {must}"),
            false => format!("{name}={value}: {must}"),
        };
    }
    let text = error.to_string();
    let first = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
    format!("{}; see --help", first.trim_start_matches("error: "))
}

/// Milliseconds, from 1 to `max`.
fn span(max: u64) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |value| number(1..=max)(value).map(Duration::from_millis)
}

fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |value| {
        value
            .parse()
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
    }
}

fn function(value: &str) -> Result<Own, String> {
    let (name, program) =
        value.split_once('=').ok_or("must be NAME=PROGRAM, such as orders=target/debug/orders")?;
    let is_name = |char: char| char.is_ascii_alphanumeric() || ['-', '_'].contains(&char);
    if !(1..=64).contains(&name.len()) || !name.chars().all(is_name) {
        return Err("its name must have 1 to 64 letters, digits, - or _".to_owned());
    }
    let program = PathBuf::from(program);
    match program.is_file() {
        // Absolute: a name without a folder would be searched for in PATH.
        true => Ok(Own { name: name.to_owned(), program: program.canonicalize().unwrap_or(program) }),
        false => Err(format!("there is no file {}: build it first", program.display())),
    }
}

fn file(value: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(value);
    if file.is_file() { Ok(file) } else { Err("there is no such file".to_owned()) }
}

fn pair(value: &str) -> Result<(String, String), String> {
    let (name, value) =
        value.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn url(value: &str) -> Result<String, String> {
    if value.starts_with("http://") || value.starts_with("https://") {
        return Ok(value.to_owned());
    }
    Err("must be a URL, such as http://127.0.0.1:8000".to_owned())
}

fn secrets(value: &str) -> Result<String, String> {
    let secrets: Vec<_> = value.split(',').map(str::trim).collect();
    if secrets.contains(&"") {
        return Err("must be secrets separated by single commas".to_owned());
    }
    Ok(secrets.join(","))
}

/// Checked as the functions check it.
fn sealing_keys(value: &str) -> Result<String, String> {
    let is_key = |key: &str| base64::decode(key.trim()).is_ok_and(|key| key.len() == 64);
    match value.split(',').all(is_key) {
        true => Ok(value.to_owned()),
        false => {
            Err("must be keys of 64 bytes each, in padded standard base64, separated by commas".to_owned())
        }
    }
}

fn fresh_secret() -> String {
    format!("whsec_{}", Uuid::new_v4().simple())
}

fn fresh_key() -> String {
    base64::encode([(); 4].map(|()| Uuid::new_v4().into_bytes()).concat())
}

fn reports_folder() -> String {
    env::temp_dir().join("lambda-idempotency-reports").to_string_lossy().into_owned()
}
