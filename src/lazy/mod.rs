//! Lazy operators: start in CSR, count their products, and convert when a conversion has paid off.
//!
//! For callers that do not know how many products will come. Whenever the products end, their total
//! time is at most about twice the time that was possible with their number known in advance (the
//! ski rental problem: as many products are assumed to come as there were).
//!
//! On a host, the matrix is not analysed until its products have taken as long as the analysis
//! would. Then the candidates are ranked, and the first one is prepared whose conversion the
//! products so far would have paid for.
//!
//! On a GPU, nothing precedes the first product: the kernel `csr` multiplies rows of any lengths.
//! Whenever the number of products has doubled, the policy of [`Tuner::prepare_on_gpu`] decides for
//! as many products: from the size of the matrix, from a sample, from counted features or from an
//! analysis, whichever the products repay. With [`Conversion::Background`], a thread decides and
//! converts on a second stream. Products never wait for it: they use the new layout from the first
//! call on that finds it finished. [`LazyOperator::choice`] tells what was decided and when.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ellect::cuda::DeviceCsr;
//! use ellect::lazy::{Conversion, LazyOperator};
//! use ellect::{Csr, Tuner, Workload};
//!
//! # fn main() -> ellect::Result<()> {
//! let tuner = Arc::new(Tuner::open("cuda:0")?);
//! let gpu = tuner.backend().gpu()?.clone();
//! let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (1, 1, 5.0)])?;
//! let csr = Arc::new(DeviceCsr::upload(&gpu, &csr)?);
//!
//! let (workload, conversion) = (Workload::default(), Conversion::Background);
//! let mut a = LazyOperator::on_gpu(tuner, csr, workload, conversion)?;
//! # #[cfg(feature = "cuda")]
//! # {
//! let (x, mut y) = (gpu.vector(&[1.0, 2.0])?, gpu.zeros(2)?);
//! for _ in 0..1000 {
//!     a.apply_on_gpu(1.0, &x, 0.0, &mut y)?;
//! }
//! # }
//! if let Some(choice) = a.choice() {
//!     println!("{}", choice.explanation[0]);
//! }
//! # Ok(())
//! # }
//! ```

mod asker;
mod gpu;
mod host;
mod plan;

use std::sync::Arc;
use std::time::Instant;

use crate::choose::{Choice, Workload};
use crate::csr::Csr;
use crate::cuda::{DeviceCsr, DeviceSlice, DeviceSliceMut, Gpu};
use crate::dense::{DenseMut, DenseRef};
use crate::error::{Error, Result};
use crate::format::{Basis, CSR};
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::tuner::Tuner;
use asker::{Answer, Asker, Question};
use gpu::GpuMatrix;
use host::HostMatrix;

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
    /// In a separate thread, on a GPU also on a second stream, while products continue in CSR.
    Background,
}

/// A matrix that starts in CSR and is converted once its products have paid for the conversion.
///
/// Dropping it waits for a conversion that is under way on a second stream of a GPU.
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
/// assert_eq!(a.switched_after(), None);
/// # Ok(())
/// # }
/// ```
pub struct LazyOperator<T: Scalar> {
    operator: PreparedOperator<T>,
    products: u64,
    /// Time of the products in host memory, in seconds.
    spent_s: f64,
    /// Time that the products have to take before the first question, in seconds.
    first_s: f64,
    /// Number of updates of values.
    updates: u64,
    asker: Asker<T>,
    /// The GPU whose stream the second one waits for, if conversions run on a second stream.
    gpu: Option<Arc<Gpu>>,
    choice: Option<Box<Choice>>,
    switched_after: Option<u64>,
}

/// Approximate time of features and estimates, in seconds for each nonzero; decides only when the
/// analysis starts.
const ANALYSIS_S: f64 = 5e-9;

impl<T: Scalar> LazyOperator<T> {
    /// Prepares the matrix in CSR, on the GPU that the tuner opened or else on the host.
    ///
    /// The workload's numbers of products and vectors are ignored, and the basis is the original one,
    /// so that x and y have the same order before and after the conversion.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver; [`Error::Io`] if no thread can be started.
    pub fn new(
        tuner: Arc<Tuner>,
        csr: Arc<Csr<T>>,
        workload: Workload,
        conversion: Conversion,
    ) -> Result<Self> {
        if let Ok(gpu) = tuner.backend().gpu() {
            let there = Arc::new(DeviceCsr::upload(gpu, &*csr)?);
            return Self::of_gpu(tuner, there, Some(csr), workload, conversion);
        }
        let workload = Workload { basis: Basis::Original, transposed: 0, vectors: 1, ..workload };
        let first_s = ANALYSIS_S * csr.nnz() as f64;
        let matrix = HostMatrix { tuner, csr, workload, plan: None };
        let operator = matrix.prepare(&CSR.parse()?)?;
        let asker = Asker::new(matrix, conversion, Some(1))?;
        Ok(LazyOperator::of(operator, asker, first_s, None))
    }

