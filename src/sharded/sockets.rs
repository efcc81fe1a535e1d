//! An exchange between processes over TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::messages::{Exchange, ExchangeError, Incoming, Outgoing};
use crate::error::{Error, Result};

/// First bytes of each connection: the version of the messages.
const MARK: [u8; 8] = *b"ellect s";

/// Bytes of a greeting: the mark, the sender's rank, the number of ranks, and its port.
const GREETING: usize = 20;

/// Bytes of an entry in the table of ranks: an IPv6 address, or an IPv4 one in its form, and a port.
const ENTRY: usize = 18;

/// Pause between two attempts to reach another rank.
const PAUSE: Duration = Duration::from_millis(20);

/// Messages of at most so many bytes in all are sent without a second thread: the system's buffers hold
/// them while the other rank sends too.
const SMALL: usize = 8 << 10;

/// The exchange of a process with other ones over TCP, for ranks without MPI.
///
/// Bytes are neither encrypted nor authenticated: use it within a trusted network.
///
/// ```
/// use std::time::Duration;
///
/// use ellect::sharded::{Rank, Sockets};
///
/// # fn main() -> ellect::Result<()> {
/// // Ranks are processes; threads stand for them here.
/// let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
/// let meeting = free.local_addr().expect("it is bound").to_string();
/// drop(free);
/// let ranks = [0, 1].map(|rank| {
///     let meeting = meeting.clone();
///     std::thread::spawn(move || -> ellect::Result<f64> {
///         let exchange = Sockets::meet(rank, 2, &meeting, Duration::from_secs(30))?;
///         Rank::of(rank, 2, exchange)?.dot(&[1.0], &[2.0])
///     })
/// });
/// for rank in ranks {
///     assert_eq!(rank.join().expect("no rank panics")?, 4.0);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sockets {
    /// The connection to each rank; none to the own one.
    links: Vec<Option<TcpStream>>,
    patience: Duration,
}

impl Sockets {
    /// Connects rank `rank` of `size` ranks with all others. `meeting` is a host and a port at which
    /// rank 0 listens, as `MASTER_ADDR` and a free port beside `MASTER_PORT` where torchrun starts the
    /// processes. The other ranks listen at ports that the system chooses.
    ///
    /// Waits at most `patience` for the others, and later as long for each message.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `rank` is below `size`; [`Error::Exchange`] with the rank that did not
    /// come, or with the system's error.
    pub fn meet(rank: usize, size: usize, meeting: &str, patience: Duration) -> Result<Self> {
        if rank >= size || u32::try_from(size).is_err() {
            return Err(Error::argument(format!(
                "this is rank {rank} of {size} ranks; ranks are counted from 0 and are below their \
                 number"
            )));
        }
        let meeting_of = Meeting { rank, size, end: Instant::now() + patience };
        let links = match (size, rank) {
            (1, _) => Ok(vec![None]),
            (_, 0) => meeting_of.as_first(meeting),
            _ => meeting_of.as_other(meeting),
        };
        let links = links.map_err(|what| Error::Exchange { rank, what })?;
        for link in links.iter().flatten() {
            let set = link
                .set_nodelay(true)
                .and_then(|()| link.set_read_timeout(Some(patience.max(PAUSE))))
                .and_then(|()| link.set_write_timeout(Some(patience.max(PAUSE))));
            set.map_err(|error| Error::Exchange {
                rank,
                what: format!("setting up a connection failed: {error}"),
            })?;
        }
        Ok(Sockets { links, patience })
    }

    fn link(&self, rank: usize) -> std::result::Result<&TcpStream, ExchangeError> {
        let link = self.links.get(rank).and_then(Option::as_ref);
        let ranks = self.links.len();
        link.ok_or_else(|| format!("there are {ranks} ranks; {rank} is none, or this one").into())
    }

