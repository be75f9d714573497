//! The addresses of this cloud that the page names.

use crate::cloud::Cloud;
use axum::http::Method;

/// An address, and what is there.
pub struct Link {
    pub path: &'static str,
    pub name: &'static str,
    pub says: &'static str,
}

const fn link(path: &'static str, name: &'static str, says: &'static str) -> Link {
    Link { path, name, says }
}

/// Those that are here. A route of the functions comes before an address of the cloud.
pub fn all(cloud: &Cloud) -> Vec<Link> {
    let mut links = vec![
        link("/operate", "operate", "the variables for the command line idempotency"),
        link("/metrics", "metrics", "totals of the metrics since the start"),
        link("/environments", "environments", "each process, with its id"),
    ];
    if cloud.has_provider() {
        links.push(link("/provider/charges", "charges", "the provider's ledger"));
    }
    if !cloud.stack.buses.is_empty() {
        links.push(link("/outbox/delivered", "events", "what the outbox has handed to the event bus"));
    }
    links.extend([
        link(
            "/local/docs/walkthrough",
            "walkthrough",
            "what goes wrong, and what becomes of it, as commands",
        ),
        link("/local/docs/guide", "guide", "how to use the library, and the local cloud"),
        link("/local/docs/states", "states", "what each state of a record means for a retry"),
    ]);
    links.retain(|link| cloud.routes.before_cloud(&Method::GET, link.path).is_none());
    links
}
