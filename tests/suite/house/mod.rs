//! The repository itself: its documents, the names of its tests, and what the tests are built on.

mod documents;
mod files;
mod named_tests;
mod pages;
mod release;
mod states;
mod support_works;
mod users;
