//! A lazy operator: starts in CSR, counts its products, and converts when that has paid.
//!
//! For callers that do not know how many products will come. Nothing is looked at until the
//! products have taken as long as looking at the matrix would; then its candidates are ranked, and
//! the first is prepared whose conversion the products done so far would have paid back. Whenever
//! the products end, all together take at most about twice what they would have taken had their
//! number been known (the argument of renting skis).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Instant;

use crate::choose::{Choice, NEAR_TIE, Ranked, Workload};
use crate::csr::Csr;
use crate::device::Kind;
use crate::error::{DeviceFault, Error, Result};
use crate::format::{Basis, Candidate, Layout};
use crate::model::ALWAYS_ANALYZE;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::structure::Structure;
use crate::tuner::Tuner;

/// Where the matrix is looked at and converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// In the product that passes the break-even.
    Here,
    /// In a thread besides; products go on in CSR until it is done. What a GPU converts, it converts
    /// in the product that passes the break-even: that takes as long as a few products.
    Background,
}

/// A matrix that starts in CSR and is converted once its products have paid for it.
pub struct LazyOperator<T: Scalar> {
    operator: PreparedOperator<T>,
    products: u64,
    spent_s: f64,
    conversion: Conversion,
    stage: Stage<T>,
    /// Values that were put in since the conversion began.
    values: Option<Vec<T>>,
}

/// What is needed to look at the matrix and to convert it.
struct Source<T: Scalar> {
    tuner: Arc<Tuner>,
    csr: Arc<Csr<T>>,
    workload: Workload,
}

impl<T: Scalar> Clone for Source<T> {
    fn clone(&self) -> Self {
        Source { tuner: self.tuner.clone(), csr: self.csr.clone(), workload: self.workload }
    }
}

/// How far it is.
enum Stage<T: Scalar> {
    /// Nothing is known of the matrix.
    Unknown(Source<T>),
    /// It is looked at in a thread.
    Looking(Source<T>, Receiver<Result<Option<Plan>>>),
    /// It is known what pays from which product on.
    Planned(Source<T>, Plan),
    /// It is converted in a thread.
    Converting(Receiver<Result<Option<Converted<T>>>>),
    /// It stays as it is.
    Done,
}

/// A candidate, and the matrix in its layout.
type Converted<T> = (Candidate, Box<dyn Layout<T>>);

/// Candidates, the best one first, and the products from which on that would have paid.
struct Plan {
    candidates: Vec<Candidate>,
    from: u64,
}

impl Plan {
    /// What `make` makes of the first candidate that it does not refuse; none where it refuses all.
    fn first<O>(&self, make: impl Fn(&Candidate) -> Result<O>) -> Result<Option<O>> {
        let mut made = self.candidates.iter().map(make);
        made.find(|made| !matches!(made, Err(Error::Refused { .. }))).transpose()
    }
}

/// Seconds that features and estimates take for each nonzero, about: to begin at a time, no more.
const LOOK_S: f64 = 5e-9;

