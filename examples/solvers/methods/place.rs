//! Where solvers compute: the same steps on a host and on a GPU.

use ellect::dots::Fused;
use ellect::{PreparedOperator, Result};

/// A number that only a step needs: element `.1` of a vector.
pub type Number<'a, V> = (&'a V, usize);

/// A factor of a vector: a number, perhaps times a quotient of two others. A quotient by 0 is 0, so a
/// solver that has found the exact solution stays there.
pub struct Factor<'a, V>(pub f64, pub Option<[Number<'a, V>; 2]>);

impl<V> From<f64> for Factor<'_, V> {
    fn from(scale: f64) -> Self {
        Factor(scale, None)
    }
}

/// Returns the factor `scale * over / under`.
pub fn quotient<'a, V>(scale: f64, over: Number<'a, V>, under: Number<'a, V>) -> Factor<'a, V> {
    Factor(scale, Some([over, under]))
}

/// Vectors and their operations, where an operator is.
pub trait Place {
    /// A vector.
    type Vector;

    /// Copies a vector from the host.
    fn vector(&self, host: &[f64]) -> Result<Self::Vector>;

    /// Copies a vector to the host.
    fn read(&self, vector: &Self::Vector) -> Result<Vec<f64>>;

    /// Computes y = alpha A x + beta y, and of the new y what `fused` asks for.
    fn apply(
        &self,
        a: &PreparedOperator<f64>,
        factors: [f64; 2],
        x: &Self::Vector,
        y: &mut Self::Vector,
        fused: Fused<'_, f64, &Self::Vector, &mut Self::Vector>,
    ) -> Result<()>;

    /// Computes y = alpha x + beta y.
    fn axpby<'a>(
        &self,
        alpha: impl Into<Factor<'a, Self::Vector>>,
        x: &Self::Vector,
        beta: impl Into<Factor<'a, Self::Vector>>,
        y: &mut Self::Vector,
    ) -> Result<()>
    where
        Self::Vector: 'a;

    /// Computes (x, y).
    fn dot(&self, x: &Self::Vector, y: &Self::Vector, result: &mut Self::Vector) -> Result<()>;

    /// Moves elements below `least` to it.
    fn at_least(&self, least: f64, y: &mut Self::Vector) -> Result<()>;

    /// Creates a vector of zeros.
    fn zeros(&self, n: usize) -> Result<Self::Vector> {
        self.vector(&vec![0.0; n])
    }
}

/// The host.
pub struct Host;

impl Host {
    fn value(Factor(scale, quotient): Factor<'_, Vec<f64>>) -> f64 {
        match quotient {
            None => scale,
            Some([_, (under, at)]) if under[at] == 0.0 => 0.0,
            Some([(over, i), (under, at)]) => scale * over[i] / under[at],
        }
    }
}

impl Place for Host {
    type Vector = Vec<f64>;

    fn vector(&self, host: &[f64]) -> Result<Vec<f64>> {
        Ok(host.to_vec())
    }

    fn read(&self, vector: &Vec<f64>) -> Result<Vec<f64>> {
        Ok(vector.clone())
    }

    fn apply(
        &self,
        a: &PreparedOperator<f64>,
        [alpha, beta]: [f64; 2],
        x: &Vec<f64>,
        y: &mut Vec<f64>,
        fused: Fused<'_, f64, &Vec<f64>, &mut Vec<f64>>,
    ) -> Result<()> {
        let with: Vec<_> = fused.with.iter().map(|one| one.map(|z| &z[..])).collect();
        let (results, add) =
            (fused.results.map(|r| &mut r[..]), fused.add.map(|(g, w)| (g, &mut w[..])));
        a.apply_fused(alpha, x, beta, y, Fused { with: &with, results, add })
    }

    fn axpby<'a>(
        &self,
        alpha: impl Into<Factor<'a, Vec<f64>>>,
        x: &Vec<f64>,
        beta: impl Into<Factor<'a, Vec<f64>>>,
        y: &mut Vec<f64>,
    ) -> Result<()> {
        let [alpha, beta] = [alpha.into(), beta.into()].map(Host::value);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = alpha * x + beta * *y);
        Ok(())
    }

    fn dot(&self, x: &Vec<f64>, y: &Vec<f64>, result: &mut Vec<f64>) -> Result<()> {
        result[0] = x.iter().zip(y).map(|(x, y)| x * y).sum();
        Ok(())
    }

    fn at_least(&self, least: f64, y: &mut Vec<f64>) -> Result<()> {
        y.iter_mut().for_each(|y| *y = y.max(least));
        Ok(())
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use super::{Factor, Place};
    use ellect::cuda::{self, DeviceSlice, Gpu, Vector};
    use ellect::dots::Fused;
    use ellect::{Error, PreparedOperator, Result};

    fn on_gpu<'a>(Factor(scale, of): Factor<'a, Vector<f64>>) -> Result<cuda::Factor<'a, f64>> {
        let Some([(over, i), (under, at)]) = of else { return Ok(scale.into()) };
        cuda::Factor::quotient(scale, over.slice(i..=i)?, under.slice(at..=at)?)
    }

    impl Place for Gpu {
        type Vector = Vector<f64>;

        fn vector(&self, host: &[f64]) -> Result<Vector<f64>> {
            Gpu::vector(self, host)
        }

        fn read(&self, vector: &Vector<f64>) -> Result<Vec<f64>> {
            let mut host = vec![0.0; vector.len()];
            vector.read(&mut host)?;
            Ok(host)
        }

        fn apply(
            &self,
            a: &PreparedOperator<f64>,
            [alpha, beta]: [f64; 2],
            x: &Vector<f64>,
            y: &mut Vector<f64>,
            fused: Fused<'_, f64, &Vector<f64>, &mut Vector<f64>>,
        ) -> Result<()> {
            let a = a.on_device().ok_or_else(|| Error::argument("an operator is on the host"))?;
            let with: Vec<_> = fused.with.iter().map(|one| one.map(DeviceSlice::from)).collect();
            let (results, add) =
                (fused.results.map(Into::into), fused.add.map(|(g, w)| (g, w.into())));
            a.apply_fused(alpha, x, beta, y, Fused { with: &with, results, add })
        }

        fn axpby<'a>(
            &self,
            alpha: impl Into<Factor<'a, Vector<f64>>>,
            x: &Vector<f64>,
            beta: impl Into<Factor<'a, Vector<f64>>>,
            y: &mut Vector<f64>,
        ) -> Result<()> {
            Gpu::axpby(self, on_gpu(alpha.into())?, x, on_gpu(beta.into())?, y)
        }

        fn dot(&self, x: &Vector<f64>, y: &Vector<f64>, result: &mut Vector<f64>) -> Result<()> {
            Gpu::dot(self, x, y, result)
        }

        fn at_least(&self, least: f64, y: &mut Vector<f64>) -> Result<()> {
            self.clamp(least, f64::INFINITY, y)
        }
    }
}
