//! The text of HCL, as `terraform fmt` lays it out.

/// The most characters of a list in one line.
const MAX_LIST: usize = 100;

/// What stands between the braces of a block.
#[derive(Default)]
pub struct Body {
    attributes: Vec<(String, String)>,
    blocks: Vec<(String, Body)>,
}

impl Body {
    pub fn set(&mut self, name: &str, expression: impl Into<String>) {
        self.attributes.push((name.to_owned(), expression.into()));
    }

    pub fn block(&mut self, header: impl Into<String>, body: Body) {
        self.blocks.push((header.into(), body));
    }

    /// Attributes, then blocks.
    fn text(&self) -> String {
        let mut text = aligned(&self.attributes);
        for (header, body) in &self.blocks {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &format!("{}\n", block(header, body));
        }
        text
    }
}

fn block(header: &str, body: &Body) -> String {
    format!("{header} {{\n{}}}", indented(&body.text()))
}

/// A file of blocks.
pub fn file(heading: &str, blocks: &[(String, Body)]) -> String {
    let blocks = blocks.iter().map(|(header, body)| format!("\n{}\n", block(header, body)));
    format!("{heading}\n{}", blocks.collect::<String>())
}

/// An object. Its names are in order, because the JSON's order depends on what else is built.
pub fn object(members: impl IntoIterator<Item = (String, String)>) -> String {
    let name = |name: String| {
        let is_identifier = name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
        if is_identifier { name } else { format!("\"{name}\"") }
    };
    let mut members: Vec<_> = members.into_iter().map(|(key, value)| (name(key), value)).collect();
    members.sort();
    format!("{{\n{}}}", indented(&aligned(&members)))
}

pub fn list(values: &[String]) -> String {
    let length: usize = values.iter().map(|value| value.len() + 2).sum();
    let is_short = values.iter().all(|value| !value.contains('\n')) && length <= MAX_LIST;
    if is_short {
        return format!("[{}]", values.join(", "));
    }
    format!("[\n{}]", lines(values))
}

/// Arguments of a function, each on a line of its own.
pub fn arguments(values: &[String]) -> String {
    format!("(\n{})", lines(values))
}

fn lines(values: &[String]) -> String {
    indented(&values.iter().map(|value| format!("{value},\n")).collect::<String>())
}

/// Lines `name = expression`. The signs of equality of neighbours are below each other. An expression that continues on the next line
/// separates them, except a text.
fn aligned(attributes: &[(String, String)]) -> String {
    let is_whole = |expression: &str| !expression.contains('\n') || expression.starts_with("<<-");
    let mut text = String::new();
    let mut rest = attributes;
    while let Some((name, expression)) = rest.first() {
        let chain = rest.iter().take_while(|(_, expression)| is_whole(expression));
        let chain = chain.count();
        if chain == 0 {
            text += &format!("{name} = {expression}\n");
            rest = &rest[1..];
            continue;
        }
        let width = rest[..chain].iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, expression) in &rest[..chain] {
            text += &format!("{name:width$} = {expression}\n");
        }
        rest = &rest[chain..];
    }
    text
}

fn indented(text: &str) -> String {
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") };
    text.lines().map(line).collect()
}
