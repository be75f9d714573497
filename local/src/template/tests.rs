//! Whole templates: the sample's, one of one's own, and those that cannot run here.

use super::{file::Template, names::Place, resource::stack, stack::Stack};
use crate::route::Route;
use serde_json::json;
use std::collections::HashMap;

const PLACE: Place<'_> =
    Place { prefix: "local-", region: "eu-central-1", sqs: "http://127.0.0.1:1", ignored: &[] };

fn sample() -> Stack {
    let parameters = [("OrdersTenant", "acme")].map(|(name, value)| (name.to_owned(), json!(value)));
    let template = Template::sample(include_str!("../../../infra/sample.yaml"));
    stack(&template, parameters.into(), &PLACE).expect("the sample runs here")
}

fn names<T>(all: &[T], name: impl Fn(&T) -> &str) -> Vec<&str> {
    all.iter().map(name).collect()
}

#[test]
fn the_sample_is_a_template_like_others() {
    let stack = sample();
    assert_eq!(
        names(&stack.tables, |table| &table.full_name),
        ["local-idempotency", "local-accounts", "local-orders", "local-payments"]
    );
    assert_eq!(stack.buses, ["local-shop"]);
    assert_eq!(stack.outputs["OutboxTopics"], "order.placed=bus:local-shop");
    let of = |name: &str| stack.functions.iter().find(|function| function.name == name).expect(name);
    let variable = |name: &str, variable: &str| of(name).variables[variable].clone();
    assert_eq!(variable("payments", "IDEMPOTENCY_TABLE"), Ok("local-idempotency".to_owned()));
    let url = "http://127.0.0.1:1/123456789012/local-deferred-reports";
    assert_eq!(variable("payments", "DEFERRED_REPORTS_QUEUE_URL"), Ok(url.to_owned()));
    assert!(variable("payments", "SEALING_KEYS").is_err(), "it is a secret");
    assert!(variable("payments", "PROVIDER_URL").is_err(), "the parameter has no value");
    assert_eq!((of("stale").is_built_in, of("stale").timeout), (true, Some(60)));
    assert!(of("webhook").has_clients && !of("reconcile").has_clients);
    assert!(stack.routes.contains(&Route::parse("GET /operations/{key+}=payments").unwrap()));
    assert_eq!(stack.schedules.iter().filter(|schedule| schedule.period.is_none()).count(), 2);
    let checks = stack.queues.iter().find(|queue| queue.name == "checks").unwrap();
    let dead = "arn:aws:sqs:eu-central-1:123456789012:local-dead-letters".to_owned();
    assert_eq!(checks.dead_letters, Some((dead, 5)));
    assert!(stack.queues.iter().any(|queue| queue.full_name == "local-orders-dead-letters.fifo"));
    let gathers = stack.streams.iter().map(|stream| (&*stream.function, stream.gathers));
    assert_eq!(gathers.collect::<Vec<_>>(), [("outbox", false), ("stale", true)]);
}

#[test]
fn without_a_template_only_the_nested_stack_runs() {
    let of = |ignored: &[String]| stack(&Template::bare(), HashMap::new(), &Place { ignored, ..PLACE });
    let alone = of(&["ReconcileFunction".to_owned()]).expect("it runs here");
    assert_eq!(names(&alone.functions, |function| &function.name), ["outbox", "stale"]);
    assert_eq!(names(&alone.tables, |table| &table.full_name), ["local-idempotency"]);
    assert!(alone.outputs.contains_key("TableName") && alone.routes.is_empty());

    let with_reconcile = of(&[]).expect("it runs here");
    assert_eq!(with_reconcile.functions.last().map(|function| &*function.name), Some("reconcile"));
    let queues = with_reconcile.mappings.iter().filter(|mapping| mapping.function == "reconcile");
    assert_eq!(queues.count(), 2, "questions and deferred reports");
    assert!(with_reconcile.schedules.iter().any(|schedule| schedule.function == "reconcile"));
}

const OWN: &str = "
Transform: AWS::Serverless-2016-10-31
Conditions: { Always: !Equals [1, '1'] }
Globals: { Function: { Runtime: provided.al2023, Timeout: 7, Environment: { Variables: { RUST_LOG: info } } } }
Resources:
  Idempotency:
    Type: AWS::Serverless::Application
    Properties:
      Location: https://example.com/infra/idempotency.yaml
      Parameters: { ExistingTableName: !Ref Missing }
  DeadLettersQueue: { Type: AWS::SQS::Queue }
  InOrderQueue: { Type: AWS::SQS::Queue, Properties: { FifoQueue: !If [Always, true, false] } }
  Bus: { Type: AWS::Events::EventBus }
  OffRule:
    Type: AWS::Events::Rule
    Properties: { State: DISABLED, EventBusName: !Ref Bus, EventPattern: { source: [a] }, Targets: [{ Arn: arn:gone }] }
  Pay:
    Type: AWS::Serverless::Function
    Metadata: { BuildProperties: { Binary: pay } }
    Properties:
      Environment: !If
        - Always
        - Variables: { IDEMPOTENCY_TABLE: !GetAtt Idempotency.Outputs.TableName, OWN: !Ref DeadLettersQueue }
        - !Ref AWS::NoValue
      Events:
        Pay: { Type: HttpApi, Properties: { Method: post, Path: /pay } }
        Rest: { Type: HttpApi }
