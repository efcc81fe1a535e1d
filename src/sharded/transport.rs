//! Ways to move halos between the GPUs of ranks, and the choice that all ranks make alike.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;
use std::sync::OnceLock;

use xxhash_rust::xxh3::xxh3_64;

use super::rank::Rank;
use crate::error::{Error, Result};
use crate::partition::{Told, WORD};

/// A way to move halos and sums between the GPUs of ranks.
///
/// ```
/// use ellect::sharded::Transport;
///
/// assert_eq!("nccl".parse::<Transport>()?, Transport::Nccl);
/// assert_eq!(Transport::default().to_string(), "auto");
/// # Ok::<(), ellect::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// The first of the others that works for all ranks.
    #[default]
    Auto,
    /// Kernels store elements into the memory of the other ranks' GPUs, which the processes of one
    /// host open to each other (CUDA IPC), and agree by counters there.
    Peer,
    /// NCCL 2.22 or later, which is opened at run time: also between hosts.
    Nccl,
    /// The ranks' [`Exchange`](super::Exchange): elements are copied to the host and back, and each
    /// product waits for them. Works everywhere.
    Host,
}

const NAMES: [(&str, Transport); 4] = [
    ("auto", Transport::Auto),
    ("peer", Transport::Peer),
    ("nccl", Transport::Nccl),
    ("host", Transport::Host),
];

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, transport)| transport == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Transport {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|&(_, transport)| transport).ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            Error::argument(format!("no transport is named '{text}'; there are: {names}"))
        })
    }
}

/// Facts about a rank's GPU that all ranks know. Ranks send them as numbers of 8 bytes, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Card {
    /// The transport that the caller asks for, by its place among the names.
    pub wanted: u64,
    /// 1 if the part is on a GPU.
    pub on_gpu: u64,
    /// Numbers of the host and of the process, which differ between hosts and processes.
    pub host: u64,
    pub process: u64,
    /// Number of the GPU.
    pub gpu: [u64; 2],
    /// Version of NCCL; 0 without it.
    pub nccl: u64,
}

impl Card {
    pub const BYTES: usize = 56;

    /// Returns the card of this process.
    pub fn of_this_process(wanted: Transport, gpu: Option<[u8; 16]>, nccl: Option<u32>) -> Self {
        let place = NAMES.iter().position(|&(_, transport)| transport == wanted);
        let process = process();
        Card {
            wanted: place.unwrap_or(0) as u64,
            on_gpu: u64::from(gpu.is_some()),
            host: host().unwrap_or(process),
            process,
            gpu: bytemuck::pod_read_unaligned(&gpu.unwrap_or_default()),
            nccl: u64::from(nccl.unwrap_or(0)),
        }
    }

    pub fn words(&self) -> [u64; 7] {
        let [a, b] = self.gpu;
        [self.wanted, self.on_gpu, self.host, self.process, a, b, self.nccl]
    }

    /// Reads the cards of all ranks.
    pub fn read(bytes: &[u8]) -> Vec<Self> {
        let cards = bytes.chunks_exact(Card::BYTES).map(|bytes| {
            let [wanted, on_gpu, host, process, a, b, nccl] = bytemuck::pod_read_unaligned(bytes);
            Card { wanted, on_gpu, host, process, gpu: [a, b], nccl }
        });
        cards.collect()
    }

    /// Returns the number by which the GPU is known.
    pub fn gpu(&self) -> [u8; 16] {
        bytemuck::cast(self.gpu)
    }

    fn transport(&self) -> Transport {
        NAMES.get(self.wanted as usize).map_or(Transport::Auto, |&(_, transport)| transport)
    }
}

/// Returns a number that two processes have in common only by chance.
fn process() -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    *PROCESS
        .get_or_init(|| RandomState::new().build_hasher().finish() ^ u64::from(std::process::id()))
}

/// Returns the number of this start of the host's system, which containers have in common.
fn host() -> Option<u64> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    Some(xxh3_64(&boot))
}

