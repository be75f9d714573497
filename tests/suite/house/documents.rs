//! The documents' transcripts and the examples print what the documents show.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::SystemTime,
};

use tokio::process::Command;

use crate::support::{command, local_cloud::LocalCloud};

const README: &str = include_str!("../../../README.md");
const WALKTHROUGH: &str = include_str!("../../../docs/walkthrough.md");

const LOOKS: &str = "## What it looks like";

#[tokio::test]
async fn the_transcripts_of_readme_and_walkthrough_are_reproduced() {
    let cloud = LocalCloud::start(&[]).await;
    let pay = [block(README, LOOKS, "```sh\npay()")];
    assert_eq!(run(&cloud, README, LOOKS, &pay).await, 4);
    assert_eq!(run(&cloud, WALKTHROUGH, "## What clients see", &pay).await, 8);
    const MOVE: &str = "## Move money";
    let transfer = [block(WALKTHROUGH, MOVE, "```sh\ntransfer()")];
    assert_eq!(run(&cloud, WALKTHROUGH, MOVE, &transfer).await, 4);
    const EFFECTS: &str = "## Several effects";
    let order = [block(WALKTHROUGH, EFFECTS, "```sh\norder()")];
    assert_eq!(run(&cloud, WALKTHROUGH, EFFECTS, &order).await, 6);
    const QUEUE: &str = "## Orders from a queue";
    let send = [block(WALKTHROUGH, QUEUE, "```sh\nsend()")];
    assert_eq!(run(&cloud, WALKTHROUGH, QUEUE, &send).await, 6);
    assert_eq!(run(&cloud, WALKTHROUGH, "## Messages", &order).await, 3);
    const REPORTS: &str = "## Reports, which take longer";
    let report = [block(WALKTHROUGH, REPORTS, "```sh\nreport()")];
    assert_eq!(run(&cloud, WALKTHROUGH, REPORTS, &report).await, 2);
}

#[tokio::test]
async fn the_transcript_of_a_dying_worker_is_reproduced() {
    const SECTION: &str = "## When a worker dies";
    let start = block(WALKTHROUGH, SECTION, "```sh\nPOLL_MS");
    let (variable, value) = start.split_once(' ').unwrap().0.split_once('=').unwrap();
    let cloud = LocalCloud::start(&[(variable, value)]).await;
    let definitions = [block(README, LOOKS, "```sh\npay()"), block(WALKTHROUGH, SECTION, "```sh\neval")];
    let steps = run(&cloud, WALKTHROUGH, SECTION, &definitions).await;
    assert_eq!(steps, 8);
}

#[tokio::test]
async fn the_transcripts_of_what_is_away_are_reproduced() {
    let cloud = LocalCloud::start(&[("RECONCILE_ASKS", "2")]).await;
    const DIES: &str = "## When a worker dies";
    let definitions = [block(README, LOOKS, "```sh\npay()"), block(WALKTHROUGH, DIES, "```sh\neval")];
    let steps = run(&cloud, WALKTHROUGH, "## When the provider is away", &definitions).await;
    assert_eq!(steps, 6);
    let cloud = LocalCloud::start(&[]).await;
    let steps = run(&cloud, WALKTHROUGH, "## When the table is away", &definitions[..1]).await;
    assert_eq!(steps, 5);
    assert_eq!(cloud.charges().await.len(), 2);
}

/// A call without a key, one with a key in `_meta`, the same with the key as an argument, and another email under that key.
const MCP_CALLS: &str = r#""text":"idempotency_key is missing: make a UUID for each email, and repeat a call with the same one","type":"text"}],"isError":true}}
an email is sent, with the key 423c2786-8c31-8984-ac79-d8154c813f50
{"id":1,"jsonrpc":"2.0","result":{"_meta":{"com.example/replayed":false},"content":[{"text":"sent to a@example.com","type":"text"}]}}
{"id":2,"jsonrpc":"2.0","result":{"_meta":{"com.example/replayed":true},"content":[{"text":"sent to a@example.com","type":"text"}]}}
{"id":3,"jsonrpc":"2.0","result":{"content":[{"text":"the key was used for another input","type":"text"}],"isError":true}}
{"id":4,"jsonrpc":"2.0","result":{"content":[{"text":"the key in _meta and the argument idempotency_key differ","type":"text"}],"isError":true}}
{"id":5,"jsonrpc":"2.0","result":{"content":[{"text":"the key must be a string","type":"text"}],"isError":true}}
{"id":6,"jsonrpc":"2.0","result":{"content":[{"text":"refused: the address has no @","type":"text"}],"isError":true}}"#;

