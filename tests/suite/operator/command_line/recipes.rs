//! Each recipe of docs/operate.md runs as it is written there, line by line, on what it is for.

use std::{collections::BTreeSet, process::Stdio, time::Duration};

use lambda_idempotency::{
    key::{IdempotencyKey, OperationName, RecordKey, Tenant},
    record::{Record, SettledBy},
    store::{Tenants, Unsettled},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::{
    TENANT, answer,
    queues::{CHECKS, DEAD, DEFERRED_REPORTS, OUTBOX, Queues, RECONCILE, WORK},
    table,
    table::{OperatorsTable, own},
};
use crate::support::{command::PROGRAM, embedded};

const PAGE: &str = include_str!("../../../../docs/operate.md");

/// The beginnings of the blocks that do not run here, and what they need.
const NOT_RUN: &[(&str, &str)] = &[
    ("aws cloudformation describe-stacks", "a stack"),
    ("aws lambda invoke", "functions on Lambda"),
    ("aws dynamodb describe-table", "a table whose throughput is bounded"),
    ("for mapping in $(aws lambda list-event-source-mappings", "mappings on Lambda"),
    ("export OLD=", "a backup of DynamoDB"),
    ("aws lambda put-function-concurrency", "functions on Lambda"),
    ("aws sqs receive-message", "the AWS CLI"),
    ("aws sqs start-message-move-task", "the AWS CLI"),
    ("aws sqs delete-message", "the AWS CLI"),
    ("aws sqs receive-message --queue-url \"$ORDERS_PARKED", "the AWS CLI"),
    ("IFS=", "the AWS CLI: see below"),
    ("aws sqs delete-message --queue-url \"$ORDERS_PARKED", "the AWS CLI: see below"),
    ("aws sqs receive-message --queue-url \"$ORDERS_DROPPED", "the AWS CLI"),
    ("export STREAM_ARN=", "a stream of Kinesis"),
    ("aws configure set", "a table's stream, and the AWS CLI"),
    ("aws dynamodb update-time-to-live", "the AWS CLI, and a table with recovery"),
];

const MINUTE: Duration = Duration::from_secs(60);

/// The blocks of shell commands of the page, in order, without their indentation.
fn blocks() -> Vec<String> {
    let (mut blocks, mut block) = (Vec::new(), None::<String>);
    for line in PAGE.lines() {
        match (line.trim(), &mut block) {
            ("```sh", None) => block = Some(String::new()),
            ("```", Some(_)) => blocks.extend(block.take()),
            (_, Some(block)) => block.push_str(&format!("{}\n", line.trim_start())),
            _ => {}
        }
    }
    blocks
}

#[tokio::test]
async fn every_recipe_runs_as_it_is_written_or_says_what_it_needs() {
    let mut left: BTreeSet<_> = NOT_RUN.iter().map(|(beginning, _)| *beginning).collect();
    for block in blocks() {
        if let Some(beginning) = left.iter().copied().find(|beginning| block.starts_with(beginning)) {
            assert!(!block.contains("idempotency "), "this can run here: {block}");
            left.remove(beginning);
            continue;
        }
        let stage = Stage::new().await;
        let ran = stage.looks(&block).await || stage.changes(&block).await || stage.moves(&block).await;
        assert!(ran, "no test runs this block, and none says what it needs: {block}");
    }
    assert!(left.is_empty(), "no block begins so any more: {left:?}");
}

/// The AWS CLI, as far as the recipe of a parked record uses it.
const AWS: &str = r#"
aws() {
  case "$1 $2" in
    "sqs receive-message") printf 'receipt-1\t%s\n' "$LETTER" ;;
    "lambda invoke") printf '%s\n' "$@" > invoked; printf '{"batchItemFailures":[]}' > "${@: -1}" ;;
    "sqs delete-message") printf '%s' "${@: -1}" > deleted ;;
    *) return 1 ;;
  esac
}
"#;

// A letter has whatever its producer wrote.
#[tokio::test]
async fn a_parked_record_reaches_its_function_byte_by_byte() {
    let blocks = blocks();
    let block = |beginning: &str| blocks.iter().find(|block| block.starts_with(beginning)).expect("a block");
    let recipe = [block("IFS="), block("aws sqs delete-message --queue-url \"$ORDERS_PARKED")];
    let letter = r#"{"Records":[{"data":"a\tb\\n \"$HOME\" '%s' `x` *  é"}]}"#;
    let folder = tempfile::tempdir().expect("a folder");
    let ran = Command::new("bash")
        .args(["-euc", &format!("{AWS}{}{}", recipe[0], recipe[1])])
        .current_dir(folder.path())
        .envs([("LETTER", letter), ("ORDERS_PARKED_QUEUE_URL", "parked"), ("ORDERS_FUNCTION", "orders")])
        .output()
        .await
        .expect("bash can be run");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let written = |file: &str| std::fs::read_to_string(folder.path().join(file)).expect("it was written");
    assert_eq!(written("record.json"), letter);
    assert!(written("invoked").contains("--function-name\norders\n"));
    assert!(written("invoked").contains("--payload\nfile://record.json\n"));
    assert_eq!(written("deleted"), "receipt-1");
}

