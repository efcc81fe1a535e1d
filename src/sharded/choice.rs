//! The choice of a mode for all parts: what was chosen and why, and the times that a model expects of
//! each mode on GPUs.
//!
//! The model adds the parts' predicted products, the exchange and the launches by the host. Its figures
//! are those of H200s of one host with NVLink (tests/results/multi_gpu.md); elsewhere it is an estimate.

use super::halo::Counts;
use super::mode::{LAUNCH_S, Mode};
use super::{Part, Split, Tuners};
use crate::scalar::Scalar;
use crate::units::time;

/// Time that the exchange of halos adds to a product, beside that of the bytes, in seconds: 6.1 to 7.5
/// us were measured with the mode `vector` on 2 H200.
const EXCHANGE_S: f64 = 6.5e-6;

/// Time that two halves of a product cost beyond the longer one, in seconds; 2 to 8 us were measured.
const JOIN_S: f64 = 3e-6;

/// Bandwidth of NVLink for a halo, in bytes a second: measured with stores of 64 MB on H200.
const LINK: f64 = 364e9;

/// Time of launching three kernels on each GPU from a thread each, in seconds; measured with 4 H200.
const THREADS_S: f64 = 13.4e-6;

/// Gain of another mode that is worth a hint, as a share of the time.
const HINT: f64 = 0.05;

/// The choice of the mode of a [`ShardedOperator`](super::ShardedOperator).
///
/// ```
/// use std::sync::Arc;
///
/// use ellect::sharded::{Mode, Split, Tuners};
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("stencil7", 20_000, 1)?;
/// // This host multiplies in place of two GPUs.
/// let gpu = Arc::new(Tuner::open("h200")?.host_emulation());
/// let tuners = Tuners::of(vec![gpu; 2])?;
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// assert_eq!(a.choice().mode, Mode::Vector);
/// assert_eq!(a.choice().fewer, Some(1), "{}", a.choice().why);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModeChoice {
    /// The mode of the products, never [`Mode::Auto`].
    pub mode: Mode,
    /// The reason in plain English, with the predicted figures.
    pub why: String,
    /// Times that the model expects of the modes that suit the division of the rows, fastest first;
    /// empty if a part is on a host.
    pub expected: Vec<ExpectedMode>,
    /// A smaller number of GPUs on which the model expects a product to take no longer, the smallest
    /// one; `None` if all GPUs pay.
    pub fewer: Option<usize>,
}

/// The time that the model expects of a mode.
///
/// ```no_run
/// use ellect::sharded::Split;
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("stencil7", 1_000_000, 1)?;
/// let tuners = Tuner::open_all(&["cuda:0", "cuda:1"])?;
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::EqualRows)?;
/// for expected in &a.choice().expected {
///     println!("{}: {:.1} us", expected.mode, 1e6 * expected.product_s);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExpectedMode {
    /// The mode, never [`Mode::Auto`].
    pub mode: Mode,
    /// Time of a product of the whole matrix, in seconds.
    pub product_s: f64,
    /// Time on one GPU, over the number of GPUs times this time: at most about 1.
    pub efficiency: f64,
}

impl ModeChoice {
    /// Returns the time that the model expects of the chosen mode; `None` if a part is on a host.
    pub fn expected(&self) -> Option<&ExpectedMode> {
        self.expected.iter().find(|expected| expected.mode == self.mode)
    }
}

/// A part, as the model sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Predicted time of one product of all rows of the part, in seconds.
    pub product_s: f64,
    pub rows: usize,
    /// Numbers of elements of x that other parts own: those that the rows need, and all.
    pub halo: usize,
    pub foreign: usize,
    /// Shares of the part's entries: in rows that need no halo, and in own columns.
    pub inner: f64,
    pub own: f64,
}

/// All parts, and figures of their GPU.
#[derive(Clone, Debug)]
pub(super) struct Works {
    pub parts: Vec<Work>,
    pub value_bytes: usize,
    /// Time of one kernel launch, in seconds, and bandwidth of the GPU's memory in bytes a second.
    pub launch_s: f64,
    pub bandwidth: f64,
}