    fn send(&self, messages: &[Outgoing<'_>]) -> std::result::Result<(), ExchangeError> {
        messages.iter().try_for_each(|message| {
            let mut link = self.link(message.rank)?;
            let len = (message.bytes.len() as u64).to_le_bytes();
            let sent = link.write_all(&len).and_then(|()| link.write_all(message.bytes));
            sent.map_err(|error| self.fault("sending to", message.rank, &error).into())
        })
    }

    fn receive(&self, messages: &mut [Incoming<'_>]) -> std::result::Result<(), ExchangeError> {
        messages.iter_mut().try_for_each(|message| {
            let mut link = self.link(message.rank)?;
            let mut len = [0; 8];
            let fault = |error| self.fault("receiving from", message.rank, &error);
            link.read_exact(&mut len).map_err(fault)?;
            let (got, wanted) = (u64::from_le_bytes(len), message.bytes.len() as u64);
            if got != wanted {
                let rank = message.rank;
                let what = format!(
                    "a message of {got} bytes came from rank {rank}, not of {wanted}: all ranks must \
                     make the same calls in the same order"
                );
                return Err(what.into());
            }
            Ok(link.read_exact(message.bytes).map_err(fault)?)
        })
    }

    fn fault(&self, what: &str, rank: usize, error: &std::io::Error) -> String {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("{what} rank {rank} took longer than {:?}", self.patience)
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("{what} rank {rank}: that rank has ended ({error})")
            }
            _ => format!("{what} rank {rank}: {error}"),
        }
    }
}

impl Exchange for Sockets {
    fn exchange(
        &mut self,
        send: &[Outgoing<'_>],
        receive: &mut [Incoming<'_>],
        meanwhile: &mut dyn FnMut(),
    ) -> std::result::Result<(), ExchangeError> {
        if send.iter().map(|message| message.bytes.len()).sum::<usize>() <= SMALL {
            self.send(send)?;
            meanwhile();
            return self.receive(receive);
        }
        // Both sides of a pair may send more than the system's buffers hold.
        let this = &*self;
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| this.send(send));
            meanwhile();
            let received = this.receive(receive);
            if received.is_err() {
                // A sender that waits for a rank that has given up ends at once.
                this.links.iter().flatten().for_each(|link| drop(link.shutdown(Shutdown::Both)));
            }
            let sent = sender.join().unwrap_or_else(|_| Err("the sending thread failed".into()));
            received.and(sent)
        })
    }
}

/// A rank on its way to the others.
struct Meeting {
    rank: usize,
    size: usize,
    /// Time at which the patience ends.
    end: Instant,
}

type Links = std::result::Result<Vec<Option<TcpStream>>, String>;

impl Meeting {
    /// Waits for all other ranks and tells them where each one listens.
    fn as_first(&self, meeting: &str) -> Links {
        let listener = TcpListener::bind(meeting)
            .map_err(|error| format!("listening at {meeting} failed: {error}"))?;
        let mut links: Vec<Option<TcpStream>> = (0..self.size).map(|_| None).collect();
        let mut table = vec![0; ENTRY * self.size];
        self.accept(&listener, 1, &mut links, &mut |rank, link, port| {
            let at = link.peer_addr().map_err(|error| format!("rank {rank}: {error}"))?;
            let entry = &mut table[ENTRY * rank..][..ENTRY];
            entry[..16].copy_from_slice(&v6(at.ip()));
            entry[16..].copy_from_slice(&port.to_le_bytes());
            Ok(())
        })?;
        for (rank, link) in links.iter_mut().enumerate() {
            if let Some(link) = link {
                let told = link.write_all(&table);
                told.map_err(|error| format!("telling rank {rank} the others failed: {error}"))?;
            }
        }
        Ok(links)
    }

