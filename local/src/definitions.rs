//! What the functions of this cloud are: those of the template, and those of `--function`.

use crate::{
    definition::{Definition, built_in},
    program::Program,
    settings::{Own, Settings},
    template::{self, Stack},
    variables::Variables,
};
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    time::Duration,
};

/// The time-out of a function without one, as on Lambda.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

/// Environments of a function that no client waits for.
const FEW: usize = 2;

/// Every function of this cloud. One of `--function` replaces the program of the template's function of its name.
///
/// # Errors
/// If a function of the template has no program, or a variable has no value.
pub fn all(
    stack: &Stack,
    variables: &Variables,
    settings: &Settings,
) -> Result<&'static [Definition], String> {
    let mut all = Vec::new();
    for function in &stack.functions {
        let wrong = |error: String| format!("function {}: {error}", function.resource);
        let timeout = function.timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        all.push(Definition {
            name: function.name.clone().leak(),
            environments: if function.has_clients {
                settings.environments
            } else {
                settings.environments.min(FEW)
            },
            program: program(function, settings).map_err(wrong)?,
            timeout: timeout.min(settings.function_timeout),
            variables: of_template(function, variables, settings).map_err(wrong)?,
        });
    }
    for Own { name, program } in &settings.functions {
        if stack.functions.iter().any(|function| function.name == *name) {
            continue;
        }
        let mut own = variables.resources.clone();
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
) -> Result<BTreeMap<String, String>, String> {
    let given = given(variables, settings);
    let mut own = BTreeMap::new();
    if settings.functions.iter().any(|own| own.name == function.name) {
        // Another program may need more than the template's.
        own.extend(variables.resources.clone());
    }
    for (name, value) in function.variables.iter().filter(|(name, _)| !given.contains_key(*name)) {
        let value = value.clone();
        let value = value
            .map_err(|error| format!("its variable {name}: {error}; or give it with --env {name}=VALUE"))?;
        own.insert(name.clone(), value);
    }
    own.extend(given);
    Ok(own)
}

/// What functions get here, in place of what the template says.
fn given(variables: &Variables, settings: &Settings) -> BTreeMap<String, String> {
    let here = variables.services.iter().chain(&variables.settings);
    let here = here.map(|(name, value)| ((*name).to_owned(), value.clone()));
    // How much is logged is a matter of who reads it.
    let level = env::var("RUST_LOG").map(|level| ("RUST_LOG".to_owned(), level));
    here.chain(level).chain(settings.env.iter().cloned()).collect()
}

fn program(function: &template::Function, settings: &Settings) -> Result<Program, String> {
    let template::Function { name, binary, file, is_built_in, .. } = function;
    if let Some(own) = settings.functions.iter().find(|own| own.name == *name) {
        return Ok(Program::File(own.program.clone()));
    }
    if let (Some(binary), true) = (binary, is_built_in) {
        built_in(binary).ok_or_else(|| format!("this program does not have {binary}"))?;
        return Ok(Program::Own(binary.clone().leak()));
    }
    if let Some(file) = file {
        return Ok(Program::File(file.canonicalize().unwrap_or_else(|_| file.clone())));
    }
    let Some(binary) = binary else {
        return Err(format!(
            "the template does not name its program: give it with --function {name}=PROGRAM, or as Metadata.BuildProperties.Binary"
        ));
    };
    let folder = settings.programs.clone().unwrap_or_else(|| built(settings.template.as_deref()));
    let file = folder.join(binary);
    match file.is_file() {
        true => Ok(Program::File(file.canonicalize().unwrap_or(file))),
        false => Err(format!(
            "there is no program {}: build it first with cargo build, or say where programs are with --programs FOLDER",
            file.display()
        )),
    }
}

/// Where cargo puts programs: in `CARGO_TARGET_DIR`, or in the folder `target` of the template or above it.
fn built(template: Option<&Path>) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let template = template.and_then(|template| template.canonicalize().ok());
    let above = || {
        let folders = template.iter().flat_map(|template| template.ancestors());
        folders.map(|folder| folder.join("target")).find(|target| target.is_dir())
    };
    target.or_else(above).unwrap_or_else(|| PathBuf::from("target")).join("debug")
}