";

#[test]
fn a_template_of_ones_own_nests_ours() {
    let stack = stack(&Template::of(OWN), HashMap::new(), &PLACE).unwrap();
    assert_eq!(names(&stack.functions, |function| &function.name), ["outbox", "stale", "pay"]);
    let pay = stack.functions.last().unwrap();
    assert_eq!((pay.is_built_in, pay.binary.as_deref(), pay.timeout), (false, Some("pay"), Some(7)));
    let url = "http://127.0.0.1:1/123456789012/local-dead-letters".to_owned();
    let nested = "http://127.0.0.1:1/123456789012/local-idempotency-dead-letters";
    assert_eq!(stack.outputs["DeadLettersQueueUrl"], nested);
    let variables = [
        ("IDEMPOTENCY_TABLE", Ok("local-idempotency".to_owned())),
        ("OWN", Ok(url)),
        ("RUST_LOG", Ok("info".to_owned())),
    ];
    assert_eq!(pay.variables, variables.map(|(name, value)| (name.to_owned(), value)).into());
    assert_eq!(stack.queues.last().unwrap().full_name, "local-in-order.fifo");
    assert_eq!(stack.rules, []);
    let routes = ["POST /pay=pay".to_owned(), "ANY $default=pay".to_owned()];
    assert_eq!(stack.routes.iter().map(ToString::to_string).collect::<Vec<_>>(), routes);
}

#[test]
fn a_nested_stack_takes_a_table_of_its_template() {
    let table = "  Records:
    Type: AWS::DynamoDB::Table
    Properties: { KeySchema: [{ AttributeName: pk, KeyType: HASH }], StreamSpecification: { StreamViewType: NEW_AND_OLD_IMAGES } }
  Pay:
";
    let stream = "ExistingTableName: !Ref Records, ExistingTableStream: !Select [3, !Split ['/', !GetAtt Records.StreamArn]]";
    let own = OWN.replace("  Pay:\n", table).replace("ExistingTableName: !Ref Missing", stream);
    assert_eq!(own.matches("Records").count(), 3);
    let stack = stack(&Template::of(&own), HashMap::new(), &PLACE).unwrap();
    assert_eq!(stack.outputs["TableName"], "local-records");
    assert_eq!(names(&stack.tables, |table| &table.full_name), ["local-records"]);
    assert!(
        stack.streams.iter().all(|stream| stream.stream_arn.ends_with(":table/local-records/stream/latest"))
    );
}

#[test]
fn the_examples_of_pollers_run_here() {
    let of = |text| {
        let stack = stack(&Template::of(text), HashMap::new(), &PLACE).unwrap();
        let [poller] = &stack.pollers[..] else { panic!("{:?}", stack.pollers) };
        let ship = stack.functions.iter().find(|function| function.name == poller.function).unwrap();
        let dropped = poller.dropped_arn.clone().unwrap();
        assert_eq!((poller.reports_failures, stack.queue(&dropped).is_some()), (true, true));
        (poller.arguments[3..5].join(" "), ship.variables.clone())
    };
    let (stream, variables) = of(include_str!("../../../pollers/example/kinesis.yaml"));
    assert_eq!(
        (&*stream, &variables["ORDERS_STREAM"]),
        ("--stream local-orders", &Ok("local-orders".to_owned()))
    );
    let (topic, variables) = of(include_str!("../../../pollers/example/kafka.yaml"));
    assert_eq!((&*topic, &variables["ORDERS_TOPIC"]), ("--topic orders", &Ok("orders".to_owned())));
    let unknown =
        include_str!("../../../pollers/example/kinesis.yaml").replace("!GetAtt DroppedQueue.Arn", "arn:gone");
    let error = stack(&Template::of(&unknown), HashMap::new(), &PLACE).unwrap_err();
    assert!(error.contains("function ship: the local cloud has no queue arn:gone"), "{error}");
}

