//! The rules of the repository: no circle of files, no file that is too long, and documents whose paths exist.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    fs, iter, mem,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, UseTree, Visibility, spanned::Spanned};

/// The most lines of code in one file: without comments, blank lines and tests.
const MAX_LINES: usize = 400;

type Names = Vec<String>;

/// What a file uses from others, by their modules.
type Uses = BTreeMap<Names, BTreeSet<String>>;

/// A file of a crate, with the names that it uses.
#[derive(Default)]
struct Source {
    /// Its path from the root of the repository.
    file: String,
    /// The names that it defines.
    own: HashSet<String>,
    /// What it imports for its code, and what it re-exports.
    imported: Vec<Names>,
    exported: Vec<Names>,
    /// The paths in its code.
    named: Vec<Names>,
    /// The lines of its code.
    lines: BTreeSet<usize>,
}

impl Source {
    fn parse(file: String, text: &str) -> Self {
        let mut source = Self { file, ..Self::default() };
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", source.file));
        source.read(parsed.items);
        source
    }

    fn read(&mut self, items: Vec<Item>) {
        for item in items {
            if attributes(&item).iter().any(is_test) {
                continue;
            }
            match item {
                Item::Mod(module) => {
                    self.lines.extend([module.mod_token.span().start().line, module.span().end().line]);
                    self.read(module.content.map(|(_, items)| items).unwrap_or_default());
                }
                Item::Use(item) => {
                    self.lines.extend(item.span().start().line..=item.span().end().line);
                    let paths = match item.vis {
                        Visibility::Inherited => &mut self.imported,
                        _ => &mut self.exported,
                    };
                    leaves(&item.tree, &mut Vec::new(), paths);
                }
                item => {
                    self.own.extend(names_of(&item));
                    self.tokens(item.to_token_stream());
                }
            }
        }
    }

    /// Collects the paths and the lines of some code. The arguments of macros are code too.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons, mut is_member) = (Names::new(), 0, false);
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let is_doc = matches!(&token, TokenTree::Punct(hash) if hash.as_char() == '#')
                && matches!(tokens.peek(), Some(TokenTree::Group(it)) if it.stream().to_string().starts_with("doc"));
            if is_doc {
                tokens.next();
                continue;
            }
            match token {
                TokenTree::Ident(name) => {
                    self.lines.insert(name.span().start().line);
                    if colons != 2 || path.is_empty() {
                        self.name(&mut path);
                    }
                    if !is_member {
                        path.push(name.to_string());
                    }
                    (colons, is_member) = (0, false);
                }
                TokenTree::Punct(punct) => {
                    self.lines.insert(punct.span().start().line);
                    is_member = punct.as_char() == '.';
                    colons = if punct.as_char() == ':' { colons + 1 } else { 0 };
                    if colons == 0 {
                        self.name(&mut path);
                    }
                }
                TokenTree::Group(group) => {
                    self.lines.extend([group.span_open().start().line, group.span_close().end().line]);
                    self.tokens(group.stream());
                    (colons, is_member) = (0, false);
                    self.name(&mut path);
                }
                TokenTree::Literal(literal) => {
                    self.lines.extend(literal.span().start().line..=literal.span().end().line);
                    (colons, is_member) = (0, false);
                    self.name(&mut path);
                }
            }
        }
        self.name(&mut path);
    }

    fn name(&mut self, path: &mut Names) {
        if !path.is_empty() {
            self.named.push(mem::take(path));
        }
    }
}

/// Whether it is `#[cfg(test)]`.
fn is_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|what| what == "test")
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The names that an item defines. The call of a macro may define several.
fn names_of(item: &Item) -> Vec<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => match &item.ident {
            Some(name) => name,
            None => return declared(item.mac.tokens.clone()),
        },
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}

/// The names in a macro's input that follow the keyword of an item.
fn declared(input: TokenStream) -> Vec<String> {
    const KEYWORDS: [&str; 7] = ["const", "enum", "fn", "static", "struct", "trait", "type"];
    let tokens: Vec<_> = input.into_iter().map(|token| token.to_string()).collect();
    let pairs = tokens.windows(2).filter(|pair| KEYWORDS.contains(&&*pair[0]));
    pairs.map(|pair| pair[1].clone()).collect()
}

