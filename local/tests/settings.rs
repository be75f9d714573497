//! What the local cloud says of settings that cannot work. This test also makes `cargo test --workspace` build the
//! program, which the suite runs.

use std::process::{Command, Output};

/// Starts the program on any free port, with this variable besides.
fn local(variable: &str, value: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
    command.env("PORT", "0").env(variable, value);
    command.output().expect("the program can be run")
}

#[test]
fn a_setting_that_cannot_work_ends_the_start_in_one_line_that_names_it() {
    for (variable, value, told) in [
        ("PORT", "65536", "PORT=65536: must be a whole number from 0 to 65535"),
        ("WINDOW_MS", "0", "WINDOW_MS=0: must be a whole number from 1 to 300000"),
        ("ENVIRONMENTS", "many", "ENVIRONMENTS=many: must be a whole number from 1 to 64"),
        ("DYNAMODB_ENDPOINT", "127.0.0.1:8000", "DYNAMODB_ENDPOINT=127.0.0.1:8000: must be a URL"),
        ("FUNCTION_PROVIDER_URL", "nowhere", "FUNCTION_PROVIDER_URL=nowhere: must be a URL"),
        ("LOCAL_FUNCTION", "none", "LOCAL_FUNCTION=none: no such function"),
    ] {
        let ended = local(variable, value);
        let said = String::from_utf8(ended.stderr).expect("text");
        assert_eq!(
            (ended.status.code(), said.lines().count(), &*ended.stdout),
            (Some(1), 1, &b""[..]),
            "{said}"
        );
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn secrets_that_cannot_work_are_not_shown() {
    for (variable, told) in [
        ("WEBHOOK_SECRETS", "WEBHOOK_SECRETS: must be"),
        ("SEALING_KEYS", "the environment variable SEALING_KEYS must be keys of 64 bytes each"),
    ] {
        let ended = local(variable, "one,,two");
        let said = String::from_utf8(ended.stderr).expect("text");
        assert_eq!((ended.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(told) && !said.contains("one") && !said.contains("two"), "{said}");
    }
}
