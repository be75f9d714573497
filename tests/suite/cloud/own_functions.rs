//! Functions of the user's in the local cloud. They are programs; here, scripts that become a function of the sample.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::local_cloud::{LocalCloud, PROGRAM};

/// A program in this folder, which becomes this function.
pub fn built(folder: &Path, name: &str, function: &str) -> PathBuf {
    let program = folder.join(name);
    build(&program, function);
    program
}

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
    let program = built(folder.path(), name, function);
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
    let page = cloud.get("/").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("href=\"/operate\"") && !page.contains("href=\"/metrics\""), "{page}");
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

#[test]
fn what_cannot_start_is_named_and_says_what_to_look_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("text");
    fs::write(&text, "no program").expect("a file");
    let text = text.display().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("its address").port().to_string();
    for (port, program, expected) in [
        (
            "0",
            "/bin/true",
            "function mine: Runtime exited without providing a reason; its own lines are above",
        ),
        (
            "0",
            "/bin/false",
            "function mine: Runtime exited with error: exit status 1; its own lines are above",
        ),
        ("0", &text, "function mine: Runtime could not be started: Permission denied"),
        (&port, "/bin/true", "Address already in use (os error 98); set PORT to another port"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.env("PORT", port).args(["--function", &format!("mine={program}")]);
        let ended = command.output().expect("it can be run");
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && error.contains(expected), "{program}: {error}");
    }
}

#[tokio::test]
async fn each_token_has_the_claims_that_were_given() {
    let claims = ["--claim", "sub=zeta", "--claim", "scope=pay"];
    let configure = |command: &mut Command| {
        command.args(claims);
    };
    let cloud = LocalCloud::configured(&[], configure).await;
    assert_eq!(status(&cloud, "k-1").await, 201);
    let charges = cloud.charges().await;
    assert_eq!(charges[0].tenant, "zeta", "the claim, and not the token's text");
}

/// A stack of one's own: the route of a function, its table and queue, and the nested stack.
const TEMPLATE: &str = r#"
Transform: AWS::Serverless-2016-10-31
Parameters:
  SealingSecret: { Type: String }
  ProviderUrl: { Type: String }
  Orders: { Type: String }
Globals: { Function: { Runtime: provided.al2023 } }
Resources:
  Idempotency:
    Type: AWS::Serverless::Application
    Properties: { Location: ./idempotency.yaml }
  PaidTable:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions:
        - { AttributeName: pk, AttributeType: S }
        - { AttributeName: sk, AttributeType: S }
        - { AttributeName: day, AttributeType: S }
      KeySchema: [{ AttributeName: pk, KeyType: HASH }, { AttributeName: sk, KeyType: RANGE }]
      GlobalSecondaryIndexes:
        - IndexName: days
          KeySchema: [{ AttributeName: day, KeyType: HASH }, { AttributeName: sk, KeyType: RANGE }]
          Projection: { ProjectionType: ALL }
  MineFunction:
    Type: AWS::Serverless::Function
    Metadata: { BuildProperties: { Binary: mine } }
    Properties:
      Timeout: 9
      Environment:
        Variables:
          IDEMPOTENCY_TABLE: !GetAtt Idempotency.Outputs.TableName
          DEFERRED_REPORTS_QUEUE_URL: !GetAtt Idempotency.Outputs.DeferredReportsQueueUrl
          PAYMENTS_TABLE: !Ref PaidTable
          ACCOUNTS_TABLE: !Ref PaidTable
          ORDERS_TABLE: !Ref Orders
          PROVIDER_URL: !Ref ProviderUrl
          SEALING_KEYS: !Sub "{{resolve:secretsmanager:${SealingSecret}}}"
      Events:
        Pay: { Type: HttpApi, Properties: { Method: post, Path: /payments } }
        Asked: { Type: Schedule, Properties: { Schedule: rate(1 hour), Input: '{"job":"poll"}' } }
"#;

#[tokio::test]
async fn a_template_of_ones_own_runs_with_the_nested_stack() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = folder.path().join("template.yaml");
    fs::write(&template, TEMPLATE).expect("a template");
    build(&folder.path().join("mine"), "payments");
    let configure = |command: &mut Command| {
        command.arg("--template").arg(&template).arg("--programs").arg(folder.path());
        command.args(["--parameter", "Orders=none"]);
    };
    let cloud = LocalCloud::configured(&[], configure).await;
    assert_eq!(status(&cloud, "k-1").await, 201);
    let environments: Value = cloud.get("/environments").send().await.unwrap().json().await.unwrap();
    let environments = environments["environments"].as_array().expect("a list");
    let mut functions: Vec<_> =
        environments.iter().map(|one| one["function"].as_str().expect("a name")).collect();
    functions.dedup();
    assert_eq!(functions, ["outbox", "stale", "mine"], "nothing of the sample");
    let operate = cloud.get("/operate").send().await.unwrap().text().await.unwrap();
    for line in ["IDEMPOTENCY_TABLE='local-idempotency'", "PAID_TABLE='local-paid'", "CHECKS_QUEUE_URL="] {
        assert!(operate.contains(line), "{operate}");
    }
    let other = cloud.get("/payments").send().await.expect("an answer");
    assert_eq!(other.status(), 404, "the template has no such route");
}

#[tokio::test]
async fn a_function_of_ones_own_replaces_the_samples_of_its_name() {
    let (cloud, _folder) = cloud_with("payments", "reports", &[]).await;
    assert_eq!(status(&cloud, "k-1").await, 404);
}
