//! The provider's address, which it can leave and come back to.

use super::{
    Slowness,
    books::{Books, Charge, Webhook},
    webhooks::Receiver,
};
use std::{
    future, io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex as Turns, watch},
    time,
};

/// A running provider. While it is away, its port refuses connections; what it knows stays.
pub struct Server {
    /// The provider's URL.
    pub url: String,
    address: SocketAddr,
    router: Router,
    is_away: watch::Sender<bool>,
    pub(crate) slowness: Slowness,
    books: Arc<Mutex<Books>>,
    receiver: Arc<Receiver>,
    /// It leaves, or comes back, once at a time.
    moves: Turns<()>,
}

impl Server {
    pub(super) async fn start(
        router: Router,
        slowness: Slowness,
        books: Arc<Mutex<Books>>,
        receiver: Arc<Receiver>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let url = format!("http://{address}");
        let is_away = watch::Sender::new(false);
        let moves = Turns::default();
        let server = Self { url, address, router, is_away, slowness, books, receiver, moves };
        server.serve(listener);
        Ok(server)
    }

    fn serve(&self, listener: TcpListener) {
        let (router, mut is_away) = (self.router.clone(), self.is_away.subscribe());
        let leaves = async move {
            if is_away.wait_for(|is_away| *is_away).await.is_err() {
                // Nobody can send it away any more.
                future::pending::<()>().await;
            }
        };
        tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(leaves).await });
    }

    /// How many charges its ledger has, and the newest of them, even while it is away.
    pub(crate) fn ledger(&self, newest: usize) -> (usize, Vec<Charge>) {
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let charges = books.charges();
        (charges.len(), charges.iter().rev().take(newest).cloned().collect())
    }

    /// Sends its webhook's receiver a body, with a valid signature. Returns whether it was acknowledged.
    pub(crate) async fn sends(&self, body: &str) -> bool {
        let event = Webhook { id: 0, body: body.to_owned() };
        !self.receiver.send(vec![event]).await.is_empty()
    }

    /// Whether it refuses connections.
    pub(crate) fn is_away(&self) -> bool {
        *self.is_away.borrow()
    }

    /// Refuses connections from now on. A request that has begun is still answered.
    pub async fn leave(&self) {
        let _moves = self.moves.lock().await;
        self.is_away.send_replace(true);
        while TcpStream::connect(self.address).await.is_ok() {
            time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Accepts connections again, at the same address.
    ///
    /// # Errors
    /// If another program has taken the port meanwhile.
    pub async fn come_back(&self) -> io::Result<()> {
        let _moves = self.moves.lock().await;
        if *self.is_away.borrow() {
            let listener = TcpListener::bind(self.address).await?;
            self.is_away.send_replace(false);
            self.serve(listener);
        }
        Ok(())
    }
}
