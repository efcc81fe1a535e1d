//! Replaces `cut.rs` in builds without the feature `metis`: partitioning is refused.

use crate::refusal::Refusal;
use crate::reorder::Adjacency;

/// Refuses to partition, because this build has no METIS.
///
/// # Errors
/// Always [`Refusal`], with the name of the feature.
pub(super) fn parts_of_rows(
    _graph: &Adjacency,
    _parts: usize,
    _weights: Option<Vec<usize>>,
) -> Result<Vec<usize>, Refusal> {
    Err(Refusal::new("this build of ellect has no METIS: enable the feature `metis`"))
}

#[cfg(test)]
mod tests {
    use crate::refusal::Refusal;
    use crate::{Csr, partition};

    #[test]
    fn without_metis_a_partition_is_refused_with_the_name_of_the_feature() {
        let csr = Csr::<f64>::from_triplets(2, 2, [(0, 1, 1.0)]).expect("in range");
        let refusal: Refusal = partition::metis(csr.pattern(), 2, 1).expect_err("it is not built");
        assert!(refusal.to_string().contains("feature `metis`"), "{refusal}");
        assert!(partition::metis(csr.pattern(), 1, 2).is_ok(), "one part needs no METIS");
    }
}
