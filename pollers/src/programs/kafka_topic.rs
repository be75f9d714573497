//! Kafka for the local cloud: brings a topic's records to a function, as Lambda's event source mapping does.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use clap::{Args, Parser, Subcommand};
use pollers::{
    kafka::{self, Topic},
    mapping::Mapping,
    part,
};

#[derive(Parser)]
#[command(name = "kafka-topic", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Brings the records of a topic to a function, and starts Kafka if it does not run
    Follow {
        #[command(flatten)]
        place: Place,
        /// The partitions of the topic, if it is not there yet
        #[arg(long, value_name = "COUNT", default_value_t = 1)]
        partitions: i32,
        /// The ARN of the cluster in the events, as of MSK; without it, they are those of a self-managed cluster
        #[arg(long, value_name = "ARN")]
        cluster: Option<String>,
        #[command(flatten)]
        mapping: Mapping,
    },
    /// Publishes a record
    Put {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        key: String,
        value: String,
    },
}

#[derive(Args)]
struct Place {
    /// The topic's name
    #[arg(long)]
    topic: String,
    /// The port of Kafka on 127.0.0.1
    #[arg(long, default_value_t = 9092)]
    port: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Err(why) = run(Arguments::parse().command).await else { return ExitCode::SUCCESS };
    eprintln!("error: {why}");
    ExitCode::FAILURE
}

fn listens(port: u16) -> bool {
    part::listens(SocketAddr::from(([127, 0, 0, 1], port)))
}

async fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Follow { place: Place { topic: name, port }, partitions, cluster, mapping } => {
            let starting = part::starting("kafka")?;
            let (_running, address) = match listens(port) {
                true => (None, format!("127.0.0.1:{port}")),
                false => kafka::start(port).await.map(|(running, address)| (Some(running), address))?,
            };
            drop(starting);
            let client = kafka::client(&address).await?;
            let topic = Topic { client, name: name.clone(), cluster, address: address.clone() };
            let delivery = kafka::mapping(topic, partitions, mapping).await?;
            delivery.say(&format!("follows the topic {name} of Kafka at {address}"));
            kafka::follow(Arc::new(delivery)).await;
        }
        Command::Put { place: Place { topic, port }, key, value } => {
            // Its client would wait for it.
            if !listens(port) {
                return Err(format!("Kafka does not listen on 127.0.0.1:{port}: follow a topic first"));
            }
            let client = kafka::client(&format!("127.0.0.1:{port}")).await?;
            let partitions = kafka::partitions(&client, &topic).await?;
            println!("{}", kafka::put(&partitions, &key, value.as_bytes()).await?);
        }
    }
    Ok(())
}