/// An obstacle to stores of one rank's GPU into the memory of another one's. Ranks send it as a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Obstacle {
    None,
    OtherHost,
    SameProcess,
    SameGpu,
    NoAccess,
}

impl Obstacle {
    const ALL: [Obstacle; 5] = [
        Obstacle::None,
        Obstacle::OtherHost,
        Obstacle::SameProcess,
        Obstacle::SameGpu,
        Obstacle::NoAccess,
    ];

    /// Returns the obstacle between two ranks; `reaches` tells whether the GPU of the first one reaches
    /// the memory of the other one's.
    pub fn between(own: &Card, other: &Card, reaches: impl FnOnce() -> bool) -> Self {
        match () {
            () if own.host != other.host => Obstacle::OtherHost,
            () if own.gpu == other.gpu => Obstacle::SameGpu,
            () if own.process == other.process => Obstacle::SameProcess,
            () if !reaches() => Obstacle::NoAccess,
            () => Obstacle::None,
        }
    }

    /// Reads an obstacle from a message.
    pub fn read(byte: u8) -> Self {
        let found = Obstacle::ALL.into_iter().find(|&obstacle| obstacle as u8 == byte);
        found.unwrap_or(Obstacle::NoAccess)
    }

    fn text(self, [own, other]: [usize; 2]) -> String {
        match self {
            Obstacle::None => String::new(),
            Obstacle::OtherHost => format!("ranks {own} and {other} are on different hosts"),
            Obstacle::SameProcess => {
                format!("ranks {own} and {other} are threads of one process")
            }
            Obstacle::SameGpu => format!("ranks {own} and {other} share a GPU"),
            Obstacle::NoAccess => {
                format!("the GPU of rank {own} cannot reach the memory of that of rank {other}")
            }
        }
    }
}

/// A transport to try, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    pub transport: Transport,
    pub why: String,
}

/// Returns the transports to try, best first. `obstacles` are those of each rank to each other one. All
/// ranks find the same ones.
///
/// # Errors
/// [`Error::Argument`] if ranks ask for different transports, if a part is on a host, or if the wanted
/// transport cannot work.
pub(super) fn ways(cards: &[Card], obstacles: &[Vec<Obstacle>]) -> Result<Vec<Way>> {
    let wanted = cards[0].transport();
    if let Some(other) = cards.iter().position(|card| card.transport() != wanted) {
        return Err(Error::argument(format!(
            "ranks disagree: the transport is {wanted} on rank 0 and {} on rank {other}; name the \
             same one on all ranks",
            cards[other].transport()
        )));
    }
    if let Some(rank) = cards.iter().position(|card| card.on_gpu == 0) {
        return Err(Error::argument(format!(
            "the part of rank {rank} is on a host; vectors stay on GPUs only if the parts of all \
             ranks are there: open a GPU on rank {rank}, or use apply on all ranks"
        )));
    }
    let first = |wanted: &dyn Fn(Obstacle) -> bool| {
        let pairs = obstacles.iter().enumerate().flat_map(|(own, others)| {
            others.iter().enumerate().map(move |(other, &obstacle)| ([own, other], obstacle))
        });
        let mut pairs = pairs.filter(|([own, other], _)| own != other);
        pairs.find(|&(_, obstacle)| wanted(obstacle)).map(|(pair, obstacle)| obstacle.text(pair))
    };
    let no_peer = first(&|obstacle| obstacle != Obstacle::None);
    let no_nccl = no_nccl(cards).or_else(|| first(&|obstacle| obstacle == Obstacle::SameGpu));
    let way = |transport, why: &str| Way { transport, why: why.into() };
    let near = way(Transport::Peer, "all GPUs are of one host and reach each other's memory");
    let named = "it was asked for";
    let refused = |why: &str| {
        Error::argument(format!(
            "transport {wanted} does not work here: {why}; name another one, or auto"
        ))
    };
    match (wanted, &no_peer, &no_nccl) {
        (Transport::Peer, Some(why), _) | (Transport::Nccl, _, Some(why)) => Err(refused(why)),
        (Transport::Auto, None, None) => Ok(vec![
            near,
            way(Transport::Nccl, "all ranks have it"),
            way(Transport::Host, "it works everywhere"),
        ]),
        (Transport::Auto, None, Some(why)) => Ok(vec![near, way(Transport::Host, why)]),
        (Transport::Auto, Some(why), None) => {
            Ok(vec![way(Transport::Nccl, why), way(Transport::Host, "it works everywhere")])
        }
        (Transport::Auto, Some(why), Some(and)) => {
            Ok(vec![way(Transport::Host, &format!("{why}, and {and}"))])
        }
        _ => Ok(vec![way(wanted, named)]),
    }
}