    /// Prepares a matrix on the GPU that the tuner opened, for products with vectors there. Only
    /// its row lengths are read: if the longest row is unknown, the GPU looks for it.
    ///
    /// The workload's numbers of products and vectors are ignored, the basis is the original one, and
    /// the effort is at most [`Effort::Predict`](crate::choose::Effort::Predict), because products would
    /// disturb measurements.
    ///
    /// # Errors
    /// As [`LazyOperator::new`]; [`Error::Argument`] if the tuner opened no GPU or another GPU holds
    /// the matrix.
    pub fn on_gpu(
        tuner: Arc<Tuner>,
        csr: Arc<DeviceCsr<T>>,
        workload: Workload,
        conversion: Conversion,
    ) -> Result<Self> {
        Self::of_gpu(tuner, csr, None, workload, conversion)
    }

    fn of_gpu(
        tuner: Arc<Tuner>,
        csr: Arc<DeviceCsr<T>>,
        given: Option<Arc<Csr<T>>>,
        workload: Workload,
        conversion: Conversion,
    ) -> Result<Self> {
        let workload = Workload { basis: Basis::Original, transposed: 0, vectors: 1, ..workload };
        let gpu = Arc::clone(tuner.backend().gpu()?);
        let matrix = GpuMatrix::new(tuner, csr, given, workload, conversion)?;
        let (operator, first) = (matrix.in_csr()?, matrix.first_question());
        let gpu = (conversion == Conversion::Background).then_some(gpu);
        Ok(LazyOperator::of(operator, Asker::new(matrix, conversion, first)?, 0.0, gpu))
    }

    fn of(
        operator: PreparedOperator<T>,
        asker: Asker<T>,
        first_s: f64,
        gpu: Option<Arc<Gpu>>,
    ) -> Self {
        LazyOperator {
            operator,
            products: 0,
            spent_s: 0.0,
            first_s,
            updates: 0,
            asker,
            gpu,
            choice: None,
            switched_after: None,
        }
    }

