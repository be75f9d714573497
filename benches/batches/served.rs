//! The embedded DynamoDB in a process of its own, so that its work is not counted.

use std::{
    env,
    io::{self, BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use crate::embedded::Embedded;

/// The argument that makes this program serve the store.
pub const SERVE: &str = "--serve";

/// A store in a child process, until it is dropped.
pub struct Served {
    pub endpoint: String,
    child: Child,
}

impl Served {
    pub fn start() -> Self {
        let program = env::current_exe().expect("this program");
        let mut command = Command::new(program);
        let mut child =
            command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let output = child.stdout.take().expect("its output");
        let mut endpoint = String::new();
        BufReader::new(output).read_line(&mut endpoint).expect("its address");
        Self { endpoint: endpoint.trim_end().to_owned(), child }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("the child ends with its input");
    }
}

/// Serves a store, and prints its address, until the input ends.
pub fn serve() {
    let embedded = Embedded::start();
    println!("{}", embedded.endpoint);
    io::stdin().read_to_end(&mut Vec::new()).expect("an input");
}
