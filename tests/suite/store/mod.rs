//! What every store promises, and what the library does if a store fails or holds something unreadable.

mod alarms;
mod conformance;
mod costs;
mod emulators;
mod faults;
mod formats;
mod index;
mod retries;
mod settings;
mod unreadable;
