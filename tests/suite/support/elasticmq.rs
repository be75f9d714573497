//! ElasticMQ: an SQS that hands out several messages of a FIFO group in one batch, as AWS does.
//!
//! `tests/elasticmq/pom.xml` sets its version. It needs Java and Maven, as DynamoDB Local does, and its tests are ignored without them.

use super::java::{Java, Running};
use std::net::TcpStream;
use std::time::Duration;

const ELASTICMQ: Java = Java {
    name: "elasticmq",
    pom: include_str!("../../elasticmq/pom.xml"),
    alternatives: "or leave these tests out with `cargo test -- --skip elasticmq`",
    prepare: |_| Ok(()),
    answers: |endpoint| {
        let address = endpoint.trim_start_matches("http://").parse().expect("an address");
        TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
    },
};

/// Starts one. It runs until it is dropped.
pub fn start() -> Running {
    let running = ELASTICMQ.run(|java, port, _| {
        java.args([
            "-Drest-stats.enabled=false",
            "-Drest-sqs.bind-hostname=127.0.0.1",
            "-Dnode-address.host=127.0.0.1",
        ])
        .arg(format!("-Drest-sqs.bind-port={port}"))
        .arg(format!("-Dnode-address.port={port}"))
        .arg("org.elasticmq.server.Main");
    });
    running.unwrap_or_else(|missing| panic!("ElasticMQ is missing: {missing}"))
}
