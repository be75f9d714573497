//! What every store promises, and what the library does if one fails or holds what it cannot read.

mod conformance;
mod costs;
mod faults;
mod formats;
mod index;
mod unreadable;
