//! What the local cloud prints, and how it ends.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    os::unix::process::CommandExt,
    process::ExitStatus,
    ptr, thread,
};

use serde_json::{Value, json};

use crate::support::local_cloud::LocalCloud;

/// Lambda's Invoke API for the payments function.
const INVOKE: &str = "/2015-03-31/functions/payments/invocations";

fn payment(source: &str) -> Value {
    json!({ "customerId": "c-1", "amountCents": 1, "currency": "EUR", "source": source })
}

/// A payment whose function crashes, from a gateway that reports this path.
fn event(key: &str, path: &str) -> Value {
    json!({
        "version": "2.0", "rawPath": "/payments", "rawQueryString": "", "isBase64Encoded": false,
        "headers": { "idempotency-key": key, "content-type": "application/json" },
        "requestContext": {
            "http": { "method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1" },
            "authorizer": { "jwt": { "claims": { "sub": "acme" }, "scopes": null } },
            "routeKey": "$default", "stage": "$default", "requestId": "r", "timeEpoch": 1,
        },
        "body": payment("tok_crash_before").to_string(),
    })
}

/// A terminal: this process's end, and the program's end.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: both descriptors are written before they are read, and nothing else owns them.
    unsafe {
        let opened = libc::openpty(&mut ours, &mut theirs, ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(opened, 0, "a terminal can be opened");
        // Programs that other tests start must not inherit the descriptor. Otherwise the terminal would outlive this test.
        libc::fcntl(ours, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(theirs, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

/// The process ids of all environments that are alive.
async fn processes(cloud: &LocalCloud) -> Vec<i32> {
    let shown: Value = cloud.get("/environments").send().await.unwrap().json().await.unwrap();
    let rows = shown["environments"].as_array().expect("a list").iter();
    rows.filter_map(|row| i32::try_from(row["pid"].as_i64()?).ok()).collect()
}

/// Ends the local cloud in this way while an invocation runs.
async fn ended_by(mut cloud: LocalCloud, end: impl FnOnce(&LocalCloud)) -> ExitStatus {
    let payment = payment("tok_slow_9000");
    let slow = cloud.post("/payments").bearer_auth("acme").header("Idempotency-Key", "slow").json(&payment);
    let slow = tokio::spawn(slow.send());
    cloud
        .until(
            async || {
                let shown = cloud.get("/environments").send().await.unwrap().text().await.unwrap();
                shown.contains("\"what\":\"POST /payments\"")
            },
            "an environment shows its work",
        )
        .await;
    let processes = processes(&cloud).await;
    assert!(processes.len() >= 5, "{processes:?}");
    end(&cloud);
    let status = cloud.ended().await;
    for process in processes {
        // SAFETY: signal 0 only checks whether the process exists.
        assert_eq!(unsafe { libc::kill(process, 0) }, -1, "process {process} still exists");
    }
    // The client's answer does not matter here.
    let _ = slow.await;
    status
}

#[tokio::test]
async fn a_signal_ends_the_local_cloud_and_all_its_processes() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let cloud = LocalCloud::start(&[]).await;
        let status = ended_by(cloud, |cloud| {
            // SAFETY: it is a child of this process, and has not been waited for.
            unsafe { libc::kill(cloud.process_id() as i32, signal) };
        });
        assert_eq!(status.await.code(), Some(0), "signal {signal}");
    }
}

#[tokio::test]
async fn on_a_terminal_it_logs_readably_until_ctrl_c() {
    let (ours, theirs) = terminal();
    let mut keyboard = ours.try_clone().unwrap();
    let screen = thread::spawn(move || {
        let (mut shown, mut ours, mut part) = (Vec::new(), ours, [0; 4096]);
        // Reading a closed terminal ends with an error.
        while let Ok(length @ 1..) = ours.read(&mut part) {
            shown.extend_from_slice(&part[..length]);
        }
        String::from_utf8(shown).expect("text")
    });
    let cloud = LocalCloud::configured(&[("NO_COLOR", "1"), ("RUST_BACKTRACE", "0")], |command| {
        command.stderr(theirs);
        // SAFETY: two system calls that make this the controlling terminal of the program's own session.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(libc::STDERR_FILENO, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
    })
    .await;
    assert_eq!(cloud.pay("order-1", "tok_panic_before").await.status, 500);
    assert_eq!(cloud.pay("order-2", "tok_crash_before").await.status, 502);
    let steering = event("order-3", "/payments\u{202e}\u{1b}[31m\u{9b}2J\r");
    cloud.post(INVOKE).json(&steering).send().await.unwrap();

    let status = ended_by(cloud, |_| keyboard.write_all(b"\x03").unwrap()).await;
    assert_eq!(status.code(), Some(0));
    drop(keyboard);
    let screen = screen.join().unwrap().replace("\r\n", "\n");
    for shown in [
        "INFO   started pid=",
        "ERROR  the handler panicked key=",
        "WARN   POST /payments → 502, ",
        "ERROR  Runtime exited with error: signal: aborted request=",
        " on=\"POST /payments\"\n",
        " on=\"POST /payments\\u{202e}\\u{1b}[31m\\u{9b}2J\\r\"\n",
    ] {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
    // The terminal itself echoes Ctrl-C as text.
    assert!(!screen.contains(|c: char| c != '\n' && c.is_control() || c == '\u{202e}'), "{screen:?}");
}

#[tokio::test]
async fn a_crash_is_reported_with_its_request() {
    let cloud = LocalCloud::start(&[]).await;
    let payment = payment("tok_crash_before");
    let request = cloud.post("/payments").bearer_auth("acme").header("Idempotency-Key", "k-1").json(&payment);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 502);
    let id = answer.headers()["apigw-requestid"].to_str().unwrap().to_owned();
    let line =
        format!("[payments#1] Runtime exited with error: signal: aborted request={id} on=\"POST /payments\"");
    cloud.until(async || cloud.printed().lines().any(|shown| shown == line), &line).await;
    let shown: Value = cloud.get("/environments").send().await.unwrap().json().await.unwrap();
    let rows = shown["environments"].as_array().unwrap();
    let row = rows.iter().find(|row| row["function"] == "payments").unwrap();
    assert_eq!(row["crashes"], 1);
    let end = &row["lastEnd"];
    assert_eq!(end["reason"], "Runtime exited with error: signal: aborted");
    assert_eq!(end["workingOn"], json!({ "requestId": id, "what": "POST /payments" }));

    // As Lambda reports it to a caller of Invoke.
    let invoke = cloud.post(INVOKE).json(&event("k-2", "/payments")).send().await.unwrap();
    assert_eq!(invoke.headers()["x-amz-function-error"], "Unhandled");
    let error: Value = invoke.json().await.unwrap();
    assert_eq!(error["errorType"], "Runtime.ExitError", "{error}");
    let message = error["errorMessage"].as_str().unwrap();
    let id = message.strip_prefix("RequestId: ").and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(message.ends_with(" Error: Runtime exited with error: signal: aborted"), "{message}");
    let line = format!("aborted request={id} on=\"POST /payments\"");
    cloud.until(async || cloud.printed().contains(&line), &line).await;
}

#[tokio::test]
async fn with_json_every_line_is_an_object() {
    let cloud = LocalCloud::configured(&[], |command| {
        command.arg("--json");
    });
    let cloud = cloud.await;
    assert_eq!(cloud.pay("order-1", "tok_ok").await.status, 201);
    assert_eq!(cloud.pay("order-2", "tok_panic_before").await.status, 500);
    cloud.until(async || cloud.printed().contains("POST /payments → 500, "), "the last line exists").await;
    let printed = cloud.printed();
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(lines.iter().all(Value::is_object), "{printed}");
    assert!(
        lines.iter().any(|line| line["line"]["fields"]["message"] == "the handler panicked"),
        "{printed}"
    );
    let gateway = |line: &Value| {
        line["source"] == "gateway" && line["message"].as_str().unwrap().starts_with("POST /payments → 201, ")
    };
    assert!(lines.iter().any(gateway), "{printed}");
}

#[tokio::test]
async fn an_operator_sees_a_metric_change() {
    let cloud = LocalCloud::start(&[]).await;
    assert_eq!(cloud.pay("order-1", "tok_ok").await.status, 201);
    assert_eq!(cloud.pay("order-2", "tok_ok").await.status, 201);
    assert!(cloud.pay("order-2", "tok_ok").await.replayed);
    let count = async |name: &str, dimensions: Value| {
        let shown: Value = cloud.get("/metrics").send().await.unwrap().json().await.unwrap();
        let mut rows = shown["metrics"].as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == name && row["dimensions"] == dimensions);
        row.map_or(Value::Null, |row| row["sum"].clone())
    };
    // Metrics are written when an invocation has ended, which may be after its answer.
    for (name, dimensions, sum) in [
        ("api.idempotency.reserve.replay.count", json!({}), 1),
        ("api.idempotency.reserve.created.count", json!({}), 2),
        ("api.idempotency.reserve.created.count", json!({ "operation": "create-payment" }), 2),
    ] {
        cloud.until(async || count(name, dimensions.clone()).await == sum, name).await;
    }
}
