//! Products with vectors of CuPy and torch that can be used as they are, without Python code in between.
//!
//! A product of a small matrix takes less time than a few lines of Python. This module reads the
//! attributes of such vectors itself. Whatever is unusual, wrong types and lengths included, is left to
//! the package's Python code, which converts or explains.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use ellect::Precision;

/// What is needed of a package, found once.
struct Package {
    /// The type of its vectors.
    vector: Py<PyType>,
    /// Its function that returns the current stream, or the address of that.
    stream: Py<PyAny>,
    /// Its types of f32 and f64.
    types: [Py<PyAny>; 2],
}

/// The packages, once they are imported.
static CUPY: PyOnceLock<Package> = PyOnceLock::new();
static TORCH: PyOnceLock<Package> = PyOnceLock::new();

/// Returns a package if the program has imported it.
fn package<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Package>,
    name: &str,
    find: fn(&Bound<'py, PyAny>) -> PyResult<Package>,
) -> Option<&'py Package> {
    if let Some(found) = cell.get(py) {
        return Some(found);
    }
    let modules = py.import(intern!(py, "sys")).ok()?.getattr(intern!(py, "modules")).ok()?;
    let found = find(&modules.get_item(name).ok()?).ok()?;
    Some(cell.get_or_init(py, || found))
}

fn cupy(module: &Bound<'_, PyAny>) -> PyResult<Package> {
    let numpy = module.py().import("numpy")?;
    let of = |name: &str| Ok::<_, PyErr>(numpy.getattr("dtype")?.call1((name,))?.unbind());
    Ok(Package {
        vector: module.getattr("ndarray")?.cast_into::<PyType>()?.unbind(),
        stream: module.getattr("cuda")?.getattr("get_current_stream")?.unbind(),
        types: [of("float32")?, of("float64")?],
    })
}

fn torch(module: &Bound<'_, PyAny>) -> PyResult<Package> {
    // Compilers of torch take the address in this way; it exists in builds with CUDA.
    let stream = module.getattr("_C")?.getattr("_cuda_getCurrentRawStream")?;
    Ok(Package {
        vector: module.getattr("Tensor")?.cast_into::<PyType>()?.unbind(),
        stream: stream.unbind(),
        types: [module.getattr("float32")?.unbind(), module.getattr("float64")?.unbind()],
    })
}

/// An operator's side of a product.
pub struct Wanted {
    /// Lengths of x and of the result.
    pub lengths: [usize; 2],
    pub precision: Precision,
    pub gpu: u32,
}

/// Addresses of x, of the result and of the stream, and the result.
pub struct Found<'py> {
    pub x: u64,
    pub y: u64,
    pub stream: u64,
    pub out: Bound<'py, PyAny>,
}

impl Wanted {
    /// Finds the vectors of a product; makes the result if `out` is None. Returns nothing unless all can
    /// be used as they are.
    pub fn find<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> Option<Found<'py>> {
        let py = x.py();
        let kind = x.get_type();
        let is_of = |package: &&Package| kind.is(&package.vector);
        if let Some(package) = package(py, &CUPY, "cupy", cupy).filter(is_of) {
            return self.in_cupy(package, x, out, stream);
        }
        let package = self::package(py, &TORCH, "torch", torch).filter(is_of)?;
        self.in_torch(package, x, out, stream)
    }

    fn in_cupy<'py>(
        &self,
        package: &Package,
        x: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> Option<Found<'py>> {
        let py = x.py();
        let dtype = package.types[self.precision as usize].bind(py);
        let [ncols, nrows] = self.lengths;
        let at = |vector: &Bound<'py, PyAny>, length: usize| {
            let data = vector.getattr(intern!(py, "data")).ok()?;
            let gpu = data.getattr(intern!(py, "device_id")).ok()?.extract::<u32>().ok();
            let here = gpu == Some(self.gpu);
            let typed = vector.getattr(intern!(py, "dtype")).ok()?.is(dtype);
            let shape = vector.getattr(intern!(py, "shape")).ok()?;
            let strides = vector.getattr(intern!(py, "strides")).ok()?;
            let shaped = only(&shape)? == length
                && (length <= 1 || only(&strides)? == self.precision.bytes());
            let address = data.getattr(intern!(py, "ptr")).ok()?.extract().ok()?;
            (here && typed && shaped).then_some(address)
        };
        let x_at = at(x, ncols)?;
        let stream = match stream.is_none() {
            true => package.stream.bind(py).call0().ok()?.getattr(intern!(py, "ptr")),
            false => stream.getattr(intern!(py, "ptr")),
        };
        let stream = stream.ok()?.extract().ok()?;
        let out = match out.is_none() {
            true => package.vector.bind(py).call1(((nrows,), dtype)).ok()?,
            false if out.get_type().is(&package.vector) => out.clone(),
            false => return None,
        };
        let y_at = at(&out, nrows)?;
        self.found(x_at, y_at, stream, out)
    }

    fn in_torch<'py>(
        &self,
        package: &Package,
        x: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> Option<Found<'py>> {
        let py = x.py();
        let dtype = package.types[self.precision as usize].bind(py);
        let [ncols, nrows] = self.lengths;
        let at = |vector: &Bound<'py, PyAny>, length: usize| {
            let of = |name| vector.call_method0(name).ok();
            let here =
                of(intern!(py, "get_device"))?.extract::<i64>().ok() == Some(self.gpu.into());
            let typed = vector.getattr(intern!(py, "dtype")).ok()?.is(dtype);
            let shaped = only(&vector.getattr(intern!(py, "shape")).ok()?)? == length;
            let near = of(intern!(py, "is_contiguous"))?.is_truthy().ok()?;
            let address = of(intern!(py, "data_ptr"))?.extract().ok()?;
            (here && typed && shaped && near).then_some(address)
        };
        let x_at = at(x, ncols)?;
        let stream = match stream.is_none() {
            true => package.stream.bind(py).call1((self.gpu,)),
            false => stream.getattr(intern!(py, "cuda_stream")),
        };
        let stream = stream.ok()?.extract().ok()?;
        let out = match out.is_none() {
            true => x.call_method1(intern!(py, "new_empty"), ((nrows,),)).ok()?,
            false if out.get_type().is(&package.vector) => out.clone(),
            false => return None,
        };
        let y_at = at(&out, nrows)?;
        self.found(x_at, y_at, stream, out)
    }

    /// Returns the vectors unless they overlap.
    fn found<'py>(
        &self,
        x: u64,
        y: u64,
        stream: u64,
        out: Bound<'py, PyAny>,
    ) -> Option<Found<'py>> {
        let [x_bytes, y_bytes] =
            self.lengths.map(|length| (length * self.precision.bytes()) as u64);
        let overlap = x < y + y_bytes && y < x + x_bytes;
        (!overlap).then_some(Found { x, y, stream, out })
    }
}

/// Returns the number in a tuple of one number.
fn only(tuple: &Bound<'_, PyAny>) -> Option<usize> {
    let tuple = tuple.cast::<PyTuple>().ok()?;
    (tuple.len() == 1).then(|| tuple.get_item(0).ok()?.extract().ok()).flatten()
}
