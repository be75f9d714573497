//! The pages of the documents: where their links lead, their list, their length, and the rows of their tables.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

/// The most words of all pages of `docs` together: an engineer reads them in four hours.
const MAX_WORDS: usize = 50_000;
/// The most characters of a table's row: more is a paragraph.
const MAX_ROW: usize = 300;
/// The pages outside of `docs`.
const OTHERS: [&str; 8] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "cli/README.md",
    "functions/ledgers/README.md",
    "protocol/README.md",
    "starter/README.md",
];
/// The list of the site's pages.
const SUMMARY: &str = "docs/SUMMARY.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All pages by their paths from the root of the repository.
fn pages() -> BTreeMap<String, String> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let docs = docs.map(|name| format!("docs/{}", name.to_str().unwrap()));
    let paths = docs.filter(|path| path.ends_with(".md")).chain(OTHERS.map(str::to_owned));
    let pages: BTreeMap<_, _> =
        paths.map(|path| (path.clone(), fs::read_to_string(root().join(path)).unwrap())).collect();
    assert!(pages.len() > 20, "{} pages", pages.len());
    pages
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    page.lines().zip(1..).filter_map(move |(line, number)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fence && !is_fenced).then_some((number, line))
    })
}

/// The targets of the links of a line. Code has none.
fn links(line: &str) -> Vec<String> {
    let without_code: String = line.split('`').step_by(2).collect();
    let inline = without_code.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    // `[name]: target`
    let named = without_code.strip_prefix('[').and_then(|line| Some(line.split_once("]: ")?.1));
    inline.chain(named).filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// The anchors of a page's headings, as the site and the host of the repository make them.
fn anchors(page: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut counts = BTreeMap::<String, usize>::new();
    for (_, line) in prose(page) {
        let Some((level, heading)) = line.split_once(' ') else { continue };
        if level.is_empty() || level.chars().any(|c| c != '#') {
            continue;
        }
        let words = heading.trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.collect::<String>().replace(' ', "-");
        let count = counts.entry(anchor.clone()).or_default();
        anchors.push(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// The path from the root that a link of a page names.
fn resolved(page: &str, target: &str) -> String {
    let mut names = Vec::new();
    for part in Path::new(page).parent().expect("a folder").join(target).components() {
        match part {
            Component::ParentDir => drop(names.pop()),
            Component::Normal(name) => names.push(name.to_str().expect("text").to_owned()),
            _ => {}
        }
    }
    names.join("/")
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading() {
    let pages = pages();
    let (mut checked, mut wrong) = (0, Vec::new());
    for (path, page) in &pages {
        for (line, target) in
            prose(page).flat_map(|(line, text)| links(text).into_iter().map(move |to| (line, to)))
        {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { path.clone() } else { resolved(path, file) };
            let leads = match pages.get(&file) {
                Some(page) => anchor.is_empty() || anchors(page).iter().any(|found| found == anchor),
                None => anchor.is_empty() && root().join(&file).exists(),
            };
            if !leads {
                wrong.push(format!("{path}:{line}: {target}"));
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A reader that finds no links would find no wrong one either.
    assert!(checked > 300, "{checked} links");
    let page = "# A `b`, c\n```sh\n# d\n```\n## A b c\n### E: f-g\n[`h`](i.md#j) `[k](l)` [m](n\n[o](p) [q](r://s)\n[t]: u#v";
    assert_eq!(anchors(page), ["a-b-c", "a-b-c-1", "e-f-g"]);
    let found: Vec<_> = prose(page).flat_map(|(_, line)| links(line)).collect();
    assert_eq!(found, ["i.md#j", "p", "u#v"]);
}

#[test]
fn the_list_of_the_site_has_each_page_once() {
    let mut pages = pages();
    let summary = pages.remove(SUMMARY).expect(SUMMARY);
    let targets = prose(&summary).flat_map(|(_, line)| links(line));
    let mut listed: Vec<_> = targets.map(|target| resolved(SUMMARY, &target)).collect();
    listed.sort();
    let outside: Vec<_> = listed.iter().filter(|path| !path.starts_with("docs/")).collect();
    assert_eq!(outside, ["CHANGELOG.md", "CONTRIBUTING.md", "README.md"]);
    listed.retain(|path| path.starts_with("docs/"));
    let expected: Vec<_> = pages.into_keys().filter(|path| path.starts_with("docs/")).collect();
    let missing: Vec<_> = expected.iter().filter(|path| !listed.contains(path)).collect();
    assert!(missing.is_empty(), "{SUMMARY} lacks {missing:?}");
    assert_eq!(listed, expected);
}

#[test]
fn no_row_of_a_table_is_longer_than_300_characters() {
    let pages = pages();
    let rows = pages.iter().flat_map(|(path, page)| prose(page).map(move |(line, text)| (path, line, text)));
    let long: Vec<_> = rows
        .filter(|(_, _, text)| text.starts_with('|') && text.len() > MAX_ROW)
        .map(|(path, line, text)| format!("{path}:{line}: {}", text.len()))
        .collect();
    assert!(long.is_empty(), "say it below the table, or in two rows:\n{}", long.join("\n"));
}

#[test]
fn all_pages_together_have_at_most_50000_words() {
    let pages = pages().into_iter().filter(|(path, _)| path.starts_with("docs/"));
    // The pipes and dashes of a table are no words.
    let is_word = |part: &&str| part.chars().any(char::is_alphanumeric);
    let words = |page: &str| page.split_whitespace().filter(is_word).count();
    let counts: Vec<_> = pages.map(|(path, page)| (words(&page), path)).collect();
    let total: usize = counts.iter().map(|(count, _)| count).sum();
    assert!(total <= MAX_WORDS, "{total} words: {counts:?}");
    assert!(total > MAX_WORDS / 2, "{total} words: are all pages counted?");
}