/// Returns why the ranks cannot use NCCL, if so.
fn no_nccl(cards: &[Card]) -> Option<String> {
    if let Some(rank) = cards.iter().position(|card| card.nccl == 0) {
        return Some(format!("rank {rank} finds no NCCL 2.22 or later (libnccl.so.2)"));
    }
    let first = cards[0].nccl;
    let other = cards.iter().position(|card| card.nccl != first)?;
    let version = cards[other].nccl;
    Some(format!("NCCL has version {first} on rank 0 and {version} on rank {other}"))
}

/// Bytes of a fault that a rank tells.
const TEXT: usize = 383;

impl Rank {
    /// Tells the own word, or the own fault, to all ranks; all call this together.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the exchange fails.
    pub(super) fn tell(&self, own: std::result::Result<[u8; WORD], String>) -> Result<Told> {
        let mut bytes = [0; 1 + WORD + TEXT];
        match &own {
            Ok(word) => bytes[1..=WORD].copy_from_slice(word),
            Err(text) => {
                bytes[0] = 1;
                let len = text.len().min(TEXT);
                bytes[1 + WORD..][..len].copy_from_slice(&text.as_bytes()[..len]);
            }
        }
        let all = self.all_gather(Some(&bytes), bytes.len())?;
        let mut words = Vec::with_capacity(self.size());
        for (rank, bytes) in all.chunks_exact(1 + WORD + TEXT).enumerate() {
            if bytes[0] != 0 {
                let text = String::from_utf8_lossy(&bytes[1 + WORD..]);
                return Ok(Err(format!("rank {rank}: {}", text.trim_end_matches('\0'))));
            }
            let mut word = [0; WORD];
            word.copy_from_slice(&bytes[1..=WORD]);
            words.push(word);
        }
        Ok(Ok(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharded::Threads;

    fn cards(size: u64) -> Vec<Card> {
        let card = |rank| Card {
            wanted: 0,
            on_gpu: 1,
            host: 7,
            process: 100 + rank,
            gpu: [rank, 1],
            nccl: 22_803,
        };
        (0..size).map(card).collect()
    }

    /// Obstacles of these cards, where GPUs reach each other.
    fn obstacles(cards: &[Card]) -> Vec<Vec<Obstacle>> {
        let between = |own, other| Obstacle::between(own, other, || true);
        cards.iter().map(|own| cards.iter().map(|other| between(own, other)).collect()).collect()
    }

    fn tried(cards: &[Card]) -> Vec<Transport> {
        let ways = ways(cards, &obstacles(cards)).expect("a way");
        ways.iter().map(|way| way.transport).collect()
    }

    fn refused(cards: &[Card]) -> String {
        ways(cards, &obstacles(cards)).expect_err("no way").to_string()
    }

    #[test]
    fn cards_survive_their_way() {
        let all = cards(3);
        let words: Vec<u64> = all.iter().flat_map(Card::words).collect();
        assert_eq!(size_of_val(&words[..]), 3 * Card::BYTES);
        assert_eq!(Card::read(bytemuck::cast_slice(&words)), all);
        let own = Card::of_this_process(Transport::Nccl, Some([3; 16]), None);
        assert_eq!((own.transport(), own.gpu(), own.nccl), (Transport::Nccl, [3; 16], 0));
        let again = Card::of_this_process(Transport::Auto, None, Some(22_203));
        assert_eq!((own.process, own.host), (again.process, again.host));
        for obstacle in Obstacle::ALL {
            assert_eq!(Obstacle::read(obstacle as u8), obstacle);
        }
    }

    #[test]
    fn peers_come_first_then_nccl_then_the_host() {
        use Transport::{Host, Nccl, Peer};
        let mut all = cards(4);
        assert_eq!(tried(&all), [Peer, Nccl, Host]);
        all[2].nccl = 0;
        assert_eq!(tried(&all), [Peer, Host]);
        all[3].host = 8;
        assert_eq!(tried(&all), [Host]);
        let ways = ways(&all, &obstacles(&all)).expect("a way");
        let why = "ranks 0 and 3 are on different hosts, and rank 2 finds no NCCL 2.22 or later \
                   (libnccl.so.2)";
        assert_eq!(ways[0].why, why);
        all[2].nccl = 22_803;
        assert_eq!(tried(&all), [Nccl, Host]);
    }

    #[test]
    fn one_pair_without_access_moves_all_ranks() {
        let all = cards(3);
        let mut obstacles = obstacles(&all);
        obstacles[2][1] = Obstacle::NoAccess;
        let ways = ways(&all, &obstacles).expect("a way");
        assert_eq!(ways[0].transport, Transport::Nccl);
        assert!(ways[0].why.contains("GPU of rank 2 cannot reach the memory of that of rank 1"));
        let mut all = cards(3);
        all[2].process = 100;
        assert_eq!(tried(&all)[0], Transport::Nccl);
        all[2].gpu = all[0].gpu;
        assert_eq!(tried(&all), [Transport::Host]);
    }

    #[test]
    fn a_named_transport_is_taken_or_refused_with_the_reason() {
        let mut all = cards(2);
        let name = |all: &mut [Card], wanted| all.iter_mut().for_each(|card| card.wanted = wanted);
        for (wanted, transport) in
            [(1, Transport::Peer), (2, Transport::Nccl), (3, Transport::Host)]
        {
            name(&mut all, wanted);
            assert_eq!(tried(&all), [transport]);
        }
        name(&mut all, 1);
        all[1].host = 8;
        assert!(refused(&all).contains("transport peer does not work here: ranks 0 and 1 are on"));
        name(&mut all, 2);
        all[1].nccl = 22_203;
        let fault = refused(&all);
        assert!(fault.contains("NCCL has version 22803 on rank 0 and 22203 on rank 1"), "{fault}");
        all[0].wanted = 3;
        assert!(refused(&all).contains("the transport is host on rank 0 and nccl on rank 1"));
        let mut all = cards(2);
        all[1].on_gpu = 0;
        assert!(refused(&all).contains("the part of rank 1 is on a host"));
    }

    #[test]
    fn faults_are_told_to_all_ranks() {
        let exchanges = Threads::all(3).into_iter().enumerate();
        let threads = exchanges.map(|(rank, exchange)| {
            let rank = Rank::of(rank, 3, exchange).expect("it is below the number of ranks");
            std::thread::spawn(move || {
                let word = [rank.rank() as u8; WORD];
                let words = rank.tell(Ok(word)).expect("it works").expect("no rank failed");
                assert_eq!(words.iter().map(|word| word[5]).collect::<Vec<_>>(), [0, 1, 2]);
                let own = match rank.rank() {
                    0 => Ok(word),
                    own => Err(format!("fault {own} {}", "long ".repeat(100))),
                };
                rank.tell(own).expect("it works").expect_err("two ranks failed")
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            let text = thread.join().expect("no rank panics");
            assert!(text.starts_with("rank 1: fault 1 long "), "{text}");
            assert!(text.len() < 400, "{text}");
        }
    }
}
