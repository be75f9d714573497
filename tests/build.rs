//! Finds out whether DynamoDB Local can run here. If it cannot, its half of the tests is ignored with a reason: libtest cannot ignore
//! a test at run time.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The programs that fetch and run DynamoDB Local.
const PROGRAMS: [&str; 2] = ["java", "mvn"];
/// The address of a DynamoDB Local that is already running.
const ENDPOINT: &str = "DYNAMODB_LOCAL_ENDPOINT";
/// With `required`, for CI, it is an error if DynamoDB Local cannot run.
const REQUIRED: &str = "DYNAMODB_LOCAL";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(dynamodb_local)");
    for variable in ["PATH", ENDPOINT, REQUIRED] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let folders: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let missing: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|program| !folders.iter().any(|folder| folder.join(program).is_file()))
        .collect();
    if missing.is_empty() || env::var_os(ENDPOINT).is_some() {
        println!("cargo::rustc-cfg=dynamodb_local");
        println!("cargo::rerun-if-changed=build.rs");
        return;
    }
    let missing = missing.join(", ");
    let line = format!(
        "the tests on DynamoDB Local are left out; missing: {missing} (`apt-get install openjdk-17-jdk-headless maven`)"
    );
    assert!(env::var(REQUIRED).as_deref() != Ok("required"), "{line}");
    println!("cargo::warning={line}");
    // Watched so that the build script runs again once they are installed.
    for folder in folders.iter().filter(|folder| Path::exists(folder)) {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
}
