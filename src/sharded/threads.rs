//! An exchange between the threads of one process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::messages::{Exchange, ExchangeError, Incoming, Outgoing};

/// The exchange of one of several threads that are ranks: for tests of programs that run with other
/// exchanges, and for hosts without any.
///
/// ```
/// use ellect::sharded::{Rank, Threads};
///
/// # fn main() -> ellect::Result<()> {
/// let threads = Threads::all(3).into_iter().enumerate().map(|(rank, exchange)| {
///     let rank = Rank::of(rank, 3, exchange)?;
///     Ok(std::thread::spawn(move || rank.dot(&[1.0], &[rank.rank() as f64])))
/// });
/// for thread in threads.collect::<ellect::Result<Vec<_>>>()? {
///     assert_eq!(thread.join().expect("no rank panics")?, 3.0);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Threads {
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
    patience: Duration,
}

impl Threads {
    /// Returns the exchanges of this many ranks, in their order.
    pub fn all(size: usize) -> Vec<Self> {
        let patience = Duration::from_secs(60);
        let none = |_| Threads { to: Vec::new(), from: Vec::new(), patience };
        let mut all: Vec<_> = (0..size).map(none).collect();
        for from in 0..size {
            for to in 0..size {
                let (sender, receiver) = channel();
                all[from].to.push(sender);
                all[to].from.push(receiver);
            }
        }
        all
    }

    /// Sets the time after which a rank stops waiting for a message, 60 s otherwise.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Threads { patience, ..self }
    }
}

impl Exchange for Threads {
    fn exchange(
        &mut self,
        send: &[Outgoing<'_>],
        receive: &mut [Incoming<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), ExchangeError> {
        let missing = |rank: usize| format!("there are {} ranks, none is {rank}", self.to.len());
        for message in send {
            let to = self.to.get(message.rank).ok_or_else(|| missing(message.rank))?;
            let ended = |_| format!("rank {} has ended", message.rank);
            to.send(message.bytes.to_vec()).map_err(ended)?;
        }
        meanwhile();
        for message in receive {
            let rank = message.rank;
            let from = self.from.get(rank).ok_or_else(|| missing(rank))?;
            let bytes = from.recv_timeout(self.patience).map_err(|error| match error {
                RecvTimeoutError::Timeout => {
                    format!("no message came from rank {rank} in {:?}", self.patience)
                }
                RecvTimeoutError::Disconnected => format!("rank {rank} has ended"),
            })?;
            if bytes.len() != message.bytes.len() {
                let (got, wanted) = (bytes.len(), message.bytes.len());
                let what =
                    format!("a message of {got} bytes came from rank {rank}, not of {wanted}");
                return Err(what.into());
            }
            message.bytes.copy_from_slice(&bytes);
        }
        Ok(())
    }
}
