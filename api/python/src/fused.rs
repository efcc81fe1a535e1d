//! Products with dot products of their result, and with its multiple added to another vector.

use ellect::dots::{DotWith, Fused};
use ellect::{Error, PreparedOperator, Result, Scalar};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;

use crate::arrays::{elements, elements_mut};
use crate::errors::exception;
use crate::operator::{apart, overlap};

/// Dot products and a sum of vectors on the host: what the dot products are with, z, the results, gamma and
/// w.
pub struct Sums<T: Element> {
    with: Vec<DotWith<()>>,
    z: Option<PyBuffer<T>>,
    results: PyBuffer<T>,
    add: Option<(f64, PyBuffer<T>)>,
}

impl<T: Scalar + Element> Sums<T> {
    /// Takes arrays of Python.
    pub fn of(
        with: &[u8],
        z: Option<&Bound<'_, PyAny>>,
        results: &Bound<'_, PyAny>,
        add: Option<(f64, Bound<'_, PyAny>)>,
    ) -> PyResult<Self> {
        let add = add.map(|(gamma, w)| PyResult::Ok((gamma, PyBuffer::get(&w)?))).transpose()?;
        let with = listed(with, ()).map_err(exception)?;
        Ok(Sums {
            with,
            z: z.map(PyBuffer::get).transpose()?,
            results: PyBuffer::get(results)?,
            add,
        })
    }

    /// Multiplies, and computes the dot products and the sum.
    pub fn multiply(
        &mut self,
        operator: &PreparedOperator<T>,
        (alpha, x): (f64, &PyBuffer<T>),
        (beta, y): (f64, &mut PyBuffer<T>),
    ) -> Result<()> {
        let (mut of_x, mut of_z) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let (alpha, beta) = (T::from_f64(alpha), T::from_f64(beta));
        let y = elements_mut(y)?;
        let add = match &mut self.add {
            Some((gamma, w)) => Some((T::from_f64(*gamma), elements_mut(w)?)),
            None => None,
        };
        let w = add.as_ref().map_or(&[][..], |(_, w)| w);
        if overlap(y, w) {
            return Err(Error::argument("out and w overlap; give another out or w"));
        }
        let x = apart(apart(elements(x)?, y, &mut of_x.0), w, &mut of_x.1);
        let z = self.z.as_ref().map_or(Ok(&[][..]), elements)?;
        let z = apart(apart(z, y, &mut of_z.0), w, &mut of_z.1);
        let with: Vec<_> = self.with.iter().map(|one| one.map(|()| z)).collect();
        let results = Some(elements_mut(&mut self.results)?);
        operator.apply_fused(alpha, x, beta, y, Fused { with: &with, results, add })
    }
}

/// Returns dot products from their numbers: 0 with x, 1 with y, 2 with z.
pub fn listed<V: Copy>(with: &[u8], z: V) -> Result<Vec<DotWith<V>>> {
    let one = |number: &u8| match number {
        0 => Ok(DotWith::X),
        1 => Ok(DotWith::Y),
        2 => Ok(DotWith::Z(z)),
        other => Err(Error::argument(format!("{other} names no dot product; give 0, 1 or 2"))),
    };
    with.iter().map(one).collect()
}
