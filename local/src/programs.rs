//! The programs of the template's functions.

use crate::{definition::built_in, program::Program, settings::Settings, template::Function};
use serde_json::Value;
use std::{
    env,
    path::{self, Path, PathBuf},
    process::Command,
};

/// The program of this function.
///
/// # Errors
/// If there is none; the error says what to do.
pub fn of(function: &Function, settings: &Settings) -> Result<Program, String> {
    let Function { name, binary, code, is_built_in, .. } = function;
    if let Some(own) = settings.functions.iter().find(|own| own.name == *name) {
        return Ok(Program::File(own.program.clone()));
    }
    if let (Some(binary), true) = (binary, is_built_in) {
        built_in(binary, settings.sample).ok_or_else(|| format!("this program does not have {binary}"))?;
        return Ok(Program::Own(binary.clone().leak()));
    }
    let bootstrap = code.join("bootstrap");
    if bootstrap.is_file() {
        return Ok(Program::File(absolute(bootstrap)));
    }
    let binary = match binary {
        Some(binary) => binary.clone(),
        None => only(&programs_of(code)).map_err(|error| {
            format!(
                "the template does not name its program, there is no {}, and {error}: give it with --function {name}=PROGRAM, or as \
                 Metadata.BuildProperties.Binary",
                bootstrap.display()
            )
        })?,
    };
    let folder = settings.programs.clone().unwrap_or_else(|| built(code));
    let file = folder.join(binary);
    match file.is_file() {
        true => Ok(Program::File(absolute(file))),
        false => Err(format!(
            "there is no program {}: build it first with cargo build, or say where programs are with --programs FOLDER",
            file.display()
        )),
    }
}

fn absolute(file: PathBuf) -> PathBuf {
    file.canonicalize().unwrap_or(file)
}

/// The only program of a package, which SAM takes if the template names none.
fn only(programs: &[String]) -> Result<String, String> {
    match programs {
        [only] => Ok(only.clone()),
        [] => Err("its CodeUri is no package with a program".to_owned()),
        all => Err(format!("its package has the programs {}", all.join(", "))),
    }
}

/// The programs of the package in this folder, or of all in its workspace.
fn programs_of(folder: &Path) -> Vec<String> {
    let manifest = absolute(folder.join("Cargo.toml"));
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"])
        .arg(&manifest);
    let printed = cargo.output().map(|output| output.stdout).unwrap_or_default();
    in_metadata(&serde_json::from_slice(&printed).unwrap_or_default(), &manifest)
}

/// The programs of the package with this manifest; of all packages, if none has it.
fn in_metadata(metadata: &Value, manifest: &Path) -> Vec<String> {
    let all = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_own =
        |package: &&Value| package["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest);
    let own: Vec<_> = all.iter().filter(is_own).collect();
    let packages = if own.is_empty() { all.iter().collect() } else { own };
    let targets =
        packages.into_iter().flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let programs =
        targets.filter(|target| target["kind"][0] == "bin").filter_map(|target| target["name"].as_str());
    programs.map(str::to_owned).collect()
}

/// Where cargo puts programs: in `CARGO_TARGET_DIR`, or in the folder `target` of the code or above it.
fn built(code: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let code = path::absolute(code).unwrap_or_default();
    let above = || code.ancestors().map(|folder| folder.join("target")).find(|target| target.is_dir());
    target.or_else(above).unwrap_or_else(|| PathBuf::from("target")).join("debug")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_package_with_one_program_names_it() {
        let package = |path: &str, programs: &[&str]| {
            let targets = programs.iter().map(|name| json!({ "kind": ["bin"], "name": name }));
            let targets: Vec<_> = targets.chain([json!({ "kind": ["lib"], "name": "lib" })]).collect();
            json!({ "manifest_path": path, "targets": targets })
        };
        let metadata = json!({ "packages": [package("/w/a/Cargo.toml", &["one"]), package("/w/b/Cargo.toml", &["two", "three"])] });
        let of = |manifest: &str| only(&in_metadata(&metadata, Path::new(manifest)));
        assert_eq!(of("/w/a/Cargo.toml").as_deref(), Ok("one"));
        assert_eq!(of("/w/b/Cargo.toml"), Err("its package has the programs two, three".to_owned()));
        assert_eq!(of("/w/Cargo.toml"), Err("its package has the programs one, two, three".to_owned()));
        let programs = programs_of(Path::new(env!("CARGO_MANIFEST_DIR")));
        assert_eq!(programs, ["idempotency-local"], "cargo was asked");
        assert!(only(&programs_of(Path::new("/no/such/folder"))).is_err());
    }
}
