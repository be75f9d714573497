//! A mistake is reported before the lack of a terminal: an operator who adds `--yes` must not add it to a wrong command.

use std::process::Output;

use crate::support::command::CommandLine;

const RECORD: &str = "acme#create-payment#order-4";

/// Each fails before it would send a request: nothing listens here.
fn cli() -> CommandLine {
    CommandLine::new("http://127.0.0.1:9", "idempotency")
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn a_mistake_is_reported_before_the_lack_of_a_terminal() {
    let asks = ["ask", "--queue", "http://queues/reconcile"];
    let settle = ["settle", RECORD, "--completed", "--response"];
    for (wrong, text) in [
        (&["settle", "order-4", "--not-executed"][..], "tenant#operation#key"),
        (&[&settle[..], &["/nowhere/answer.json"]].concat(), "/nowhere/answer.json"),
        (&["settle", RECORD, "--phase", "charge", "--result", "{"], "--result"),
        (&["ask", RECORD], "RECONCILE_QUEUE_URL"),
        (&[&asks[..], &["order-4"]].concat(), "tenant#operation#key"),
        (&[&asks[..], &["--all", "--tenant", ""]].concat(), "invalid tenant"),
        (&[&asks[..], &["--all", "--operation", ""]].concat(), "invalid operation"),
        (&["hold", "--released", "--since", "1h", "--tenant", ""], "invalid tenant"),
        (&["hold", RECORD, "--operation", "refund"], "RECORD"),
        (&["hold", "--restored", "--since", "1h"], "--released"),
        (&["resume", "--escalated", "--tenant", ""], "invalid tenant"),
        (&["forget-response", "order-4"], "tenant#operation#key"),
        (&["redrive", "--drop"], "--drop needs"),
        (&["redrive"], "DEAD_LETTERS_QUEUE_URL"),
        (&["not-found-releases", "none"], "none"),
        (&["tenant", "stop", ""], "it is empty"),
        (&["tenant", "stop", "a\u{7}"], "not allowed"),
        (&["tenant", "limit", "acme", "create payment", "--none"], "create payment"),
        (&["tenant", "limit", "acme", "pay", "--new-keys", "0/s"], "a rate of nothing"),
        (&["tenant", "limit", "acme", "pay", "--new-keys=-1/s"], "10/s"),
        (&["tenant", "limit", "acme", "pay", "--accepted-bytes", "1/h"], "10/s"),
        (&["tenant", "limit", "acme", "pay", "--open-records", "0"], "from 1 to 100,000"),
    ] {
        let ran = cli().run(&[wrong, &["--reason", "x"]].concat()).await;
        assert!(ran.code == Some(2) && ran.stderr.contains(text), "{wrong:?}: {ran:?}");
        assert!(!ran.stderr.contains("--yes"), "{wrong:?}: {ran:?}");
    }
    let mut unnamed = cli().command(&["sweep", "--reason", "x"]);
    let (code, stderr) = said(&unnamed.env_remove("IDEMPOTENCY_TABLE").output().await.expect("it runs"));
    assert!(code == Some(2) && stderr.contains("which table?"), "{stderr}");
}

#[tokio::test]
async fn without_a_terminal_each_change_needs_its_confirmation_as_an_option() {
    let queue = ["--queue", "http://queues/q"];
    for right in [
        &["settle", RECORD, "--not-executed"][..],
        &[&["ask", RECORD][..], &queue].concat(),
        &[&["ask", "--all"][..], &queue].concat(),
        &["hold", RECORD],
        &["hold", "--restored"],
        &["hold", "--between-workers", "--operation", "create-payment"],
        &["resume", "--escalated"],
        &["clear-alarms", RECORD],
        &["forget-response", RECORD],
        &["sweep"],
        &[&["redrive"][..], &queue].concat(),
        &["not-found-releases", "off"],
        &["tenant", "stop", "acme"],
        &["tenant", "resume", "acme"],
        &["tenant", "limit", "acme", "pay", "--new-keys", "1/s"],
    ] {
        cli().run(&[right, &["--reason", "x"]].concat()).await.assert_refused(2, "give --yes");
    }
}

// In a container, the user is missing or root, and each operator has the same.
#[tokio::test]
async fn a_user_that_may_be_anybody_gives_a_name() {
    for (user, why) in [
        (None, "neither USER nor LOGNAME is set"),
        (Some("root"), "the user `root` may be anybody"),
        (Some("cloudshell-user"), "the user `cloudshell-user` may be anybody"),
    ] {
        let ran = async |more: &[&str]| {
            let mut command = cli().command(&[&["hold", RECORD, "--reason", "x"][..], more].concat());
            command.env_remove("USER").envs(user.map(|user| ("USER", user)));
            said(&command.output().await.expect("it runs"))
        };
        let (code, stderr) = ran(&["--yes"]).await;
        assert!(code == Some(2) && stderr.contains("Give --as") && stderr.contains(why), "{stderr}");
        // With a name, the next check is reached.
        let (code, stderr) = ran(&["--as", "kim"]).await;
        assert!(code == Some(2) && stderr.contains("give --yes"), "{stderr}");
    }
}
