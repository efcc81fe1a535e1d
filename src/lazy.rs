//! Lazy operators: start in CSR, count their products, and convert when conversion has paid off.
//!
//! For callers that do not know how many products will come. The matrix is not analysed until its
//! products have taken as long as the analysis would. Then the candidates are ranked, and the first
//! one is prepared whose conversion the products so far would have paid for. Whenever the products
//! end, their total time is at most about twice the time that was possible with their number known
//! in advance (the ski rental problem).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Instant;

use crate::analysis::Analysis;
use crate::choose::{Choice, NEAR_TIE, Ranked, Workload};
use crate::csr::Csr;
use crate::device::Kind;
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Basis, Candidate, Layout};
use crate::model::ALWAYS_ANALYZE;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::tuner::Tuner;

/// When and where a matrix is analysed and converted.
///
/// ```
/// use std::sync::Arc;
///
/// use ellect::lazy::{Conversion, LazyOperator};
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Arc::new(generate::by_name("heat", 500, 1)?);
/// let tuner = Arc::new(Tuner::open("cpu")?);
/// let conversion = Conversion::Background;
/// let a = LazyOperator::new(tuner, csr, Workload::default(), conversion)?;
/// assert!(a.operator().candidate().is_csr());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// In the call of the product that passes the break-even point.
    Here,
    /// In a separate thread, while products continue in CSR. A conversion on a GPU still runs in
    /// the product that passes the break-even point, because it takes only as long as a few
    /// products.
    Background,
}

/// A matrix that starts in CSR and is converted once its products have paid for the conversion.
///
/// ```
/// use std::sync::Arc;
///
/// use ellect::lazy::{Conversion, LazyOperator};
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Arc::new(generate::by_name("heat", 500, 1)?);
/// let tuner = Arc::new(Tuner::open("cpu")?);
/// let mut a = LazyOperator::new(tuner, csr.clone(), Workload::default(), Conversion::Here)?;
/// let (x, mut y) = (vec![1.0; csr.ncols()], vec![0.0; csr.nrows()]);
/// a.apply(1.0, &x, 0.0, &mut y)?;
/// assert_eq!((a.products(), a.operator().candidate().to_string().as_str()), (1, "csr"));
/// # Ok(())
/// # }
/// ```
pub struct LazyOperator<T: Scalar> {
    operator: PreparedOperator<T>,
    products: u64,
    spent_s: f64,
    conversion: Conversion,
    stage: Stage<T>,
    /// Values that were set since the conversion began.
    values: Option<Vec<T>>,
}

/// Everything needed to analyse and convert the matrix.
struct MatrixSource<T: Scalar> {
    tuner: Arc<Tuner>,
    csr: Arc<Csr<T>>,
    workload: Workload,
}

impl<T: Scalar> Clone for MatrixSource<T> {
    fn clone(&self) -> Self {
        MatrixSource { tuner: self.tuner.clone(), csr: self.csr.clone(), workload: self.workload }
    }
}

/// Progress towards a conversion.
enum Stage<T: Scalar> {
    /// The matrix has not been analysed.
    Unknown(MatrixSource<T>),
    /// A thread analyses the matrix.
    Analysing(MatrixSource<T>, Receiver<Result<Option<ConversionPlan>>>),
    /// The analysis is complete; the plan says what pays from which product on.
    Planned(MatrixSource<T>, ConversionPlan),
    /// A thread converts the matrix.
    Converting(Receiver<Result<Option<Converted<T>>>>),
    /// The layout no longer changes.
    Done,
}

/// A candidate and the matrix in its layout.
type Converted<T> = (Candidate, Box<dyn Layout<T>>);

/// Candidates, best first, and the number of products from which their conversion would have paid.
struct ConversionPlan {
    candidates: Vec<Candidate>,
    from: u64,
}

