//! An order is placed once and charged once, however often its request is sent, and its message delivered.
//!
//! ```text
//! POST /orders ─▶ a row and a message, in one transaction ─▶ outbox ─▶ queue `billing` ─▶ function `billing` ─▶ provider, and the row
//! ```

pub mod billing;
pub mod orders;
mod provider;

pub use provider::Provider;

type Error = Box<dyn std::error::Error + Send + Sync>;
