//! The routes of the functions, of `--route` and of the template. They come before all others, so that none of this cloud's own hides
//! one of theirs.

use crate::{
    functions::Function,
    route::{self, DEFAULT, Route},
};
use axum::http::Method;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The routes, by path.
pub struct Routes {
    paths: matchit::Router<Vec<Target>>,
    /// What no other route takes.
    default: Option<Target>,
}

struct Target {
    method: Option<Method>,
    /// As API Gateway names the route: `POST /orders/{id}`.
    key: String,
    function: Arc<Function>,
}

/// What a request leads to.
pub struct Matched {
    pub function: Arc<Function>,
    pub key: String,
    /// The parts of the path that the route names.
    pub parameters: Map<String, Value>,
}

impl Routes {
    /// The first of two for the same requests counts.
    ///
    /// # Errors
    /// If two paths are ambiguous, or there is no such function.
    pub fn new<'a>(
        routes: impl Iterator<Item = &'a Route>,
        functions: &[Arc<Function>],
    ) -> Result<Self, String> {
        let (mut paths, mut default) = (BTreeMap::<&str, Vec<Target>>::new(), None);
        for Route { method, path, function } in routes {
            let found = functions.iter().find(|known| known.definition.name == function);
            let unknown = || format!("--route {path}: there is no function {function}");
            let function = found.ok_or_else(unknown)?.clone();
            if path == DEFAULT {
                let target = Target { method: None, key: DEFAULT.to_owned(), function };
                default.get_or_insert(target);
                continue;
            }
            let key = format!("{} {path}", method.as_ref().map_or("ANY", Method::as_str));
            paths.entry(path).or_default().push(Target { method: method.clone(), key, function });
        }
        let mut router = matchit::Router::new();
        for (path, targets) in paths {
            router
                .insert(route::pattern(path), targets)
                .map_err(|error| format!("--route {path}: {error}"))?;
        }
        Ok(Self { paths: router, default })
    }

    /// The route of this request. One that names the method comes before one for any.
    pub fn find(&self, method: &Method, path: &str) -> Option<Matched> {
        let found = self.paths.at(path).ok()?;
        let of = |wanted: Option<&Method>| found.value.iter().find(|target| target.method.as_ref() == wanted);
        let target = of(Some(method)).or_else(|| of(None))?;
        let decoded =
            |value: &str| percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
        let parameters = found.params.iter().map(|(name, value)| (name.to_owned(), json!(decoded(value))));
        Some(target.matched(parameters.collect()))
    }

    /// The route of a request that nothing else takes.
    pub fn default(&self) -> Option<Matched> {
        self.default.as_ref().map(|target| target.matched(Map::new()))
    }
}

impl Target {
    fn matched(&self, parameters: Map<String, Value>) -> Matched {
        Matched { function: self.function.clone(), key: self.key.clone(), parameters }
    }
}
