//! Templates of services that know nothing of this project.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::support::local_cloud::{LocalCloud, PROGRAM};

const PRODUCTS: &str = include_str!("../fixtures/templates/products.yaml");
const WORKER: &str = include_str!("../fixtures/templates/worker.yaml");

/// A function in this file: it gives this answer, in which `ID` is the id of the event's last message, and `PROVIDER` its provider.
fn program(file: &Path, answer: &Value) {
    let script = format!(
        r#"#!/bin/sh
runtime="http://$AWS_LAMBDA_RUNTIME_API/2018-06-01/runtime/invocation"
while event=$(curl -sS -D - "$runtime/next"); do
  request=$(printf '%s' "$event" | sed -n 's/^lambda-runtime-aws-request-id: \([0-9a-f-]*\).*/\1/ip')
  id=$(printf '%s' "$event" | sed -n 's/.*"messageId":"\([^"]*\)".*/\1/p')
  printf '%s' '{answer}' | sed -e "s/ID/$id/" -e "s|PROVIDER|$PROVIDER_URL|" | curl -sS --data-binary @- "$runtime/$request/response" > /dev/null
done
"#
    );
    fs::create_dir_all(file.parent().expect("a folder")).expect("it is ours");
    fs::write(file, script).expect("a script");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// A file with this template, and what it says before it starts.
fn refused(template: &str, port: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("template.yaml");
    fs::write(&file, template).expect("a template");
    let mut command = Command::new(PROGRAM);
    command.env("PORT", port).arg("--template").arg(&file).args(arguments);
    command.output().expect("it can be run")
}

#[tokio::test]
async fn routes_of_a_strangers_template_go_to_their_functions() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("template.yaml"), PRODUCTS).expect("a template");
    for name in ["list", "read", "write", "changes"] {
        let file = folder.path().join("build").join(name).join("bootstrap");
        program(&file, &json!({ "statusCode": 200, "body": name }));
    }
    let configure = |command: &mut Command| {
        command.arg("--template").arg(folder.path().join("template.yaml"));
    };
    let cloud = LocalCloud::configured(&[], configure).await;
    for (method, path, expected) in [
        ("GET", "/", "list"),
        ("GET", "/7", "read"),
        ("PUT", "/7", "write"),
        ("GET", "/7/parts", "write"),
        ("GET", "/items/7", "read"),
        ("GET", "/items/7/parts", "write"),
    ] {
        let request =
            reqwest::Client::new().request(method.parse().unwrap(), format!("{}{path}", cloud.url()));
        let answer = request.send().await.expect("an answer").text().await.expect("text");
        assert_eq!(answer, expected, "{method} {path}");
    }
}

/// A package with one program, which has been built.
fn package(folder: &Path) {
    let worker = folder.join("worker");
    fs::create_dir_all(worker.join("src")).expect("a folder");
    let manifest =
        "[package]\nname = \"jobs-worker\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(worker.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(worker.join("src/main.rs"), "fn main() {}\n").expect("a program");
    let failed = json!({ "batchItemFailures": [{ "itemIdentifier": "ID" }] });
    program(&folder.join("programs/jobs-worker"), &failed);
}

// T65: what a worker hands back is deleted, if its mapping does not read that.
#[tokio::test]
async fn a_mapping_that_loses_messages_is_named_before_and_after() {
    let folder = tempfile::tempdir().expect("a folder");
    package(folder.path());
    let reads = WORKER.replace("BatchSize: 10", "FunctionResponseTypes: [ReportBatchItemFailures]");
    for (template, dead_letters) in [(WORKER, 0), (&*reads, 1)] {
        fs::write(folder.path().join("template.yaml"), template).expect("a template");
        let configure = |command: &mut Command| {
            command.arg("--template").arg(folder.path().join("template.yaml"));
            command.arg("--programs").arg(folder.path().join("programs"));
        };
        let cloud = LocalCloud::configured(&[("FUNCTION_TIMEOUT_MS", "1000")], configure).await;
        let is_lost = dead_letters == 0;
        let warning = "[work] its event Taken has no FunctionResponseTypes: [ReportBatchItemFailures]";
        if is_lost {
            cloud.until(async || cloud.printed().contains(warning), warning).await;
        }
        let sent = cloud.post("/queues/jobs").json(&json!({ "body": "a job" })).send().await.unwrap();
        let sent: Value = sent.json().await.unwrap();
        let lost = format!(
            "[work] lost, though the function reports them as failed: {}.",
            sent["id"].as_str().unwrap()
        );
        let queue = async || {
            let shown: Value = cloud.get("/queues/jobs").send().await.unwrap().json().await.unwrap();
            let dead_letters = shown["deadLetters"].as_array().map(Vec::len);
            (shown["ready"] == 0 && shown["inFlight"] == 0).then_some(dead_letters).flatten()
        };
        match is_lost {
            true => {
                cloud.until(async || cloud.printed().contains(&lost), &lost).await;
                cloud.until(async || queue().await == Some(0), "it is gone").await;
            }
            false => {
                cloud.until(async || queue().await == Some(1), "it comes again, and is buried").await;
                assert!(!cloud.printed().contains("ReportBatchItemFailures"), "{}", cloud.printed());
            }
        }
    }
}

