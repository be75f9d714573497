//! Finds out whether DynamoDB Local and a browser can run here. If one cannot, its tests are ignored with a reason: libtest cannot ignore
//! a test at run time.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The programs that fetch and run DynamoDB Local.
const PROGRAMS: [&str; 2] = ["java", "mvn"];
/// The address of a DynamoDB Local that is already running.
const ENDPOINT: &str = "DYNAMODB_LOCAL_ENDPOINT";
/// The programs that show the page of the local cloud.
const BROWSER: [&str; 2] = ["chromium", "chromedriver"];
/// With `required`, for CI, it is an error if DynamoDB Local, or a browser, cannot run.
const REQUIRED: [&str; 2] = ["DYNAMODB_LOCAL", "BROWSER"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(dynamodb_local, browser)");
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["PATH", ENDPOINT].iter().chain(&REQUIRED) {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let folders: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let missing = |programs: [&'static str; 2]| {
        let is_missing = |program: &&str| !folders.iter().any(|folder| folder.join(program).is_file());
        programs.into_iter().filter(is_missing).collect::<Vec<_>>().join(", ")
    };
    let no_dynamodb_local = if env::var_os(ENDPOINT).is_some() { String::new() } else { missing(PROGRAMS) };
    let found = [
        ("dynamodb_local", "DynamoDB Local", no_dynamodb_local, "openjdk-17-jdk-headless maven"),
        ("browser", "the page in a browser", missing(BROWSER), "chromium chromium-driver"),
    ];
    let mut is_complete = true;
    for ((cfg, what, missing, packages), required) in found.into_iter().zip(REQUIRED) {
        if missing.is_empty() {
            println!("cargo::rustc-cfg={cfg}");
            continue;
        }
        let line =
            format!("the tests of {what} are left out; missing: {missing} (`apt-get install {packages}`)");
        assert!(env::var(required).as_deref() != Ok("required"), "{line}");
        println!("cargo::warning={line}");
        is_complete = false;
    }
    if is_complete {
        return;
    }
    // Watched so that the build script runs again once they are installed.
    for folder in folders.iter().filter(|folder| Path::exists(folder)) {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
}