impl<T: Scalar> LazyOperator<T> {
    /// Prepares the matrix in CSR, multiplied by what a tree of the model takes to be faster where the
    /// effort asks for a model. Of the workload, the number of products is not used, and the basis is
    /// the original one: x and y are the same before the conversion and after it.
    ///
    /// # Errors
    /// [`Error::Device`] by the device.
    pub fn new(
        tuner: Arc<Tuner>,
        csr: Arc<Csr<T>>,
        workload: Workload,
        conversion: Conversion,
    ) -> Result<Self> {
        let (precision, basis) = (T::PRECISION, Basis::Original);
        let workload = Workload { precision, basis, ..workload };
        let source = Source { tuner, csr, workload };
        let mut refused = None;
        for candidate in source.tuner.baselines(&Structure::of(&*source.csr), &workload) {
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

    /// y = alpha A x + beta y, as [`PreparedOperator::apply`]; may convert the matrix before.
    ///
    /// # Errors
    /// As there, and those of a conversion: the operator then stays in CSR and can be used on.
    pub fn apply(&mut self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        self.advance()?;
        let start = Instant::now();
        self.operator.apply(alpha, x, beta, y)?;
        self.products += 1;
        self.spent_s += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Puts in new values of the same pattern, in the order of the CSR arrays.
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

    /// The operator as it is now.
    pub fn operator(&self) -> &PreparedOperator<T> {
        &self.operator
    }

    /// Products so far.
    pub fn products(&self) -> u64 {
        self.products
    }

    /// Takes the next step, where it is due.
    fn advance(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Done => {}
            Stage::Unknown(source) => {
                let look_s = LOOK_S * source.csr.nnz() as f64;
                if self.products == 0 || self.spent_s < look_s {
                    self.stage = Stage::Unknown(source);
                    return Ok(());
                }
                match self.conversion {
                    Conversion::Here => {
                        let plan = source.look(self.operator.candidate())?;
                        self.plan(source, plan)?;
                    }
                    Conversion::Background => {
                        let (sender, looked) = channel();
                        let (own, held) = (source.clone(), self.operator.candidate().clone());
                        // Nobody listens any more where the operator is gone.
                        thread::spawn(move || drop(sender.send(own.look(&held))));
                        self.stage = Stage::Looking(source, looked);
                    }
                }
            }
            Stage::Looking(source, looked) => match looked.try_recv() {
                Ok(plan) => self.plan(source, plan?)?,
                Err(TryRecvError::Empty) => self.stage = Stage::Looking(source, looked),
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

    /// Converts where the plan's products are passed; without a plan it stays in CSR.
    fn plan(&mut self, source: Source<T>, plan: Option<Plan>) -> Result<()> {
        let Some(mut plan) = plan else { return Ok(()) };
        if self.values.is_some() {
            // What suits by values was chosen by the old ones.
            plan.candidates.retain(|candidate| !candidate.format.by_values());
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

    /// Goes on with this operator, unless it cannot hold the values that were put in meanwhile.
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

impl<T: Scalar> Source<T> {
    fn prepare(&self, candidate: &Candidate) -> Result<PreparedOperator<T>> {
        let structure = Structure::sampled(&*self.csr).with_partitioning();
        let target = self.workload.target(self.tuner.device());
        let target = candidate.target(&target);
        self.tuner.meter().prepare(&self.csr, &structure, candidate, &target)
    }

    /// A candidate and its layout, on the host.
    fn convert(&self, candidate: &Candidate) -> Result<Converted<T>> {
        let structure = Structure::of(&*self.csr).with_partitioning();
        let target = self.workload.target(self.tuner.device());
        let target = candidate.target(&target);
        Ok((candidate.clone(), candidate.convert(&self.csr, &structure, &target)?))
    }

    /// Ranks the candidates beside the one that is held, for many products: nobody knows how many.
    fn look(&self, held: &Candidate) -> Result<Option<Plan>> {
        let workload = Workload { spmvs: ALWAYS_ANALYZE, ..self.workload };
        Ok(plan_of(&self.tuner.recommend(&self.csr, &workload)?, held))
    }
}

/// When a conversion first pays beside the candidate that is held, and those that are faster, the best
/// one by twice as many products first; none where nothing is faster.
fn plan_of(choice: &Choice, held: &Candidate) -> Option<Plan> {
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
    Some(Plan { candidates: best.into_iter().map(|r| r.candidate.clone()).collect(), from })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::choose::Effort;
    use crate::device::{Device, PerPrecision, Reach};
    use crate::generate;

    /// A host that converts at once, or hardly ever.
    fn tuner(convert_ns: f64) -> Arc<Tuner> {
        let devices = Device::shipped();
        let mut device = devices.into_iter().find(|d| d.name == "cpu").expect("shipped");
        // CSR is told to be slow, so that something pays.
        let slow =
            Reach { entry_ns: PerPrecision::both(50.0), ..crate::cost::reach(&device, &csr()) };
        device.kernels.insert("csr".into(), slow);
        device.kernels.entry("others".into()).or_default();
        for reach in device.kernels.values_mut() {
            reach.convert_ns = PerPrecision::both(convert_ns);
        }
        Arc::new(Tuner::new(device))
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
        (lazy.expect("CSR suits"), csr)
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
    fn what_suits_by_old_values_is_not_converted_to() {
        let (mut lazy, csr) = lazy(1.0, Conversion::Here);
        let Stage::Unknown(source) = &lazy.stage else { panic!("it was not looked at") };
        let source = source.clone();
        let candidates = ["cdia", "hdia"].map(|name| name.parse().expect("a candidate")).to_vec();
        assert!(candidates.iter().map(|c: &Candidate| c.format.by_values()).eq([true, false]));
        let new: Vec<f64> = (0..csr.nnz()).map(|k| (k % 5) as f64).collect();
        lazy.update_values(&new).expect("as many");
        lazy.plan(source, Some(Plan { candidates, from: 0 })).expect("one suits");
        assert_eq!(lazy.operator().candidate().format.name(), "hdia");
        let mut csr = csr.map_values(|value| value);
        csr.values_mut().copy_from_slice(&new);
        product(&mut lazy, &csr);
    }

    #[test]
    fn a_conversion_pays_beside_the_kernel_that_is_held() {
        let workload = Workload { effort: Effort::Estimate, ..Workload::default() };
        let gpu = Tuner::new(crate::device::find("h200").expect("shipped"));
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
            assert_eq!((best.format.name(), plan.from), ("hll", from), "{held}");
        }
    }

    #[test]
    fn the_next_best_is_made_where_the_best_refuses() {
        let named = |name: &&str| name.parse().expect("a candidate");
        let plan = Plan { candidates: ["hll", "pjds", "ell"].iter().map(named).collect(), from: 0 };
        let refusing = |names: &'static str| {
            move |candidate: &Candidate| match names.contains(candidate.format.name()) {
                true => {
                    Err(Error::Refused { candidate: candidate.to_string(), reason: "so".into() })
                }
                false => Ok(candidate.format.name()),
            }
        };
        let made = |names| plan.first(refusing(names)).expect("a refusal is no error");
        assert_eq!(
            [made(""), made("hll"), made("hll pjds")],
            [Some("hll"), Some("pjds"), Some("ell")]
        );
        assert_eq!(made("hll pjds ell"), None);
        let failing = |_: &Candidate| Err::<(), _>(Error::device(DeviceFault::Failed, "gone"));
        plan.first(failing).expect_err("what is no refusal is told");
    }

    #[test]
    fn it_stays_in_csr_where_nothing_pays() {
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
