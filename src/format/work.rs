//! The work of a candidate, from which costs are computed.

use serde::{Deserialize, Serialize};

/// Work of one conversion and one product of a layout; costs are computed from it.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::format::Candidate;
/// use ellect::{Csr, Precision, Workload, device};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0)])?;
/// let cpu = device::find("cpu")?;
/// let target = Workload::default().target(&cpu, Precision::F64);
/// let ell: Candidate = "ell".parse()?;
/// let work = ell.work(&Analysis::of(&csr), &target).expect("ELL applies");
/// assert!(work.entries >= 3, "entries and padding");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Number of bytes of the layout's arrays, equal to [`Layout::bytes`](super::Layout::bytes).
    pub layout_bytes: u64,
    /// Bytes of the layout's arrays that one product reads.
    pub stream_bytes: u64,
    /// Number of multiply-adds, including those on padding.
    pub entries: u64,
    /// Number of 32-byte sectors of x that the warp steps of a product request; if lanes load columns
    /// and values from sectors of their own, these as well.
    pub x_sectors: f64,
    /// Number of sectors, as in `x_sectors`, that the nearest caches of a GPU load, if
    /// [`Analysis::x_loaded`](crate::analysis::Analysis::x_loaded) computes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_loaded: Option<f64>,
    /// Bytes of x that a product accesses at a time, if fewer than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_window_bytes: Option<u64>,
    /// Additional bytes moved through memory: intermediate arrays, second passes over y, cached
    /// slices of x.
    pub extra_bytes: u64,
    /// Number of rows of y that are written in another order than they are computed in.
    pub scattered_rows: u64,
    /// Number of warp iterations (PELLR, equation 1): the sum over warps of their longest lane.
    pub steps: u64,
    /// Number of times that warps wait for entries they loaded, summed over all warps, if each warp
    /// processes rows up to their own length.
    #[serde(default)]
    pub waits: u64,
    /// Mean over tiles of the consecutive steps or turns in which a thread block of a GPU sums the
    /// rows of its tile; 0 if the format has no tiles. Sampled if there are many tiles. The pieces of
    /// CSR's long rows count as tiles, each summed by a warp.
    #[serde(default)]
    pub tile_steps: f64,
    /// Maximum over tiles of the steps in `tile_steps`. Sampled if there are many tiles.
    #[serde(default)]
    pub tile_steps_most: f64,
    /// Number of GPU threads that process whole rows, alone or together with others: rows times
    /// threads per row. 0 if long rows are split among as many threads as they need.
    pub lanes: u64,
    /// Number of kernels launched (parallel regions on a host).
    pub launches: u32,
    /// Number of bytes that the conversion reads and writes.
    pub convert_bytes: u64,
    /// Number of keys that the conversion sorts.
    pub sorted_keys: u64,
    /// Number of edges of the graph that the conversion partitions on the host.
    pub partitioned_edges: u64,
}
