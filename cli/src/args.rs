//! The command line's arguments.

mod change;
mod tenant;

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
use clap_complete::Shell;
use lambda_idempotency::{
    key::{IdempotencyKey, OperationName, RecordKey, Scope, Tenant},
    operator::MessageSummary,
    record::SettledBy,
};

pub use change::ChangeArgs;
pub use tenant::{Limit, TenantArgs, TenantCommand};

use crate::{
    failure::Failure,
    values::{Moment, count, moment, operation, rate, released_by, span, tenant, url, words},
};

const EXIT_CODES: &str = "\
A record is named by --tenant, --operation and the client's key, or by the three in one as `list` prints it:
tenant#operation#key, or tenant#operation@scope#key if the API counts keys by path. A key of several parts, such as
of messages, is named by a --key-part for each.

Exit codes:
  0  done
  1  an error, or not confirmed
  2  wrong usage
  3  the record is not as expected: nothing was changed; or two ledgers differ";

const LEDGERS: &str = "\
Each line is a JSON object with an `id`, which must be a string. Everything else in it is compared: members may be in any
order, but 1 and 1.0 differ, and so do 1 and \"1\". Fractions, and whole numbers above 18446744073709551615, are compared
to about 17 digits: write longer ones as strings.

Lines may be in any order, and blank lines are skipped. An id that a ledger has twice is a difference. Differences are not
sorted by id, but their order is the same each time.

It needs no table: of the common options, it uses only --output and --debug.

Exit codes: 0, the ledgers are equal; 1, a line could not be read; 2, a file could not be opened; 3, they differ.";

/// Looks up, settles and cleans up idempotency records.
#[derive(Parser)]
#[command(name = "idempotency", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The options of every command.
#[derive(Args)]
#[command(next_help_heading = "Common options")]
pub struct Global {
    /// The idempotency table
    #[arg(long, env = "IDEMPOTENCY_TABLE", global = true)]
    pub table: Option<String>,
    /// DynamoDB's address, in place of the Region's
    #[arg(long, value_name = "URL", value_parser = url, global = true)]
    pub endpoint_url: Option<String>,
    /// The profile of the AWS configuration
    #[arg(long, global = true)]
    pub profile: Option<String>,
    /// The AWS Region
    #[arg(long, global = true)]
    pub region: Option<String>,
    /// Tables for an operator, JSON for programs
    #[arg(long, value_enum, default_value_t, global = true)]
    pub output: Output,
    /// Log each step to standard error; keys appear as hashes
    #[arg(long, global = true)]
    pub debug: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
}

#[derive(Subcommand)]
pub enum Command {
    /// Show a record with its audit lines: named, or by its hash in logs or the first digits of that
    Show(Show),
    /// List records that are not settled, or have an alarm: those that wait for an operator first, then the oldest
    List(List),
    /// Show the records that are not settled or have an alarm, and refresh them until Ctrl-C
    Watch(Watch),
    /// Make the reconcile function ask the provider about a record now, or about all unknown outcomes
    Ask(Ask),
    /// Settle an operation whose outcome is unknown, or one phase of an operation that resumes
    Settle(Settle),
    /// Hold what was released although it was perhaps executed: no retry runs it until it is settled
    Hold(Hold),
    /// Show, or switch, whether a provider's "not found" lets a retry run: switch it off while the provider has an incident
    NotFoundReleases(NotFoundReleases),
    /// Show, limit, stop or resume a tenant, or show all that operators have limited or stopped
    Tenant(TenantArgs),
    /// Let retries resume escalated operations between workers, for as long again as their operation allows
    Resume(Resume),
    /// Clear the alarms of records that were looked at, and delete the reports beside them
    ClearAlarms(ClearAlarms),
    /// Delete the headers and the body that a completed record keeps; it stays completed, and nothing runs again
    ForgetResponse(Forget),
    /// Find records of dead workers now, and mark their outcome unknown
    Sweep(Sweep),
    /// List dead letters, each with its reason and the state of its record
    DeadLetters(ListDeadLetters),
    /// Move dead letters back to the queues that they came from, or drop them
    Redrive(Redrive),
    /// Compare two ledgers, files of JSON lines with an `id` in each
    #[command(after_help = LEDGERS)]
    Compare(Compare),
    /// Create the table, for development: a deployment creates its table from the template
    CreateTable,
    /// Print a script that completes this command line in a shell
    Completions { shell: Shell },
}

