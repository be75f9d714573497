//! Processes that start from the same memory, as SnapStart's do.

use std::{fs::File, io::Read, os::fd::FromRawFd};

use lambda_idempotency::world::{SystemWorld, World};

const NONCES: usize = 8;

fn nonces() -> [[u8; 16]; NONCES] {
    std::array::from_fn(|_| SystemWorld.nonce())
}

// T20: a fork has its parent's memory, with any random number generator in it.
#[test]
fn two_processes_of_one_memory_mint_different_nonces() {
    // Initialise everything that is made only once before the fork.
    nonces();
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written to the array. They are closed on exec, so a program that another test starts meanwhile does not
    // hold the end that this process waits for. The child asks for random bytes, writes them, and exits. It allocates nothing and does not
    // return into the test.
    let child = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        libc::fork()
    };
    assert!(child >= 0, "no process can be started");
    if child == 0 {
        let nonces = nonces();
        let bytes = nonces.as_flattened();
        // SAFETY: as above. Nothing that belongs to the parent is cleaned up.
        unsafe {
            let written = libc::write(ends[1], bytes.as_ptr().cast(), bytes.len());
            libc::_exit(i32::from(written != bytes.len() as isize));
        }
    }
    let ours = nonces();
    let mut theirs = [0; NONCES * 16];
    // SAFETY: this process owns both descriptors, and nothing else uses them.
    let [mut from, to] = unsafe { ends.map(|end| File::from_raw_fd(end)) };
    drop(to);
    from.read_exact(&mut theirs).expect("the child writes its nonces");
    // SAFETY: it is a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    let theirs: Vec<_> = theirs.chunks(16).collect();
    assert!(ours.iter().all(|ours| !theirs.contains(&&ours[..])), "{ours:?} {theirs:?}");
    assert!(theirs.iter().any(|nonce| nonce.iter().any(|byte| *byte != 0)));
}
