//! Builds and runs what is to find a mutation.

use std::{
    collections::HashSet,
    env, fs, io,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use model::mutations::{Finder, is_in};

use crate::tree::Tree;

/// How many states of an environment are visited.
const STATES: &str = "1000000";

/// How many executions of a scenario of whole functions are tried.
const EXECUTIONS: &str = "20000";

/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What became of a mutation, with its story.
pub enum Verdict {
    /// What is to find it does.
    Found(Vec<String>),
    /// It does not, for this reason.
    Survives(Vec<String>),
    /// The tree does not build with it: it says nothing.
    Unbuilt(Vec<String>),
}

/// The programs of a tree.
pub struct Programs<'a> {
    tree: &'a Tree,
}

/// A program that a finder needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    Model,
    Protocol,
    UnitTests,
    Suite,
}

impl Program {
    /// The program that is to find it.
    pub fn of(finder: &Finder) -> Self {
        match finder {
            Finder::Test { test } if test.contains("::tests::") && is_in("protocol/src", test) => {
                Self::Protocol
            }
            Finder::Test { test } if test.contains("::tests::") => Self::UnitTests,
            Finder::Test { .. } => Self::Suite,
            _ => Self::Model,
        }
    }

    /// How cargo builds it, and the folder in which it runs.
    const fn build(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Model => (&["build", "-p", "model", "--bin", "model"], "."),
            Self::Protocol => (&["test", "--no-run", "-p", "idempotency-protocol", "--lib"], "."),
            Self::UnitTests => {
                (&["test", "--no-run", "-p", "lambda-idempotency", "--lib", "--all-features"], ".")
            }
            Self::Suite => (&["test", "--no-run", "-p", "tests", "--test", "suite"], "tests"),
        }
    }
}

/// The program's arguments for this finder.
fn work(finder: &Finder) -> Vec<String> {
    let number = |world| if world == "functions" { EXECUTIONS } else { STATES };
    match (finder, finder.property()) {
        (_, Some(("model", environment, _))) => vec![environment.to_owned(), STATES.to_owned()],
        (_, Some((world, environment, _))) => [world, environment, number(world)].map(str::to_owned).to_vec(),
        // Without `--exact`, for a test of two stores has their names in its path.
        (Finder::Test { test }, _) if Program::of(finder) == Program::Suite => vec![test.clone()],
        (Finder::Test { test }, _) => vec!["--exact".to_owned(), test.clone()],
        _ => Vec::new(),
    }
}

impl<'a> Programs<'a> {
    pub const fn of(tree: &'a Tree) -> Self {
        Self { tree }
    }

    /// Builds the program that is to find a mutation, and runs it.
    pub fn run(&self, finder: &Finder) -> io::Result<Verdict> {
        match self.build(Program::of(finder))? {
            Ok(program) => self.find(&program, finder),
            Err(unbuilt) => Ok(unbuilt),
        }
    }

    /// What each of these finds in the tree as it is. It should find nothing.
    pub fn run_unchanged(&self, finders: &[&Finder]) -> io::Result<Vec<Verdict>> {
        let (mut done, mut built, mut verdicts) = (HashSet::new(), None, Vec::new());
        for finder in finders {
            let program = Program::of(finder);
            if built.as_ref().is_none_or(|(built, _)| *built != program) {
                match self.build(program)? {
                    Ok(path) => built = Some((program, path)),
                    Err(unbuilt) => return Ok(vec![unbuilt]),
                }
            }
            let Some((_, path)) = &built else { continue };
            if done.insert(work(finder)) {
                verdicts.push(match self.find(path, finder)? {
                    // No other property may fall either.
                    Verdict::Survives(other) if program == Program::Model && !other.is_empty() => {
                        Verdict::Found(other)
                    }
                    verdict => verdict,
                });
            }
        }
        Ok(verdicts)
    }

