//! What the command line does without any table. This test also makes `cargo test --workspace` build the program, which the
//! suite runs against real stores.

use std::process::{Command, Output};

fn idempotency(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    command.env_remove("IDEMPOTENCY_TABLE").args(arguments);
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
fn an_address_that_is_no_url_is_wrong_usage() {
    let show = ["show", "--table", "t", "--region", "eu-central-1", "acme#pay#key-in-clear"];
    let redrive = ["redrive", "--reason", "because", "--yes", "--table", "t"];
    for (command, option) in [
        (&show[..], "--endpoint-url"),
        (&redrive[..], "--queue"),
        (&redrive[..], "--to-checks"),
        (&redrive[..], "--to-reconcile"),
        (&redrive[..], "--sqs-endpoint-url"),
    ] {
        let output = idempotency(&[command, &[option, "foo"]].concat());
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(2) && said.contains("give a URL"), "{option}: {said}");
    }
}

// R36
#[test]
fn an_address_in_the_environment_that_is_no_url_shows_no_key() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    command
        .env("AWS_ENDPOINT_URL_DYNAMODB", "foo")
        .envs([("AWS_ACCESS_KEY_ID", "t"), ("AWS_SECRET_ACCESS_KEY", "t")]);
    command.args(["show", "--table", "t", "--region", "eu-central-1", "acme#pay#key-in-clear"]);
    let output = command.output().expect("the program can be run");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("`foo`") && !said.contains("key-in-clear") && !said.contains("acme"), "{said}");
}

// R28
#[test]
fn a_change_that_nobody_makes_is_wrong_usage() {
    let change = |more: &[&str], user: Option<(&str, &str)>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
        command.env_remove("USER").env_remove("LOGNAME").envs(user);
        command.env("AWS_EC2_METADATA_DISABLED", "true").args(more);
        command.args(["--table", "t", "--region", "eu-central-1", "--reason", "because", "--yes"]);
        // Nowhere: what goes on to the table fails there.
        command.args(["--endpoint-url", "http://127.0.0.1:9"]);
        let output = command.output().expect("the program can be run");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let settle = ["settle", "a#b#c", "--not-executed"];
    let forget = ["forget-response", "a#b#c"];
    let redrive = ["redrive", "--queue", "http://127.0.0.1:9/q"];
    for command in [&settle[..], &forget, &redrive] {
        for user in [None, Some(("USER", "")), Some(("LOGNAME", " "))] {
            let (code, said) = change(command, user);
            assert!(code == Some(2) && said.contains("--as"), "{command:?} {user:?}: {said}");
        }
        for (more, user) in [(&["--as", "kim"][..], None), (&[], Some(("LOGNAME", "kim")))] {
            let (_, said) = change(&[command, more].concat(), user);
            assert!(!said.contains("--as"), "{said}");
        }
    }
}