/// Which record.
#[derive(Args)]
pub struct RecordArgs {
    /// The tenant
    #[arg(short, long)]
    pub tenant: Option<String>,
    /// The operation's name
    #[arg(short, long)]
    pub operation: Option<String>,
    /// The path that was called, without a stage, if the API counts keys by path (ACP)
    #[arg(long, requires = "operation")]
    path: Option<String>,
    /// The client's idempotency key, or the record's name as `list` prints it
    #[arg(required_unless_present = "key_part")]
    key: Option<String>,
    /// A part of the key, if the library made the key of several parts, or of one that is too long; repeated, in the same order
    #[arg(
        long,
        value_name = "PART",
        requires = "operation",
        conflicts_with = "key",
        allow_hyphen_values = true
    )]
    key_part: Vec<String>,
}

impl RecordArgs {
    /// The key in small letters, if it may be a hash, or the beginning of one.
    pub fn hash(&self) -> Option<String> {
        let key = self.key.as_ref().filter(|_| self.tenant.is_none() && self.has_digits(4..=16));
        key.map(|key| key.to_ascii_lowercase())
    }

    /// Whether the key consists of so many hexadecimal digits.
    fn has_digits(&self, count: RangeInclusive<usize>) -> bool {
        let key = self.key.as_deref().unwrap_or_default();
        count.contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    pub fn record_key(&self) -> Result<RecordKey, Failure> {
        let wrong = |what: &str, error| Failure::Usage(format!("invalid {what}: {error}"));
        let name = self.key.as_deref().unwrap_or_default();
        match (&self.tenant, &self.operation) {
            (Some(tenant), Some(operation)) => {
                let parts: Vec<_> = self.key_part.iter().map(|part| &**part).collect();
                let key = match &self.key {
                    Some(key) => IdempotencyKey::parse(key),
                    None => IdempotencyKey::of(&parts),
                };
                let key = RecordKey::new(
                    Tenant::parse(tenant).map_err(|e| wrong("tenant", e))?,
                    OperationName::parse(operation).map_err(|e| wrong("operation", e))?,
                    key.map_err(|e| wrong("idempotency key", e))?,
                );
                Ok(match &self.path {
                    Some(path) => key.within(Scope::of(path.as_bytes())),
                    None => key,
                })
            }
            (Some(_), None) | (None, Some(_)) => {
                Err(Failure::Usage("give --tenant and --operation together, with the key".into()))
            }
            (None, None) => RecordKey::from_partition_key(name).ok_or_else(|| {
                let hint = match self.hash() {
                    Some(hash) => format!("; `idempotency show {hash}` finds the name of a hash"),
                    None if self.has_digits(1..=3) => "; a hash needs 4 digits or more".to_owned(),
                    None => String::new(),
                };
                Failure::Usage(format!(
                    "name the record by --tenant, --operation and its key, or by tenant#operation#key (or tenant#operation@scope#key){hint}"
                ))
            }),
        }
    }
}

#[derive(Args)]
#[command(mut_arg("key", |key| key.help("The client's idempotency key, the record's name as `list` prints it, or its hash in logs (4 digits or more)")))]
pub struct Show {
    #[command(flatten)]
    pub record: RecordArgs,
    /// Look for the hash in the whole table, not only among what `list` shows without options
    #[arg(long)]
    pub scan: bool,
    #[command(flatten)]
    pub pace: Pace,
    /// Show the kept body too
    #[arg(long)]
    pub body: bool,
    /// Show the reports beside the record whole, with their answers and domain writes
    #[arg(long)]
    pub reports: bool,
    /// Show also the downstream key that `downstream_key` derives from this name; may be repeated. It is not looked up: the
    /// record does not say whether its handler ever used that name
    #[arg(long, value_name = "PHASE")]
    pub phase: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    /// Unknown outcomes, operations between workers, and records with an alarm in any state. Read from an index.
    Unresolved,
    /// Perhaps executed: reconciliation, or an operator, must find out. Read from an index.
    Unknown,
    /// Interrupted between two phases: a retry resumes it. Read from an index.
    #[value(alias = "between_workers")]
    BetweenWorkers,
    /// The worker's lease has expired, or no worker took the work in time. Found by a scan of the whole table.
    Stale,
}

#[derive(Args)]
#[command(mut_arg("operation", |operation| operation.requires("released")))]
pub struct List {
    /// Which records to list
    #[arg(long, value_enum, default_value_t = Listed::Unresolved)]
    pub state: Listed,
    /// Accepted work that waits for a worker, instead. Found by a scan of the whole table
    #[arg(long, conflicts_with_all = ["state", "escalated", "undelivered"])]
    pub pending: bool,
    /// Operations whose messages should have been delivered, instead: after 15 minutes. Found by a scan of the whole table
    #[arg(long, conflicts_with_all = ["state", "escalated"])]
    pub undelivered: bool,
    /// What was released, instead: the next retry runs it. Found by a scan of the whole table
    #[arg(long, conflicts_with_all = ["state", "escalated", "undelivered", "pending"])]
    pub released: bool,
    #[command(flatten)]
    pub which: Released,
    /// Only records of this tenant
    #[arg(short, long)]
    pub tenant: Option<String>,
    /// Only what waits for an operator: escalated records, about which the provider is not asked any more, and those with an alarm
    #[arg(long)]
    pub escalated: bool,
    /// Only records with an alarm, in any state, or in that of --state
    #[arg(long, conflicts_with_all = ["escalated", "undelivered", "released", "pending"])]
    pub alarmed: bool,
    /// How many records to list at most; 1 or more
    #[arg(long, default_value_t = 1000, value_parser = count)]
    pub limit: usize,
    #[command(flatten)]
    pub pace: Pace,
}

/// Which released records.
#[derive(Args)]
pub struct Released {
    /// Only what was released since then: 2026-11-25T03:00:00Z, or so long ago: 90m, 2h
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "released")]
    pub since: Option<Moment>,
    /// Only what was released so: worker, provider, operator, certainty, assumption, not_begun; may be repeated
    #[arg(long, value_name = "SETTLED_BY", value_parser = released_by, requires = "released")]
    pub by: Vec<SettledBy>,
    /// Only records of this operation
    #[arg(short, long, value_parser = operation)]
    pub operation: Option<OperationName>,
}

