//! The smallest stack, and the stack that it grows to, as their page has them.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use reqwest::StatusCode;
use serde_json::Value;

use crate::support::local_cloud::LocalCloud;

const PAGE: &str = include_str!("../../../docs/table-alone.md");
const PROGRAM: &str = env!("CARGO_BIN_EXE_suite-http");

const TIME_TO_LIVE: &str = "      TimeToLiveSpecification: { AttributeName: expires_at, Enabled: true }\n";
const ATTRIBUTES: &str = "      AttributeDefinitions:\n";

/// The page's blocks of YAML.
fn blocks() -> Vec<&'static str> {
    let blocks = PAGE.split("```yaml\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("a block")).collect()
}

/// The smallest stack with the page's additions to it.
fn grown() -> String {
    let [stack, index, stream, nested] = blocks()[..] else { panic!("four blocks of YAML") };
    let (attributes, index) = index.split_once("      GlobalSecondaryIndexes").expect("an index");
    let attributes = attributes.lines().skip(1).collect::<Vec<_>>().join("\n");
    let with_index = format!("{TIME_TO_LIVE}      GlobalSecondaryIndexes{index}{stream}");
    for part in [ATTRIBUTES, TIME_TO_LIVE] {
        assert_eq!(stack.matches(part).count(), 1, "{part}");
    }
    let table =
        stack.replace(ATTRIBUTES, &format!("{ATTRIBUTES}{attributes}\n")).replace(TIME_TO_LIVE, &with_index);
    let (parameters, nested) =
        nested.split_once("Resources: # and those that are there\n").expect("resources");
    format!("{table}\n{nested}\n{parameters}")
}

/// A local cloud with this template, and its folder.
async fn deployed(template: &str) -> (LocalCloud, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("template.yaml"), template).expect("a template");
    let program = folder.path().join("bootstrap");
    fs::write(&program, format!("#!/bin/sh\nexec {PROGRAM}\n")).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let configure = |command: &mut Command| {
        command.arg("--template").arg(folder.path().join("template.yaml")).args(["--env", "RUN_BY=table"]);
    };
    (LocalCloud::configured(&[], configure).await, folder)
}

/// What a payment under this key gets, and whether it is a replay.
async fn paid(cloud: &LocalCloud, key: &str, body: &'static str) -> (StatusCode, bool) {
    let request = cloud.post("/payments").bearer_auth("acme").header("idempotency-key", key).body(body);
    let answer = request.send().await.expect("an answer");
    (answer.status(), answer.headers().contains_key("idempotent-replayed"))
}

/// The tables that an operator's command line gets.
async fn named(cloud: &LocalCloud) -> Vec<String> {
    let operate = cloud.get("/operate").send().await.unwrap().text().await.unwrap();
    let mut tables: Vec<_> = operate
        .lines()
        .filter_map(|line| line.strip_prefix("export ").filter(|line| line.contains("_TABLE=")))
        .map(ToOwned::to_owned)
        .collect();
    tables.sort();
    tables.dedup();
    tables
}

async fn functions(cloud: &LocalCloud) -> Vec<String> {
    let environments: Value = cloud.get("/environments").send().await.unwrap().json().await.unwrap();
    let environments = environments["environments"].as_array().expect("a list").clone();
    environments.iter().filter_map(|each| each["function"].as_str()).map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn a_table_alone_replays_as_its_page_says() {
    let (cloud, _folder) = deployed(blocks()[0]).await;
    assert_eq!(paid(&cloud, "k-1", "1").await, (StatusCode::OK, false));
    assert_eq!(paid(&cloud, "k-1", "1").await, (StatusCode::OK, true));
    assert_eq!(paid(&cloud, "k-1", "2").await, (StatusCode::UNPROCESSABLE_ENTITY, false));
    let functions = functions(&cloud).await;
    assert!(functions.iter().all(|function| function == "payments"), "{functions:?}");
    assert_eq!(named(&cloud).await, ["IDEMPOTENCY_TABLE='local-records'", "RECORDS_TABLE='local-records'"]);
}

#[tokio::test]
async fn a_table_alone_grows_to_the_stack_of_its_page() {
    let (cloud, _folder) = deployed(&grown()).await;
    assert_eq!(paid(&cloud, "k-1", "1").await, (StatusCode::OK, false));
    assert_eq!(paid(&cloud, "k-1", "1").await, (StatusCode::OK, true));
    cloud.until(async || functions(&cloud).await.iter().any(|each| each == "stale"), "stale runs").await;
    assert!(!functions(&cloud).await.iter().any(|each| each == "outbox"), "it is off");
    // One table, which `stale` follows: not one more of the nested stack.
    assert_eq!(named(&cloud).await, ["IDEMPOTENCY_TABLE='local-records'", "RECORDS_TABLE='local-records'"]);
}
