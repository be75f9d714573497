//! A function that counts where no alarm looks says so.

use serde_json::Value;

use crate::support::function::Function;

const PROGRAM: &str = env!("CARGO_BIN_EXE_suite-http");
const HTTP_API: &str = include_str!("../fixtures/http_api_jwt.json");

/// The error lines of a function that has served two guarded requests.
async fn errors(variables: &[(&str, &str)]) -> Vec<String> {
    let mut function = Function::of(PROGRAM, "http", variables).await;
    let mut event: Value = serde_json::from_str(HTTP_API).expect("JSON");
    event["requestContext"]["http"]["method"] = "POST".into();
    event["rawPath"] = "/payments".into();
    for _ in 0..2 {
        let answer = function.invoke(&event).await.expect("an answer");
        assert_eq!(answer["statusCode"], 200, "{answer}");
    }
    let log = function.log();
    log.lines().filter(|line| line.contains("ERROR")).map(str::to_owned).collect()
}

// T80
#[tokio::test]
async fn a_function_without_its_metrics_namespace_says_so_once() {
    let errors = errors(&[("METRICS_NAMESPACE", "")]).await;
    assert!(errors.len() == 1 && errors[0].contains("METRICS_NAMESPACE"), "{errors:?}");
}

// T80
#[tokio::test]
async fn a_function_without_a_recorder_of_metrics_says_so_once() {
    let errors = errors(&[("RUN_BY", "lambda_http")]).await;
    assert!(errors.len() == 1 && errors[0].contains("no metrics recorder"), "{errors:?}");
}

// T80: a line at each cold start that means nothing is read by nobody.
#[tokio::test]
async fn a_function_whose_metrics_are_counted_logs_no_error() {
    assert_eq!(errors(&[]).await, [""; 0]);
}
