//! The guard of functions, without HTTP.

mod runs;
mod transacts;