/// The paths of a `use`, by the names before `as`.
fn leaves(tree: &UseTree, before: &mut Names, paths: &mut Vec<Names>) {
    let mut leaf = |name: String| paths.push(before.iter().cloned().chain([name]).collect());
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => paths.push(before.clone()),
        UseTree::Name(name) => leaf(name.ident.to_string()),
        UseTree::Rename(name) => leaf(name.ident.to_string()),
        UseTree::Glob(_) => leaf("*".to_owned()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, paths)),
    }
}

/// A crate: its files by their modules.
struct Files(BTreeMap<Names, Source>);

impl Files {
    fn of(sources: impl IntoIterator<Item = (Names, Source)>) -> Self {
        Self(sources.into_iter().collect())
    }

    /// The same path from the crate's root, if it begins in this crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let source = self.0.get(module)?;
        let child = |name: &String| module.iter().chain([name]).cloned().collect::<Names>();
        let is_ours = |first: &String| {
            ["crate", "self", "super"].contains(&first.as_str()) || self.0.contains_key(&child(first))
        };
        let mut base = match first.as_str() {
            "crate" => Names::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            _ if is_ours(first) => child(first),
            _ => {
                let mut imports = source.imported.iter().chain(&source.exported);
                let import = imports.find(|path| path.last() == Some(first) && is_ours(&path[0]))?;
                self.absolute(module, import)?
            }
        };
        for name in rest {
            match name.as_str() {
                "super" => drop(base.pop()),
                _ => base.push(name.clone()),
            }
        }
        Some(base)
    }

    /// The file that defines what this path names, by its module. None if it names a whole file.
    fn home(&self, path: &[String]) -> Option<(Names, String)> {
        self.home_unless(path, &mut BTreeSet::new())
    }

    /// The same. A path that was followed before is not followed again.
    fn home_unless(&self, path: &[String], followed: &mut BTreeSet<Names>) -> Option<(Names, String)> {
        let depth = (0..=path.len()).rev().find(|depth| self.0.contains_key(&path[..*depth]))?;
        let (module, name) = (path[..depth].to_vec(), path.get(depth)?.clone());
        let source = &self.0[&module];
        if !source.own.contains(&name) && followed.insert(path.to_vec()) {
            let reexported =
                source.exported.iter().chain(&source.imported).find(|path| path.last() == Some(&name));
            let reexported = reexported.and_then(|path| self.absolute(&module, path));
            if let Some(home) = reexported.filter(|path| !path.starts_with(&module) || path.len() > depth + 1)
            {
                return self.home_unless(&home, followed);
            }
            if let Some(home) = self.behind_globs(&module, &name, &source.exported, followed) {
                return Some(home);
            }
        }
        Some((module, name))
    }

    /// The file that defines this name, if one of these globs of a module brings it in.
    fn behind_globs(
        &self,
        module: &[String],
        name: &str,
        uses: &[Names],
        followed: &mut BTreeSet<Names>,
    ) -> Option<(Names, String)> {
        uses.iter().filter(|path| path.last().is_some_and(|last| last == "*")).find_map(|glob| {
            let mut path = self.absolute(module, &glob[..glob.len() - 1])?;
            path.push(name.to_owned());
            let (home, name) = self.home_unless(&path, followed)?;
            self.0[&home].own.contains(&name).then_some((home, name))
        })
    }

    /// What each file uses from which other file. A name that is only re-exported is not used.
    fn uses(&self) -> BTreeMap<&Names, Uses> {
        self.0.iter().map(|(module, source)| (module, self.taken_by(module, source))).collect()
    }

    fn taken_by(&self, module: &Names, source: &Source) -> Uses {
        let mut taken = Uses::new();
        for path in source.imported.iter().chain(&source.named) {
            let home = match self.absolute(module, path) {
                Some(path) => self.home(&path),
                None if source.own.contains(&path[0]) => None,
                None => [&source.imported, &source.exported]
                    .iter()
                    .find_map(|uses| self.behind_globs(module, &path[0], uses, &mut BTreeSet::new())),
            };
            if let Some((home, name)) = home.filter(|(home, _)| home != module) {
                taken.entry(home).or_default().insert(name);
            }
        }
        taken
    }

    /// The shortest circle through each file that is in a circle. Each circle appears once.
    fn circles(&self) -> Vec<String> {
        let uses = self.uses();
        let mut circles = BTreeMap::new();
        for start in self.0.keys() {
            let mut from = BTreeMap::<&Names, &Names>::new();
            let mut next = VecDeque::from([start]);
            'search: while let Some(file) = next.pop_front() {
                for used in uses[file].keys() {
                    if used == start {
                        let before = |file: &&Names| from.get(*file).copied();
                        let mut circle: Vec<_> = iter::successors(Some(file), before).collect();
                        circle.reverse();
                        let members: BTreeSet<_> = circle.iter().copied().collect();
                        circles.entry(members).or_insert_with(|| self.described(&uses, &circle));
                        break 'search;
                    }
                    if !from.contains_key(used) {
                        from.insert(used, file);
                        next.push_back(used);
                    }
                }
            }
        }
        circles.into_values().collect()
    }

    fn described(&self, uses: &BTreeMap<&Names, Uses>, circle: &[&Names]) -> String {
        let next = circle.iter().cycle().skip(1);
        let arrow = |(from, to): (&&Names, &&Names)| {
            let names: Vec<_> = uses[*from][*to].iter().map(String::as_str).collect();
            format!("{} uses {} of {}", self.0[*from].file, names.join(", "), self.0[*to].file)
        };
        circle.iter().zip(next).map(arrow).collect::<Vec<_>>().join("; ")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The crates of this repository, without tests, benchmarks and examples. Parsed once.
fn crates() -> &'static [Files] {
    static CRATES: OnceLock<Vec<Files>> = OnceLock::new();
    CRATES.get_or_init(parse_crates)
}