/// A table, queues, and a folder with an answer.
struct Stage {
    table: OperatorsTable,
    queues: Queues,
    folder: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let (folder, _) = answer(r#"{"status":201,"body":{"id":1}}"#);
        Self { table: table().await, queues: Queues::default(), folder }
    }

    /// Runs a block, with the variables that the page names, and with `--yes` in place of a terminal. Each of its commands must succeed.
    async fn run(&self, block: &str) -> String {
        let hash = own("order-4").hash().to_string();
        let block = block
            .replace("acme#", &format!("{TENANT}#"))
            .replace("--tenant TENANT", &format!("--tenant {TENANT}"))
            .replace("05f5a1c2", &hash[..8])
            .replace("2026-11-25T02:40:00Z", "1h")
            .replace("http://127.0.0.1:8000", embedded::endpoint());
        let prelude =
            r#"idempotency() { case " $* " in *" --reason "*) set -- "$@" --yes; esac; "$PROGRAM" "$@"; }"#;
        let ran = Command::new("bash")
            .args(["-euc", &format!("{prelude}\n{block}")])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env_clear()
            .envs([
                ("PATH", "/usr/bin:/bin"),
                ("PROGRAM", PROGRAM),
                ("USER", "olga"),
                ("AWS_REGION", "eu-central-1"),
                ("AWS_ACCESS_KEY_ID", "tests"),
                ("AWS_SECRET_ACCESS_KEY", "tests"),
                ("AWS_EC2_METADATA_DISABLED", "true"),
                ("AWS_ENDPOINT_URL_DYNAMODB", embedded::endpoint()),
                ("AWS_ENDPOINT_URL_SQS", &self.queues.serve().await),
                ("IDEMPOTENCY_TABLE", self.table.cli.table()),
                ("RECONCILE_QUEUE_URL", RECONCILE),
                ("DEFERRED_REPORTS_QUEUE_URL", DEFERRED_REPORTS),
                ("CHECKS_QUEUE_URL", CHECKS),
                ("OUTBOX_QUEUE_URL", OUTBOX),
                ("WORK_QUEUE_URL", WORK),
            ])
            .envs(DEAD_LETTERS.map(|name| (name, DEAD)))
            .output()
            .await
            .expect("bash can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ran.status.success(), "{block}\n{}\n{}", text(&ran.stdout), text(&ran.stderr));
        text(&ran.stdout)
    }

    async fn unknown(&self, key: &str) -> Record {
        self.table.unknown_since(own(key), 30 * MINUTE, true).await
    }

    async fn state(&self, key: &str) -> &'static str {
        self.table.record(key).await.state.name()
    }

    async fn looks(&self, block: &str) -> bool {
        let is = |beginning: &str| block.starts_with(beginning);
        let name = self.table.name("order-4");
        if is("idempotency show --tenant shop --operation ship --key-part") {
            let key = RecordKey::new(
                Tenant::parse("shop").expect("a tenant"),
                OperationName::parse("ship").expect("an operation"),
                IdempotencyKey::of(&["warehouse-2", "parcel-7"]).expect("a key"),
            );
            self.table.unknown_since(key, MINUTE, false).await;
            assert!(self.run(block).await.contains("ship"));
        } else if is("idempotency show 05f5a1c2") {
            self.unknown("order-4").await;
            assert!(self.run(block).await.matches("order-4").count() > 1, "it is found each time");
        } else if is("idempotency list --state unknown") {
            self.unknown("order-4").await;
            assert!(self.run(block).await.contains(&name));
        } else if is("idempotency dead-letters --queue \"$CONTRADICTIONS_QUEUE_URL\"") {
            let report =
                json!({ "version": 1, "kind": "contradiction", "key": name, "reason": "two answers" });
            self.queues.bury(&report, &[]);
            assert!(self.run(block).await.matches("two answers").count() > 1, "it is listed each time");
        } else if is("idempotency list --released") {
            self.table.released(own("order-4"), SettledBy::Worker, 30 * MINUTE).await;
            self.table.released(own("order-5"), SettledBy::Provider, 30 * MINUTE).await;
            let listed = self.run(block).await;
            assert!(listed.contains(&name) && !listed.contains("order-5"), "{listed}");
        } else {
            return false;
        }
        true
    }

