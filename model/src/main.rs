//! Tries every interleaving, and prints what it found.
//!
//! ```sh
//! cargo run -p model                      # every environment, at most two million states each
//! cargo run -p model -- everything 20000000
//! ```

use std::{collections::BTreeSet, env, error::Error, process::ExitCode};

use model::{config::Config, explore::explore};

/// How many states are visited in each environment, if the command line does not say.
const LIMIT: usize = 2_000_000;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let limit = arguments.next().map_or(Ok(LIMIT), |limit| limit.parse())?;
    let (mut combinations, mut code) = (BTreeSet::new(), ExitCode::SUCCESS);
    println!("{:<24} {:>11} {:>12} {:>6} {:>9}", "environment", "states", "steps", "depth", "seconds");
    for config in Config::WHOLE.iter().chain(&Config::LARGE).filter(|config| config.name.contains(&name)) {
        let found = explore(config, limit, |states, depth| eprintln!("{states:>36} {depth:>19} …"))?;
        let (states, steps, depth, time) = (found.states, found.steps, found.depth, found.time.as_secs_f64());
        let whole = if found.complete { "" } else { "  (the first of them)" };
        println!("{:<24} {states:>11} {steps:>12} {depth:>6} {time:>9.1}{whole}", config.name);
        combinations.extend(found.combinations);
        for (violation, story) in found.violations {
            code = ExitCode::FAILURE;
            println!("\n  {violation:?}: {violation}");
            story.iter().for_each(|line| println!("  {line}"));
            println!();
        }
    }
    println!("\n{} combinations of a record's fields:", combinations.len());
    combinations.iter().for_each(|combination| println!("  {combination}"));
    Ok(code)
}
