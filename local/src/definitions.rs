//! What the functions of this cloud are: those of the template, and those of `--function`.

use crate::{
    definition::Definition,
    program::Program,
    programs,
    settings::{Own, Settings},
    template::{self, Problems, Stack},
    variables::{PROVIDER_URL, Variables},
};
use std::{collections::BTreeMap, env, time::Duration};

/// The time-out of a function without one, as on Lambda.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

/// Environments of a function that no client waits for.
const FEW: usize = 2;

/// Every function of this cloud. One of `--function` replaces the program of the template's function of its name.
///
/// # Errors
/// If functions of the template have no program, or variables no value: each in a line.
pub fn all(
    stack: &Stack,
    variables: &Variables,
    settings: &Settings,
) -> Result<&'static [Definition], String> {
    let (mut all, mut problems) = (Vec::new(), Problems::default());
    for function in &stack.functions {
        let wrong = |error: String| format!("function {}: {error}", function.resource);
        let timeout = function.timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let variables = of_template(function, variables, settings, &mut problems);
        let program = programs::of(function, settings).map_err(wrong);
        let Some(program) = problems.unless(program) else { continue };
        all.push(Definition {
            name: function.name.clone().leak(),
            environments: if function.has_clients {
                settings.environments
            } else {
                settings.environments.min(FEW)
            },
            program,
            timeout: timeout.min(settings.function_timeout),
            variables,
        });
    }
    problems.none()?;
    for Own { name, program } in &settings.functions {
        if stack.functions.iter().any(|function| function.name == *name) {
            continue;
        }
        let mut own = of_any(variables);
        own.extend(given(variables, settings));
        all.push(Definition {
            name: name.clone().leak(),
            environments: settings.environments,
            program: Program::File(program.clone()),
            timeout: settings.function_timeout,
            variables: own,
        });
    }
    // They live as long as this process.
    Ok(all.leak())
}

fn of_template(
    function: &template::Function,
    variables: &Variables,
    settings: &Settings,
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let given = given(variables, settings);
    let mut own = BTreeMap::new();
    if settings.functions.iter().any(|own| own.name == function.name) {
        // Another program may need more than the template's.
        own.extend(of_any(variables));
    }
    for (name, value) in function.variables.iter().filter(|(name, _)| !given.contains_key(*name)) {
        let provider = (name == PROVIDER_URL).then(|| variables.provider.clone());
        // An address that is given for functions counts for all; the simulation only where the template leaves it open.
        let value = match &settings.function_provider_url {
            Some(given) if name == PROVIDER_URL => Ok(given.clone()),
            _ => value.clone().or_else(|error| provider.ok_or(error)),
        };
        let value = value.map_err(|error| {
            let resource = &function.resource;
            format!("function {resource}: its variable {name}: {error}; or give it with --env {name}=VALUE")
        });
        own.extend(problems.unless(value).map(|value| (name.clone(), value)));
    }
    own.extend(given);
    own
}

/// What a function gets of which no template says what it needs.
fn of_any(variables: &Variables) -> BTreeMap<String, String> {
    let provider = (PROVIDER_URL.to_owned(), variables.provider.clone());
    variables.resources.clone().into_iter().chain([provider]).collect()
}

/// What functions get here, in place of what the template says.
fn given(variables: &Variables, settings: &Settings) -> BTreeMap<String, String> {
    let here = variables.services.iter().chain(&variables.settings);
    let here = here.map(|(name, value)| ((*name).to_owned(), value.clone()));
    // How much is logged is a matter of who reads it.
    let level = env::var("RUST_LOG").map(|level| ("RUST_LOG".to_owned(), level));
    here.chain(level).chain(settings.env.iter().cloned()).collect()
}
