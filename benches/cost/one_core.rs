//! All threads on one core, as in a function with less than 1.8 GB of memory. Between two cores, each request to the store would wake the other
//! one, which costs more or less by chance.

use std::{io, mem};

/// Keeps this thread, and those that it starts, on the core that it runs on.
pub fn keep_to_one_core() {
    // SAFETY: a set of cores is plain numbers, and is as long as the call is told.
    unsafe {
        let mut cores: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cores);
        let result = libc::sched_setaffinity(0, size_of_val(&cores), &cores);
        assert!(result == 0, "{}", io::Error::last_os_error());
    }
}