impl Works {
    /// Returns the time of one GPU that has all rows.
    fn alone_s(&self) -> f64 {
        self.launch_s + self.parts.iter().map(|part| part.product_s - self.launch_s).sum::<f64>()
    }

    /// Returns the expected time of a product.
    fn product_s(&self, mode: Mode) -> f64 {
        let parts = self.parts.iter().map(|part| self.part_s(part, mode)).fold(0.0, f64::max);
        let launches_s = match mode {
            _ if self.parts.len() < 2 => 0.0,
            Mode::Overlap | Mode::Naive => LAUNCH_S * self.parts.len() as f64,
            Mode::Task => THREADS_S,
            _ => 0.0,
        };
        parts.max(launches_s)
    }

    fn part_s(&self, part: &Work, mode: Mode) -> f64 {
        let share_s = |share: f64| self.launch_s + share * (part.product_s - self.launch_s);
        let elements = if mode.has_all_of_x() { part.foreign } else { part.halo };
        if elements == 0 {
            return part.product_s;
        }
        let exchange_s = EXCHANGE_S + (elements * self.value_bytes) as f64 / LINK;
        match mode {
            Mode::Overlap if part.inner > 0.0 => {
                (share_s(part.inner) + JOIN_S).max(exchange_s + share_s(1.0 - part.inner))
            }
            Mode::Naive | Mode::Task => {
                // y is read and written a second time.
                let again_s = (2 * part.rows * self.value_bytes) as f64 / self.bandwidth;
                (share_s(part.own) + JOIN_S).max(exchange_s) + share_s(1.0 - part.own) + again_s
            }
            _ => exchange_s + part.product_s,
        }
    }

    /// Returns the same matrix on fewer GPUs, whose halos stay as large, as those of slabs do.
    fn on_fewer(&self, gpus: usize) -> Works {
        let (all, fewer) = (self.parts.len() as f64, gpus as f64);
        let most = |of: fn(&Work) -> usize| self.parts.iter().map(of).max().unwrap_or(0);
        let least = |of: fn(&Work) -> f64| self.parts.iter().map(of).fold(1.0, f64::min);
        let part = Work {
            product_s: self.launch_s + (self.alone_s() - self.launch_s) / fewer,
            rows: self.parts.iter().map(|part| part.rows).sum::<usize>().div_ceil(gpus),
            halo: if gpus == 1 { 0 } else { most(|part| part.halo) },
            foreign: if gpus == 1 { 0 } else { most(|part| part.foreign) },
            inner: 1.0 - (1.0 - least(|part| part.inner)) * fewer / all,
            own: 1.0 - (1.0 - least(|part| part.own)) * fewer / all,
        };
        Works { parts: vec![part; gpus], ..*self }
    }

    fn expected(&self, mode: Mode) -> ExpectedMode {
        let product_s = self.product_s(mode);
        let efficiency = self.alone_s() / (self.parts.len() as f64 * product_s);
        ExpectedMode { mode, product_s, efficiency }
    }
}