    /// Computes y = alpha A x + beta y like [`PreparedOperator::apply`]; may switch to another
    /// layout first, and with [`Conversion::Here`] convert the matrix first.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply`], and once each error of a decision or a conversion, after
    /// which the operator keeps its layout and remains usable; y is then unchanged.
    pub fn apply(&mut self, alpha: T, x: &[T], beta: T, y: &mut [T]) -> Result<()> {
        self.advance()?;
        let start = Instant::now();
        self.operator.apply(alpha, x, beta, y)?;
        self.products += 1;
        self.spent_s += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Computes Y = alpha A X + beta Y like [`PreparedOperator::apply_many`]; may switch to another
    /// layout first. Counts as one product for each column.
    ///
    /// # Errors
    /// As [`PreparedOperator::apply_many`], and errors of a decision or a conversion as
    /// [`LazyOperator::apply`].
    pub fn apply_many(
        &mut self,
        alpha: T,
        x: DenseRef<'_, T>,
        beta: T,
        y: DenseMut<'_, T>,
    ) -> Result<()> {
        self.advance()?;
        let (start, vectors) = (Instant::now(), y.ncols() as u64);
        self.operator.apply_many(alpha, x, beta, y)?;
        self.products += vectors;
        self.spent_s += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Queues y = alpha A x + beta y on the GPU's stream like
    /// [`GpuOperator::apply`](crate::cuda::GpuOperator::apply); may switch to another layout first.
    ///
    /// With [`Conversion::Background`], this never waits: neither for the GPU nor for the thread
    /// that decides and converts.
    ///
    /// # Errors
    /// As [`GpuOperator::apply`](crate::cuda::GpuOperator::apply), and errors of a decision or a
    /// conversion as [`LazyOperator::apply`]; [`Error::Argument`] if the matrix is on the host.
    pub fn apply_on_gpu<'x, 'y>(
        &mut self,
        alpha: T,
        x: impl Into<DeviceSlice<'x, T>>,
        beta: T,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<()> {
        self.advance()?;
        self.operator.on_device().ok_or_else(on_host)?.apply(alpha, x, beta, y)?;
        self.products += 1;
        Ok(())
    }

    /// Replaces the values by others of the same pattern, in the order of the CSR arrays. Waits on
    /// a GPU.
    ///
    /// # Errors
    /// As [`PreparedOperator::update_values`].
    pub fn update_values(&mut self, values: &[T]) -> Result<()> {
        self.operator.update_values(values)?;
        self.updates += 1;
        Ok(())
    }

    /// Replaces the values by those of a vector on the GPU; waits.
    ///
    /// # Errors
    /// As [`GpuOperator::update_values`](crate::cuda::GpuOperator::update_values);
    /// [`Error::Argument`] if the matrix is on the host.
    pub fn update_values_on_gpu<'v>(
        &mut self,
        values: impl Into<DeviceSlice<'v, T>>,
    ) -> Result<()> {
        self.operator.on_device_mut().ok_or_else(on_host)?.update_values(values)?;
        self.updates += 1;
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

    /// Returns the last choice, whose candidate is the current one; `None` before the first
    /// decision. The first sentence of its explanation says after which product and from what it
    /// was made, and from which product on its candidate multiplies.
    pub fn choice(&self) -> Option<&Choice> {
        self.choice.as_deref()
    }

    /// Returns the number of products before the current layout multiplied for the first time;
    /// `None` if that is still CSR as at the start.
    pub fn switched_after(&self) -> Option<u64> {
        self.switched_after
    }

    /// Takes an answer if it is there, and asks if a question is due.
    fn advance(&mut self) -> Result<()> {
        self.take_answer()?;
        if self.asker.is_due(self.products) && self.spent_s >= self.first_s {
            self.asker.ask(Question {
                products: self.products,
                held: self.operator.candidate().clone(),
                updates: self.updates,
                mark: self.gpu.as_ref().map(|gpu| gpu.mark()).transpose()?,
            });
            // The answer is there already if conversions are made here.
            self.take_answer()?;
        }
        Ok(())
    }

    fn take_answer(&mut self) -> Result<()> {
        let Some((asked, answer)) = self.asker.answer()? else { return Ok(()) };
        self.take(asked, answer)
    }

    /// Switches to the operator of an answer, unless it cannot hold the values that were set
    /// meanwhile.
    fn take(&mut self, [products, updates]: [u64; 2], answer: Answer<T>) -> Result<()> {
        let Answer { operator, mut choice, mut next } = answer;
        let known = choice.as_ref().map_or("nothing", plan::knowledge);
        let decided = format!("The decision was made after {products} products, from {known}");
        let held = self.operator.candidate().clone();
        let said = match operator {
            None => format!(
                "Keeps {held}. {decided}: as many more were not expected to repay a conversion."
            ),
            Some(operator) => {
                let new = operator.candidate().clone();
                if self.switch(operator, updates)? {
                    let first = self.products + 1;
                    format!(
                        "Uses {new} instead of {held} from product {first} on. {decided}: as many \
                         more were expected to repay the conversion."
                    )
                } else {
                    next = next.or(Some(2 * self.products));
                    format!("Keeps {held}: values were replaced during the conversion to {new}.")
                }
            }
        };
        self.asker.ask_after(next);
        if let Some(choice) = &mut choice {
            if choice.candidate != *self.operator.candidate() {
                // The explanation is about a candidate that is not used.
                choice.explanation.clear();
                choice.choose(self.operator.candidate());
            }
            choice.explanation.insert(0, said);
        }
        self.choice = choice.map(Box::new).or(self.choice.take());
        Ok(())
    }

    /// Multiplies by this operator from now on, and returns true, if it can hold the newest values.
    /// It was made when there had been this number of updates.
    fn switch(&mut self, mut operator: PreparedOperator<T>, updates: u64) -> Result<bool> {
        // Formats that depend on values were chosen for the old ones.
        let stale = self.updates > updates && operator.candidate().format.by_values;
        if stale || self.updates > 0 && !operator.take_values_of(&self.operator)? {
            return Ok(false);
        }
        self.operator = operator;
        self.switched_after = Some(self.products);
        Ok(true)
    }
}

impl<T: Scalar> Drop for LazyOperator<T> {
    fn drop(&mut self) {
        // A conversion on a GPU reads arrays that the caller may free after this.
        if self.gpu.is_some() {
            self.asker.join();
        }
    }
}

/// Returns the error for vectors on a GPU and a matrix on the host.
fn on_host() -> Error {
    Error::argument("the matrix is on the host: multiply vectors there, or open a GPU (cuda:0)")
}

#[cfg(test)]
mod tests;
