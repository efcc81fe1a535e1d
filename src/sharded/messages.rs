//! Messages between ranks: the exchange of the caller, which moves bytes, and the headers by which
//! ranks find out that it moved the wrong ones.

use std::error::Error as StdError;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};

/// A message to another rank.
///
/// ```
/// use ellect::sharded::Outgoing;
///
/// let message = Outgoing { rank: 2, bytes: &[1, 2, 3] };
/// assert_eq!((message.rank, message.bytes.len()), (2, 3));
/// ```
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The rank that gets the message.
    pub rank: usize,
    /// The message, never empty.
    pub bytes: &'a [u8],
}

/// Room for a message from another rank.
///
/// ```
/// use ellect::sharded::Incoming;
///
/// let mut room = [0; 3];
/// let message = Incoming { rank: 2, bytes: &mut room };
/// message.bytes.copy_from_slice(&[1, 2, 3]);
/// assert_eq!(room, [1, 2, 3]);
/// ```
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The rank that sends the message.
    pub rank: usize,
    /// Room for the message; it has exactly this length.
    pub bytes: &'a mut [u8],
}

/// The reason why an [`Exchange`] failed.
pub type ExchangeError = Box<dyn StdError + Send + Sync>;

/// Moves bytes between ranks: a wrapper of MPI, of torch.distributed, of sockets or of files.
///
/// All ranks call it in the same order. In each call, a rank sends at most one message to each other
/// rank and receives at most one from each, in rising order of ranks. The receiver knows the length of
/// each message, so each [`Incoming`] of one rank is the [`Outgoing`] of another one. With MPI, a call
/// is an `MPI_Irecv` for each message to receive, an `MPI_Isend` for each message to send, and an
/// `MPI_Waitall`.
///
/// An exchange that waits for a rank that has ended should fail after some time: nothing else can tell
/// the other ranks. [`Threads`](super::Threads) is an exchange of the threads of one process.
///
/// ```
/// use ellect::sharded::{Exchange, ExchangeError, Incoming, Outgoing, Rank};
///
/// /// The exchange of a single rank, which has nobody to talk to.
/// struct Alone;
///
/// impl Exchange for Alone {
///     fn exchange(
///         &mut self,
///         send: &[Outgoing<'_>],
///         receive: &mut [Incoming<'_>],
///         meanwhile: &mut dyn FnMut(),
///     ) -> Result<(), ExchangeError> {
///         // Begin to send and to receive here,
///         meanwhile();
///         // and wait for all messages here.
///         match send.is_empty() && receive.is_empty() {
///             true => Ok(()),
///             false => Err("there is no other rank".into()),
///         }
///     }
/// }
///
/// # fn main() -> ellect::Result<()> {
/// assert_eq!(Rank::of(0, 1, Alone)?.dot(&[1.0, 2.0], &[3.0, 4.0])?, 11.0);
/// # Ok(())
/// # }
/// ```
pub trait Exchange: Send {
    /// Sends all messages of `send` and fills all of `receive`; returns when both are done.
    ///
    /// `meanwhile` does work that needs no message. An exchange that proceeds in the background calls
    /// it after it began to send and to receive; another one need not call it.
    ///
    /// # Errors
    /// The text of the error becomes part of that of the caller's operation, which then has failed on
    /// this rank.
    fn exchange(
        &mut self,
        send: &[Outgoing<'_>],
        receive: &mut [Incoming<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> std::result::Result<(), ExchangeError>;
}

/// The header of a message.
#[derive(Clone, Copy, Default)]
struct Header {
    /// [`MARK`], or [`FAULTY`] if the sender gave up the operation.
    mark: u64,
    /// Number of exchanges of the sender, this one included.
    count: u64,
    /// Rank of the sender.
    from: u64,
    /// Hash of the other bytes of the message.
    sum: u64,
}

/// Version of the messages.
const MARK: u64 = u64::from_le_bytes(*b"ellect 1");
/// Mark of a message whose sender could not do its part.
const FAULTY: u64 = u64::from_le_bytes(*b"ellect -");
/// Length of a header in bytes.
const HEADER: usize = 32;

/// A message and its header, with room that serves every exchange.
#[derive(Debug)]
pub(super) struct Parcel {
    /// The other rank.
    pub rank: usize,
    bytes: Vec<u8>,
}

impl Parcel {
    /// Creates room for a message of this length.
    pub fn new(rank: usize, len: usize) -> Self {
        Parcel { rank, bytes: vec![0; HEADER + len] }
    }

    /// Creates a message of these bytes.
    pub fn holding(rank: usize, payload: &[u8]) -> Self {
        let mut parcel = Parcel::new(rank, payload.len());
        parcel.payload_mut().copy_from_slice(payload);
        parcel
    }

    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[HEADER..]
    }

    fn set(&mut self, header: Header) {
        let words = [header.mark, header.count, header.from, header.sum];
        self.bytes[..HEADER].copy_from_slice(bytemuck::bytes_of(&words));
    }

    fn header(&self) -> Header {
        let [mark, count, from, sum] = bytemuck::pod_read_unaligned(&self.bytes[..HEADER]);
        Header { mark, count, from, sum }
    }
}

/// The exchange of a rank, with what it has done so far.
pub(super) struct Post {
    pub rank: usize,
    exchange: Box<dyn Exchange>,
    /// Number of exchanges.
    count: u64,
}

impl Post {
    pub fn new(rank: usize, exchange: impl Exchange + 'static) -> Self {
        Post { rank, exchange: Box::new(exchange), count: 0 }
    }

    /// Sends and receives messages. `faulty` tells the receivers that this rank cannot do its part.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the exchange fails, if a message is not the expected one, or if its
    /// sender is faulty.
    pub fn exchange(
        &mut self,
        faulty: bool,
        send: &mut [Parcel],
        receive: &mut [Parcel],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<()> {
        self.count += 1;
        let mark = if faulty { FAULTY } else { MARK };
        for parcel in &mut *send {
            let sum = xxh3_64(parcel.payload());
            parcel.set(Header { mark, count: self.count, from: self.rank as u64, sum });
        }
        // A message that does not come leaves no header behind.
        receive.iter_mut().for_each(|parcel| parcel.set(Header::default()));
        let outgoing: Vec<_> =
            send.iter().map(|to| Outgoing { rank: to.rank, bytes: &to.bytes }).collect();
        let incoming = receive.iter_mut();
        let mut incoming: Vec<_> =
            incoming.map(|from| Incoming { rank: from.rank, bytes: &mut from.bytes }).collect();
        let done = self.exchange.exchange(&outgoing, &mut incoming, meanwhile);
        done.map_err(|error| self.fault(format!("the exchange failed: {error}")))?;
        receive.iter().try_for_each(|parcel| self.check(parcel))
    }

    fn fault(&self, what: String) -> Error {
        Error::Exchange { rank: self.rank, what }
    }

    /// Returns the error for an operation that another rank gave up.
    pub fn failed(&self, other: usize) -> Error {
        self.fault(format!("rank {other} could not do its part; the error there says why"))
    }

    fn check(&self, parcel: &Parcel) -> Result<()> {
        let (from, header) = (parcel.rank, parcel.header());
        let what = match header {
            Header { mark: 0, .. } => format!("no message came from rank {from}"),
            Header { mark, .. } if mark != MARK && mark != FAULTY => {
                format!("the message from rank {from} is none of this version of ellect")
            }
            Header { from: sender, .. } if sender != from as u64 => {
                format!("the message that should come from rank {from} is one of rank {sender}")
            }
            Header { count, .. } if count != self.count => {
                let own = self.count;
                format!(
                    "the message from rank {from} is of its exchange {count}, but this rank is at \
                     exchange {own}: all ranks must make the same calls in the same order"
                )
            }
            Header { mark: FAULTY, .. } => return Err(self.failed(from)),
            Header { sum, .. } if sum != xxh3_64(parcel.payload()) => {
                format!("the message from rank {from} was changed on its way")
            }
            _ => return Ok(()),
        };
        Err(self.fault(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills every message with a copy of the one that a test sent, after a change.
    struct Lie<F>(F);

    impl<F: FnMut(&mut Vec<u8>) + Send> Exchange for Lie<F> {
        fn exchange(
            &mut self,
            send: &[Outgoing<'_>],
            receive: &mut [Incoming<'_>],
            _: &mut dyn FnMut(),
        ) -> std::result::Result<(), ExchangeError> {
            let mut bytes = send.first().ok_or("nothing to send")?.bytes.to_vec();
            (self.0)(&mut bytes);
            receive[0].bytes.copy_from_slice(&bytes);
            Ok(())
        }
    }

    /// Receives its own message, as one of rank 3.
    fn received(change: impl FnMut(&mut Vec<u8>) + Send + 'static, faulty: bool) -> Result<u8> {
        let mut post = Post::new(3, Lie(change));
        let (mut send, mut receive) = ([Parcel::holding(3, &[7])], [Parcel::new(3, 1)]);
        post.exchange(faulty, &mut send, &mut receive, &mut || {})?;
        Ok(receive[0].payload()[0])
    }

    #[test]
    fn changed_messages_are_found() {
        assert_eq!(received(|_| {}, false).expect("the message is whole"), 7);
        let fault = |change: fn(&mut Vec<u8>)| {
            received(change, false).expect_err("the message is changed").to_string()
        };
        assert!(fault(|bytes| bytes.fill(0)).contains("no message came from rank 3"));
        assert!(fault(|bytes| bytes[3] ^= 1).contains("none of this version"));
        assert!(fault(|bytes| bytes[8] += 4).contains("of its exchange 5, but this rank is at"));
        assert!(fault(|bytes| bytes[16] = 9).contains("should come from rank 3 is one of rank 9"));
        assert!(fault(|bytes| bytes[HEADER] = 8).contains("was changed on its way"));
        let fault = received(|_| {}, true).expect_err("the sender is faulty").to_string();
        assert!(fault.starts_with("rank 3: rank 3 could not do its part"), "{fault}");
    }

    #[test]
    fn failures_of_the_exchange_name_the_rank() {
        let mut post = Post::new(5, Lie(|_: &mut Vec<u8>| {}));
        let error = post.exchange(false, &mut [], &mut [], &mut || {}).expect_err("no message");
        assert!(error.to_string().starts_with("rank 5: the exchange failed: nothing to send"));
    }
}
