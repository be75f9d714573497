//! Breaks the rules of the protocol, one after another, and prints what fails. A mutation that nothing finds is a defect of the
//! model or of the tests.
//!
//! ```sh
//! cargo run -p model --bin mutations              # every row of model/mutations.toml; again, it goes on where it was interrupted
//! cargo run -p model --bin mutations -- T54 'src/reconcile'
//! ```
//!
//! An argument is a part of a rule or of a file's path, or a trap. The rows that it means are run, each with its whole story.
//! The exit code is 1 if a mutation survives, and 2 if an argument means no row.

mod found;
mod program;
mod tree;

use std::{env, error::Error, process::ExitCode, time::Instant};

use anstream::println;
use anstyle::{AnsiColor, Style};
use found::{Found, UNCHANGED};
use model::mutations::{Finder, Mutation};
use program::{Program, Programs, Verdict};
use tree::Tree;

const GREEN: Style = AnsiColor::Green.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();
const GREY: Style = AnsiColor::BrightBlack.on_default();

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let names: Vec<String> = env::args().skip(1).collect();
    let table = Mutation::all()?;
    if let Some(unknown) = names.iter().find(|name| !table.iter().any(|row| row.is_named(name))) {
        eprintln!("no row of model/mutations.toml is meant by {unknown:?}");
        return Ok(ExitCode::from(2));
    }
    let is_meant = |row: &&Mutation| names.is_empty() || names.iter().any(|name| row.is_named(name));
    let mut rows: Vec<_> = table.iter().filter(is_meant).collect();
    // Those that one program finds follow each other: each change of program builds more.
    rows.sort_by_key(|row| Program::of(&row.finder));
    let (began, tree) = (Instant::now(), Tree::copy()?);
    let programs = Programs::of(&tree);
    let (mut survivors, total) = (Vec::new(), rows.len());
    let mut found = Found::of(&tree)?;
    let is_whole = names.is_empty();
    if is_whole {
        rows.retain(|row| !found.has(&row.rule));
    }
    if !(is_whole && found.has(UNCHANGED)) {
        if !holds_unchanged(&programs, &rows)? {
            return Ok(ExitCode::FAILURE);
        }
        if is_whole {
            found.add(UNCHANGED)?;
        }
    }
    let before = total - rows.len();
    if before > 0 {
        println!("{before} of {total} were found before");
    }
    for (row, number) in rows.into_iter().zip(before + 1..) {
        let begins = Instant::now();
        let verdict = {
            let _changed = tree.change(row)?;
            programs.run(&row.finder)?
        };
        let (style, word) = match &verdict {
            Verdict::Found(_) => (GREEN, "found"),
            Verdict::Survives(_) => (RED, "SURVIVES"),
            Verdict::Unbuilt(_) => (RED, "DOES NOT BUILD"),
        };
        let (seconds, rule) = (begins.elapsed().as_secs_f64(), &row.rule);
        println!("{number:>3}/{total} {style}{word}{style:#} {seconds:>5.1} s  {rule}");
        println!("       {GREY}{}{GREY:#}", name_of(&row.finder));
        let (Verdict::Found(story) | Verdict::Survives(story) | Verdict::Unbuilt(story)) = &verdict;
        let shown = if is_whole { 1 } else { usize::MAX };
        story.iter().take(shown).for_each(|line| println!("         {line}"));
        match verdict {
            Verdict::Found(_) => found.add(rule)?,
            _ => survivors.push(rule),
        }
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!("\n{} of {total} mutations found, in {minutes:.0} minutes", total - survivors.len());
    for rule in &survivors {
        println!("{RED}not found{RED:#}  {rule}");
    }
    Ok(if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether all that is to find a mutation finds nothing in the tree as it is.
fn holds_unchanged(programs: &Programs<'_>, rows: &[&Mutation]) -> Result<bool, Box<dyn Error>> {
    let finders: Vec<_> = rows.iter().map(|row| &row.finder).collect();
    let verdicts = programs.run_unchanged(&finders)?;
    let mut holds = true;
    for verdict in &verdicts {
        if let Verdict::Found(story) | Verdict::Unbuilt(story) = verdict {
            holds = false;
            println!("{RED}fails without any mutation{RED:#}");
            story.iter().for_each(|line| println!("         {line}"));
        }
    }
    if holds {
        println!("{GREEN}nothing fails{GREEN:#} without a mutation: {} checks", verdicts.len());
    }
    Ok(holds)
}

/// How the table names it.
fn name_of(finder: &Finder) -> String {
    match (finder, finder.property()) {
        (_, Some((world, environment, falls))) => format!("{world}, {environment}: {falls}"),
        (Finder::Test { test }, _) => test.clone(),
        _ => String::new(),
    }
}
