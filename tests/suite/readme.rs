//! The README's transcript comes out as it is written there.

use std::process::Stdio;

use tokio::process::Command;

use crate::support::local_cloud::LocalCloud;

const README: &str = include_str!("../../README.md");

// R4, R13, R15, R39
#[tokio::test]
async fn the_transcript_comes_out_as_written() {
    let cloud = LocalCloud::start(&[]).await;
    let here = |text: &str| text.replace("http://127.0.0.1:9000", cloud.url());
    let function = here(block("```sh\npay()"));
    let transcript = block("```console\n");
    let mut steps = 0;
    for step in transcript.trim().split("\n$ ") {
        let (command, expected) =
            step.trim_start_matches("$ ").split_once('\n').expect("a command and its output");
        let script = format!("{function}\n{}", here(command));
        let ran = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).output().await;
        let printed = String::from_utf8(ran.expect("bash is there").stdout).expect("text");
        assert!(
            !printed.is_empty(),
            "{command} printed nothing: the transcript needs curl 7.84 (apt-get install curl)"
        );
        assert_eq!(masked(&printed), masked(expected), "$ {command}");
        steps += 1;
    }
    assert_eq!(steps, 11);
}

/// The fenced block that begins so, without its fences.
fn block(beginning: &str) -> &'static str {
    let at = README.find(beginning).expect("the README has the block");
    let inside = &README[at..].split_once('\n').expect("a fence is a line").1;
    inside.split_once("\n```").expect("the block is closed").0
}

/// Without white space at its ends, and with ids in place of which something else comes each time.
fn masked(text: &str) -> String {
    let is_id = |word: &str| word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let words = text.trim().split_inclusive(|c: char| !c.is_ascii_hexdigit() && c != '-');
    words
        .map(|word| match word.char_indices().next_back() {
            Some((end, separator)) if is_id(&word[..end]) => format!("*{separator}"),
            _ => word.to_owned(),
        })
        .collect()
}
