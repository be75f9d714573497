//! Tests of the command line without a table. The suite runs it against real stores.

use std::process::{Command, Output};

fn idempotency(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    for variable in ["IDEMPOTENCY_TABLE", "RECONCILE_QUEUE_URL", "DEAD_LETTERS_QUEUE_URL"] {
        command.env_remove(variable);
    }
    command.args(arguments);
    command.output().expect("the program can be run")
}

#[test]
fn completions_come_for_every_shell_without_a_table() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = idempotency(&["completions", shell]);
        let script = String::from_utf8(output.stdout).expect("a script is text");
        assert!(output.status.success() && script.contains("forget-response"), "{shell}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_causes_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    let output = command.args(["completions", "bash"]).stdout(writer).output();
    let output = output.expect("the program can be run");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_help_says_what_exit_codes_mean() {
    let output = idempotency(&["--help"]);
    let help = String::from_utf8(output.stdout).expect("help is text");
    assert!(output.status.success() && help.contains("nothing was changed"), "{help}");
}

#[test]
fn the_help_of_compare_says_what_is_the_same() {
    let output = idempotency(&["compare", "--help"]);
    let help = String::from_utf8(output.stdout).expect("help is text");
    assert!(help.contains("must be a string") && help.contains("1 and 1.0 differ"), "{help}");
    assert!(help.contains("needs no table"), "{help}");
}

#[test]
fn a_missing_ledger_is_wrong_usage() {
    let output = idempotency(&["compare", "no-such-file", "no-such-file"]);
    let message = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(2) && message.contains("no-such-file"), "{message}");
}

#[test]
fn a_missing_queue_is_asked_for_by_its_variable() {
    let why = ["--reason", "because", "--yes", "--as", "kim"];
    for (command, variable) in [
        (&["dead-letters"][..], "DEAD_LETTERS_QUEUE_URL"),
        (&[&["redrive"][..], &why].concat()[..], "DEAD_LETTERS_QUEUE_URL"),
        (&[&["ask", "a#b#c"][..], &why].concat()[..], "RECONCILE_QUEUE_URL"),
    ] {
        let output = idempotency(command);
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.contains("which queue?") && message.contains(variable), "{message}");
    }
}

#[test]
fn an_unknown_kind_of_dead_letter_is_refused_with_the_kinds() {
    let output = idempotency(&["dead-letters", "--queue", "http://127.0.0.1:9/q", "--kind", "nonsense"]);
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("nonsense") && message.contains("failed_run") && message.contains("poison"),
        "{message}"
    );
}

#[test]
fn dead_letters_are_dropped_only_if_they_are_picked() {
    let drop = ["redrive", "--queue", "http://127.0.0.1:9/q", "--drop", "--reason", "because", "--yes"];
    let output = idempotency(&[&drop[..], &["--as", "kim"]].concat());
    let message = String::from_utf8(output.stderr).expect("text");
    assert!(
        output.status.code() == Some(2) && message.contains("--id, --kind, --record or --tenant"),
        "{message}"
    );
}

#[test]
fn a_change_without_a_reason_or_without_an_outcome_is_wrong_usage() {
    let record = ["settle", "tenant#pay#key"];
    for wrong in [
        &["--not-executed"][..],
        &["--reason", "because"],
        &["--reason", " ", "--not-executed"],
        &["--reason", "because", "--completed"],
        &["--reason", "because", "--completed", "--not-executed"],
        &["--reason", "because", "--not-executed", "--response", "answer.json"],
    ] {
        let output = idempotency(&[&record[..], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn wrong_usage_demands_nothing_that_the_environment_has() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    let output = command.env("IDEMPOTENCY_TABLE", "t").args(["settle", "a#b#c"]).output();
    let message = String::from_utf8(output.expect("the program can be run").stderr).expect("text");
    assert!(
        message.contains("--reason") && message.contains("--help") && !message.contains("--table"),
        "{message}"
    );
}

#[test]
fn an_address_must_be_a_url() {
    let show = ["show", "--table", "t", "--region", "eu-central-1", "acme#pay#key-in-clear"];
    let redrive = ["redrive", "--reason", "because", "--yes", "--table", "t"];
    for (command, option) in [
        (&show[..], "--endpoint-url"),
        (&redrive[..], "--queue"),
        (&redrive[..], "--to-checks"),
        (&redrive[..], "--to-reconcile"),
        (&redrive[..], "--to-deferred-reports"),
        (&redrive[..], "--sqs-endpoint-url"),
    ] {
        let output = idempotency(&[command, &[option, "foo"]].concat());
        let message = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(2) && message.contains("give a URL"), "{option}: {message}");
    }
}

#[test]
fn an_address_in_the_environment_that_is_no_url_shows_no_key() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    command
        .env("AWS_ENDPOINT_URL_DYNAMODB", "foo")
        .envs([("AWS_ACCESS_KEY_ID", "t"), ("AWS_SECRET_ACCESS_KEY", "t")]);
    command.args(["show", "--table", "t", "--region", "eu-central-1", "acme#pay#key-in-clear"]);
    let output = command.output().expect("the program can be run");
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("`foo`") && !message.contains("key-in-clear") && !message.contains("acme"),
        "{message}"
    );
}

#[test]
fn a_change_without_an_author_is_wrong_usage() {
    let change = |more: &[&str], user: Option<(&str, &str)>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
        command.env_remove("USER").env_remove("LOGNAME").envs(user);
        command.env("AWS_EC2_METADATA_DISABLED", "true").args(more);
        command.args(["--table", "t", "--region", "eu-central-1", "--reason", "because", "--yes"]);
        // Nothing listens at this address, so a command that reaches the table fails.
        command.args(["--endpoint-url", "http://127.0.0.1:9"]);
        let output = command.output().expect("the program can be run");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let settle = ["settle", "a#b#c", "--not-executed"];
    let forget = ["forget-response", "a#b#c"];
    let redrive = ["redrive", "--queue", "http://127.0.0.1:9/q"];
    for command in [&settle[..], &forget, &redrive] {
        for user in [None, Some(("USER", "")), Some(("LOGNAME", " "))] {
            let (code, message) = change(command, user);
            assert!(code == Some(2) && message.contains("--as"), "{command:?} {user:?}: {message}");
        }
        for (more, user) in [(&["--as", "kim"][..], None), (&[], Some(("LOGNAME", "kim")))] {
            let (_, message) = change(&[command, more].concat(), user);
            assert!(!message.contains("--as"), "{message}");
        }
    }
}

// Otherwise half of a name would be ignored, and another record changed.
#[test]
fn a_tenant_without_an_operation_is_refused() {
    let settle = ["settle", "--not-executed", "--reason", "x", "--yes", "--as", "olga"];
    let ask = ["ask", "--reason", "x", "--yes", "--as", "olga"];
    for command in [&settle[..], &ask] {
        for half in [["--tenant", "shop-a"], ["--operation", "pay"]] {
            let arguments = [&["--table", "t"], command, &half, &["acme#pay#k"]].concat();
            let output = idempotency(&arguments);
            let text = String::from_utf8(output.stderr).expect("it is text");
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
            assert!(text.contains("give --tenant and --operation together"), "{arguments:?}: {text}");
        }
    }
}