impl ConversionPlan {
    /// Returns the result of `make` for the first candidate that it does not refuse; `None` if it
    /// refuses all.
    fn first<O>(&self, make: impl Fn(&Candidate) -> Result<O>) -> Result<Option<O>> {
        let mut made = self.candidates.iter().map(make);
        made.find(|made| !matches!(made, Err(Error::Refused { .. }))).transpose()
    }
}

/// Approximate time of features and estimates, in seconds for each nonzero; decides only when the
/// analysis starts.
const ANALYSIS_S: f64 = 5e-9;

impl<T: Scalar> LazyOperator<T> {
    /// Prepares the matrix in CSR, with ellect's or cuSPARSE's kernel, whichever the model expects
    /// to be faster if the effort uses a model.
    ///
    /// The workload's number of products is ignored, and the basis is the original one, so that x
    /// and y have the same order before and after the conversion.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn new(
        tuner: Arc<Tuner>,
        csr: Arc<Csr<T>>,
        workload: Workload,
        conversion: Conversion,
    ) -> Result<Self> {
        let workload = Workload { basis: Basis::Original, ..workload };
        let source = MatrixSource { tuner, csr, workload };
        let mut refused = None;
        let target = workload.target(source.tuner.device(), T::PRECISION);
        let analysis = Analysis::of(&*source.csr);
        for candidate in source.tuner.baselines(&analysis, &target, workload.effort) {
            match source.prepare(&candidate) {
                Ok(operator) => {
                    return Ok(LazyOperator {
                        operator,
                        products: 0,
                        spent_s: 0.0,
                        conversion,
                        stage: Stage::Unknown(source),
                        values: None,
                    });
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| {
            Error::device(DeviceFault::Unsupported, "no candidate multiplies the CSR arrays")
        }))
    }

    /// Computes y = alpha A x + beta y like [`PreparedOperator::apply`]; may convert the matrix
    /// first.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`], and errors of a conversion, after which the operator stays
    /// in CSR and remains usable.
    pub fn apply(&mut self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        self.advance()?;
        let start = Instant::now();
        self.operator.apply(alpha, x, beta, y)?;
        self.products += 1;
        self.spent_s += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Replaces the values by others of the same pattern, in the order of the CSR arrays.
    ///
    /// # Errors
    /// As [`PreparedOperator::update_values`].
    pub fn update_values(&mut self, values: &[T]) -> Result<()> {
        self.operator.update_values(values)?;
        if !matches!(self.stage, Stage::Done) {
            self.values = Some(values.to_vec());
        }
        Ok(())
    }

    /// Returns the current operator.
    pub fn operator(&self) -> &PreparedOperator<T> {
        &self.operator
    }

    /// Returns the number of products so far.
    pub fn products(&self) -> u64 {
        self.products
    }

    /// Performs the next step if it is due.
    fn advance(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Done => {}
            Stage::Unknown(source) => {
                let analysis_s = ANALYSIS_S * source.csr.nnz() as f64;
                if self.products == 0 || self.spent_s < analysis_s {
                    self.stage = Stage::Unknown(source);
                    return Ok(());
                }
                match self.conversion {
                    Conversion::Here => {
                        let plan = source.analyse(self.operator.candidate())?;
                        self.plan(source, plan)?;
                    }
                    Conversion::Background => {
                        let (sender, analysed) = channel();
                        let (own, held) = (source.clone(), self.operator.candidate().clone());
                        // Sending fails if the operator was dropped meanwhile.
                        thread::spawn(move || drop(sender.send(own.analyse(&held))));
                        self.stage = Stage::Analysing(source, analysed);
                    }
                }
            }
            Stage::Analysing(source, analysed) => match analysed.try_recv() {
                Ok(plan) => self.plan(source, plan?)?,
                Err(TryRecvError::Empty) => self.stage = Stage::Analysing(source, analysed),
                Err(TryRecvError::Disconnected) => {}
            },
            Stage::Planned(source, plan) => self.plan(source, Some(plan))?,
            Stage::Converting(converted) => match converted.try_recv() {
                Ok(converted) => {
                    if let Some((candidate, layout)) = converted? {
                        self.take(self.operator.relaid(candidate, layout));
                    }
                }
                Err(TryRecvError::Empty) => self.stage = Stage::Converting(converted),
                Err(TryRecvError::Disconnected) => {}
            },
        }
        Ok(())
    }

    /// Converts if the plan's number of products is reached; without a plan, keeps CSR.
    fn plan(&mut self, source: MatrixSource<T>, plan: Option<ConversionPlan>) -> Result<()> {
        let Some(mut plan) = plan else { return Ok(()) };
        if self.values.is_some() {
            // These formats were chosen for the old values and may not apply to the new ones.
            plan.candidates.retain(|candidate| !candidate.format.by_values);
        }
        if plan.candidates.is_empty() {
            return Ok(());
        }
        if self.products < plan.from {
            self.stage = Stage::Planned(source, plan);
            return Ok(());
        }
        match (self.conversion, source.tuner.device().kind) {
            (Conversion::Here, _) | (_, Kind::Gpu) => {
                if let Some(operator) = plan.first(|candidate| source.prepare(candidate))? {
                    self.take(operator);
                }
            }
            (Conversion::Background, Kind::Host) => {
                let (sender, converted) = channel();
                let convert = move || plan.first(|candidate| source.convert(candidate));
                thread::spawn(move || drop(sender.send(convert())));
                self.stage = Stage::Converting(converted);
            }
        }
        Ok(())
    }

    /// Switches to this operator, unless it cannot hold the values that were set meanwhile.
    fn take(&mut self, mut operator: PreparedOperator<T>) {
        let fits = match self.values.take() {
            Some(values) => operator.update_values(&values).is_ok(),
            None => true,
        };
        if fits {
            self.operator = operator;
        }
    }
}

