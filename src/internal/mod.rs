//! What the packages of this workspace share. It is not part of the public interface, and may change in any version.

pub mod terminal;

pub use crate::error_chain::error_chain;
