//! The program `local`: the local cloud with the sample.

use std::process::ExitCode;

fn main() -> ExitCode {
    sample::main()
}
