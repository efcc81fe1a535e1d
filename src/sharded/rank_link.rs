//! The connection of the GPUs of all ranks: the transport that they agree upon, and their routes.

use std::sync::{Arc, PoisonError};

use super::rank::numbers;
use super::rank_gpu::RankOnGpu;
use super::rank_operator::RankOperator;
use super::transport::{Card, Obstacle, Transport, Way, ways};
use crate::cuda::{self, Gpu, Link, Products, RankGpu};
use crate::error::{Error, Result};
use crate::partition::{Needs, Routes};
use crate::scalar::Scalar;

impl<T: Scalar> RankOperator<T> {
    /// Connects the GPUs of all ranks, for products with vectors that stay there.
    ///
    /// All ranks call this together, with the same transport. With [`Transport::Auto`] they try those
    /// that may work for all of them, best first; [`RankOnGpu::why`] tells what was found.
    ///
    /// # Errors
    /// [`Error::Argument`] if the part of a rank is on a host, if ranks name different transports, or
    /// if the named one cannot work; [`Error::Exchange`] if it fails, or if another rank does.
    pub fn on_gpu(&self, transport: Transport) -> Result<RankOnGpu<'_, T>> {
        let products = self.on_device();
        let gpu = products.as_ref().ok().and_then(|products| products.first());
        let gpu = gpu.map(|(_, operator)| operator.gpu());
        let ways = self.ways(transport, gpu)?;
        let products = products?;
        let routes = self.routes()?;
        let mut failed = String::new();
        let shape = self.part.shape_x();
        for way in ways {
            let link = match way.transport {
                Transport::Peer => Link::Peer,
                Transport::Nccl => Link::Nccl,
                Transport::Host | Transport::Auto => Link::Host,
            };
            let shape = (shape.own.clone(), shape.len);
            match RankGpu::new(&products, routes.clone(), shape, link, &|own| self.rank.tell(own))?
            {
                Ok(gpu) => {
                    let way = Way { why: format!("{}{failed}", way.why), ..way };
                    return Ok(RankOnGpu { operator: self, gpu, way });
                }
                Err(fault) => failed += &format!("; {} failed: {fault}", way.transport),
            }
        }
        let what = format!("no transport works{failed}");
        Err(Error::Exchange { rank: self.rank.rank(), what })
    }

    /// Returns the operators of the part's groups of rows.
    pub(super) fn on_device(&self) -> Result<Products<'_, T>> {
        let operators = self.part.operators.iter().map(|(group, operator)| {
            let on_host = || Error::argument("the part is on a host; use apply_with_halo");
            Ok((group, operator.on_device().ok_or_else(on_host)?))
        });
        operators.collect()
    }

    /// Returns the transports to try, which all ranks agree upon.
    fn ways(&self, wanted: Transport, gpu: Option<&Arc<Gpu>>) -> Result<Vec<Way>> {
        let identity = gpu.map(|gpu| cuda::identity(gpu)).transpose();
        let card = identity.as_ref().ok().map(|&identity| {
            Card::of_this_process(wanted, identity, cuda::nccl_version().ok()).words()
        });
        let card = card.as_ref().map(|words| bytemuck::cast_slice(words));
        let cards = self.rank.all_gather(card, Card::BYTES);
        identity?;
        let cards = Card::read(&cards?);
        let own = &cards[self.rank.rank()];
        let reach =
            |other: &Card| gpu.is_some_and(|gpu| cuda::reach(gpu, other.gpu()).unwrap_or(false));
        let obstacles = cards.iter().map(|other| Obstacle::between(own, other, || reach(other)));
        let obstacles: Vec<u8> = obstacles.map(|obstacle| obstacle as u8).collect();
        let all = self.rank.all_gather(Some(&obstacles), obstacles.len())?;
        let all: Vec<Vec<Obstacle>> = all
            .chunks_exact(cards.len())
            .map(|of_rank| of_rank.iter().map(|&byte| Obstacle::read(byte)).collect())
            .collect();
        ways(&cards, &all)
    }

    /// Returns the elements that this rank sends and receives, with their places there.
    fn routes(&self) -> Result<Routes> {
        let size = self.rank.size();
        let mut own = vec![0u64; 1 + size];
        own[0] = self.part.halo.own as u64;
        self.part.halo.runs.iter().for_each(|run| own[1 + run.owner] = run.columns.len() as u64);
        let bytes = bytemuck::cast_slice(&own);
        let all: Vec<u64> = numbers(&self.rank.all_gather(Some(bytes), bytes.len())?);
        let of_ranks = || all.chunks_exact(1 + size);
        let needs = Needs {
            own: of_ranks().map(|of_rank| of_rank[0] as usize).collect(),
            counts: of_ranks()
                .map(|of_rank| of_rank[1..].iter().map(|&count| count as usize).collect())
                .collect(),
        };
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = links.send.iter().zip(&links.elements);
        let requests: Vec<_> =
            requests.map(|(parcel, elements)| (parcel.rank, &elements[..])).collect();
        Ok(needs.routes(self.rank.rank(), &requests))
    }
}
