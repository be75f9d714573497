//! The embedded DynamoDB: dynoxide, on SQLite in this process's memory.
//!
//! At each write to a table with a stream, dynoxide looks for the largest sequence number among all records of the
//! stream, and it never deletes those. Without an index, each write takes longer than the one before. So the database
//! begins as a copy of a file that has the index. This relies on dynoxide's public interface, the name of one table and
//! three of its columns; if they change, the start fails. Deleting delivered records instead would need a second
//! connection to a database in use, and other readers of the stream would miss them.

use crate::{
    changes::Changes,
    log::{self, Level},
};
use dynoxide::{Database, storage::Storage};
use std::{future, net::Ipv4Addr, path::Path, time::Duration};
use tokio::{
    net::TcpListener,
    time::{self, Instant},
};
use uuid::Uuid;

/// DynamoDB promises days, but a developer who watches wants seconds.
const TTL_SWEEP: Duration = Duration::from_secs(5);
/// A sweep reads whole tables. The next one waits for at least this many times as long as the last one took.
const TTL_REST: u32 = 50;

/// Covers three queries: the newest record, the bounds of a shard, and the next records to read.
const INDEX: &str = "CREATE INDEX local_stream_places
    ON _stream_records (table_name, CAST(sequence_number AS INTEGER), shard_id)";

/// Serves an empty database on a loopback port of its own, and returns its URL. Functions and operators get the recorder's. An item that
/// expires is one of the `changes`.
pub async fn start(changes: Changes) -> Result<String, String> {
    let database = empty()?;
    let listener = match TcpListener::bind((hidden(), 0)).await {
        Ok(listener) => Ok(listener),
        // Not every system has more than one loopback address.
        Err(_) => TcpListener::bind(("127.0.0.1", 0)).await,
    };
    let listener = listener.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    tokio::spawn(sweep(database.clone(), changes));
    tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database, future::pending()));
    Ok(format!("http://{address}"))
}

/// An address that no site can guess: dynoxide answers each of them, whatever its `Host` and its `Origin`.
fn hidden() -> Ipv4Addr {
    let [one, two, three, ..] = Uuid::new_v4().into_bytes();
    Ipv4Addr::new(127, one.clamp(1, 254), two, three.clamp(1, 254))
}

fn empty() -> Result<Database, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for temporary files: {error}"))?;
    let file = folder.path().join("indexed");
    let database = indexed(&file).and_then(|file| {
        let database = Database::memory()?;
        database.restore_from(file)?;
        Ok(database)
    });
    database.map_err(|error| error.to_string())
}

/// Writes an empty database with the index into `file`.
fn indexed(file: &Path) -> dynoxide::Result<&str> {
    let path = file.to_str().expect("a temporary folder's path is text");
    Storage::new(path)?.conn().execute_batch(INDEX)?;
    Ok(path)
}

async fn sweep(database: Database, changes: Changes) {
    loop {
        let begun = Instant::now();
        let database = database.clone();
        match tokio::task::spawn_blocking(move || database.sweep_ttl()).await {
            Ok(Ok(0)) => {}
            Ok(Ok(_)) => {
                changes.send_replace(());
            }
            Ok(Err(error)) => {
                let message = format!("cannot delete expired items: {error}");
                log::say("embedded DynamoDB", Level::Error, &message, &[]);
            }
            // The process is ending.
            Err(_) => return,
        }
        time::sleep(TTL_SWEEP.max(begun.elapsed() * TTL_REST)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// dynoxide's queries.
    const STATEMENTS: [&str; 3] = [
        "SELECT COALESCE(MAX(CAST(sequence_number AS INTEGER)), 0) + 1 FROM _stream_records WHERE table_name = ?1",
        "SELECT MIN(CAST(sequence_number AS INTEGER)), MAX(CAST(sequence_number AS INTEGER)) FROM _stream_records \
         WHERE table_name = ?1 AND shard_id = ?2",
        "SELECT event_name, keys_json, new_image, old_image, sequence_number, created_at, user_identity, event_id \
         FROM _stream_records \
         WHERE table_name = ?1 AND shard_id = ?2 AND CAST(sequence_number AS INTEGER) > ?3 \
         ORDER BY CAST(sequence_number AS INTEGER) ASC LIMIT ?4",
    ];

    #[test]
    fn the_address_of_the_database_cannot_be_guessed() {
        let [one, other] = [(); 2].map(|()| hidden());
        assert!(one.is_loopback() && other.is_loopback() && one != other, "{one} {other}");
    }

    #[test]
    fn a_stream_is_written_and_read_by_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        let copy = copy.to_str().unwrap();
        empty().unwrap().vacuum_into(copy).unwrap();
        let copy = Storage::new(copy).unwrap();
        let plans = STATEMENTS.map(|statement| {
            let mut plan = copy.conn().prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let mut lines = plan.raw_query();
            let mut shown = String::new();
            while let Some(line) = lines.next().unwrap() {
                shown.push_str(&line.get::<_, String>(3).unwrap());
            }
            shown
        });
        let [newest, bounds, next] = plans;
        assert!(newest.contains("USING COVERING INDEX local_stream_places (table_name=?)"), "{newest}");
        assert!(bounds.contains("USING COVERING INDEX local_stream_places (table_name=?)"), "{bounds}");
        assert!(next.contains("USING INDEX local_stream_places (table_name=? AND <expr>>?)"), "{next}");
        assert!(!next.contains("TEMP B-TREE"), "{next}");
    }
}