impl Released {
    /// Whether the record is of an operation that is meant.
    pub fn means(&self, key: &RecordKey) -> bool {
        self.operation.as_ref().is_none_or(|operation| key.operation() == operation)
    }
}

#[derive(Args)]
pub struct Watch {
    /// Only records of this tenant
    #[arg(short, long)]
    pub tenant: Option<String>,
    /// How often to look for unknown outcomes and operations between workers: 5s, 1m30s
    #[arg(long, default_value = "5s", value_parser = span)]
    pub every: Duration,
    /// How long to wait between two scans for stale records: 60s, 1h30m
    #[arg(long, default_value = "60s", value_parser = span)]
    pub scan_every: Duration,
    #[command(flatten)]
    pub pace: Pace,
}

#[derive(Args)]
pub struct Pace {
    /// How many read units a second a scan may use; 0.1 or more
    #[arg(long, default_value_t = 50.0, value_parser = rate)]
    pub units_per_second: f64,
}

#[derive(Args)]
#[command(mut_arg("key", |key| key.required_unless_present_any(["key_part", "all"])))]
pub struct Ask {
    #[command(flatten)]
    pub record: RecordArgs,
    /// Ask about all unknown outcomes instead; --tenant and --operation pick some
    #[arg(long, conflicts_with_all = ["key", "key_part", "path"])]
    pub all: bool,
    /// The queue `reconcile`
    #[arg(long, value_name = "URL", value_parser = url, env = "RECONCILE_QUEUE_URL")]
    pub queue: Option<String>,
    /// SQS's address, in place of the Region's
    #[arg(long, value_name = "URL", value_parser = url)]
    pub sqs_endpoint_url: Option<String>,
    #[command(flatten)]
    pub change: ChangeArgs,
}

