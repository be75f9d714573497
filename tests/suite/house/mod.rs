//! The repository itself: its documents, the names of its tests, and what the tests are built on.

mod documents;
mod named_tests;
mod rooms;
mod support_works;
