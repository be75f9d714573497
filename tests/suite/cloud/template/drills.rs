//! Each alarm of the templates comes in its drill and ends again, or says why it has no drill.

use std::{collections::BTreeSet, process::Stdio};

use futures_util::future::join_all;
use local::drill::{drills, not_drilled};
use serde_json::Value;
use tokio::process::Command;

use super::watched::ALARMS;
use crate::support::local_cloud::PROGRAM;

/// How many clouds drill at once.
const CLOUDS: usize = 3;

// T79: a new alarm needs a drill.
#[test]
fn each_alarm_has_a_drill_or_a_reason() {
    let without = not_drilled().map(|(alarm, reason)| {
        assert!(!reason.is_empty(), "{alarm}");
        alarm
    });
    let named: Vec<_> = drills().flatten().copied().chain(without).collect();
    let unique: BTreeSet<_> = named.iter().copied().collect();
    assert_eq!(unique.len(), named.len(), "each once");
    assert_eq!(unique, ALARMS.iter().map(|alarm| &*alarm.name).collect());
}

/// Drills these alarms, and returns the line of each.
async fn drilled(alarms: Vec<&str>) -> Vec<Value> {
    let mut command = Command::new(PROGRAM);
    command.args(["drill", "--output", "json"]).args(&alarms).stderr(Stdio::inherit()).kill_on_drop(true);
    let ended = command.output().await.expect("the local cloud can be run");
    let printed = String::from_utf8(ended.stdout).expect("text");
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let is_passed = lines.iter().all(|line| line["result"] == "passed");
    assert_eq!(ended.status.success(), is_passed, "{printed}");
    assert_eq!(lines.len(), alarms.len(), "{printed}");
    lines
}

// T79: the names and dimensions are those that the functions write.
#[tokio::test(flavor = "multi_thread")]
async fn each_alarm_comes_in_its_drill_and_ends_after_it() {
    let clouds = (0..CLOUDS).map(|cloud| {
        let own = drills().skip(cloud).step_by(CLOUDS);
        drilled(own.flatten().copied().collect())
    });
    for line in join_all(clouds).await.into_iter().flatten() {
        assert_eq!(line["result"], "passed", "{line}");
        let minutes = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{name}: {line}"));
        assert!(minutes("cameAfterMinutes") < minutes("endedAfterMinutes"), "{line}");
    }
}

#[tokio::test]
async fn an_alarm_that_does_not_exist_is_no_drill() {
    let ended = Command::new(PROGRAM).args(["drill", "Nothing"]).output().await.expect("it can be run");
    assert_eq!(ended.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "error: there is no alarm Nothing\n");
}