#[derive(Args)]
#[group(id = "outcome", required = true, multiple = false, args = ["completed", "not_executed", "result"])]
#[command(mut_arg("key", |key| key.required_unless_present_any(["key_part", "denied"])))]
pub struct Settle {
    #[command(flatten)]
    pub record: RecordArgs,
    /// All that is held, and that the provider has denied since, instead; --held, --tenant and --operation pick some
    #[arg(long, conflicts_with_all = ["key", "key_part", "path", "phase"], requires_all = ["not_executed", "overrule_effect"])]
    pub denied: bool,
    /// Only what was held with these words in its reason, such as the incident's number
    #[arg(long, value_name = "TEXT", requires = "denied", value_parser = words)]
    pub held: Option<String>,
    /// The operation was executed: every retry gets the answer in --response
    #[arg(long, visible_alias = "executed", requires = "response", conflicts_with = "phase")]
    pub completed: bool,
    /// The operation was not executed, and will not be: the next retry runs it. With --phase: the call that follows the kept
    /// phases was not made, and will not be: the next retry makes it
    #[arg(long)]
    pub not_executed: bool,
    /// Settle it as not executed although an effect of it was reported, or an operator holds it
    #[arg(long, conflicts_with_all = ["completed", "result"])]
    pub overrule_effect: bool,
    /// Settle only this phase of an operation that resumes, with --result or --not-executed
    #[arg(long, value_name = "NAME")]
    pub phase: Option<String>,
    /// The phase was executed, and the handler gets this result: JSON, or @FILE with JSON
    #[arg(long, value_name = "JSON|@FILE", requires = "phase")]
    pub result: Option<String>,
    /// The answer as JSON: {"status":201,"headers":{"location":"/payments/1"},"body":{"id":1}}, or "text" in place of "body". One of
    /// the two is needed, except with status 204 or 304. Of a function: {"payload":…}, what it returned, or {"refusal":"why"}
    #[arg(long, value_name = "FILE", conflicts_with = "not_executed")]
    pub response: Option<PathBuf>,
    /// One more header of the answer; may be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "response")]
    pub header: Vec<String>,
    /// Keep this header too, as the operation's guard does (Operation::keep_header); may be repeated
    #[arg(long, value_name = "NAME", requires = "response")]
    pub keep_header: Vec<String>,
    /// Publish this message with the answer: a topic of OUTBOX_TOPICS, and JSON or @FILE with JSON; may be repeated, in their order
    #[arg(long, value_name = "TOPIC=JSON|@FILE", requires = "response")]
    pub publish: Vec<String>,
    /// How long the settled record is kept, if longer than the record itself says (`kept for` in `show`): 90m, 1h30m, 24h, 7d
    #[arg(long, value_parser = span, conflicts_with = "phase")]
    pub retain: Option<Duration>,
    #[command(flatten)]
    pub change: ChangeArgs,
}

#[derive(Args)]
#[group(id = "held", required = true, multiple = true, args = ["names", "released", "between_workers", "restored"])]
#[command(mut_arg("operation", |operation| operation.conflicts_with("names")))]
pub struct Hold {
    /// The records, as `list` prints them
    #[arg(value_name = "RECORD", value_parser = record, conflicts_with_all = ["released", "between_workers", "restored"])]
    pub names: Vec<RecordKey>,
    /// All that was released since --since
    #[arg(long, requires = "since", conflicts_with = "restored")]
    pub released: bool,
    /// All operations between workers, which a retry would resume
    #[arg(long, conflicts_with = "restored")]
    pub between_workers: bool,
    /// All that a restored table cannot know to be undone: what was released, waits for a worker, is in progress, or resumes.
    /// Found by a scan of the whole table
    #[arg(long)]
    pub restored: bool,
    #[command(flatten)]
    pub which: Released,
    /// Only records of this tenant
    #[arg(short, long, conflicts_with = "names")]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub pace: Pace,
    #[command(flatten)]
    pub change: ChangeArgs,
}

#[derive(Args)]
pub struct NotFoundReleases {
    #[command(subcommand)]
    pub to: Option<SwitchTo>,
}

#[derive(Subcommand)]
pub enum SwitchTo {
    /// Once an outcome has been unknown for long enough, "not found" lets a retry run: so it is if it was never switched
    On(ChangeArgs),
    /// "Not found" lets no retry run: the question is asked again, and escalated in the end
    Off(ChangeArgs),
}

