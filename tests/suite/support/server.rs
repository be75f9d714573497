//! A server that works while the process under test stands still: a [`Proxy`] on a thread and a runtime of its own.

use super::proxy::Proxy;
use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Far beyond what closing a connection takes.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);

/// Runs until it is dropped.
pub struct Server {
    proxy: Proxy,
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts one before `target`.
    pub fn before(target: &str) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), target)
    }

    /// Starts one at this address.
    pub fn at(address: SocketAddr, target: &str) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = TcpListener::bind(address).expect("a free port for the server");
        listener.set_nonblocking(true).expect("a listener that tokio can take over");
        let proxy = {
            let _on_its_runtime = runtime.enter();
            Proxy::of(tokio::net::TcpListener::from_std(listener).expect("a listener"))
        };
        proxy.leads_to(target);
        Self { proxy, runtime: Some(runtime) }
    }

    pub fn address(&self) -> SocketAddr {
        self.url().strip_prefix("http://").and_then(|address| address.parse().ok()).expect("an address")
    }

    /// Closes the connections that wait for a request. Meanwhile, the caller's thread stands still.
    pub fn close_connections(&self) {
        self.hang_up();
        let deadline = Instant::now() + CLOSED_WITHIN;
        while self.open() > 0 {
            assert!(Instant::now() < deadline, "its connections do not close");
            thread::yield_now();
        }
    }
}

impl Deref for Server {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

impl Drop for Server {
    /// Everything is closed when this returns.
    fn drop(&mut self) {
        let runtime = self.runtime.take();
        // A runtime must not be dropped on a thread of another one.
        thread::spawn(move || drop(runtime)).join().expect("it ends");
    }
}