/// Explains the choice of `mode`, for which the caller has asked unless it was `Mode::Auto`. `suitable`
/// are the modes that the division of the rows admits; `works` is `None` if a part is on a host.
pub(super) fn explain(
    asked: Mode,
    mode: Mode,
    suitable: &[Mode],
    works: Option<&Works>,
) -> ModeChoice {
    let reason = match (asked, mode, works.is_some()) {
        (Mode::Auto, Mode::Overlap, _) => {
            "rows that need no halo take a GPU longer than the host's launches".into()
        }
        (Mode::Auto, _, true) => {
            "too few entries are in rows that need no halo, or their product is shorter than the \
             host's launches"
                .into()
        }
        (Mode::Auto, _, false) => "parts on hosts exchange first, then multiply".into(),
        (asked, ..) => format!("the caller asked for {asked}"),
    };
    let mut why = format!("{mode}: {reason}");
    let Some(works) = works else {
        return ModeChoice { mode, why, expected: Vec::new(), fewer: None };
    };
    let gpus = works.parts.len();
    let mut expected: Vec<_> = suitable.iter().map(|&mode| works.expected(mode)).collect();
    expected.sort_by(|a, b| a.product_s.total_cmp(&b.product_s));
    let own = works.expected(mode);
    why += &format!(
        "; expected are {} a product on {gpus} GPUs, an efficiency of {:.2}",
        time(own.product_s),
        own.efficiency
    );
    if let Some(best) = expected
        .first()
        .filter(|best| best.mode != mode && best.product_s < (1.0 - HINT) * own.product_s)
    {
        why += &format!("; the mode {} may take {}", best.mode, time(best.product_s));
    }
    let fewer = (1..gpus).find(|&fewer| works.on_fewer(fewer).product_s(mode) <= own.product_s);
    if let Some(fewer) = fewer {
        let fewer_s = works.on_fewer(fewer).product_s(mode);
        let noun = if fewer == 1 { "GPU" } else { "GPUs" };
        why += &format!("; use {fewer} {noun}, where {} are expected", time(fewer_s));
    }
    ModeChoice { mode, why, expected, fewer }
}

impl Tuners {
    /// Returns the choice of the mode of these parts.
    pub(super) fn choice<T: Scalar>(
        &self,
        split: Split<'_>,
        parts: &[Part<T>],
        works: Option<&Works>,
    ) -> ModeChoice {
        let mode = match self.mode {
            Mode::Auto if parts.iter().any(|part| part.operators.len() > 1) => Mode::Overlap,
            Mode::Auto => Mode::Vector,
            asked => asked,
        };
        let suitable = |mode: &Mode| *mode != Mode::Auto && mode.check(split).is_ok();
        let suitable: Vec<Mode> = Mode::all().filter(suitable).collect();
        explain(self.mode, mode, &suitable, works)
    }