    /// Meets rank 0, connects with the ranks before this one, and waits for those behind it.
    fn as_other(&self, meeting: &str) -> Links {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
            .map_err(|error| format!("listening failed: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let mut first = self.connect(0, port, &|| {
            meeting.to_socket_addrs().map(|mut all| all.next()).unwrap_or_default()
        })?;
        let mut table = vec![0; ENTRY * self.size];
        self.read(&mut first, &mut table)
            .map_err(|error| format!("rank 0 did not tell where the other ranks are: {error}"))?;
        let mut links: Vec<Option<TcpStream>> = (0..self.size).map(|_| None).collect();
        links[0] = Some(first);
        for other in 1..self.rank {
            let entry = &table[ENTRY * other..][..ENTRY];
            let mut ip = [0; 16];
            ip.copy_from_slice(&entry[..16]);
            let port_there = u16::from_le_bytes([entry[16], entry[17]]);
            let at = SocketAddr::new(IpAddr::from(ip).to_canonical(), port_there);
            links[other] = Some(self.connect(other, port, &|| Some(at))?);
        }
        self.accept(&listener, self.rank + 1, &mut links, &mut |_, _, _| Ok(()))?;
        Ok(links)
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Reads within the time that is left.
    fn read(&self, link: &mut TcpStream, bytes: &mut [u8]) -> std::io::Result<()> {
        link.set_nonblocking(false)?;
        link.set_read_timeout(Some(self.left().max(PAUSE)))?;
        link.read_exact(bytes)
    }

    /// Connects with another rank, which may not listen yet, and greets it.
    fn connect(
        &self,
        other: usize,
        port: u16,
        address: &dyn Fn() -> Option<SocketAddr>,
    ) -> std::result::Result<TcpStream, String> {
        let mut last = String::from("its name has no address");
        loop {
            let left = self.left();
            if left.is_zero() {
                return Err(format!("rank {other} did not answer in time: {last}"));
            }
            let tried = address().map(|at| (at, TcpStream::connect_timeout(&at, left)));
            match tried {
                Some((_, Ok(mut link))) => {
                    let mut greeting = [0; GREETING];
                    greeting[..8].copy_from_slice(&MARK);
                    greeting[8..12].copy_from_slice(&(self.rank as u32).to_le_bytes());
                    greeting[12..16].copy_from_slice(&(self.size as u32).to_le_bytes());
                    greeting[16..18].copy_from_slice(&port.to_le_bytes());
                    let greeted = link.write_all(&greeting);
                    greeted.map_err(|error| format!("greeting rank {other} failed: {error}"))?;
                    return Ok(link);
                }
                Some((at, Err(error))) => last = format!("{at}: {error}"),
                None => {}
            }
            std::thread::sleep(PAUSE.min(left));
        }
    }

    /// Waits for all ranks from `first` on; `greeted` takes each with its port.
    fn accept(
        &self,
        listener: &TcpListener,
        first: usize,
        links: &mut [Option<TcpStream>],
        greeted: &mut dyn FnMut(usize, &TcpStream, u16) -> std::result::Result<(), String>,
    ) -> std::result::Result<(), String> {
        listener.set_nonblocking(true).map_err(|error| format!("listening failed: {error}"))?;
        while let Some(missing) = (first..self.size).find(|&rank| links[rank].is_none()) {
            if self.left().is_zero() {
                let here = links.iter().flatten().count();
                return Err(format!(
                    "rank {missing} did not come in time; {} of {} ranks are here",
                    here + 1,
                    self.size
                ));
            }
            let mut link = match listener.accept() {
                Ok((link, _)) => link,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(PAUSE.min(self.left()));
                    continue;
                }
                Err(error) => return Err(format!("listening failed: {error}")),
            };
            // Strangers that connect and say something else, or nothing, are left.
            let mut greeting = [0; GREETING];
            if self.read(&mut link, &mut greeting).is_err() || greeting[..8] != MARK {
                continue;
            }
            let word = |at: usize| bytemuck::pod_read_unaligned::<u32>(&greeting[at..at + 4]);
            let (rank, size) = (word(8) as usize, word(12) as usize);
            let port = u16::from_le_bytes([greeting[16], greeting[17]]);
            if size != self.size {
                return Err(format!(
                    "rank {rank} says that there are {size} ranks, this one {}",
                    self.size
                ));
            }
            if rank < first || rank >= size || links[rank].is_some() {
                return Err(format!("two processes say that they are rank {rank}"));
            }
            greeted(rank, &link, port)?;
            links[rank] = Some(link);
        }
        Ok(())
    }
}

