//! The routes of the functions, of `--route` and of the template. They come before all others, so that none of this cloud's own hides
//! one of theirs.

use crate::{
    functions::Function,
    route::{DEFAULT, Pattern, Route},
};
use axum::http::Method;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The routes. A cloud has few, so that each request looks at all.
pub struct Routes {
    all: Vec<Known>,
    /// What no other route takes.
    default: Option<Target>,
}

struct Known {
    /// `None` for any.
    method: Option<Method>,
    pattern: Pattern,
    target: Target,
}

struct Target {
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
        let (mut all, mut default) = (Vec::<Known>::new(), None);
        for route in routes {
            let Route { method, path, function } = route;
            let found = functions.iter().find(|known| known.definition.name == function);
            let unknown = || format!("--route {path}: there is no function {function}");
            let function = found.ok_or_else(unknown)?.clone();
            if path == DEFAULT {
                default.get_or_insert(Target { key: DEFAULT.to_owned(), function });
                continue;
            }
            let pattern = Pattern::parse(path).map_err(|error| format!("--route {path}: {error}"))?;
            let key = route.key();
            match all.iter().find(|known| known.method == *method && known.pattern.is_like(&pattern)) {
                None => all.push(Known { method: method.clone(), pattern, target: Target { key, function } }),
                Some(known) if known.target.key == key => {}
                Some(known) => {
                    return Err(format!(
                        "--route {path}: it takes the same requests as {}",
                        known.target.key
                    ));
                }
            }
        }
        Ok(Self { all, default })
    }

    /// The route of this request:
    ///
    /// 1. A route without a greedy parameter (`{proxy+}`) comes before one that has it.
    /// 2. Of two, the one with the more specific path counts: text comes before `{name}`, and `{name}` before `{name+}`.
    /// 3. Of two with the same path, the one that names the method comes before one for any.
    ///
    /// Source: AWS, "Create routes for HTTP APIs in API Gateway".
    pub fn find(&self, method: &Method, path: &str) -> Option<Matched> {
        let takes = |known: &&Known| known.method.as_ref().is_none_or(|own| own == method);
        let taken =
            self.all.iter().filter(takes).filter_map(|known| Some((known, known.pattern.values(path)?)));
        let (known, values) =
            taken.min_by_key(|(known, _)| (known.pattern.rank(), known.method.is_none()))?;
        let decoded =
            |value: &str| percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
        let parameters = values.iter().map(|(name, value)| ((*name).to_owned(), json!(decoded(value))));
        Some(known.target.matched(parameters.collect()))
    }

    /// The route that takes a request before an address of the cloud does. A part of the page is taken by a route that names it alone.
    pub fn before_cloud(&self, method: &Method, path: &str) -> Option<Matched> {
        let is_page = path == "/local" || path.starts_with("/local/");
        self.find(method, path).filter(|route| !is_page || route.key.contains(" /local"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{definition::Definition, metrics::Metrics, process::Launcher, program::Program};
    use std::time::Duration;

    fn function(name: &'static str) -> Arc<Function> {
        let definition = Definition {
            name,
            environments: 1,
            program: Program::Own(name),
            timeout: Duration::from_secs(1),
            variables: Default::default(),
        };
        let launcher = Launcher::new(1, Arc::<Metrics>::default(), Default::default(), "").unwrap();
        Arc::new(Function::new(Box::leak(Box::new(definition)), &Arc::new(launcher)))
    }

    #[test]
    fn the_most_specific_route_takes_a_request() {
        let all = [
            "GET /orders=a",
            "GET /orders/{id}=a",
            "GET /files/{proxy+}=a",
            "GET /orders=b",
            "ANY /orders/{other}=b",
            "ANY /files/index=b",
            "ANY /{proxy+}=c",
            "GET /items/{proxy+}=a",
            "GET /items/{id}=b",
            "ANY /items/{id}/parts=c",
            "ANY /orders/latest=c",
        ];
        let mut all = all.map(|route| Route::parse(route).unwrap()).to_vec();
        let functions = ["a", "b", "c", "d"].map(function);
        let routes = Routes::new(all.iter(), &functions).unwrap();
        for (method, path, key, name) in [
            ("GET", "/orders", "GET /orders", "a"),
            ("POST", "/orders", "ANY /{proxy+}", "c"),
            ("GET", "/orders/1", "GET /orders/{id}", "a"),
            ("POST", "/orders/1", "ANY /orders/{other}", "b"),
            ("GET", "/files/1", "GET /files/{proxy+}", "a"),
            ("GET", "/files/index", "ANY /files/index", "b"),
            ("GET", "/items/1", "GET /items/{id}", "b"),
            ("GET", "/items/1/x", "GET /items/{proxy+}", "a"),
            ("GET", "/items/1/parts", "ANY /items/{id}/parts", "c"),
            ("GET", "/items", "ANY /{proxy+}", "c"),
            ("GET", "/orders/latest", "ANY /orders/latest", "c"),
        ] {
            let matched = routes.find(&method.parse().unwrap(), path).expect(path);
            assert_eq!((&*matched.key, matched.function.definition.name), (key, name), "{method} {path}");
        }
        let matched = routes.find(&Method::PUT, "/a%20b/c").unwrap();
        assert_eq!(matched.parameters["proxy"], "a b/c");
        assert!(routes.default().is_none() && routes.find(&Method::GET, "/").is_none());
        all.push(Route::default_of("d".to_owned()));
        let default = Routes::new(all.iter(), &functions).unwrap().default();
        assert_eq!(default.expect("it has one").function.definition.name, "d");
        all.push(Route::parse("GET /orders/{name}=a").unwrap());
        assert!(Routes::new(all.iter(), &functions).is_err(), "two for the same requests");
        assert!(
            Routes::new([Route::parse("GET /=x").unwrap()].iter(), &functions).is_err(),
            "no such function"
        );
    }
}
