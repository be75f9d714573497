//! The routes of the user's functions. They come before all others, so that none of this cloud's own hides one of theirs.

use crate::{
    functions::Function,
    route::{self, Route},
};
use axum::http::Method;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The routes, by path.
pub struct OwnRoutes(matchit::Router<Vec<Target>>);

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

impl OwnRoutes {
    /// # Errors
    /// If two paths are ambiguous.
    pub fn new(routes: &[Route], functions: &[Arc<Function>]) -> Result<Self, String> {
        let mut paths = BTreeMap::<&str, Vec<Target>>::new();
        for Route { method, path, function } in routes {
            let found = functions.iter().find(|known| known.definition.name == function);
            let function = found.ok_or_else(|| format!("there is no function {function}"))?.clone();
            let key = format!("{} {path}", method.as_ref().map_or("ANY", Method::as_str));
            paths.entry(path).or_default().push(Target { method: method.clone(), key, function });
        }
        let mut router = matchit::Router::new();
        for (path, targets) in paths {
            router
                .insert(route::pattern(path), targets)
                .map_err(|error| format!("--route {path}: {error}"))?;
        }
        Ok(Self(router))
    }

    /// The route of this request. One that names the method comes before one for any.
    pub fn find(&self, method: &Method, path: &str) -> Option<Matched> {
        let found = self.0.at(path).ok()?;
        let of = |wanted: Option<&Method>| found.value.iter().find(|target| target.method.as_ref() == wanted);
        let Target { key, function, .. } = of(Some(method)).or_else(|| of(None))?;
        let decoded =
            |value: &str| percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
        let parameters = found.params.iter().map(|(name, value)| (name.to_owned(), json!(decoded(value))));
        Some(Matched { function: function.clone(), key: key.clone(), parameters: parameters.collect() })
    }
}