#[derive(Args)]
#[group(id = "resumed", required = true, multiple = false, args = ["name", "escalated"])]
pub struct Resume {
    /// The record, as `list` prints it
    #[arg(value_name = "RECORD", value_parser = record)]
    pub name: Option<RecordKey>,
    /// All escalated operations between workers
    #[arg(long)]
    pub escalated: bool,
    /// Of those, only this tenant's
    #[arg(short, long, conflicts_with = "name")]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub change: ChangeArgs,
}

#[derive(Args)]
pub struct ClearAlarms {
    /// The records, as `list` prints them
    #[arg(value_name = "RECORD", value_parser = record, required = true)]
    pub names: Vec<RecordKey>,
    #[command(flatten)]
    pub change: ChangeArgs,
}

#[derive(Args)]
pub struct Forget {
    #[command(flatten)]
    pub record: RecordArgs,
    #[command(flatten)]
    pub change: ChangeArgs,
}

#[derive(Args)]
pub struct Sweep {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    pub pace: Pace,
}

/// Which dead letters.
#[derive(Args)]
pub struct DeadLetters {
    /// The queue of dead letters
    #[arg(long, value_name = "URL", value_parser = url, env = "DEAD_LETTERS_QUEUE_URL")]
    pub queue: Option<String>,
    /// Only the message with this id; may be repeated
    #[arg(long, value_name = "MESSAGE")]
    pub id: Vec<String>,
    /// Only messages of this kind; may be repeated. --id picks a message of any other kind
    #[arg(long, value_parser = PossibleValuesParser::new(MessageSummary::KINDS))]
    pub kind: Vec<String>,
    /// Only messages about this record, as `list` prints it
    #[arg(long, value_parser = record)]
    pub record: Option<RecordKey>,
    /// Only messages about records of this tenant
    #[arg(long, short, value_parser = tenant)]
    pub tenant: Option<Tenant>,
    /// How many messages to look at, at most, in the queue's own order; 1 or more. --id, --kind, --record and --tenant pick among these
    #[arg(long, default_value_t = 100, value_parser = count)]
    pub limit: usize,
    /// SQS's address, in place of the Region's
    #[arg(long, value_name = "URL", value_parser = url)]
    pub sqs_endpoint_url: Option<String>,
}

fn record(text: &str) -> Result<RecordKey, String> {
    let wrong = || "give tenant#operation#key, or tenant#operation@scope#key".to_owned();
    RecordKey::from_partition_key(text).ok_or_else(wrong)
}

#[derive(Args)]
pub struct ListDeadLetters {
    #[command(flatten)]
    pub dead_letters: DeadLetters,
}

#[derive(Args)]
pub struct Redrive {
    #[command(flatten)]
    pub dead_letters: DeadLetters,
    /// The queue that checks are moved to
    #[arg(long, value_name = "URL", value_parser = url, env = "CHECKS_QUEUE_URL")]
    pub to_checks: Option<String>,
    /// The queue that questions and provider reports are moved to
    #[arg(long, value_name = "URL", value_parser = url, env = "RECONCILE_QUEUE_URL")]
    pub to_reconcile: Option<String>,
    /// The queue that deferred reports are moved to
    #[arg(long, value_name = "URL", value_parser = url, env = "DEFERRED_REPORTS_QUEUE_URL")]
    pub to_deferred_reports: Option<String>,
    /// The FIFO queue that deliveries of the outbox are moved to
    #[arg(long, value_name = "URL", value_parser = url, env = "OUTBOX_QUEUE_URL")]
    pub to_outbox: Option<String>,
    /// The queue that accepted work is moved to
    #[arg(long, value_name = "URL", value_parser = url, env = "WORK_QUEUE_URL")]
    pub to_work: Option<String>,
    /// Delete messages of any kind for good instead of moving them; --id, --kind, --record or --tenant must pick them
    #[arg(long)]
    pub drop: bool,
    #[command(flatten)]
    pub change: ChangeArgs,
}

#[derive(Args)]
pub struct Compare {
    /// Our ledger
    pub ours: PathBuf,
    /// Theirs
    pub theirs: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
