//! Counts the system calls of a thread, by kind.
//!
//! A child process traces the thread by `ptrace`, which no thread may do to another one of its own process. Each system call stops the
//! thread twice, so its times mean nothing meanwhile.

use std::{
    io, mem, ptr,
    sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst},
};

/// Linux numbers its system calls from 0, up to less than this.
const KINDS: usize = 512;

/// The child waits until it may trace, counts, or could not begin: then this is the negative error number.
const MAY_BEGIN: i32 = 1;
const COUNTS: i32 = 2;

/// What `waitpid` reports for a stop at a system call, with `PTRACE_O_TRACESYSGOOD`.
const AT_SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

/// Memory that thread and child share.
#[repr(C)]
struct Shared {
    state: AtomicI32,
    calls: [AtomicU32; KINDS],
}

/// The system calls of the thread that has begun this, until it is dropped.
pub struct SystemCalls {
    shared: &'static Shared,
    tracer: libc::pid_t,
}

impl SystemCalls {
    /// # Panics
    /// If the machine does not allow it: to count nothing would look like making no system calls.
    pub fn of_this_thread() -> Self {
        // SAFETY: the mapping is as long as `Shared`, zeroed, which is valid for atomics, and never unmapped. The child only makes
        // system calls: a lock that another thread held at the fork stays locked in it.
        unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let place = libc::mmap(ptr::null_mut(), size_of::<Shared>(), access, kind, -1, 0);
            assert!(place != libc::MAP_FAILED, "{}", io::Error::last_os_error());
            let shared: &'static Shared = &*place.cast();
            let thread = libc::gettid();
            let tracer = libc::fork();
            assert!(tracer >= 0, "{}", io::Error::last_os_error());
            if tracer == 0 {
                trace(thread, shared);
            }
            // Where Yama restricts tracing. It fails where there is none.
            libc::prctl(libc::PR_SET_PTRACER, tracer);
            shared.state.store(MAY_BEGIN, SeqCst);
            while shared.state.load(SeqCst) == MAY_BEGIN {
                libc::sched_yield();
            }
            let error = -shared.state.load(SeqCst);
            assert!(error < 0, "system calls cannot be counted: {}", io::Error::from_raw_os_error(error));
            Self { shared, tracer }
        }
    }

    /// How many there were of each kind until now.
    pub fn until_now(&self) -> Kinds {
        Kinds(self.shared.calls.iter().map(|calls| calls.load(SeqCst)).collect())
    }
}

impl Drop for SystemCalls {
    fn drop(&mut self) {
        // SAFETY: it is our child, and was not waited for. Its end detaches it from the thread.
        unsafe {
            libc::kill(self.tracer, libc::SIGKILL);
            libc::waitpid(self.tracer, ptr::null_mut(), 0);
        }
    }
}

/// The child's whole life.
unsafe fn trace(thread: libc::pid_t, shared: &Shared) -> ! {
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        while shared.state.load(SeqCst) != MAY_BEGIN {
            libc::sched_yield();
        }
        if libc::ptrace(libc::PTRACE_SEIZE, thread, 0, libc::PTRACE_O_TRACESYSGOOD) != 0
            || libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) != 0
        {
            shared.state.store(-*libc::__errno_location(), SeqCst);
            libc::_exit(1);
        }
        loop {
            let mut status = 0;
            if libc::waitpid(thread, &mut status, libc::__WALL) != thread || !libc::WIFSTOPPED(status) {
                libc::_exit(0);
            }
            let signal = match libc::WSTOPSIG(status) {
                AT_SYSTEM_CALL => {
                    let mut info: libc::ptrace_syscall_info = mem::zeroed();
                    libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size_of_val(&info), &mut info);
                    if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
                        let kind = (info.u.entry.nr as usize).min(KINDS - 1);
                        shared.calls[kind].fetch_add(1, SeqCst);
                    }
                    0
                }
                // It stopped because we interrupted it.
                _ if status >> 16 != 0 => {
                    shared.state.store(COUNTS, SeqCst);
                    0
                }
                signal => signal,
            };
            libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal);
        }
    }
}

/// A number of system calls of each kind.
#[derive(Clone, Debug)]
pub struct Kinds(Vec<u32>);

impl Kinds {
    /// All but those of the meter, which asks for CPU time. Other clocks need no system call.
    pub fn total(&self) -> u64 {
        let calls = self.0.iter().map(|&calls| u64::from(calls)).sum::<u64>();
        calls - u64::from(self.0[libc::SYS_clock_gettime as usize])
    }

    /// The same without those that depend on chance: waits for events, by how fast the server's thread is, and the allocator's, by what
    /// the heap looks like.
    #[allow(dead_code, reason = "the benchmark prints all")]
    pub fn deliberate(&self) -> u64 {
        const BY_CHANCE: [&str; 7] =
            ["brk", "epoll_pwait", "epoll_pwait2", "epoll_wait", "madvise", "mmap", "munmap"];
        let by_chance = self.named().filter(|(name, _)| BY_CHANCE.contains(&&**name));
        self.total() - by_chance.map(|(_, calls)| u64::from(calls)).sum::<u64>()
    }

    /// Those that were added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().zip(&before.0).map(|(now, before)| now - before).collect())
    }

    /// The number of each kind that occurs, by its name.
    pub fn named(&self) -> impl Iterator<Item = (String, u32)> {
        self.0.iter().enumerate().filter(|(_, calls)| **calls > 0).map(|(kind, calls)| (name(kind), *calls))
    }
}

fn name(kind: usize) -> String {
    const NAMES: [(libc::c_long, &str); 15] = [
        (libc::SYS_brk, "brk"),
        (libc::SYS_clock_gettime, "clock_gettime"),
        (libc::SYS_epoll_ctl, "epoll_ctl"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_epoll_wait, "epoll_wait"),
        #[cfg(not(target_arch = "x86_64"))]
        (libc::SYS_epoll_pwait2, "epoll_pwait2"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_getrandom, "getrandom"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_munmap, "munmap"),
        (libc::SYS_read, "read"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_write, "write"),
        (libc::SYS_writev, "writev"),
    ];
    let named = NAMES.iter().find(|(number, _)| *number as usize == kind);
    named.map_or_else(|| format!("number {kind}"), |(_, name)| (*name).to_owned())
}

/// The median of a number of each.
pub fn middle(counted: &[Kinds], number: fn(&Kinds) -> u64) -> u64 {
    let mut sorted: Vec<_> = counted.iter().map(number).collect();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}
