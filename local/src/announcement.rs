//! What a run prints first: where everything is, and what to try.

use crate::{
    bus::Bus, definition::Definition, example::Example, log, route::DEFAULT, settings::Settings,
    store::Store, template::Stack, variables::IDEMPOTENCY_TABLE,
};
use serde_json::json;
use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

/// Routes of one's own that are shown.
const SHOWN_ROUTES: usize = 12;

pub struct Announcement<'a> {
    pub url: &'a str,
    pub store: &'a Store,
    pub stack: &'a Stack,
    pub queues: &'a str,
    pub bus: &'a Bus,
    pub provider: &'a str,
    /// Those that get the simulated provider.
    pub simulated: Vec<&'a str>,
    pub settings: &'a Settings,
    pub definitions: &'a [Definition],
}

impl Announcement<'_> {
    /// The first line is for programs, the rest is for the reader. If the reader has gone away, the cloud still runs.
    pub fn print(&self) {
        let text = if log::is_json() { self.json() } else { self.text() };
        let _ = io::stdout().write_all(text.as_bytes());
        let _ = io::stdout().flush();
    }

    fn json(&self) -> String {
        let Self { url, store, queues, bus, provider, simulated, .. } = self;
        let addresses = json!({
            "listening": url,
            "dynamodb": store.recorded,
            "provider": provider,
            "simulated": { "PROVIDER_URL": simulated },
            "queues": queues,
            "bus": bus.endpoint,
        });
        format!("{addresses}\n")
    }

    fn text(&self) -> String {
        let Self { url, store, stack, queues, bus, provider, simulated, settings, definitions } = self;
        let (strong, faint, plain) =
            if io::stdout().is_terminal() { ("\x1b[1;32m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        // The sample runs from a clone, a template of one's own by an installed program.
        let is_sample = settings.sample.is_some();
        let (program, operators) = match is_sample {
            true => ("cargo run -p local --", "cargo run -q -p idempotency-cli --"),
            false => ("idempotency-local", "idempotency"),
        };
        let simulated = if simulated.is_empty() { "no function".to_owned() } else { simulated.join(", ") };
        let kind = if store.embedded { "embedded" } else { "DYNAMODB_ENDPOINT" };
        let tables = stack.tables.iter().map(|table| format!(" {}", table.full_name)).collect::<Vec<_>>();
        let functions = definitions.iter().map(|definition| definition.name).collect::<Vec<_>>();
        let (functions, timeout) = (functions.join(", "), settings.function_timeout.as_millis());
        let most = format!("at most {} environments each, {timeout} ms an invocation", settings.environments);
        let rows = [
            ("dynamodb", format!("{} ({kind}; tables{})", store.recorded, tables.join(","))),
            ("provider", (*provider).to_owned()),
            ("simulated", format!("PROVIDER_URL of {simulated}")),
            ("queues", (*queues).to_owned()),
            (
                "bus",
                if bus.name.is_empty() { String::new() } else { format!("{} ({})", bus.endpoint, bus.name) },
            ),
            ("reports", if is_sample { settings.reports.clone() } else { String::new() }),
            ("functions", format!("{functions}; {most}")),
            ("watch", format!("{strong}{url}/{plain} in a browser; or {}", self.views().join("  "))),
            ("settings", format!("{program} --help")),
        ];
        let rows = rows.iter().filter(|(_, text)| !text.is_empty());
        let rows: String = rows.map(|(name, text)| format!("{faint}{name:11}{plain} {text}\n")).collect();
        let first = if is_sample { self.payment(strong, plain) } else { self.routes(strong, plain) };
        let is_guarded = |definition: &Definition| definition.variables.contains_key(IDEMPOTENCY_TABLE);
        let operate = match definitions.iter().any(is_guarded) {
            true => format!(
                "{strong}Look at what is unknown or stale, as an operator, in another terminal:{plain}\n\n  \
                 eval \"$(curl -s {url}/operate)\"; {operators} watch\n\n"
            ),
            false => String::new(),
        };
        format!("listening on {url}\n\n{rows}\n{first}\n\n{operate}Ctrl-C ends everything.\n")
    }

    /// What programs can watch.
    fn views(&self) -> Vec<String> {
        let Self { url, stack, .. } = self;
        let queue = stack.queues.iter().find(|queue| queue.dead_letters.is_some());
        let paths = ["/provider/charges", "/environments", "/metrics"].map(str::to_owned).into_iter();
        let paths = paths.chain(queue.map(|queue| format!("/queues/{}", queue.name)));
        let paths = paths.chain((!stack.buses.is_empty()).then(|| "/outbox/delivered".to_owned()));
        paths.map(|path| format!("{url}{path}")).collect()
    }

    /// The sample's first request.
    fn payment(&self, strong: &str, plain: &str) -> String {
        let url = self.url;
        let payment = format!(
            "curl -i {url}/payments -H 'Authorization: Bearer acme' -H 'Idempotency-Key: order-1' \\\n    \
             -H 'Content-Type: application/json' \\\n    \
             -d '{{\"customerId\":\"c-1\",\"amountCents\":1999,\"currency\":\"EUR\",\"source\":\"tok_ok\"}}'"
        );
        format!(
            "{strong}Create a payment:{plain}\n\n  {payment}\n\n\
             {strong}The same again, which charges nothing and gets the same answer:{plain}\n\n  {payment}"
        )
    }

    /// The routes of one's own.
    fn routes(&self, strong: &str, plain: &str) -> String {
        let (url, mut lines) = (self.url, String::new());
        for route in self.settings.routes.iter().chain(&self.stack.routes).take(SHOWN_ROUTES) {
            let method = route.method.as_ref().map_or("POST", |method| method.as_str());
            let path = if route.path == DEFAULT { "/" } else { &route.path };
            let key = if ["POST", "PATCH"].contains(&method) { " -H 'Idempotency-Key: k-1'" } else { "" };
            let body = Example::of(&self.settings.bodies, route).map(|body| {
                let (kind, file) = (body.content_type(), body.file.display());
                format!(" \\\n    -H 'Content-Type: {kind}' --data-binary '@{file}'")
            });
            let takes_one = ["POST", "PUT", "PATCH"].contains(&method);
            let any = if takes_one { " -H 'Content-Type: application/json' -d '{}'" } else { "" };
            let body = body.unwrap_or_else(|| any.to_owned());
            let _ = write!(
                lines,
                "\n  curl -i -X {method} '{url}{path}' -H 'Authorization: Bearer acme'{key}{body}"
            );
        }
        let which =
            "The routes; the bearer token is the caller's name, and --body gives an example of a body";
        format!("{strong}{which}:{plain}\n{lines}")
    }
}
