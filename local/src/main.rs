//! The program `idempotency-local`: the local cloud for functions of one's own.

use std::process::ExitCode;

fn main() -> ExitCode {
    local::main(None)
}
