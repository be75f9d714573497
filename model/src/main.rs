//! Tries every interleaving, and prints what it found.
//!
//! ```sh
//! cargo run -p model                      # every environment, at most two million states each
//! cargo run -p model -- everything 20000000
//! cargo run -p model -- phases            # operations that resume, every environment
//! cargo run -p model -- accepted          # accepted work, every environment
//! cargo run -p model -- functions         # whole functions, every scenario
//! cargo run -p model -- functions plain 1000000
//! ```

use std::{collections::BTreeSet, env, error::Error, process::ExitCode};

use model::{
    accepted::{self, Accepted},
    functions::{self, explore::Findings, scenario::Scenario},
    kernel::{
        explore::{Model, Story, explore},
        rest::Moves,
        setting::Setting,
    },
    known::Known,
    phases::{self, Phases},
    plain::{self, Plain},
};

/// How many states are visited in each environment, if the command line does not say.
const LIMIT: usize = 2_000_000;

/// How many executions of each scenario are run, if the command line does not say.
const EXECUTIONS: u64 = 75_000;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = env::args().skip(1).peekable();
    if arguments.next_if_eq("functions").is_some() {
        return all_functions(arguments);
    }
    if arguments.next_if_eq("phases").is_some() {
        return all::<Phases>(arguments, phases::settings::ALL.iter().chain(&phases::settings::LARGE));
    }
    if arguments.next_if_eq("accepted").is_some() {
        return all::<Accepted>(arguments, accepted::settings::ALL.iter().chain(&accepted::settings::LARGE));
    }
    all::<Plain>(arguments, plain::settings::WHOLE.iter().chain(&plain::settings::LARGE))
}

/// Visits the states of a world: in the environments whose name contains this one, each up to this limit.
fn all<K: Moves>(
    mut arguments: impl Iterator<Item = String>,
    settings: impl Iterator<Item = &'static Setting>,
) -> Result<ExitCode, Box<dyn Error>> {
    let name = arguments.next().unwrap_or_default();
    let limit = arguments.next().map_or(Ok(LIMIT), |limit| limit.parse())?;
    let (mut combinations, mut code) = (BTreeSet::new(), ExitCode::SUCCESS);
    println!("{:<24} {:>11} {:>12} {:>6} {:>9}", "environment", "states", "steps", "depth", "seconds");
    for setting in settings.filter(|setting| setting.name.contains(&name)) {
        let progress = |states, depth| eprintln!("{states:>36} {depth:>19} …");
        let found = explore(&mut Model::<K>::new(setting)?, limit, progress);
        let (states, steps, depth, time) = (found.states, found.steps, found.depth, found.time.as_secs_f64());
        let whole = if found.complete { "" } else { "  (the first of them)" };
        println!("{:<24} {states:>11} {steps:>12} {depth:>6} {time:>9.1}{whole}", setting.name);
        combinations.extend(found.combinations);
        tell_known(&found.known);
        for (violation, story) in found.violations {
            code = ExitCode::FAILURE;
            tell(&format!("{violation:?}: {violation}"), &story);
        }
    }
    println!("\n{} combinations of a record's fields:", combinations.len());
    combinations.iter().for_each(|combination| println!("  {combination}"));
    Ok(code)
}

fn tell(head: &str, story: &Story) {
    println!("\n  {head}");
    story.iter().for_each(|line| println!("  {line}"));
    println!();
}

fn tell_known(known: &[(&Known, Story)]) {
    for (Known { finding, violation, .. }, story) in known {
        let (number, what) = finding;
        tell(&format!("known, finding {number}, {what}: {violation:?}"), story);
    }
}

/// Runs whole functions: the scenario of this name, or those whose name contains it, each up to this limit.
fn all_functions(mut arguments: impl Iterator<Item = String>) -> Result<ExitCode, Box<dyn Error>> {
    let name = arguments.next().unwrap_or_default();
    let limit = arguments.next().map_or(Ok(EXECUTIONS), |limit| limit.parse())?;
    let is_exact = functions::all().any(|scenario| scenario.name == name);
    let is_wanted =
        |scenario: &&Scenario| if is_exact { scenario.name == name } else { scenario.name.contains(&name) };
    let wanted: Vec<_> = functions::all().filter(is_wanted).collect();
    if wanted.is_empty() {
        eprintln!("no scenario has {name:?} in its name; these are all:");
        functions::all().for_each(|scenario| eprintln!("  {}", scenario.name));
        return Ok(ExitCode::from(2));
    }
    let mut code = ExitCode::SUCCESS;
    println!("{:<28} {:>11} {:>9} {:>6} {:>8}", "scenario", "executions", "states", "depth", "seconds");
    for scenario in wanted {
        let mut progress = |executions, states| eprintln!("{executions:>40} {states:>9} …");
        let found = functions::explore::explore(scenario, scenario.faults_at_most, limit, &mut progress);
        let Findings { executions, states, depth, time, complete, violation, known } = found;
        let whole = if complete || violation.is_some() { "" } else { "  (the first of them)" };
        let (name, time) = (scenario.name, time.as_secs_f64());
        println!("{name:<28} {executions:>11} {states:>9} {depth:>6} {time:>8.1}{whole}");
        tell_known(&known);
        if let Some((violation, story)) = violation {
            code = ExitCode::FAILURE;
            tell(&format!("{violation:?}: {violation}"), &story);
        }
    }
    Ok(code)
}
