//! Example bodies of routes, which `--body` gives.

use crate::route::Route;
use serde::de::IgnoredAny;
use std::{fs, path::PathBuf};

/// An example of the body that a route takes.
#[derive(Debug, Clone)]
pub struct Example {
    /// As the template or `--route` names it: `POST /bookings`.
    pub route: String,
    pub file: PathBuf,
    pub body: String,
}

impl Example {
    /// Reads `POST /bookings=booking.json`, and the file.
    ///
    /// # Errors
    /// If it is none, or the file has no text.
    pub fn parse(value: &str) -> Result<Self, String> {
        let (route, file) =
            value.split_once('=').ok_or("must be ROUTE=FILE, such as POST /orders=order.json")?;
        let body = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        Ok(Self { route: route.trim().to_owned(), file: file.into(), body: body.trim_end().to_owned() })
    }

    /// The example for this route.
    pub fn of<'a>(all: &'a [Self], route: &Route) -> Option<&'a Self> {
        all.iter().find(|example| example.is_of(route))
    }

    /// # Errors
    /// If there is no such route.
    pub fn check(&self, routes: &[Route]) -> Result<(), String> {
        if routes.iter().any(|route| self.is_of(route)) {
            return Ok(());
        }
        let all = routes.iter().map(Route::key).collect::<Vec<_>>().join(", ");
        Err(format!("--body {}: there is no such route; there are {all}", self.route))
    }

    fn is_of(&self, route: &Route) -> bool {
        let (method, path) = self.route.split_once(' ').unwrap_or_default();
        let is_method = route.method.as_ref().is_none_or(|own| own == method) || method == "ANY";
        path == route.path && is_method
    }

    pub fn content_type(&self) -> &'static str {
        match serde_json::from_str::<IgnoredAny>(&self.body) {
            Ok(_) => "application/json",
            Err(_) => "application/x-www-form-urlencoded",
        }
    }
}
