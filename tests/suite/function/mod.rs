//! The guard of functions, without HTTP.

mod ends;
mod runs;
mod transacts;
mod values;
