//! Kinesis for the local cloud: brings a stream's records to a function, as Lambda's event source mapping does.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use clap::{Args, Parser, Subcommand};
use pollers::{errors::chain, kinesis, mapping::Mapping, part};

#[derive(Parser)]
#[command(name = "kinesis-stream", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Brings the records of a stream to a function, and starts Kinesis if it does not run
    Follow {
        #[command(flatten)]
        place: Place,
        /// The shards of the stream, if it is not there yet
        #[arg(long, default_value_t = 1)]
        shards: i32,
        #[command(flatten)]
        mapping: Mapping,
    },
    /// Publishes a record
    Put {
        #[command(flatten)]
        place: Place,
        /// Its partition key
        #[arg(long)]
        key: String,
        data: String,
    },
}

#[derive(Args)]
struct Place {
    /// The stream's name
    #[arg(long)]
    stream: String,
    /// The port of Kinesis on 127.0.0.1
    #[arg(long, default_value_t = 4568)]
    port: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Err(why) = run(Arguments::parse().command).await else { return ExitCode::SUCCESS };
    eprintln!("error: {why}");
    ExitCode::FAILURE
}

async fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Follow { place: Place { stream, port }, shards, mapping } => {
            let starting = part::starting("kinesis")?;
            let (_running, endpoint) = match part::listens(SocketAddr::from(([127, 0, 0, 1], port))) {
                true => (None, format!("http://127.0.0.1:{port}")),
                false => kinesis::start(port).await.map(|(running, endpoint)| (Some(running), endpoint))?,
            };
            drop(starting);
            let delivery = kinesis::mapping(kinesis::client(&endpoint), &stream, shards, mapping).await?;
            delivery.say(&format!("follows the stream {stream} of Kinesis at {endpoint}"));
            kinesis::follow(Arc::new(delivery)).await;
        }
        Command::Put { place: Place { stream, port }, key, data } => {
            let client = kinesis::client(&format!("http://127.0.0.1:{port}"));
            let put = kinesis::put(&client, &stream, &key, data.as_bytes()).await;
            println!("{}", put.map_err(|error| chain(&*error))?);
        }
    }
    Ok(())
}
