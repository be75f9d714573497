//! How records of dead workers are found: through the stream, by a check, or by a sweep.

mod records;
mod sweeps;
