//! What functions log, by `RUST_LOG` and by Lambda's log level.

use serde_json::Value;

use crate::support::{
    embedded,
    payments_api::{TestProvider, order},
    sample::{Sample, payment, status},
    tables::ledger_table,
};

/// The most detailed level that a function logs, with these variables.
async fn most_detailed(sample: &Sample, key: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut payments = sample.start("payments", variables).await;
    assert_eq!(status(&payments.invoke(&payment("acme", key, &order("tok_ok"))).await), 201);
    let log = payments.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let levels: Vec<_> = lines.map(|line| line["level"].as_str().expect("a level").to_owned()).collect();
    let place = |level: &str| ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].iter().position(|it| *it == level);
    let level = levels.into_iter().max_by_key(|level| place(level)).unwrap_or_default();
    (level, log)
}

// An operator changes it in Lambda's console, where it says so.
#[tokio::test]
async fn a_function_logs_at_lambdas_level_unless_rust_log_is_set() {
    let provider = TestProvider::start().await;
    let sample = Sample::new(&ledger_table(embedded::endpoint()).await, &provider.url).await;
    const LAMBDA: &str = "AWS_LAMBDA_LOG_LEVEL";
    for (key, variables, expected) in [
        ("1", &[][..], "INFO"),
        ("2", &[(LAMBDA, "INFO")], "INFO"),
        ("3", &[(LAMBDA, "DEBUG")], "DEBUG"),
        ("4", &[(LAMBDA, "DEBUG"), ("RUST_LOG", "info")], "INFO"),
        ("5", &[(LAMBDA, "INFO"), ("RUST_LOG", "lambda_idempotency=debug")], "DEBUG"),
    ] {
        let (level, log) = most_detailed(&sample, key, variables).await;
        assert_eq!(level, expected, "{variables:?}");
        assert!(!log.contains(r#""level":"ERROR""#), "{log}");
    }
    // Above INFO, Lambda drops the metrics.
    for (key, level) in [("6", "WARN"), ("7", "ERROR"), ("8", "FATAL")] {
        let (level, log) = most_detailed(&sample, key, &[(LAMBDA, level)]).await;
        assert_eq!(level, "ERROR");
        assert!(log.contains("Lambda's log level drops the metrics"), "{log}");
    }
}
