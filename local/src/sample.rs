//! The sample of this project, which only a clone has.

use crate::program::Run;

/// What runs if there is no other template.
#[derive(Debug)]
pub struct Sample {
    /// Its template.
    pub template: &'static str,
    /// Its functions, by the names of their own programs. Those of the library are in each local cloud.
    pub functions: &'static [(&'static str, Run)],
}
