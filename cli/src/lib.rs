//! The operators' command line: looks up records, settles unknown outcomes, and writes an audit line for each change.
//!
//! It is a library so that the tests also build the program, and never run an old one.

#![deny(clippy::disallowed_methods)]

mod alarms;
mod args;
mod ask;
mod change;
mod clear_alarms;
mod clock;
mod compare;
mod context;
mod create_table;
mod dead_letters;
mod denied;
mod failure;
mod find;
mod forget;
mod hold;
mod list;
mod not_found;
mod output;
mod queue;
mod record;
mod redrive;
mod released;
mod response;
mod resume;
mod scan;
mod settle;
mod several;
mod show;
mod sweep;
mod tenant;
pub mod terminal;
mod undelivered;
mod values;
mod watch;

use std::{io, process::ExitCode};

use crate::terminal::harmless_text;
use clap::{CommandFactory, Parser, error::ContextKind};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::layer,
    layer::{Layer, SubscriberExt},
    util::SubscriberInitExt,
};

use args::{Cli, Command};
use context::Context;
use failure::Failure;
use output::Screen;

/// Runs the program `idempotency` with the arguments of this process.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // It quotes the arguments, which may contain control characters. Its usage line would demand what the environment has set.
        Err(mut error) if error.use_stderr() => {
            error.remove(ContextKind::Usage);
            eprint!("{}", harmless_text(&error.render().to_string()));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    log_to_stderr(cli.global.debug);
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("idempotency: {failure}");
            failure.exit_code()
        }
    }
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let global = cli.global;
    match cli.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "idempotency", &mut script);
            Screen::new(global.output).write(&script)
        }
        Command::CreateTable => create_table::run(&global).await,
        Command::Show(args) => show::run(&Context::open(&global).await?, &args).await,
        Command::List(args) => list::run(&Context::open(&global).await?, &args).await,
        Command::Watch(args) => watch::run(&Context::open(&global).await?, &args).await,
        Command::Ask(args) => ask::run(&global, &args).await,
        Command::Settle(args) => settle::run(&global, &args).await,
        Command::Hold(args) => hold::run(&global, &args).await,
        Command::NotFoundReleases(args) => not_found::run(&global, &args).await,
        Command::Tenant(args) => tenant::run(&global, &args.what).await,
        Command::Resume(args) => resume::run(&global, &args).await,
        Command::ClearAlarms(args) => clear_alarms::run(&global, &args).await,
        Command::ForgetResponse(args) => forget::run(&global, &args).await,
        Command::Sweep(args) => sweep::run(&global, &args).await,
        Command::Compare(args) => compare::run(&Screen::new(global.output), &args).await,
        Command::DeadLetters(args) => redrive::list(&global, &args).await,
        Command::Redrive(args) => redrive::run(&global, &args).await,
    }
}

/// Logs nothing, or with `--debug` each step. The SDK logs whole requests at its lowest levels, with the keys in them, so it
/// stays at `info`.
fn log_to_stderr(debug: bool) {
    let filter = if debug {
        let ours = ["lambda_idempotency", "idempotency_cli"].map(|target| (target, LevelFilter::DEBUG));
        Targets::new().with_default(LevelFilter::INFO).with_targets(ours)
    } else {
        Targets::new()
    };
    let lines = layer().with_ansi(false).with_writer(io::stderr).with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
}
