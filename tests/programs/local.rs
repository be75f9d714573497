//! The local cloud as the suite starts it. It starts this program again as each of its functions.

use std::process::ExitCode;

fn main() -> ExitCode {
    sample::main()
}
