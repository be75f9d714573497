//! The program `local`.

use std::process::ExitCode;

fn main() -> ExitCode {
    local::main()
}
