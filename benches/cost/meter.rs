//! What a call uses of this thread. The embedded store works on another thread, and is not counted.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::task::yield_now;

/// What one call used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub cpu: Duration,
    pub allocations: u64,
    pub allocated_bytes: u64,
}

/// Awaits `call`, and returns what it used. Everything that it spawns must run on this thread.
pub async fn spent<T>(call: impl Future<Output = T>) -> (T, Spent) {
    // Forgets the timers of the call before, as an environment does that waits for its next invocation. Otherwise they save this one the
    // system calls that set its own.
    yield_now().await;
    let (allocations, bytes) = (ALLOCATIONS.get(), ALLOCATED_BYTES.get());
    let cpu = cpu_time();
    let answer = call.await;
    let spent = Spent {
        cpu: cpu_time() - cpu,
        allocations: ALLOCATIONS.get() - allocations,
        allocated_bytes: ALLOCATED_BYTES.get() - bytes,
    };
    (answer, spent)
}

/// The CPU time of this thread until now.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static ALLOCATED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counted by thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    ALLOCATED_BYTES.set(ALLOCATED_BYTES.get() + bytes as u64);
}

// SAFETY: every call goes to `System` as it came; the counters are constants' thread locals, which allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }
}