    /// The program, or why it does not build.
    fn build(&self, program: Program) -> io::Result<Result<PathBuf, Verdict>> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(program.build().0).args(["--quiet", "--message-format", "json-render-diagnostics"]);
        build.arg("--target-dir").arg(&self.tree.target);
        let (built, messages) = self.output(build.current_dir(&self.tree.root), "builds")?;
        let path = messages.iter().rev().find_map(|line| executable(line)).filter(|_| built == Some(true));
        let is_code = |line: &&String| !line.starts_with('{');
        Ok(path.ok_or_else(|| Verdict::Unbuilt(messages.iter().filter(is_code).cloned().collect())))
    }

    fn find(&self, program: &Path, finder: &Finder) -> io::Result<Verdict> {
        let mut run = Command::new(program);
        let run = run.args(work(finder)).current_dir(self.tree.root.join(Program::of(finder).build().1));
        let (ended, lines) = self.output(run, "runs")?;
        if ended.is_none() {
            return Ok(Verdict::Survives(vec![format!("it does not end within {} s", TIMEOUT.as_secs())]));
        }
        let story = match (finder, finder.property()) {
            (_, Some((.., falls))) => story(&lines, falls),
            (Finder::Test { test }, _) => failure(&lines, test),
            _ => None,
        };
        Ok(story.map_or_else(|| Verdict::Survives(rest(&lines, finder)), Verdict::Found))
    }

    /// Whether a command succeeds, or `None` if it does not end in time; with all that it prints.
    fn output(&self, command: &mut Command, does: &str) -> io::Result<(Option<bool>, Vec<String>)> {
        let log = self.tree.target.with_extension("log");
        let file = fs::File::create(&log)?;
        let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        let began = Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status.success());
            }
            if began.elapsed() > TIMEOUT && does == "runs" {
                child.kill()?;
                child.wait()?;
                break None;
            }
            progress(&format!("{does}, {} s", began.elapsed().as_secs()));
            thread::sleep(Duration::from_millis(100));
        };
        progress("");
        let text = fs::read(&log)?;
        Ok((ended, String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()))
    }
}

/// Shows what happens now, on a terminal.
fn progress(text: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{text}").and_then(|()| terminal.flush());
    }
}

/// The program that cargo has built, if this message says so.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(|path| Path::new(path).to_owned())
}

/// The model's story of how this property falls.
fn story(lines: &[String], falls: &str) -> Option<Vec<String>> {
    let heading = format!("  {falls}: ");
    let begins = lines.iter().position(|line| line.starts_with(&heading))?;
    let steps: Vec<_> = lines[begins + 1..].iter().take_while(|line| !line.is_empty()).cloned().collect();
    // After that, nothing else goes wrong.
    let is_rest = |line: &&String| line.contains("from here on nothing else goes wrong");
    let until: Vec<_> = steps.iter().take_while(|line| !is_rest(line)).collect();
    let last = until.last().map_or("", |line| line.trim());
    let last = last.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = format!("after {} steps: {last}", until.len());
    Some([short].into_iter().chain(steps).collect())
}

/// Why this test fails.
fn failure(lines: &[String], test: &str) -> Option<Vec<String>> {
    let is_failed =
        |line: &String| line.starts_with("test ") && line.contains(test) && line.ends_with("FAILED");
    lines.iter().find(|line| is_failed(line))?;
    let begins =
        lines.iter().position(|line| line.contains("' panicked at ") || line.contains(") panicked at "));
    let story = lines[begins.unwrap_or(0)..].iter().skip(1).take(12);
    Some(story.filter(|line| !line.is_empty()).cloned().collect())
}

/// What else was found, if anything.
fn rest(lines: &[String], finder: &Finder) -> Vec<String> {
    let is_property = |line: &str| {
        line.strip_prefix("  ").is_some_and(|line| {
            line.starts_with(char::is_uppercase)
                && line.split_once(": ").is_some_and(|(name, _)| !name.contains(' '))
        })
    };
    let is_other = |line: &&String| match finder {
        Finder::Test { .. } => line.starts_with("test "),
        _ => is_property(line) || line.contains("panicked"),
    };
    lines.iter().filter(is_other).take(4).cloned().collect()
}