/// Returns an address in the form of IPv6.
fn v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharded::Rank;

    /// Returns a host and a port that nobody listens at.
    fn meeting() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.local_addr().expect("it is bound").to_string()
    }

    /// Runs `work` on as many ranks, which have met.
    fn on_ranks<R: Send>(size: usize, work: impl Fn(Sockets, usize) -> R + Sync) -> Vec<R> {
        let at = meeting();
        std::thread::scope(|scope| {
            let threads = (0..size).map(|rank| {
                let (at, work) = (&at, &work);
                scope.spawn(move || {
                    let met = Sockets::meet(rank, size, at, Duration::from_secs(20));
                    work(met.expect("all ranks come"), rank)
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
        })
    }

    #[test]
    fn messages_of_any_length_arrive() {
        for (size, len) in [(1, 3), (2, 1), (3, 5_000_000), (5, 1000)] {
            let sums = on_ranks(size, |mut sockets, rank| {
                let own: Vec<u8> = (0..len).map(|k| (k + rank * 7) as u8).collect();
                let others = || (0..size).filter(|&other| other != rank);
                let mut right = true;
                for _ in 0..3 {
                    let mut rooms: Vec<Vec<u8>> = others().map(|_| vec![0; len]).collect();
                    let send: Vec<_> =
                        others().map(|rank| Outgoing { rank, bytes: &own }).collect();
                    let mut receive: Vec<_> = others()
                        .zip(&mut rooms)
                        .map(|(rank, bytes)| Incoming { rank, bytes })
                        .collect();
                    let mut called = 0;
                    let done = sockets.exchange(&send, &mut receive, &mut || called += 1);
                    done.expect("all ranks are there");
                    right &= called == 1;
                    right &= others().zip(&rooms).all(|(from, room)| {
                        room.iter().enumerate().all(|(k, &byte)| byte == (k + from * 7) as u8)
                    });
                }
                right
            });
            assert_eq!(sums, vec![true; size]);
        }
    }

    #[test]
    fn sums_over_processes_are_those_of_all() {
        let sums = on_ranks(4, |sockets, rank| {
            let rank = Rank::of(rank, 4, sockets).expect("it is below 4");
            let mut values = [rank.rank() as f64, 1.0];
            rank.sum(&mut values).expect("all ranks are there");
            values
        });
        assert_eq!(sums, [[6.0, 4.0]; 4]);
    }

    #[test]
    fn ranks_that_do_not_come_are_named() {
        let patience = Duration::from_millis(300);
        let start = Instant::now();
        let first = Sockets::meet(0, 3, &meeting(), patience).expect_err("nobody comes");
        assert!(first.to_string().contains("rank 1 did not come in time; 1 of 3"), "{first}");
        let other = Sockets::meet(2, 3, &meeting(), patience).expect_err("nobody listens");
        assert!(other.to_string().contains("rank 0 did not answer in time: 127.0.0.1"), "{other}");
        assert!(start.elapsed() < Duration::from_secs(10), "waits are bounded");
        let none = Sockets::meet(3, 3, &meeting(), patience).expect_err("ranks are 0 to 2");
        assert!(matches!(none, Error::Argument(_)), "{none}");
    }

    #[test]
    fn ranks_that_end_or_differ_are_named() {
        let faults = on_ranks(2, |mut sockets, rank| {
            if rank == 1 {
                return String::new();
            }
            let mut room = [0; 4];
            let mut receive = [Incoming { rank: 1, bytes: &mut room }];
            let fault = sockets.exchange(&[], &mut receive, &mut || {});
            fault.expect_err("rank 1 has ended").to_string()
        });
        assert!(faults[0].contains("receiving from rank 1: that rank has ended"), "{faults:?}");
        let faults = on_ranks(2, |mut sockets, rank| {
            let send = [Outgoing { rank: 1 - rank, bytes: &[0; 5][..4 + rank] }];
            let mut room = [0; 4];
            let mut receive = [Incoming { rank: 1 - rank, bytes: &mut room }];
            sockets.exchange(&send, &mut receive, &mut || {}).err().map(|fault| fault.to_string())
        });
        let fault = faults[0].as_deref().expect("rank 1 sends one byte more");
        assert!(fault.contains("a message of 5 bytes came from rank 1, not of 4"), "{fault}");
    }

    #[test]
    fn other_numbers_of_ranks_are_refused() {
        let at = meeting();
        let patience = Duration::from_secs(5);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| Sockets::meet(0, 2, &at, patience));
            let other = scope.spawn(|| Sockets::meet(1, 3, &at, patience));
            let fault = first.join().expect("no panic").expect_err("numbers differ").to_string();
            assert!(fault.contains("rank 1 says that there are 3 ranks, this one 2"), "{fault}");
            let fault = other.join().expect("no panic").expect_err("rank 0 gave up").to_string();
            assert!(fault.contains("rank 0 did not tell where the other ranks are"), "{fault}");
        });
    }
}
