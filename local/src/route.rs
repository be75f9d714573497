//! A route of a function, as `--route` or a template gives it.

use axum::http::Method;
use std::{
    collections::BTreeSet,
    fmt::{self, Display, Formatter},
};

/// A route of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `None` for any.
    pub method: Option<Method>,
    /// As API Gateway writes it; [`DEFAULT`] for what no other route takes.
    pub path: String,
    pub function: String,
}

/// The path of the route that takes what no other does.
pub const DEFAULT: &str = "$default";

impl Display for Route {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key(), self.function)
    }
}

impl Route {
    /// What no other route takes.
    pub fn default_of(function: String) -> Self {
        Self { method: None, path: DEFAULT.to_owned(), function }
    }

    /// As API Gateway names it: `POST /orders/{id}`.
    pub fn key(&self) -> String {
        format!("{} {}", self.method.as_ref().map_or("ANY", Method::as_str), self.path)
    }

    /// Reads `POST /orders=orders`.
    ///
    /// # Errors
    /// If it is none; the error says what it must be.
    pub fn parse(value: &str) -> Result<Self, String> {
        let wrong = "must be METHOD PATH=NAME, such as POST /orders=orders";
        let (route, function) = value.rsplit_once('=').ok_or(wrong)?;
        let (method, path) = route.split_once(' ').ok_or(wrong)?;
        if !path.starts_with('/') {
            return Err("its path must begin with /".to_owned());
        }
        let method = match method {
            "ANY" => None,
            method if method.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                Some(method.parse().map_err(|_| wrong.to_owned())?)
            }
            _ => return Err("its method must be ANY, or one in capitals, such as POST".to_owned()),
        };
        // Refused here, with the route's text, and not when all is up.
        Pattern::parse(path)?;
        Ok(Self { method, path: path.to_owned(), function: function.to_owned() })
    }
}

/// A path with parameters.
#[derive(Debug)]
pub struct Pattern(Vec<Part>);

/// A part of a path, between two `/`.
#[derive(Debug)]
enum Part {
    Text(String),
    /// `{name}`
    Parameter(String),
    /// `{name+}`: this part and all that follow.
    Rest(String),
}

impl Pattern {
    /// Reads `/files/{folder}/{proxy+}`.
    ///
    /// # Errors
    /// If it has a parameter that is none.
    pub fn parse(path: &str) -> Result<Self, String> {
        let mut names = BTreeSet::new();
        let parts: Vec<_> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
        let part = |(place, text): (usize, &&str)| {
            let Some(name) = text.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else {
                return match text.contains(['{', '}']) {
                    true => Err(format!("its parameter must be a whole part of the path, not {text}")),
                    false => Ok(Part::Text((*text).to_owned())),
                };
            };
            let (name, is_rest) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
            if name.is_empty() || name.contains(['{', '}', '+']) {
                return Err(format!("its parameter must have a name, such as {{id}}, not {text}"));
            }
            if is_rest && place + 1 < parts.len() {
                return Err(format!("nothing can follow {text}, which takes the rest of the path"));
            }
            if !names.insert(name.to_owned()) {
                return Err(format!("it has two parameters {name}"));
            }
            Ok(if is_rest { Part::Rest } else { Part::Parameter }(name.to_owned()))
        };
        parts.iter().enumerate().map(part).collect::<Result<_, _>>().map(Self)
    }

    /// The values of its parameters in this path, as they are there, if it takes the path.
    pub fn values<'a>(&self, path: &'a str) -> Option<Vec<(&str, &'a str)>> {
        let (mut values, mut rest) = (Vec::new(), Some(path.strip_prefix('/')?));
        for part in &self.0 {
            let left = rest?;
            let (first, after) =
                left.split_once('/').map_or((left, None), |(first, after)| (first, Some(after)));
            match part {
                Part::Text(text) if text == first => rest = after,
                Part::Parameter(name) if !first.is_empty() => {
                    values.push((&**name, first));
                    rest = after;
                }
                Part::Rest(name) if !left.is_empty() => {
                    values.push((&**name, left));
                    rest = None;
                }
                _ => return None,
            }
        }
        rest.is_none().then_some(values)
    }

    /// Of two that take a path, the more specific one has the smaller rank. Any without a greedy parameter comes before those with one.
    pub fn rank(&self) -> (bool, Vec<u8>) {
        let ranks = self.0.iter().map(|part| match part {
            Part::Text(_) => 0,
            Part::Parameter(_) => 1,
            Part::Rest(_) => 2,
        });
        (matches!(self.0.last(), Some(Part::Rest(_))), ranks.collect())
    }

    /// Whether it takes the same paths as another.
    pub fn is_like(&self, other: &Self) -> bool {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            _ => String::new(),
        };
        self.rank() == other.rank() && self.0.iter().map(text).eq(other.0.iter().map(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_with_the_values_of_its_parameters() {
        let values = |pattern: &str, path: &str| {
            let pattern = Pattern::parse(pattern).unwrap();
            pattern.values(path).map(|values| {
                values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            })
        };
        for (pattern, path, expected) in [
            ("/", "/", Some("")),
            ("/", "/a", None),
            ("/a", "/a", Some("")),
            ("/a", "/a/", None),
            ("/a/", "/a/", Some("")),
            ("/{id}", "/1", Some("id=1")),
            ("/{id}", "/", None),
            ("/{id}", "/1/2", None),
            ("/{id}/b", "/1/b", Some("id=1")),
            ("/a/{proxy+}", "/a/1/2/", Some("proxy=1/2/")),
            ("/a/{proxy+}", "/a/", None),
            ("/a/{proxy+}", "/a", None),
            ("/{a}/{b+}", "/1/2/3", Some("a=1 b=2/3")),
        ] {
            assert_eq!(values(pattern, path).as_deref(), expected, "{pattern} {path}");
        }
        for (path, named) in [
            ("/a{id}", "whole part"),
            ("/{id}b", "whole part"),
            ("/{}", "a name"),
            ("/{+}", "a name"),
            ("/{a+}/b", "nothing can follow"),
            ("/{a}/{a}", "two parameters a"),
        ] {
            let error = Pattern::parse(path).expect_err("it is none");
            assert!(error.contains(named), "{path}: {error}");
        }
    }
}