fn parse_crates() -> Vec<Files> {
    let functions = fs::read_dir(root().join("functions")).unwrap().map(|it| it.unwrap().file_name());
    let functions = functions.map(|name| format!("functions/{}/src", name.to_str().unwrap()));
    let folders = ["src", "protocol/src", "cli/src", "local/src", "pollers/src", "sample/src"]
        .map(str::to_owned)
        .into_iter()
        .chain(functions);
    let folders = folders.filter(|folder| root().join(folder).is_dir());
    let crates: Vec<_> = folders.map(|folder| Files::of(sources(&folder, &Names::new()))).collect();
    assert!(crates.len() >= 8 && crates[0].0.len() > 100, "more files are expected");
    crates
}

fn sources(folder: &str, module: &Names) -> Vec<(Names, Source)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let (path, mut inner) = (format!("{folder}/{name}"), module.clone());
        match name.strip_suffix(".rs") {
            // A test module in a separate file.
            Some("tests") => continue,
            Some("mod" | "lib") => {}
            // A crate with a library has no module of this name.
            Some("main") if root().join(folder).join("lib.rs").exists() => continue,
            Some("main") => {}
            Some(stem) => inner.push(stem.to_owned()),
            None => {
                inner.push(name);
                found.extend(sources(&path, &inner));
                continue;
            }
        }
        let text = fs::read_to_string(root().join(&path)).unwrap();
        found.push((inner, Source::parse(path, &text)));
    }
    found
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let circles: Vec<_> = crates().iter().flat_map(Files::circles).collect();
    assert!(circles.is_empty(), "move what they share into a separate file:\n{}", circles.join("\n"));
}

#[test]
fn a_circle_of_files_is_found_and_named() {
    let made_of = |texts: &[(&str, &str)]| {
        let source = |(path, text): &(&str, &str)| {
            let module = path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            (module, Source::parse(format!("{path}.rs"), text))
        };
        Files::of(texts.iter().map(source)).circles()
    };
    let (tea, pot) = ("use crate::pot::Pot;\npub struct Tea(Pot);", "pub struct Pot(crate::tea::Tea);");
    let circle = ["pot.rs uses Tea of tea.rs; tea.rs uses Pot of pot.rs"];
    assert_eq!(made_of(&[("", "mod pot; mod tea;"), ("pot", pot), ("tea", tea)]), circle);
    // Through a module that re-exports the name, within a macro, and through three files.
    let tea = "use super::Pot;\nfn tea() { brew!(Pot::new(1)); }";
    let face = "mod pot; mod tea; pub use pot::Pot;";
    let pot = "use crate::lid;\npub struct Pot; fn pot() { lid::close() }";
    let lid = "use crate::tea::tea as brewed;\npub fn close() { tea() }";
    assert_eq!(made_of(&[("", face), ("pot", pot), ("tea", tea), ("lid", lid)]).len(), 1);
    // Behind a glob: used through the module that re-exports it, and by that module itself.
    let (face, tea) = ("mod pot; mod tea; pub use pot::*;", "use super::Pot;\npub struct Tea(Pot);");
    let pot = "pub struct Pot(crate::tea::Tea);";
    assert_eq!(made_of(&[("", face), ("pot", pot), ("tea", tea)]), circle);
    let face = "mod pot; pub use pot::*; pub const CUPS: usize = LITRES * 4;";
    let pot = "list! { /// A reason.\npub const LITRES: usize = crate::CUPS / 4; }";
    assert_eq!(made_of(&[("", face), ("pot", pot)]).len(), 1);
    let pot = pot.replace("crate::CUPS / 4", "2");
    assert!(made_of(&[("", face), ("pot", &pot)]).is_empty());
    // A module that only re-exports what its children define, a test, a comment.
    let pot = "use super::Lid;\n/// For [`crate::tea::Tea`].\npub struct Pot(Lid); #[cfg(test)] mod tests { use crate::tea::Tea; }";
    let tea = "use crate::pot::Pot; pub struct Tea(Pot);";
    assert!(
        made_of(&[("", "mod pot; mod tea; pub use pot::Pot; pub struct Lid;"), ("pot", pot), ("tea", tea)])
            .is_empty()
    );
}

