//! Tests how the local cloud reports settings that cannot work.

use std::{
    fs,
    process::{Command, Output},
};

/// Runs the program on any free port, with this variable and these arguments, and returns its error, which must be one line.
fn refused(variable: (&str, &str), arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
    let ended = command.env("PORT", "0").env(variable.0, variable.1).args(arguments).output();
    let Output { status, stdout, stderr } = ended.expect("the program can be run");
    let error = String::from_utf8(stderr).expect("text");
    assert_eq!((status.code(), error.lines().count(), &*stdout), (Some(2), 1, &b""[..]), "{error}");
    error
}

#[test]
fn an_invalid_setting_stops_start_up_with_one_line_naming_it() {
    for (variable, value, expected) in [
        ("PORT", "65536", "PORT=65536: must be a whole number from 0 to 65535"),
        ("WINDOW_MS", "0", "WINDOW_MS=0: must be a whole number from 1 to 300000"),
        ("ENVIRONMENTS", "many", "ENVIRONMENTS=many: must be a whole number from 1 to 64"),
        ("DYNAMODB_ENDPOINT", "127.0.0.1:8000", "DYNAMODB_ENDPOINT=127.0.0.1:8000: must be a URL"),
        ("FUNCTION_PROVIDER_URL", "nowhere", "FUNCTION_PROVIDER_URL=nowhere: must be a URL"),
        ("LOCAL_FUNCTION", "none", "LOCAL_FUNCTION=none: no such function"),
    ] {
        let error = refused((variable, value), &[]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_argument_that_cannot_work_is_named_as_it_was_written() {
    for (arguments, expected) in [
        (&["--port", "65536"][..], "--port=65536: must be a whole number from 0 to 65535"),
        (&["--window-ms=0"], "--window-ms=0: must be a whole number from 1 to 300000"),
        (&["--prot", "9000"], "unexpected argument '--prot' found; see --help"),
        (&["9000"], "unrecognized subcommand '9000'"),
        (&["--template", "Cargo.toml", "drill"], "--template: a drill runs the sample alone"),
        (&["drill", "Nothing"], "there is no alarm Nothing"),
        (&["--function", "mine"], "--function=mine: must be NAME=PROGRAM"),
        (&["--function", "mine=/nowhere/mine"], "there is no file /nowhere/mine: build it first"),
        (&["--function", "my own=/bin/true"], "its name must have 1 to 64 letters, digits, - or _"),
        (
            &["--function", "mine=/bin/true", "--function", "mine=/bin/false"],
            "two functions have the name mine",
        ),
        (&["--route", "POST /orders"], "--route=POST /orders: must be METHOD PATH=NAME"),
        (&["--route", "POST orders=mine"], "its path must begin with /"),
        (&["--route", "post /orders=mine"], "its method must be ANY, or one in capitals"),
        (&["--route", "POST /orders/{=mine"], "--route=POST /orders/{=mine: "),
        (&["--route", "POST /orders=mine"], "--route /orders: there is no function mine"),
        (&["--template", "/nowhere.yaml"], "--template=/nowhere.yaml: there is no such file"),
        (&["--parameter", "Name"], "--parameter=Name: must be NAME=VALUE"),
        (&["--parameter", "Other=x"], "infra/sample.yaml: it has no parameter Other"),
        (&["--env", "=x"], "--env==x: must be NAME=VALUE"),
        (&["--claim", "scope"], "--claim=scope: must be NAME=VALUE"),
    ] {
        let error = refused(("TABLE_PREFIX", ""), arguments);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_function_of_a_template_that_cannot_run_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = folder.path().join("template.yaml");
    for (function, expected) in [
        ("Properties: { Timeout: 3 }", "function Pay: the template does not name its program"),
        ("Metadata: { BuildProperties: { Binary: pay } }", "/pay: build it first with cargo build"),
        (
            "Properties: { CodeUri: code, Environment: { Variables: { A: !Ref Secret } } }",
            "function Pay: its variable A: the parameter Secret has no value: give it with --parameter \
             Secret=VALUE; or give it with --env A=VALUE",
        ),
    ] {
        fs::create_dir_all(folder.path().join("code")).expect("a folder");
        fs::write(folder.path().join("code/bootstrap"), "").expect("a file");
        let text = format!(
            "Parameters: {{ Secret: {{ Type: String }} }}\n\
             Globals: {{ Function: {{ Runtime: provided.al2023 }} }}\n\
             Resources:\n  Pay:\n    Type: AWS::Serverless::Function\n    {function}\n"
        );
        fs::write(&template, text).expect("a template");
        let error = refused(("TABLE_PREFIX", ""), &["--template", template.to_str().expect("text")]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn secrets_that_cannot_work_are_not_shown() {
    for (variable, expected) in [
        ("WEBHOOK_SECRETS", "WEBHOOK_SECRETS: must be"),
        ("SEALING_KEYS", "SEALING_KEYS: must be keys of 64"),
    ] {
        let flag = format!("--{}=one,,two", variable.to_lowercase().replace('_', "-"));
        for error in [refused((variable, "one,,two"), &[]), refused(("TABLE_PREFIX", ""), &[&flag])] {
            let expected = if error.contains("--") {
                expected.to_lowercase().replace('_', "-")
            } else {
                expected.to_owned()
            };
            assert!(error.contains(&expected) && !error.contains("one") && !error.contains("two"), "{error}");
        }
    }
}

#[test]
fn help_lists_every_variable_and_shows_no_secret() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
    let ended =
        command.arg("--help").env("WEBHOOK_SECRETS", "whsec_1").env("WINDOW_MS", "").output().unwrap();
    let help = String::from_utf8(ended.stdout).expect("text");
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), &b""[..]));
    for variable in [
        "PORT",
        "DYNAMODB_ENDPOINT",
        "TABLE_PREFIX",
        "ENVIRONMENTS",
        "FUNCTION_TIMEOUT_MS",
        "LEASE_GRACE_MS",
        "GATEWAY_TIMEOUT_MS",
        "FUNCTION_DYNAMODB_ENDPOINT",
        "FUNCTION_SQS_ENDPOINT",
        "FUNCTION_PROVIDER_URL",
        "WINDOW_MS",
        "RECORD_AGE_MS",
        "SWEEP_MS",
        "POLL_MS",
        "RECONCILE_FIRST_BACKOFF_MS",
        "RECONCILE_MAX_BACKOFF_MS",
        "RECONCILE_ASKS",
        "NOT_FOUND_GRACE_MS",
        "PROVIDER_TIMEOUT_MS",
        "WEBHOOK_SECRETS",
        "SEALING_KEYS",
        "REPORTS",
    ] {
        assert!(help.contains(&format!("[env: {variable}")), "{variable}: {help}");
    }
    for default in ["9000", "local-", "29000", "30000", "lambda-idempotency-reports"] {
        assert!(help.contains(&format!("{default}]")), "{default}: {help}");
    }
    assert!(!help.contains("whsec_"), "{help}");
}

#[test]
fn a_program_that_is_no_function_stops_start_up_with_its_name() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
    let ended = command.env("PORT", "0").args(["--function", "mine=/bin/true"]).output();
    let Output { status, stderr, .. } = ended.expect("the program can be run");
    let error = String::from_utf8(stderr).expect("text");
    let line = error.lines().last().unwrap_or_default();
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(line.starts_with("error: function mine: Runtime exited"), "{error}");
}
