//! Pollers of Kinesis and Kafka: programs of the package `pollers`, which start these parts. They run here if they are built beside this
//! program.

use crate::{
    functions::Function,
    log::{self, Level},
    mapping::warn,
    template::Poller,
};
use std::{env, path::Path, process::Stdio, sync::Arc};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    join,
    process::Command,
};

/// The shell becomes the poller. Before that it starts a watcher, which ends the poller once this process's end of the pipe closes, however
/// this process ends.
const ENDS_WITH_US: &str =
    r#"exec 3<&0; { cat <&3; kill $$; } >/dev/null 2>&1 & exec "$0" "$@" </dev/null 3<&-"#;

/// Runs the poller of a function until it ends. `url` is this cloud, `dropped` the queue of what is dropped.
pub async fn run(poller: Poller, function: Arc<Function>, url: String, dropped: Option<String>) {
    let arguments = arguments(&poller, &url, dropped.as_deref());
    let program = env::current_exe().unwrap_or_default().with_file_name(poller.program);
    if !program.is_file() {
        return warn(&function, &missing(&poller, &arguments));
    }
    if let Err(error) = follow(&program, &arguments, &function).await {
        warn(&function, &format!("the poller of its event {}: {error}", poller.event));
    }
}

fn arguments(poller: &Poller, url: &str, dropped: Option<&str>) -> Vec<String> {
    let mut arguments = poller.arguments.clone();
    arguments.extend(["--cloud".to_owned(), url.to_owned()]);
    arguments.extend(dropped.into_iter().flat_map(|queue| ["--on-failure".to_owned(), queue.to_owned()]));
    arguments
}

/// What to do if the program is not built.
fn missing(poller: &Poller, arguments: &[String]) -> String {
    let Poller { event, program, .. } = poller;
    let arguments = arguments.join(" ");
    format!(
        "its event {event} gets nothing until its poller runs. In a clone of this project: cargo run -p pollers --bin {program} -- {arguments}"
    )
}

async fn follow(program: &Path, arguments: &[String], function: &Function) -> Result<(), String> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(ENDS_WITH_US).arg(program).args(arguments);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| error.to_string())?;
    // Kept: waiting would close it.
    let _lifeline = child.stdin.take();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    join!(lines(out, Level::Info, function), lines(err, Level::Warn, function));
    let status = child.wait().await.map_err(|error| error.to_string())?;
    Err(format!("it has ended: {status}"))
}

async fn lines(pipe: Option<impl AsyncRead + Unpin>, level: Level, function: &Function) {
    let Some(pipe) = pipe else { return };
    let (name, mut lines) = (function.definition.name, BufReader::new(pipe).lines());
    while let Ok(Some(line)) = lines.next_line().await {
        // It names the function in its own lines too.
        let line = line.strip_prefix(&format!("[{name}] ")).unwrap_or(&line);
        log::say(name, level, line, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poller_that_is_not_built_names_its_command() {
        let poller = Poller {
            function: "ship".to_owned(),
            event: "Orders".to_owned(),
            program: "kinesis-stream",
            arguments: ["follow", "--function", "ship", "--stream", "local-orders"]
                .map(str::to_owned)
                .to_vec(),
            reports_failures: true,
            dropped_arn: None,
        };
        let arguments = arguments(&poller, "http://127.0.0.1:9000", Some("http://127.0.0.1:1/1/dropped"));
        let line = missing(&poller, &arguments);
        let command = "cargo run -p pollers --bin kinesis-stream -- follow --function ship --stream local-orders \
                       --cloud http://127.0.0.1:9000 --on-failure http://127.0.0.1:1/1/dropped";
        assert!(line.contains("its event Orders") && line.ends_with(command), "{line}");
    }
}