    /// Returns what the model of modes needs to know; `None` if a device is a host.
    pub(super) fn works<T: Scalar>(
        &self,
        ncols: usize,
        counts: impl Fn(usize) -> Counts,
        parts: &[Part<T>],
    ) -> Option<Works> {
        let device = self.tuners[0].device();
        if !self.are_gpus() {
            return None;
        }
        let work = |(number, part): (usize, &Part<T>)| {
            let counts = counts(number);
            let share = |some: usize| some as f64 / counts.nnz.max(1) as f64;
            Some(Work {
                product_s: part.predicted_s(device.launch_s)?,
                rows: part.rows(),
                halo: counts.halo,
                foreign: ncols - part.halo.own,
                inner: share(counts.inner),
                own: share(counts.own),
            })
        };
        Some(Works {
            parts: parts.iter().enumerate().map(work).collect::<Option<_>>()?,
            value_bytes: size_of::<T>(),
            launch_s: device.launch_s,
            bandwidth: 1e9 * device.read_gbps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slabs of a grid: the time on one GPU in us, the number of rows, the halo, the number of GPUs.
    fn slabs(alone_us: f64, rows: usize, halo: usize, gpus: usize) -> Works {
        let share = 1.0 - halo as f64 * gpus as f64 / rows as f64;
        let one =
            Work { product_s: 1e-6 * alone_us, rows, halo: 0, foreign: 0, inner: 1.0, own: 1.0 };
        let (launch_s, bandwidth) = (2e-6, 4e12);
        let one = Works { parts: vec![one], value_bytes: 8, launch_s, bandwidth };
        let mut works = one.on_fewer(1);
        works.parts[0].product_s = launch_s + (one.alone_s() - launch_s) / gpus as f64;
        let part = Work {
            rows: rows / gpus,
            halo,
            foreign: rows - rows / gpus,
            inner: share,
            own: share,
            ..works.parts[0]
        };
        Works { parts: vec![part; gpus], ..works }
    }

    /// Lines of tests/results/multi_gpu.md: time on one GPU, rows, halo, GPUs, mode, efficiency. With four
    /// GPUs, `overlap` waits for the host.
    const MEASURED: [(f64, usize, usize, usize, Mode, f64); 11] = [
        (34.9, 2_097_152, 16_384, 2, Mode::Vector, 0.711),
        (34.9, 2_097_152, 16_384, 2, Mode::Overlap, 0.880),
        (280.1, 16_777_216, 65_536, 2, Mode::Vector, 0.928),
        (280.1, 16_777_216, 65_536, 2, Mode::Overlap, 0.971),
        (407.1, 4_500_000, 38_988, 2, Mode::Overlap, 0.962),
        (131.6, 4_000_000, 25_441, 2, Mode::Overlap, 0.958),
        (503.6, 16_000_000, 63_504, 2, Mode::Overlap, 0.971),
        (1113.5, 67_108_864, 164_836, 2, Mode::Overlap, 0.991),
        (2217.8, 134_217_728, 262_144, 2, Mode::Overlap, 0.992),
        (34.7, 2_097_152, 32_768, 4, Mode::Overlap, 0.316),
        (64.9, 2_000_000, 31_879, 4, Mode::Overlap, 0.579),
    ];

    #[test]
    fn expected_efficiencies_are_near_measured_ones() {
        let error = |&(alone_us, rows, halo, gpus, mode, measured): &(_, _, _, _, _, f64)| {
            let expected = slabs(alone_us, rows, halo, gpus).expected(mode).efficiency;
            (expected - measured).abs()
        };
        let mut errors: Vec<f64> = MEASURED.iter().map(error).collect();
        errors.sort_by(f64::total_cmp);
        assert!(errors[5] < 0.02 && errors[10] < 0.06, "{errors:?}");
    }

    #[test]
    fn modes_of_the_papers_cost_more_where_halos_are_small() {
        let works = slabs(279.8, 16_777_216, 65_536, 4);
        let s = |mode| works.product_s(mode);
        assert!(s(Mode::Overlap) < s(Mode::Naive) && s(Mode::Vector) < s(Mode::PcsrI));
        assert_eq!(s(Mode::PcsrI), s(Mode::PcsrII));
        // Three of four elements of x arrive in each product.
        assert!(s(Mode::PcsrI) > 12_582_912.0 * 8.0 / LINK);
        // One part has no halo.
        let alone = slabs(279.8, 16_777_216, 0, 1);
        assert!((alone.expected(Mode::Naive).efficiency - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_choice_says_what_is_expected_and_advises_fewer_gpus() {
        let modes = [Mode::Vector, Mode::Overlap, Mode::Naive];
        let large =
            explain(Mode::Auto, Mode::Overlap, &modes, Some(&slabs(280.0, 1 << 24, 65_536, 2)));
        assert_eq!(large.expected.len(), 3);
        assert_eq!(large.expected().map(|own| own.mode), Some(Mode::Overlap));
        assert!(large.why.starts_with("overlap: rows that need no halo"), "{}", large.why);
        assert!(large.why.contains("on 2 GPUs, an efficiency of 0.9"), "{}", large.why);
        assert_eq!(large.fewer, None, "{}", large.why);

        let small = explain(Mode::Auto, Mode::Vector, &modes, Some(&slabs(8.0, 30_000, 900, 4)));
        assert_eq!(small.fewer, Some(1), "{}", small.why);
        assert!(small.why.ends_with("use 1 GPU, where 8.00 us are expected"), "{}", small.why);

        let slow =
            explain(Mode::Vector, Mode::Vector, &modes, Some(&slabs(34.9, 1 << 21, 16_384, 2)));
        assert!(slow.why.starts_with("vector: the caller asked for vector;"), "{}", slow.why);
        assert!(slow.why.contains("; the mode overlap may take "), "{}", slow.why);

        let host = explain(Mode::Auto, Mode::Vector, &modes, None);
        assert_eq!(host.why, "vector: parts on hosts exchange first, then multiply");
        assert_eq!((host.expected(), host.fewer), (None, None));
    }
}