#[tokio::test]
async fn the_examples_print_what_they_document() {
    for (name, shown) in [
        ("axum_router", "  422 Unprocessable Entity, replayed: None\norder-2, coffee:\n  the handler runs"),
        (
            "lambda_handler",
            "attempt 1\n202 Accepted, replayed: None\n202 Accepted, replayed: Some(\"true\")\n",
        ),
        (
            "domain_writes",
            "500 Internal Server Error, replayed: false, row: false\n201 Created, replayed: false, row: true\n201 Created, replayed: true",
        ),
        (
            "downstream_header",
            "interrupted: the next call resumes it\ncharged: ch_1\nkeys: 1, requests: 2\n/charges: timed out\n/charges: ch_1\n/refunds: a phase makes one call",
        ),
        (
            "durable_dispatcher",
            "1 come again; executions: 0\n1 come again; executions: 1\nresolved: 1\n0 come again; executions: 2\n",
        ),
        ("function", "a parcel to Bern is shipped\n"),
        ("invocation", "attempt 1\n{\"order\":\"o-1\"}\n{\"order\":\"o-1\"}\n"),
        ("queue", "\"order-1\" is shipped\n0 come again\ndead: nothing was ordered\n"),
        ("mcp_tool", MCP_CALLS),
        ("own_store", "it keeps every promise\n"),
        (
            "own_words",
            "200: {\"budget\":100,\"media_buy_id\":\"mb-1\"}\n{\"idempotency_key\":\"k-1\",\"budget\":100}\n  200: {\"budget\":100,\"media_buy_id\":\"mb-1\",\"replayed\":true}\n",
        ),
        (
            "own_telemetry",
            "idempotency in Lambda runtime invoke: ship, replay\nLambda runtime invoke in Some(\"00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01\")\napi.idempotency.reserve.created.count of ship: 1\napi.idempotency.reserve.replay.count of ship: 1\n",
        ),
        ("unit_test", "all three as promised\n"),
        (
            "webhook",
            "  evt_1 is handled: \"charge.succeeded\"\n  200 OK, replayed: None\npending_webhooks 1:\n  200 OK, replayed: Some(\"true\")\npending_webhooks 1:\n  401 Unauthorized, replayed: None\n",
        ),
    ] {
        let ran = Command::new(example(name)).stdin(Stdio::null()).output().await.expect("it can be run");
        let printed = String::from_utf8(ran.stdout).expect("text");
        assert!(ran.status.success() && printed.contains(shown), "{name}: {printed}");
    }
}

#[tokio::test]
async fn the_client_example_gets_the_answer_that_was_lost() {
    let cloud = LocalCloud::start(&[]).await;
    let url = format!("{}/payments", cloud.url());
    let order = r#"{"customerId":"c-1","amountCents":1999,"currency":"EUR","source":"tok_timeout_charged"}"#;
    let mut client = Command::new(example("client"));
    client.args([&*url, "acme", order]).stdin(Stdio::null());
    let ran = client.output().await.expect("it can be run");
    let printed = String::from_utf8(ran.stdout).expect("text");
    assert!(ran.status.success() && printed.contains("\n201 Created, replayed: true\n"), "{printed}");
    assert_eq!(cloud.charges().await.len(), 1);
}

/// The program of this example. It must be as new as its sources, but cargo builds it only if it tests the library too.
fn example(name: &str) -> PathBuf {
    let modified = |path: &Path| -> SystemTime {
        let metadata = fs::metadata(path).and_then(|metadata| metadata.modified());
        metadata.unwrap_or_else(|error| panic!("{}: {error}; run plain `cargo test`", path.display()))
    };
    let program = Path::new(command::PROGRAM).with_file_name("examples").join(name);
    let built = modified(&program);
    let rule = fs::read_to_string(program.with_extension("d")).expect("cargo writes down the sources");
    // "program: source source …", with a backslash before each space in a path.
    let rule = rule.replace("\\ ", "\0");
    let sources = rule.split_once(": ").expect("a rule of make").1;
    for source in sources.split_whitespace().map(|source| source.replace('\0', " ")) {
        assert!(
            modified(Path::new(&source)) <= built,
            "{name} is older than {source}: run plain `cargo test`"
        );
    }
    program
}

/// Runs the transcript of a document's section, each command after these definitions. Returns the number of commands.
async fn run(cloud: &LocalCloud, document: &'static str, section: &str, definitions: &[&str]) -> usize {
    let here = |text: &str| {
        text.replace("http://127.0.0.1:9000", cloud.url())
            .replace("cargo run -q -p idempotency-cli --", command::PROGRAM)
    };
    let definitions: String = definitions.iter().map(|definition| here(definition) + "\n").collect();
    let mut steps = 0;
    for step in block(document, section, "```console\n").trim().split("\n$ ") {
        let (command, expected) =
            step.trim_start_matches("$ ").split_once('\n').expect("a command and its output");
        let script = format!("{definitions}{}", here(command));
        let ran = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).output().await;
        let printed = String::from_utf8(ran.expect("bash can be run").stdout).expect("text");
        assert!(
            !printed.is_empty(),
            "{command} printed nothing: the transcript needs curl 7.84 (apt-get install curl)"
        );
        assert_eq!(masked(&printed), masked(expected), "$ {command}");
        steps += 1;
    }
    steps
}

/// The fenced block of this section with this beginning, without its fences.
fn block(document: &'static str, section: &str, beginning: &str) -> &'static str {
    let at = document.find(section).expect("the document has the section");
    let at = at + document[at..].find(beginning).expect("the section has the block");
    let inside = &document[at..].split_once('\n').expect("a fence is a line").1;
    inside.split_once("\n```").expect("the block is closed").0
}

/// Replaces what differs in each run: ids, times, ages, and the white space that aligns them.
fn masked(text: &str) -> String {
    let is_id = |part: &str| part.len() >= 32 && part.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let parts = text.trim().split_inclusive(|c: char| !c.is_ascii_hexdigit() && c != '-');
    let without_ids: String = parts
        .map(|part| match part.char_indices().next_back() {
            Some((end, separator)) if is_id(&part[..end]) => format!("*{separator}"),
            _ if is_id(part) => "*".to_owned(),
            _ => part.to_owned(),
        })
        .collect();
    let lines = without_ids.lines().map(|line| {
        let parts = line.split_whitespace().map(|part| match part.contains("-") && part.contains('T') {
            true if part.ends_with('Z') => "time".to_owned(),
            _ => age(part),
        });
        parts.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Treats `12s`, `(9s` and similar texts as one.
fn age(part: &str) -> String {
    let digits = part.trim_start_matches('(');
    match digits
        .strip_suffix('s')
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    {
        Some(_) => format!("{}age", &part[..part.len() - digits.len()]),
        None => part.to_owned(),
    }
}
