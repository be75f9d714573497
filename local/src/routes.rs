//! The routes of the functions, of `--route` and of the template. They come before all others, so that none of this cloud's own hides
//! one of theirs.

use crate::{
    functions::Function,
    route::{self, DEFAULT, Route},
};
use axum::http::Method;
use serde_json::{Map, Value, json};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The routes, by method.
pub struct Routes {
    /// `None` for any.
    methods: HashMap<Option<Method>, matchit::Router<Target>>,
    /// What no other route takes.
    default: Option<Target>,
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
        let (mut methods, mut seen, mut default) = (HashMap::new(), HashSet::new(), None);
        for Route { method, path, function } in routes {
            let found = functions.iter().find(|known| known.definition.name == function);
            let unknown = || format!("--route {path}: there is no function {function}");
            let function = found.ok_or_else(unknown)?.clone();
            if path == DEFAULT {
                let target = Target { key: DEFAULT.to_owned(), function };
                default.get_or_insert(target);
                continue;
            }
            let key = format!("{} {path}", method.as_ref().map_or("ANY", Method::as_str));
            if seen.insert(key.clone()) {
                let router: &mut matchit::Router<_> = methods.entry(method.clone()).or_default();
                let inserted = router.insert(route::pattern(path), Target { key, function });
                inserted.map_err(|error| format!("--route {path}: {error}"))?;
            }
        }
        Ok(Self { methods, default })
    }

    /// The route of this request. One that names the method comes before one for any, but a greedy one (`{proxy+}`) after both.
    /// Source: AWS, "Create routes for HTTP APIs in API Gateway".
    pub fn find(&self, method: &Method, path: &str) -> Option<Matched> {
        let at = |method| self.methods.get(&method)?.at(path).ok();
        let (own, any) = (at(Some(method.clone())), at(None));
        let is_greedy = |found: &matchit::Match<'_, '_, &Target>| found.value.key.ends_with("+}");
        let found = match (own, any) {
            (Some(own), Some(any)) if is_greedy(&own) && !is_greedy(&any) => any,
            (own, any) => own.or(any)?,
        };
        let decoded =
            |value: &str| percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
        let parameters = found.params.iter().map(|(name, value)| (name.to_owned(), json!(decoded(value))));
        Some(found.value.matched(parameters.collect()))
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