#[test]
fn no_file_has_more_than_400_lines_of_code() {
    let sources = crates().iter().flat_map(|files| files.0.values());
    let long: Vec<_> = sources
        .filter(|source| source.lines.len() > MAX_LINES)
        .map(|source| (&source.file, source.lines.len()))
        .collect();
    assert!(long.is_empty(), "{long:?}");
    let text = "//! A file.\n\n/// A constant.\nconst A: &str = \"1\n2\";\n\nfn f() {\n    // A reason.\n    g(\n    );\n}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
    assert_eq!(Source::parse("a.rs".to_owned(), text).lines.len(), 6);
}

/// The parts of a document that look like paths.
fn paths(document: &str) -> impl Iterator<Item = &str> {
    let is_path = |part: &&str| {
        let is_file = [".rs", ".md", ".yaml"].iter().any(|end| part.ends_with(end));
        !part.contains("://") && (is_file || part.ends_with('/'))
    };
    let parts = document.split(|c: char| c.is_whitespace() || "`()[]|,;:→".contains(c));
    parts.filter(|part| part.len() > 1).filter(is_path)
}

fn architecture() -> String {
    fs::read_to_string(root().join("docs/architecture.md")).unwrap()
}

fn exists(path: &str) -> bool {
    ["", "src", "protocol/src", "docs"].iter().any(|folder| root().join(folder).join(path).exists())
}

// A new source is a file in `feed`.
#[test]
fn what_all_consumers_share_names_no_source() {
    for shared in ["batch", "consumer", "dead", "disposition", "key_from", "lanes", "message", "open", "plan"]
    {
        let file = format!("src/event/{shared}.rs");
        let text = fs::read_to_string(root().join(&file)).expect(&file);
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_lowercase();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let named = ["sqs", "kinesis", "kafka", "dynamodb"].iter().find(|source| line.contains(**source));
            assert_eq!(named, None, "{file}: {line}");
        }
    }
}

#[test]
fn every_path_in_the_architecture_exists() {
    let architecture = architecture();
    let missing: Vec<_> = paths(&architecture).filter(|path| !exists(path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(paths(&architecture).count() > 60);
}

#[test]
fn the_architecture_names_one_place_for_each_topic() {
    let architecture = architecture();
    for what in [
        "the condition of a write",
        "a replayed header",
        "a state's name",
        "a time-out",
        "how long the stale function waits",
        "a metric",
        "the shape of a problem",
    ] {
        let rows = architecture.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(": "));
        let places: Vec<_> =
            rows.filter(|(asked, _)| asked.starts_with(what)).map(|(_, place)| place).collect();
        let [place] = places[..] else { panic!("{what}: {places:?}") };
        assert_eq!(paths(place).count(), 1, "{what}: {place}");
    }
}

#[test]
fn the_starter_nests_the_template_that_everybody_deploys() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect(file);
    let nested = read("starter/infra/idempotency.yaml");
    assert!(nested == read("infra/idempotency.yaml"), "copy infra/idempotency.yaml to starter/infra");
    let lines = read("starter/README.md").lines().count();
    assert!(lines <= 60, "it is read by everybody who begins: {lines} lines");
}
