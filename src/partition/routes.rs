//! The elements that a rank sends to each other rank and gets from it, and their places there.

use crate::error::Result;

/// Bytes that a rank tells all others at once during set-up.
pub(crate) const WORD: usize = 128;

/// The success of a step, or the fault of the first rank that failed in it: equal on all ranks.
pub(crate) type Agreed<R> = std::result::Result<R, String>;

/// The words of all ranks.
pub(crate) type Told = Agreed<Vec<[u8; WORD]>>;

/// Tells the own word, or the own fault, to all ranks; all call this together.
pub(crate) type Tell<'a> = &'a dyn Fn(std::result::Result<[u8; WORD], String>) -> Result<Told>;

/// Facts about the vectors of all ranks, which all ranks know.
#[derive(Clone, Debug)]
pub(crate) struct Needs {
    /// Number of own elements of each rank.
    pub own: Vec<usize>,
    /// For each rank, the number of elements that it needs from each other one.
    pub counts: Vec<Vec<usize>>,
}

/// Elements for another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    /// The rank that gets them.
    pub to: usize,
    /// Their positions in the own vector, halo included.
    pub elements: Vec<u32>,
    /// Place of the first one in the other rank's vector.
    pub place: usize,
    /// Number of ranks before this one that send to the other rank.
    pub turn: usize,
}

/// Elements of another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiving {
    /// The rank that sends them.
    pub from: usize,
    /// Place of the first one in the own vector.
    pub place: usize,
    /// Number of elements.
    pub count: usize,
    /// Number of ranks before this one that get elements of the other rank.
    pub turn: usize,
}

/// The elements that one rank sends and receives before each product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routes {
    /// The rank, and the number of ranks.
    pub rank: usize,
    pub size: usize,
    /// Rising by rank.
    pub sends: Vec<Sending>,
    /// Rising by rank.
    pub receives: Vec<Receiving>,
}

impl Needs {
    /// Returns the place in the vector of rank `of` of the elements that come from rank `from`: halos of
    /// earlier ranks are before the own elements, those of later ones behind them.
    fn place(&self, of: usize, from: usize) -> usize {
        let before: usize = self.counts[of][..from].iter().sum();
        before + if from > of { self.own[of] } else { 0 }
    }

    /// Returns the routes of a rank that sends these own elements, for each rank that needs any.
    pub fn routes(&self, rank: usize, requests: &[(usize, &[u32])]) -> Routes {
        let size = self.own.len();
        let first = self.counts[rank][..rank].iter().sum::<usize>() as u32;
        let sending = |&(to, elements): &(usize, &[u32])| Sending {
            to,
            elements: elements.iter().map(|&element| first + element).collect(),
            place: self.place(to, rank),
            turn: (0..rank).filter(|&earlier| self.counts[to][earlier] > 0).count(),
        };
        let receiving = |(from, &count): (usize, &usize)| Receiving {
            from,
            place: self.place(rank, from),
            count,
            turn: (0..rank).filter(|&earlier| self.counts[earlier][from] > 0).count(),
        };
        let counts = self.counts[rank].iter().enumerate();
        Routes {
            rank,
            size,
            sends: requests.iter().map(sending).collect(),
            receives: counts.filter(|(_, count)| **count > 0).map(receiving).collect(),
        }
    }
}

impl Routes {
    /// Returns the number of elements that the rank sends.
    pub fn sent(&self) -> usize {
        self.sends.iter().map(|sending| sending.elements.len()).sum()
    }

    /// Returns the positions of all elements that the rank sends, by receiver.
    pub fn elements(&self) -> Vec<u32> {
        self.sends.iter().flat_map(|sending| &sending.elements).copied().collect()
    }

    /// Returns the routes of a sum over all ranks: each has a vector of one element for each rank, and
    /// sends its own one to all others.
    pub fn of_sums(rank: usize, size: usize) -> Self {
        let others = || (0..size).filter(move |&other| other != rank);
        let turn = |other: usize| if rank > other { rank - 1 } else { rank };
        let sending = |to| Sending { to, elements: vec![rank as u32], place: rank, turn: turn(to) };
        let receiving = |from| Receiving { from, place: from, count: 1, turn: turn(from) };
        Routes {
            rank,
            size,
            sends: others().map(sending).collect(),
            receives: others().map(receiving).collect(),
        }
    }

    /// Returns the ranks for which this one waits, receivers first.
    pub fn waits_for(&self) -> Vec<usize> {
        let receivers = self.sends.iter().map(|sending| sending.to);
        receivers.chain(self.receives.iter().map(|receiving| receiving.from)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 0 has 5 elements and needs 2 of rank 1 and 1 of rank 3; rank 1 has 4 and needs one of each
    /// other rank that has any; rank 2 has none and needs none; rank 3 has 7 and needs 3 of rank 0 and 2
    /// of rank 1.
    fn needs() -> Needs {
        Needs {
            own: vec![5, 4, 0, 7],
            counts: vec![vec![0, 2, 0, 1], vec![1, 0, 0, 1], vec![0; 4], vec![3, 2, 0, 0]],
        }
    }

    #[test]
    fn elements_arrive_where_the_receiver_looks_for_them() {
        let needs = needs();
        let routes: Vec<Routes> = (0..4)
            .map(|rank| {
                let elements = [0, 1, 2];
                let wanted = (0..4).map(|to| (to, &elements[..needs.counts[to][rank]]));
                let wanted: Vec<_> = wanted.filter(|(_, some)| !some.is_empty()).collect();
                needs.routes(rank, &wanted)
            })
            .collect();
        for route in &routes {
            for sending in &route.sends {
                let there = &routes[sending.to].receives;
                let at = there.iter().position(|receiving| receiving.from == route.rank);
                let at = at.expect("the receiver knows of it");
                assert_eq!(sending.turn, at, "its number among the senders");
                assert_eq!(sending.place, there[at].place);
                assert_eq!(sending.elements.len(), there[at].count);
            }
            for receiving in &route.receives {
                let there = &routes[receiving.from].sends;
                let at = there.iter().position(|sending| sending.to == route.rank);
                assert_eq!(Some(receiving.turn), at, "its number among the receivers");
            }
        }
        // Rank 1: one element of rank 0, its own 4, one of rank 3.
        let places: Vec<usize> = routes[1].receives.iter().map(|r| r.place).collect();
        assert_eq!(places, [0, 5]);
        // Its own elements begin behind the one of rank 0.
        assert_eq!(routes[1].sends[0].elements, [1, 2]);
        assert_eq!((routes[1].sent(), routes[1].elements()), (4, vec![1, 2, 1, 2]));
        assert_eq!(routes[3].waits_for(), [0, 1, 0, 1]);
        assert_eq!(routes[2], Routes { rank: 2, size: 4, sends: vec![], receives: vec![] });
    }

    #[test]
    fn sums_go_from_each_rank_to_all_others() {
        for size in 1..6 {
            // Each rank needs one element of each other one and has one: halos and sums agree.
            let counts = |rank| (0..size).map(|other| usize::from(other != rank)).collect();
            let needs = Needs { own: vec![1; size], counts: (0..size).map(counts).collect() };
            for rank in 0..size {
                let others: Vec<_> =
                    (0..size).filter(|&to| to != rank).map(|to| (to, &[0][..])).collect();
                assert_eq!(Routes::of_sums(rank, size), needs.routes(rank, &others));
            }
        }
    }
}