impl<T: Scalar> MatrixSource<T> {
    fn prepare(&self, candidate: &Candidate) -> Result<PreparedOperator<T>> {
        let analysis = Analysis::sampled(&*self.csr).with_partitioning();
        let target = self.workload.target(self.tuner.device(), T::PRECISION);
        let target = candidate.target(&target);
        self.tuner.backend().prepare(&self.csr, &analysis, candidate, &target)
    }

    /// Converts to a candidate's layout on the host.
    fn convert(&self, candidate: &Candidate) -> Result<Converted<T>> {
        let analysis = Analysis::of(&*self.csr).with_partitioning();
        let target = self.workload.target(self.tuner.device(), T::PRECISION);
        let target = candidate.target(&target);
        Ok((candidate.clone(), candidate.convert(&self.csr, &analysis, &target)?))
    }

    /// Ranks the candidates against the current one, for a large number of products, because the
    /// real number is unknown.
    fn analyse(&self, held: &Candidate) -> Result<Option<ConversionPlan>> {
        let workload = Workload { spmvs: ALWAYS_ANALYZE, ..self.workload };
        Ok(plan_of(&self.tuner.recommend(&self.csr, &workload)?, held))
    }
}

/// Plans the conversion, or returns `None` if no candidate is faster than the current one.
///
/// The plan starts at the number of products from which the first conversion pays. Its candidates
/// are the faster ones, ordered by their total time for twice that number.
fn plan_of(choice: &Choice, held: &Candidate) -> Option<ConversionPlan> {
    let held = choice.ranked(held)?;
    let much_s = (1.0 - NEAR_TIE) * held.spmv_s;
    let faster =
        || choice.ranking.iter().filter(|r| r.spmv_s < much_s && !r.candidate.is_baseline());
    let fixed_s = |ranked: &Ranked| ranked.total_s - choice.spmvs as f64 * ranked.spmv_s;
    let pays_from = |ranked: &Ranked| {
        let more_s = fixed_s(ranked) - fixed_s(held);
        (more_s / (held.spmv_s - ranked.spmv_s)).ceil().max(0.0) as u64
    };
    let from = faster().map(pays_from).min()?;
    let by_then = 2.0 * from.max(1) as f64;
    let by_then_s = |ranked: &Ranked| ranked.convert_s + by_then * ranked.spmv_s;
    let mut best: Vec<&Ranked> = faster().collect();
    best.sort_by(|a, b| by_then_s(a).total_cmp(&by_then_s(b)));
    let from = best.first().map_or(from, |best| pays_from(best).max(from));
    let candidates = best.into_iter().map(|r| r.candidate.clone()).collect();
    Some(ConversionPlan { candidates, from })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::choose::Effort;
    use crate::device::{Device, KernelFigures, PerPrecision};
    use crate::generate;

    /// Builds a tuner for a host whose conversions take `convert_ns` for each entry.
    fn tuner(convert_ns: f64) -> Arc<Tuner> {
        let devices = Device::shipped();
        let mut device = devices.into_iter().find(|d| d.name == "cpu").expect("shipped");
        // The profile makes CSR slow, so that some conversion pays.
        let slow = KernelFigures {
            entry_ns: PerPrecision::both(50.0),
            ..crate::cost::kernel_figures(&device, &csr())
        };
        device.kernels.insert("csr".into(), slow);
        device.kernels.entry("others".into()).or_default();
        for figures in device.kernels.values_mut() {
            figures.convert_ns = PerPrecision::both(convert_ns);
        }
        Arc::new(Tuner::without_models(device))
    }

    fn csr() -> Candidate {
        "csr".parse().expect("a format")
    }

    fn lazy(convert_ns: f64, conversion: Conversion) -> (LazyOperator<f64>, Arc<Csr<f64>>) {
        lazy_of("stencil5", convert_ns, conversion, Workload::default())
    }

    fn lazy_of(
        class: &str,
        convert_ns: f64,
        conversion: Conversion,
        workload: Workload,
    ) -> (LazyOperator<f64>, Arc<Csr<f64>>) {
        let csr = Arc::new(generate::by_name(class, 2500, 1).expect("a class"));
        let lazy = LazyOperator::new(tuner(convert_ns), csr.clone(), workload, conversion);
        (lazy.expect("CSR applies"), csr)
    }

    fn product(lazy: &mut LazyOperator<f64>, csr: &Csr<f64>) {
        let x: Vec<f64> = (0..csr.ncols()).map(|i| (i % 7) as f64).collect();
        let mut y = vec![1.0; csr.nrows()];
        lazy.apply(1.0, &x, 0.0, &mut y).expect("it fits");
        let expected: Vec<f64> = (0..csr.nrows())
            .map(|i| {
                let (columns, values) = csr.row(i);
                columns.iter().zip(values).map(|(&j, value)| value * x[j as usize]).sum()
            })
            .collect();
        for (got, expected) in y.iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn it_converts_when_products_have_paid_and_stays_right() {
        let (mut lazy, csr) = lazy(1.0, Conversion::Here);
        product(&mut lazy, &csr);
        assert_eq!(lazy.operator().candidate().to_string(), "csr");
        (0..2000).for_each(|_| product(&mut lazy, &csr));
        assert_ne!(lazy.operator().candidate().to_string(), "csr");
        assert_eq!(lazy.products(), 2001);
    }

    #[test]
    fn x_and_y_stay_in_their_order_whatever_the_workload_allows() {
        let workload = Workload { basis: Basis::Permuted, ..Workload::default() };
        let (mut lazy, csr) = lazy_of("power_law", 1.0, Conversion::Here, workload);
        (0..2000).for_each(|_| product(&mut lazy, &csr));
        assert_ne!(lazy.operator().candidate().to_string(), "csr");
        assert!(lazy.operator().permutation().is_none());
    }

    #[test]
    fn formats_chosen_for_old_values_are_not_converted_to() {
        let (mut lazy, csr) = lazy(1.0, Conversion::Here);
        let Stage::Unknown(source) = &lazy.stage else { panic!("it was analysed already") };
        let source = source.clone();
        let candidates = ["cdia", "hdia"].map(|name| name.parse().expect("a candidate")).to_vec();
        assert!(candidates.iter().map(|c: &Candidate| c.format.by_values).eq([true, false]));
        let new: Vec<f64> = (0..csr.nnz()).map(|k| (k % 5) as f64).collect();
        lazy.update_values(&new).expect("as many");
        lazy.plan(source, Some(ConversionPlan { candidates, from: 0 })).expect("one applies");
        assert_eq!(lazy.operator().candidate().format.name, "hdia");
        let mut csr = csr.map_values(|value| value);
        csr.values_mut().copy_from_slice(&new);
        product(&mut lazy, &csr);
    }

    #[test]
    fn a_conversion_pays_beside_the_kernel_that_is_held() {
        let workload = Workload { effort: Effort::Estimate, ..Workload::default() };
        let gpu = Tuner::without_models(crate::device::find("h200").expect("shipped"));
        let csr: Csr<f64> = generate::by_name("stencil5", 2500, 1).expect("a class");
        let mut choice = gpu.recommend(&csr, &workload).expect("an estimate");
        choice.ranking.truncate(3);
        let times = [("cusparse:alg=csr_alg1", 4.0, 0.0), ("csr", 2.0, 0.0), ("hll", 1.0, 10.0)];
        for (ranked, (name, spmv_s, convert_s)) in choice.ranking.iter_mut().zip(times) {
            ranked.candidate = name.parse().expect("a candidate");
            (ranked.spmv_s, ranked.convert_s) = (spmv_s, convert_s);
            ranked.total_s = convert_s + 1000.0 * spmv_s;
        }
        for (held, from) in [("cusparse:alg=csr_alg1", 4), ("csr", 10)] {
            let plan = plan_of(&choice, &held.parse().expect("a candidate")).expect("hll pays");
            let best = plan.candidates.first().expect("a candidate");
            assert_eq!((best.format.name, plan.from), ("hll", from), "{held}");
        }
    }

    #[test]
    fn the_next_best_is_made_where_the_best_refuses() {
        let named = |name: &&str| name.parse().expect("a candidate");
        let plan = ConversionPlan {
            candidates: ["hll", "pjds", "ell"].iter().map(named).collect(),
            from: 0,
        };
        let refusing = |names: &'static str| {
            move |candidate: &Candidate| match names.contains(candidate.format.name) {
                true => {
                    Err(Error::Refused { candidate: candidate.to_string(), reason: "so".into() })
                }
                false => Ok(candidate.format.name),
            }
        };
        let made = |names| plan.first(refusing(names)).expect("a refusal is no error");
        assert_eq!(
            [made(""), made("hll"), made("hll pjds")],
            [Some("hll"), Some("pjds"), Some("ell")]
        );
        assert_eq!(made("hll pjds ell"), None);
        let failing = |_: &Candidate| Err::<(), _>(Error::device(DeviceFault::Failed, "gone"));
        plan.first(failing).expect_err("other errors are returned");
    }

    #[test]
    fn csr_is_kept_where_nothing_pays() {
        let (mut lazy, csr) = lazy(1e9, Conversion::Here);
        (0..500).for_each(|_| product(&mut lazy, &csr));
        assert_eq!(lazy.operator().candidate().to_string(), "csr");
    }

    #[test]
    fn it_converts_in_the_background_and_keeps_new_values() {
        let (mut lazy, csr) = lazy(1.0, Conversion::Background);
        let twice: Vec<f64> = csr.values().iter().map(|value| 2.0 * value).collect();
        lazy.update_values(&twice).expect("as many");
        let csr = csr.map_values(|value| 2.0 * value);
        let start = Instant::now();
        while lazy.operator().candidate().to_string() == "csr" {
            product(&mut lazy, &csr);
            assert!(start.elapsed() < Duration::from_secs(60), "it never converts");
        }
        product(&mut lazy, &csr);
    }
}
