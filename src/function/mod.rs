//! The guard for any async function: a key, an input, a result; without HTTP.
//!
//! 1. The caller names the key; the fingerprint is of the operation and the input's JSON. Another input under the same key is a
//!    [mismatch](RunError::Mismatch).
//! 2. The function runs in a task of its own, to its end, even if the caller is dropped.
//! 3. What it returns is kept as JSON, and each call gets what is read from that, the first one too: a retry needs no run. A result that JSON
//!    cannot carry is not kept, and [says so](RunError::ResultNotKept).
//! 4. A caller is told whether the function ran for it, or the result is [replayed](crate::How).
//! 5. A [`Failure`] says what is known: nothing was done, perhaps something was, or the input is refused for good, which is kept too.
//!
//! It uses the engine that the HTTP guard uses: states, domain writes, phases and reconciliation are the same.

mod failure;
mod guard;
mod ran;
mod run;

pub use failure::{Failure, RunError, UnkeptResult};
pub use guard::Guard;
pub use ran::Ran;
