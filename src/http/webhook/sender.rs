//! What each sender of webhooks documents: where an event's id is, what is signed, for how long an event is delivered again.

use std::time::Duration;

use crate::{
    key::KeyFrom,
    time_budget::{
        GITHUB_PATIENCE, GITHUB_REDELIVERY, SHOPIFY_PATIENCE, SHOPIFY_REDELIVERY, STANDARD_WEBHOOKS_PATIENCE,
        STANDARD_WEBHOOKS_REDELIVERY, STRIPE_REDELIVERY, SVIX_PATIENCE, SVIX_REDELIVERY,
    },
};

pub(super) const STRIPE_SIGNATURE: &str = "stripe-signature";
pub(super) const GITHUB_SIGNATURE: &str = "x-hub-signature-256";
pub(super) const SHOPIFY_SIGNATURE: &str = "x-shopify-hmac-sha256";

/// The headers of signature, time and id by Standard Webhooks, and as Svix names them.
pub(super) const STANDARD: [&str; 3] = ["webhook-signature", "webhook-timestamp", "webhook-id"];
pub(super) const SVIX: [&str; 3] = ["svix-signature", "svix-timestamp", "svix-id"];

/// A sender of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Stripe,
    GitHub,
    Shopify,
    Standard,
    Svix,
}

impl Sender {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stripe => "Stripe",
            Self::GitHub => "GitHub",
            Self::Shopify => "Shopify",
            Self::Standard => "Standard Webhooks",
            Self::Svix => "Svix",
        }
    }

    /// The tenant of its events, if they name none and the program neither.
    pub(super) const fn tenant(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::GitHub => "github",
            Self::Shopify => "shopify",
            Self::Standard => "webhooks",
            Self::Svix => "svix",
        }
    }

    /// Where an event has its id, which is the same in each of its deliveries.
    pub(super) fn key_from(self) -> KeyFrom {
        match self {
            Self::Stripe => KeyFrom::body("/id"),
            Self::GitHub => KeyFrom::header("X-GitHub-Delivery"),
            // One action of a merchant is one event, of which each topic gets a webhook: `orders/create` and `orders/paid`.
            Self::Shopify => {
                KeyFrom::all([KeyFrom::header("X-Shopify-Event-Id"), KeyFrom::header("X-Shopify-Topic")])
            }
            Self::Standard => KeyFrom::header(STANDARD[2]),
            Self::Svix => KeyFrom::header(SVIX[2]),
        }
    }

    /// Whether this header says what an event is.
    pub(super) fn describes(self, name: &str) -> bool {
        match self {
            Self::Stripe => false,
            Self::GitHub => name.starts_with("x-github-"),
            Self::Shopify => name.starts_with("x-shopify-") && name != SHOPIFY_SIGNATURE,
            Self::Standard => STANDARD[1..].contains(&name),
            Self::Svix => SVIX[1..].contains(&name),
        }
    }

    /// The headers of the signature: what it is, and what it covers besides the body.
    pub(super) const fn signature(self) -> &'static [&'static str] {
        match self {
            Self::Stripe => &[STRIPE_SIGNATURE],
            Self::GitHub => &[GITHUB_SIGNATURE],
            Self::Shopify => &[SHOPIFY_SIGNATURE],
            Self::Standard => &STANDARD,
            Self::Svix => &SVIX,
        }
    }

    /// For how long an event is delivered again, and the name of that constant, for the message of a panic.
    pub(super) const fn redelivery(self) -> (Duration, &'static str) {
        match self {
            Self::Stripe => (STRIPE_REDELIVERY, "STRIPE_REDELIVERY"),
            Self::GitHub => (GITHUB_REDELIVERY, "GITHUB_REDELIVERY"),
            Self::Shopify => (SHOPIFY_REDELIVERY, "SHOPIFY_REDELIVERY"),
            Self::Standard => (STANDARD_WEBHOOKS_REDELIVERY, "STANDARD_WEBHOOKS_REDELIVERY"),
            Self::Svix => (SVIX_REDELIVERY, "SVIX_REDELIVERY"),
        }
    }

    /// For how long it waits for an answer, if that is documented.
    pub(super) const fn patience(self) -> Option<Duration> {
        match self {
            Self::Stripe => None,
            Self::GitHub => Some(GITHUB_PATIENCE),
            Self::Shopify => Some(SHOPIFY_PATIENCE),
            Self::Standard => Some(STANDARD_WEBHOOKS_PATIENCE),
            Self::Svix => Some(SVIX_PATIENCE),
        }
    }

    /// Whether it delivers an event again by itself, once it was answered by anything but 2xx.
    pub(super) const fn comes_again(self) -> bool {
        !matches!(self, Self::GitHub)
    }
}
