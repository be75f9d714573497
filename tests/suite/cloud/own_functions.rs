//! Functions of the user's in the local cloud. They are programs; here, scripts that become a function of the sample.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::local_cloud::{LocalCloud, PROGRAM};

/// Builds the program anew: it becomes this function.
fn build(program: &Path, function: &str) {
    let script = format!("#!/bin/sh\nLOCAL_FUNCTION={function} exec '{PROGRAM}'\n");
    let fresh = program.with_extension("new");
    fs::write(&fresh, script).expect("a script");
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).expect("it is ours");
    // In one step, as linkers do.
    fs::rename(fresh, program).expect("the same folder");
}

async fn status(cloud: &LocalCloud, key: &str) -> StatusCode {
    let order = json!({ "customerId": "c-1", "amountCents": 1, "currency": "EUR", "source": "tok_ok" });
    let request = cloud.post("/payments").bearer_auth("acme").header("idempotency-key", key).json(&order);
    request.send().await.expect("an answer").status()
}

/// A local cloud with a function of this name, which becomes this one of the sample, and with these routes.
async fn cloud_with(name: &str, function: &str, routes: &[&str]) -> (LocalCloud, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join(name);
    build(&program, function);
    let function = format!("{name}={}", program.display());
    let configure = |command: &mut Command| {
        command.args(["--function", &function]).args(routes.iter().flat_map(|route| ["--route", route]));
    };
    (LocalCloud::configured(&[], configure).await, folder)
}

#[tokio::test]
async fn a_function_of_ones_own_serves_its_routes_before_all_others() {
    let routes = ["POST /payments=mine", "GET /payments/{id}=mine", "ANY /metrics=mine"];
    let (cloud, folder) = cloud_with("mine", "payments", &routes).await;
    assert_eq!(status(&cloud, "k-1").await, 201);
    // It hides the page of metrics. The router of the function knows no such path.
    let hidden = cloud.get("/metrics").send().await.expect("an answer").status();
    assert_eq!(hidden, 404);
    let environments: Value = cloud.get("/environments").send().await.unwrap().json().await.unwrap();
    let environments = environments["environments"].as_array().expect("a list");
    let of = |name: &str| environments.iter().filter(|one| one["function"] == name).count();
    assert_eq!((of("mine"), of("payments")), (1, 1), "{environments:?}");

    // Built anew, it serves the next request.
    let program = folder.path().join("mine");
    build(&program, "reports");
    assert_eq!(status(&cloud, "k-1").await, 404);
    build(&program, "payments");
    assert_eq!(status(&cloud, "k-2").await, 201);
}

#[tokio::test]
async fn a_function_of_ones_own_replaces_the_samples_of_its_name() {
    let (cloud, _folder) = cloud_with("payments", "reports", &[]).await;
    assert_eq!(status(&cloud, "k-1").await, 404);
}