    async fn changes(&self, block: &str) -> bool {
        let is = |beginning: &str| block.starts_with(beginning);
        let table = &self.table;
        if is("idempotency list\n") {
            self.unknown("order-4").await;
            self.unknown("order-5").await;
            self.run(block).await;
            assert_eq!(
                (self.state("order-4").await, self.state("order-5").await),
                ("completed", "failed_retryable")
            );
        } else if is("idempotency not-found-releases off") {
            self.run(block).await;
            assert!(!table.store.not_found_switch().await.unwrap().expect("a switch").releases);
        } else if is("idempotency not-found-releases on") {
            let off = ["not-found-releases", "off", "--yes", "--reason", "INC-17"];
            assert_eq!(table.cli.run(&off).await.code, Some(0));
            self.unknown("order-4").await;
            self.run(block).await;
            assert!(table.store.not_found_switch().await.unwrap().expect("a switch").releases);
            assert_eq!(self.queues.of(RECONCILE).0.len(), 1);
        } else if is("idempotency tenant stop acme") {
            let shown = self.run(block).await;
            assert!(
                shown.contains("accepted work is executed") && shown.contains("stop \"acme\" by olga@"),
                "{shown}"
            );
            assert!(table.store.rules().await.unwrap().expect("rules").tenants.is_empty(), "it goes on");
        } else if is("idempotency tenant limit acme") {
            let shown = self.run(block).await;
            assert!(shown.contains("create-payment: new keys 1/s+120, open records 100"), "{shown}");
        } else if is("idempotency hold --restored") {
            table.dead("order-4").await;
            table.returned(own("order-5"), MINUTE).await;
            self.run(block).await;
            assert!(table.record("order-4").await.is_held() && table.record("order-5").await.is_held());
        } else if is("idempotency hold --released --between-workers") {
            table.released(own("order-4"), SettledBy::NotBegun, 30 * MINUTE).await;
            table.between_workers(own("order-5"), MINUTE, false).await;
            self.run(block).await;
            assert!(table.record("order-4").await.is_held() && table.record("order-5").await.is_held());
        } else if is("idempotency dead-letters --kind provider_report") {
            super::denied::held(table, "order-4", "INC-17", Some(super::denied::DENIED)).await;
            super::denied::held(table, "order-5", "INC-17", None).await;
            self.run(block).await;
            assert_eq!(self.state("order-4").await, "failed_retryable");
            assert!(table.record("order-5").await.is_held(), "it was not asked about");
        } else if is("idempotency clear-alarms") {
            table.alarmed("order-4").await;
            self.run(block).await;
            assert_eq!(table.record("order-4").await.alarms, []);
        } else if is("export AWS_REGION=") {
            self.run(block).await;
        } else {
            return false;
        }
        true
    }

    async fn moves(&self, block: &str) -> bool {
        let is = |beginning: &str| block.starts_with(beginning);
        let record = self.unknown("order-4").await;
        let name = record.key.partition_key();
        let message = |kind: &str| json!({ "version": 1, "kind": kind, "key": name });
        let redriven = async |body: &Value, queue: &str| {
            self.queues.bury(body, &[]);
            self.run(block).await;
            assert_eq!(self.queues.of(queue).0, [body.to_string()], "{block}");
        };
        if is("idempotency dead-letters   ") {
            self.queues.bury(&message("ask"), &[]);
            redriven(&json!({ "version": 1, "kind": "check", "key": name, "look_at": 1 }), CHECKS).await;
            assert_eq!(self.queues.of(RECONCILE).0.len(), 1);
        } else if is("idempotency redrive --queue \"$OUTBOX_DEAD_LETTERS_QUEUE_URL\"") {
            redriven(&message("deliver"), OUTBOX).await;
        } else if is("idempotency redrive --queue \"$WORK_DEAD_LETTERS_QUEUE_URL\"") {
            let work = json!({ "version": 1, "kind": "work", "key": name, "request": "0".repeat(32) });
            redriven(&work, WORK).await;
        } else if is("idempotency redrive --queue \"$DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL\"") {
            redriven(&super::redrive::deferred_report(), DEFERRED_REPORTS).await;
        } else {
            return false;
        }
        true
    }
}

const DEAD_LETTERS: [&str; 5] = [
    "DEAD_LETTERS_QUEUE_URL",
    "CONTRADICTIONS_QUEUE_URL",
    "DEFERRED_REPORTS_DEAD_LETTERS_QUEUE_URL",
    "OUTBOX_DEAD_LETTERS_QUEUE_URL",
    "WORK_DEAD_LETTERS_QUEUE_URL",
];
