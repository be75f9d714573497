//! A function of one's own that takes the stream of its table, from the first change to the last effect.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    process::Command,
};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_sqs::types::Message;
use serde_json::Value;

use crate::support::{
    client::{client, connect},
    local_cloud::LocalCloud,
};

/// Which is of changes too, as its variable says.
const PROGRAM: &str = env!("CARGO_BIN_EXE_suite-http");

const TEMPLATE: &str = r#"
Transform: AWS::Serverless-2016-10-31
Resources:
  RecordsTable:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{ AttributeName: pk, AttributeType: S }, { AttributeName: sk, AttributeType: S }]
      KeySchema: [{ AttributeName: pk, KeyType: HASH }, { AttributeName: sk, KeyType: RANGE }]
  ProductsTable:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{ AttributeName: id, AttributeType: S }]
      KeySchema: [{ AttributeName: id, KeyType: HASH }]
      StreamSpecification: { StreamViewType: NEW_IMAGE }
  EffectsTable:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{ AttributeName: id, AttributeType: S }]
      KeySchema: [{ AttributeName: id, KeyType: HASH }]
  ParkedQueue: { Type: AWS::SQS::Queue }
  DroppedQueue: { Type: AWS::SQS::Queue }
  ChangesFunction:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: provided.al2023
      Environment:
        Variables:
          RUN_BY: changes
          IDEMPOTENCY_TABLE: !Ref RecordsTable
          PRODUCTS_TABLE: !Ref ProductsTable
          EFFECTS_TABLE: !Ref EffectsTable
          PARKED_QUEUE_URL: !Ref ParkedQueue
      Events:
        Products:
          Type: DynamoDB
          Properties:
            Stream: !GetAtt ProductsTable.StreamArn
            StartingPosition: TRIM_HORIZON
            FunctionResponseTypes: [ReportBatchItemFailures]
            DestinationConfig: { OnFailure: { Type: SQS, Destination: !GetAtt DroppedQueue.Arn } }
"#;

/// A cloud with the template's function, and what is in its tables and queues.
struct Changes {
    cloud: LocalCloud,
    dynamodb: aws_sdk_dynamodb::Client,
    sqs: aws_sdk_sqs::Client,
    /// The names of tables and the URLs of queues.
    named: HashMap<String, String>,
}

impl Changes {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("template.yaml"), TEMPLATE).expect("a template");
        let configure = |command: &mut Command| {
            command.arg("--template").arg(folder.path().join("template.yaml"));
            command.args(["--function", &format!("changes={PROGRAM}")]);
        };
        let cloud = LocalCloud::configured(&[("FUNCTION_TIMEOUT_MS", "4000")], configure).await;
        let operate = cloud.get("/operate").send().await.expect("an answer").text().await.expect("text");
        let named = operate.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        let named: HashMap<_, _> =
            named.map(|(name, value)| (name.to_owned(), value.trim_matches('\'').to_owned())).collect();
        let dynamodb = client(&named["AWS_ENDPOINT_URL_DYNAMODB"]);
        let sqs = aws_sdk_sqs::Client::new(&connect(&named["AWS_ENDPOINT_URL_SQS"]).sdk_config());
        Self { cloud, dynamodb, sqs, named }
    }

    async fn put(&self, item: &[(&str, &str)]) {
        let item =
            item.iter().map(|(name, value)| ((*name).to_owned(), AttributeValue::S((*value).to_owned())));
        let put =
            self.dynamodb.put_item().table_name(&self.named["PRODUCTS_TABLE"]).set_item(Some(item.collect()));
        put.send().await.expect("it is put");
    }

    /// How often each change has had its effect.
    async fn effects(&self) -> BTreeMap<String, String> {
        let scan = self.dynamodb.scan().table_name(&self.named["EFFECTS_TABLE"]).consistent_read(true);
        let items = scan.send().await.expect("an answer").items.unwrap_or_default();
        let effects = items.into_iter().map(|item| {
            (item["id"].as_s().expect("text").clone(), item["runs"].as_n().expect("a number").clone())
        });
        effects.collect()
    }

    async fn until_effects(&self, expected: &[&str]) {
        let expected: BTreeMap<_, _> =
            expected.iter().map(|change| ((*change).to_owned(), "1".to_owned())).collect();
        self.cloud.until(async || self.effects().await.len() >= expected.len(), "each has its effect").await;
        assert_eq!(self.effects().await, expected);
    }

    async fn received(&self, queue: &str) -> Vec<Message> {
        let receive = self.sqs.receive_message().queue_url(&self.named[queue]).message_attribute_names("All");
        receive.send().await.expect("an answer").messages.unwrap_or_default()
    }
}

#[tokio::test]
async fn changes_run_once_each_and_a_poison_one_is_parked() {
    let changes = Changes::start().await;
    changes.put(&[("id", "a"), ("version", "1")]).await;
    changes.put(&[("id", "poison")]).await;
    changes.put(&[("id", "b"), ("version", "1")]).await;
    changes.put(&[("id", "a"), ("version", "2")]).await;
    changes.put(&[("id", "poison"), ("version", "2")]).await;
    // The item of the poison change goes on, too.
    changes.until_effects(&["a 1", "a 2", "b 1", "poison 2"]).await;

    let parked = changes.received("PARKED_QUEUE_URL").await;
    let [parked] = &parked[..] else { panic!("{parked:?}") };
    let event: Value = serde_json::from_str(parked.body().expect("a body")).expect("JSON");
    assert_eq!(event["Records"].as_array().map(Vec::len), Some(1));
    assert_eq!(event["Records"][0]["dynamodb"]["Keys"]["id"]["S"], "poison");
    assert!(
        parked.message_attributes().is_some_and(|all| all.contains_key("idempotency-reason")),
        "{parked:?}"
    );
    assert!(changes.received("DROPPED_QUEUE_URL").await.is_empty());
}

#[tokio::test]
async fn a_consumer_killed_within_a_change_leaves_one_effect() {
    let changes = Changes::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (file, begun) = (folder.path().join("hold"), folder.path().join("hold.begun"));
    for file in [&file, &begun] {
        fs::write(file, "").expect("a file");
    }
    let begun = || fs::read_to_string(&begun).expect("text").lines().count();
    changes.put(&[("id", "a"), ("version", "1")]).await;
    changes.put(&[("id", "held"), ("version", "1"), ("waits_for", file.to_str().expect("text"))]).await;
    changes.cloud.until(async || begun() == 1, "it has begun").await;
    let [process] = changes.cloud.processes("changes").await[..] else { panic!("one has the batch") };
    assert!(
        Command::new("kill").args(["-9", &process.to_string()]).status().expect("it can be run").success()
    );
    fs::remove_file(&file).expect("it is ours");
    // Behind the killed one, of its item and of another.
    changes.put(&[("id", "held"), ("version", "2")]).await;
    changes.put(&[("id", "b"), ("version", "1")]).await;
    changes.until_effects(&["a 1", "b 1", "held 1", "held 2"]).await;
    assert_eq!(begun(), 2, "killed, and run again");
    for queue in ["PARKED_QUEUE_URL", "DROPPED_QUEUE_URL"] {
        assert!(changes.received(queue).await.is_empty(), "{queue}");
    }
}
