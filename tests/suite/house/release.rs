//! A release is only a tag away: what is published has all that a registry shows, and a tag that lacks something is refused.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The folders of the packages that are published, and their manifests.
fn published() -> Vec<(PathBuf, String)> {
    let workspace = read("Cargo.toml");
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = [")?.strip_suffix(']'));
    let members = members.expect("the members").split(", ").map(|member| member.trim_matches('"'));
    let mut folders = vec![PathBuf::new()];
    for member in members {
        match member.strip_suffix("/*") {
            None => folders.push(PathBuf::from(member)),
            Some(parent) => folders.extend(
                fs::read_dir(root().join(parent))
                    .unwrap()
                    .map(|it| Path::new(parent).join(it.unwrap().file_name())),
            ),
        }
    }
    let packages = folders.into_iter().map(|folder| {
        let manifest = read(folder.join("Cargo.toml"));
        (folder, manifest)
    });
    let published: Vec<_> =
        packages.filter(|(_, manifest)| !manifest.contains("\npublish = false\n")).collect();
    assert!(published.len() >= 4, "{published:?}");
    published
}

#[test]
fn each_published_package_has_what_its_registry_page_shows() {
    for (folder, manifest) in published() {
        for line in [
            "description = \"",
            "license.workspace = true",
            "repository.workspace = true",
            "homepage.workspace = true",
            "readme = \"README.md\"",
            "keywords = [",
            "categories = [",
            "\"/README.md\"",
            "\"/LICENSE\"",
        ] {
            assert!(manifest.contains(line), "{}/Cargo.toml has no {line}", folder.display());
        }
        assert_eq!(read(folder.join("LICENSE")), read("LICENSE"), "{}", folder.display());
    }
}

#[test]
fn each_chapter_that_the_documentation_links_to_exists() {
    let library = read("src/lib.rs");
    let chapters: Vec<_> = library
        .lines()
        .filter_map(|line| line.strip_prefix("#![doc = concat!(")?.strip_suffix("\")]"))
        .map(|line| line.rsplit_once('"').expect("a literal").1)
        .collect();
    assert!(chapters.len() >= 5, "{chapters:?}");
    for chapter in chapters {
        let file = chapter.trim_start_matches('/').split('#').next().expect("there is a first");
        assert!(root().join(file).is_file(), "{chapter}");
    }
}

#[test]
fn the_workflows_name_each_action_by_its_commit() {
    let mut actions = 0;
    for workflow in fs::read_dir(root().join(".github/workflows")).unwrap() {
        let workflow = workflow.unwrap().path();
        for line in read(&workflow).lines() {
            let Some((_, action)) = line.split_once("uses: ") else { continue };
            let commit = action.split_once('@').and_then(|(_, rest)| rest.split_once(" # v"));
            let is_commit =
                |commit: &str| commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(commit.is_some_and(|(commit, _)| is_commit(commit)), "{}: {action}", workflow.display());
            actions += 1;
        }
    }
    assert!(actions > 5);
}

/// What `.ci/release-check` says about a tag of a repository with this package and this changelog: the release's text, or what is wrong.
fn checked(tag: &str, package: &str, changelog: &str) -> Result<String, String> {
    let repository = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = repository.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("Cargo.toml", package);
    write("src/lib.rs", "");
    write("CHANGELOG.md", changelog);
    write(".ci/release-check", &read(".ci/release-check"));
    let script = repository.path().join(".ci/release-check");
    let ran = Command::new("python3").arg(script).arg(tag).output().expect("python3 can be run");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    if ran.status.success() { Ok(text(ran.stdout)) } else { Err(text(ran.stderr)) }
}

const PACKAGE: &str = "[package]\nname = \"tea\"\nversion = \"0.1.0\"\nedition = \"2024\"\nrepository = \"https://forge.example/tea\"\nhomepage = \"https://tea.example\"\n";
const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\nLater.\n\n## [0.1.0] - 2027-01-31\n\n### Added\n\n- Tea.\n\n## [0.0.1] - 2026-01-31\n\nWater.\n";

#[test]
fn a_release_has_the_text_of_its_section() {
    assert_eq!(checked("v0.1.0", PACKAGE, CHANGELOG), Ok("### Added\n\n- Tea.\n".to_owned()));
}

#[test]
fn a_tag_with_a_placeholder_version_or_section_amiss_is_refused() {
    let wrong =
        |tag, package: &str, changelog: &str| checked(tag, package, changelog).expect_err("it is refused");
    let placeholder = PACKAGE.replace("forge.example", "repository.invalid");
    assert!(
        wrong("v0.1.0", &placeholder, CHANGELOG)
            .contains("repository is still https://repository.invalid/tea")
    );
    let nowhere = PACKAGE.replace("homepage = \"https://tea.example\"\n", "");
    assert!(wrong("v0.1.0", &nowhere, CHANGELOG).contains("tea has no homepage"));
    assert!(wrong("v0.0.1", PACKAGE, CHANGELOG).contains("tea has the version 0.1.0"));
    assert!(wrong("v0.1.0", PACKAGE, "## [Unreleased]\n").contains("no section [0.1.0]"));
    assert!(wrong("v0.1.0", PACKAGE, "## [0.1.0] - soon\n\nTea.\n").contains("no date"));
    let unpublished = CHANGELOG.replace("Tea.", "Tea, not\npublished yet.");
    assert!(wrong("v0.1.0", PACKAGE, &unpublished).contains("CHANGELOG.md still says"));
    assert!(
        wrong("v0.1.0", &format!("{PACKAGE}publish = false\n"), CHANGELOG)
            .contains("no package is published")
    );
}
