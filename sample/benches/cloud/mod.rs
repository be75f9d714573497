//! The local cloud that a benchmark measures.

use std::{
    env,
    error::Error,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The local cloud. Dropping this kills it, and its own processes end with it.
pub struct Cloud {
    pub process: Child,
    /// Where it listens.
    pub url: String,
}

impl Cloud {
    /// Starts the program, or the one that an argument names, on any free port and with these variables.
    pub fn start(variables: &[(&str, String)]) -> Outcome<Self> {
        let program = env::args().skip(1).find(|argument| !argument.starts_with("--"));
        let mut command = Command::new(program.as_deref().unwrap_or(env!("CARGO_BIN_EXE_local")));
        command.env("PORT", "0").envs(variables.iter().map(|(name, value)| (name, value)));
        let process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut cloud = Self { process, url: String::new() };
        let mut output = BufReader::new(cloud.process.stdout.take().ok_or("no standard output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let url = line.trim().strip_prefix("listening on ").ok_or("the local cloud does not start")?;
        cloud.url = url.to_owned();
        Ok(cloud)
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