const PROVIDERS: &str = "
Transform: AWS::Serverless-2016-10-31
Parameters:
  ProviderUrl: { Type: String }
  Fallback: { Type: String, Default: 'http://127.0.0.1:2' }
Globals: { Function: { Runtime: provided.al2023, CodeUri: build } }
Resources:
  OpenFunction:
    Type: AWS::Serverless::Function
    Properties:
      Environment: { Variables: { PROVIDER_URL: !Ref ProviderUrl } }
      Events: { Get: { Type: HttpApi, Properties: { Method: GET, Path: /open } } }
  DefaultFunction:
    Type: AWS::Serverless::Function
    Properties:
      Environment: { Variables: { PROVIDER_URL: !Ref Fallback } }
      Events: { Get: { Type: HttpApi, Properties: { Method: GET, Path: /default } } }
  NoneFunction:
    Type: AWS::Serverless::Function
    Properties:
      Events: { Get: { Type: HttpApi, Properties: { Method: GET, Path: /none } } }
";

#[tokio::test]
async fn a_provider_of_ones_own_is_never_replaced_by_the_simulated_one() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("template.yaml"), PROVIDERS).expect("a template");
    program(&folder.path().join("build/bootstrap"), &json!({ "statusCode": 200, "body": "at PROVIDER" }));
    let own = "http://127.0.0.1:1";
    let given = format!("ProviderUrl={own}");
    for (arguments, is_simulated) in [(&[][..], true), (&["--parameter", &*given], false)] {
        let configure = |command: &mut Command| {
            command.arg("--template").arg(folder.path().join("template.yaml")).args(arguments);
        };
        let cloud = LocalCloud::configured(&[], configure).await;
        let (open, said) = if is_simulated { (cloud.provider(), "open") } else { (own, "no function") };
        for (path, expected) in [("/open", open), ("/default", "http://127.0.0.1:2"), ("/none", "")] {
            let answer = cloud.get(path).send().await.expect("an answer").text().await.expect("text");
            assert_eq!(answer, format!("at {expected}"), "{path}");
        }
        let printed = cloud.printed();
        assert!(printed.contains(&format!("simulated   PROVIDER_URL of {said}\n")), "{printed}");
    }
}

const FLAWED: &str = "
Transform: AWS::Serverless-2016-10-31
Parameters:
  First: { Type: String }
  Second: { Type: String }
  Unused: { Type: String }
  Url: { Type: String, AllowedPattern: 'https://.+', Default: 'https://a' }
Globals: { Function: { Runtime: provided.al2023, Environment: { Variables: { FIRST: !Ref First, URL: !Ref Url } } } }
Resources:
  One: { Type: AWS::Serverless::Function, Properties: { Environment: { Variables: { QUEUE: !Ref Mail } } } }
  Two: { Type: AWS::Serverless::Function, Properties: { Environment: { Variables: { SECOND: !Ref Second } } } }
";

#[test]
fn everything_wrong_with_a_template_is_named_before_its_port() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let error = |template: &str, arguments: &[&str]| {
        let ended = refused(template, &port, arguments);
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{error}");
        error
    };
    let all = error(FLAWED, &["--function", "one=/bin/true", "--function", "two=/bin/true"]);
    let expected = [
        "function One: its variable FIRST: the parameter First has no value: give it with --parameter First=VALUE",
        "function One: its variable QUEUE: the template has no resource or parameter Mail",
        "function Two: its variable SECOND: the parameter Second has no value",
    ];
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines.len(), expected.len(), "each once, and no unused one: {all}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&format!("error: {expected}")), "{all}");
    }
    let refused = error(FLAWED, &["--parameter", "Url=http://a", "--parameter", "Third=x"]);
    assert!(refused.contains("it has no parameter Third\n"), "{refused}");
    assert!(refused.contains("the parameter Url=http://a must match https://.+\n"), "{refused}");

    let topic = "Resources: { Sub: { Type: AWS::SNS::Subscription, Properties: { Protocol: sqs } } }";
    assert!(error(topic, &[]).contains("resource Sub: the local cloud has no topics of SNS"));
    let unbuilt = "
Resources:
  One: { Type: AWS::Serverless::Function, Properties: { Runtime: provided.al2, CodeUri: build/one } }
";
    let unbuilt = error(unbuilt, &[]);
    for named in [
        "function One: the template does not name its program",
        "build/one/bootstrap",
        "--function one=PROGRAM",
    ] {
        assert!(unbuilt.contains(named), "{unbuilt}");
    }
}
