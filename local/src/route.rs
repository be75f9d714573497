//! A route of a function, as `--route` or a template gives it.

use axum::http::Method;
use std::fmt::{self, Display, Formatter};

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
        let Self { method, path, function } = self;
        write!(f, "{} {path}={function}", method.as_ref().map_or("ANY", Method::as_str))
    }
}

impl Route {
    /// What no other route takes.
    pub fn default_of(function: String) -> Self {
        Self { method: None, path: DEFAULT.to_owned(), function }
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
        let (path, function) = (path.to_owned(), function.to_owned());
        // Refused here, with the route's text, and not when all is up.
        matchit::Router::new().insert(pattern(&path), ()).map_err(|error| error.to_string())?;
        Ok(Self { method, path, function })
    }
}

/// The path as `matchit` writes it: `/files/{proxy+}` is `/files/{*proxy}`.
pub fn pattern(path: &str) -> String {
    let segments = path.split('/').map(|segment| {
        let rest = segment.strip_prefix('{').and_then(|name| name.strip_suffix("+}"));
        rest.map_or_else(|| segment.to_owned(), |name| format!("{{*{name}}}"))
    });
    segments.collect::<Vec<_>>().join("/")
}