#[test]
fn a_template_that_cannot_run_here_names_what_is_wrong() {
    let resource = |text: &str| format!("Resources:\n  One: {text}");
    for (text, named) in [
        ("a: [".to_owned(), "t.yaml: line"),
        ("Outputs: {}".to_owned(), "no Resources"),
        (resource("{}"), "resource One: it has no Type"),
        (resource("{ Type: AWS::Cognito::UserPool }"), "--ignore One"),
        (resource("{ Type: AWS::Serverless::Function }"), "Runtime"),
        (
            resource("{ Type: AWS::Serverless::Function, Properties: { PackageType: Image } }"),
            "PackageType Image",
        ),
        (
            resource("{ Type: AWS::Serverless::Application, Properties: { Location: other.yaml } }"),
            "there is no file other.yaml",
        ),
        (
            resource("{ Type: AWS::SQS::Queue }\n  OneQueue: { Type: AWS::SQS::Queue }"),
            "OneQueue: another AWS::SQS::Queue",
        ),
        (resource("{ Type: AWS::SQS::Queue, Condition: Gone }"), "there is no condition Gone"),
        (
            resource(
                "{ Type: AWS::SQS::Queue, Properties: { RedrivePolicy: { deadLetterTargetArn: arn:x, maxReceiveCount: 3 } } }",
            ),
            "queue one: the local cloud has no queue arn:x",
        ),
        (
            resource(
                "{ Type: AWS::Serverless::Function, Properties: { Runtime: provided.al2023, Events: { In: { Type: Api } } } }",
            ),
            "resource One: event In:",
        ),
        (
            resource(
                "{ Type: AWS::Serverless::Function, Properties: { Runtime: provided.al2023, Events: { In: { Type: SQS, Properties: { Queue: arn:y } } } } }",
            ),
            "function one: the local cloud has no queue arn:y",
        ),
        (
            resource(
                "{ Type: AWS::DynamoDB::Table, Properties: { TableName: t } }\n  Two: { Type: AWS::Serverless::Function, Properties: { Runtime: provided.al2023, Events: { In: { Type: DynamoDB, Properties: { Stream: !GetAtt One.StreamArn } } } } }",
            ),
            "function two: the local cloud has no stream",
        ),
        (
            resource("{ Type: AWS::Events::EventBus }\n  Two: { Type: AWS::Events::EventBus }"),
            "local-one and local-two",
        ),
        (
            resource("{ Type: AWS::SQS::Queue, Properties: { FifoQueue: maybe } }"),
            "resource One: maybe must be",
        ),
        (resource("{ Type: AWS::SQS::Queue, Properties: { DelaySeconds: 5 } }"), "DelaySeconds"),
        (
            resource("{ Type: AWS::SNS::Subscription, Properties: { Protocol: sqs, Endpoint: arn:q } }"),
            "no topics of SNS",
        ),
        (
            resource("{ Type: AWS::SNS::Topic, Properties: { Subscription: [{ Protocol: lambda }] } }"),
            "add --ignore One",
        ),
        (
            resource("{ Type: AWS::DynamoDB::Table, Properties: { LocalSecondaryIndexes: [{}] } }"),
            "LocalSecondaryIndexes",
        ),
        (
            resource(
                "{ Type: AWS::Serverless::Function, Properties: { Runtime: provided.al2023, FunctionUrlConfig: { AuthType: NONE } } }",
            ),
            "FunctionUrlConfig",
        ),
        (
            resource(
                "{ Type: AWS::Events::Rule, Properties: { EventBusName: b, EventPattern: { source: [a] }, Targets: [{ Arn: q, InputPath: $.detail }] } }",
            ),
            "InputPath",
        ),
    ] {
        let error = stack(&Template::of(&text), HashMap::new(), &PLACE).expect_err("it cannot run");
        assert!(error.starts_with("t.yaml: ") && error.contains(named), "{text}: {error}");
    }
    let unknown = HashMap::from([("Other".to_owned(), json!("x"))]);
    let error = stack(&Template::of(OWN), unknown, &PLACE).expect_err("no such parameter");
    assert!(error.contains("no parameter Other"), "{error}");
}

#[test]
fn all_that_is_wrong_is_named_at_once() {
    let text = "
Parameters: { Size: { Type: Number } }
Resources:
  Mail: { Type: AWS::SNS::Subscription, Properties: { Protocol: email } }
  One: { Type: AWS::SQS::Queue, Properties: { DelaySeconds: !Ref Size } }
  Two: { Type: AWS::SQS::Queue, Properties: { DelaySeconds: !Ref Size } }
  Three: { Type: AWS::SQS::Queue, Properties: { FifoQueue: !Ref Four } }
";
    let error = stack(&Template::of(text), HashMap::new(), &PLACE).expect_err("it cannot run");
    let expected = [
        "t.yaml: resource Three: the template has no resource or parameter Four",
        "t.yaml: resource One: the parameter Size has no value: give it with --parameter Size=VALUE",
    ];
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines, expected);
    let given = |size: &str| HashMap::from([("Size".to_owned(), json!(size))]);
    let error = stack(&Template::of(text), given("much"), &PLACE).expect_err("it is no number");
    assert_eq!(error, "t.yaml: the parameter Size=much must be a number");
    let rest = text.replace("!Ref Four", "false");
    assert_eq!(stack(&Template::of(&rest), given("0"), &PLACE).expect("all is there").queues.len(), 3);
}
