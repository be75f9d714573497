//! Leaves the tests with real parts out, unless they are required: they fetch Kinesis from npm and Kafka from Maven.

use std::env;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(kinesis, kafka)");
    println!("cargo::rerun-if-changed=build.rs");
    for (variable, cfg, needs) in
        [("KINESIS", "kinesis", "nodejs npm"), ("KAFKA", "kafka", "openjdk-17-jdk-headless maven")]
    {
        println!("cargo::rerun-if-env-changed={variable}");
        match env::var(variable).as_deref() {
            Ok("required") => println!("cargo::rustc-cfg={cfg}"),
            _ => println!(
                "cargo::warning=the tests with {variable} are left out: {variable}=required runs them (`apt-get install {needs}`)"
            ),
        }
    }
}
