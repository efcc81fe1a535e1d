//! Products with vectors of CuPy and torch that can be used as they are, without Python code in between.
//!
//! A product of a small matrix takes less time than a few lines of Python. This module reads the
//! attributes of such vectors itself. Whatever is unusual, wrong types and lengths included, is left to
//! the package's Python code, which converts or explains.

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use ellect::Precision;

/// A package whose vectors are read.
#[derive(Clone, Copy)]
enum Kind {
    Cupy,
    Torch,
}

/// The parts of a package that are needed, found once.
struct Package {
    kind: Kind,
    /// The type of its vectors.
    vector: Py<PyType>,
    /// Its function that returns the current stream (CuPy), or the address of that (torch).
    stream: Py<PyAny>,
    /// Its types of f32 and f64.
    types: [Py<PyAny>; 2],
}

/// The packages, once they are imported.
static CUPY: PyOnceLock<Package> = PyOnceLock::new();
static TORCH: PyOnceLock<Package> = PyOnceLock::new();

impl Package {
    /// Returns the package that defines this type, if it is one of them.
    fn of<'py>(py: Python<'py>, kind: &Bound<'py, PyType>) -> Option<&'py Package> {
        let fits = |package: &&Package| kind.is(&package.vector);
        let cupy = || Package::imported(py, &CUPY, "cupy", Package::cupy).filter(fits);
        let torch = || Package::imported(py, &TORCH, "torch", Package::torch).filter(fits);
        cupy().or_else(torch)
    }

    /// Returns a package if the program has imported it.
    fn imported<'py>(
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
            kind: Kind::Cupy,
            vector: module.getattr("ndarray")?.cast_into::<PyType>()?.unbind(),
            stream: module.getattr("cuda")?.getattr("get_current_stream")?.unbind(),
            types: [of("float32")?, of("float64")?],
        })
    }

    fn torch(module: &Bound<'_, PyAny>) -> PyResult<Package> {
        // Compilers of torch take the address in this way; it exists in builds with CUDA.
        let stream = module.getattr("_C")?.getattr("_cuda_getCurrentRawStream")?;
        Ok(Package {
            kind: Kind::Torch,
            vector: module.getattr("Tensor")?.cast_into::<PyType>()?.unbind(),
            stream: stream.unbind(),
            types: [module.getattr("float32")?.unbind(), module.getattr("float64")?.unbind()],
        })
    }

    /// Returns the address of the given stream, or of the current one of the GPU.
    fn stream_at(&self, stream: &Bound<'_, PyAny>, gpu: u32) -> PyResult<u64> {
        let py = stream.py();
        match (self.kind, stream.is_none()) {
            (Kind::Cupy, true) => self.stream.bind(py).call0()?.getattr(intern!(py, "ptr")),
            (Kind::Cupy, false) => stream.getattr(intern!(py, "ptr")),
            (Kind::Torch, true) => self.stream.bind(py).call1((gpu,)),
            (Kind::Torch, false) => stream.getattr(intern!(py, "cuda_stream")),
        }?
        .extract()
    }

    /// Makes a vector like `x`.
    fn new_vector<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        length: usize,
        precision: Precision,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        match self.kind {
            Kind::Cupy => self.vector.bind(py).call1(((length,), &self.types[precision as usize])),
            Kind::Torch => x.call_method1(intern!(py, "new_empty"), ((length,),)),
        }
    }

    /// Returns the address of a vector that [`Package::new_vector`] made, if it is on this GPU. CuPy makes
    /// vectors on its current GPU, torch on that of x.
    fn address_of_new(&self, vector: &Bound<'_, PyAny>, gpu: u32) -> PyResult<Option<u64>> {
        let py = vector.py();
        match self.kind {
            Kind::Cupy => {
                let data = vector.getattr(intern!(py, "data"))?;
                let on: i64 = data.getattr(intern!(py, "device_id"))?.extract()?;
                let address = data.getattr(intern!(py, "ptr"))?.extract()?;
                Ok((on == i64::from(gpu)).then_some(address))
            }
            Kind::Torch => vector.call_method0(intern!(py, "data_ptr"))?.extract().map(Some),
        }
    }

    /// Returns the index of the GPU that holds a vector, its address, and whether its elements follow
    /// each other.
    fn place(&self, vector: &Bound<'_, PyAny>, precision: Precision) -> PyResult<(i64, u64, bool)> {
        let py = vector.py();
        match self.kind {
            Kind::Cupy => {
                let data = vector.getattr(intern!(py, "data"))?;
                let stride = only(&vector.getattr(intern!(py, "strides"))?);
                Ok((
                    data.getattr(intern!(py, "device_id"))?.extract()?,
                    data.getattr(intern!(py, "ptr"))?.extract()?,
                    stride == Some(precision.bytes()),
                ))
            }
            Kind::Torch => Ok((
                vector.call_method0(intern!(py, "get_device"))?.extract()?,
                vector.call_method0(intern!(py, "data_ptr"))?.extract()?,
                vector.call_method0(intern!(py, "is_contiguous"))?.extract()?,
            )),
        }
    }
}

/// Largest result that is kept, in bytes. Larger ones take much longer to compute than to make.
const KEPT_BYTES: usize = 1 << 20;

/// Results of earlier products in CuPy's vectors. One that only this list still refers to is the result
/// of a later product, which saves making a new vector.
#[derive(Default)]
pub struct Results(Mutex<Vec<Kept>>);

/// Results that a loop can have at the same time: a new one while a variable still holds the last one.
const KEPT: usize = 2;

/// A result of an earlier product.
struct Kept {
    vector: Py<PyAny>,
    /// The vector's pointer, and the memory to which that refers; views of the vector refer to both.
    pointer: Py<PyAny>,
    memory: Py<PyAny>,
    address: u64,
    /// The stream of its product. Work on another stream may still read the vector.
    stream: u64,
}

impl Kept {
    fn new(vector: &Bound<'_, PyAny>, address: u64, stream: u64) -> PyResult<Self> {
        let py = vector.py();
        let pointer = vector.getattr(intern!(py, "data"))?;
        Ok(Kept {
            memory: pointer.getattr(intern!(py, "mem"))?.unbind(),
            pointer: pointer.unbind(),
            vector: vector.clone().unbind(),
            address,
            stream,
        })
    }

    /// Tells whether nothing else refers to the vector, its pointer or its memory.
    fn is_free(&self) -> bool {
        let uses = [(&self.vector, 1), (&self.pointer, 2), (&self.memory, 2)];
        // SAFETY: the objects exist as long as `self`, and the thread is attached to the interpreter.
        #[expect(unsafe_code, reason = "pyo3 has no safe function for the number of references")]
        uses.iter().all(|(object, own)| unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) } == *own)
    }
}

impl Results {
    /// Returns a free vector of this length whose last product ran on this stream, and its address.
    fn reuse<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        stream: u64,
    ) -> Option<(Bound<'py, PyAny>, u64)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = kept.iter().find(|kept| kept.stream == stream && kept.is_free())?;
        let vector = free.vector.bind(py);
        // A program may have changed the shape.
        let shape = vector.getattr(intern!(py, "shape")).ok()?;
        (only(&shape) == Some(length)).then(|| (vector.clone(), free.address))
    }

    /// Keeps a new result, in place of the oldest one if there are enough.
    fn keep(&self, result: Kept) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = (kept.len() == KEPT).then(|| kept.remove(0));
        kept.push(result);
        // Freeing a vector may run other code of Python, so the lock is released first.
        drop(kept);
        drop(oldest);
    }

    /// Forgets all results.
    pub fn clear(&self) {
        let kept = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(kept);
    }
}

/// An operator's side of a product.
pub struct Wanted<'a> {
    /// Lengths of x and of the result.
    pub lengths: [usize; 2],
    pub precision: Precision,
    pub gpu: u32,
    pub results: &'a Results,
}

/// Addresses of x, of the result and of the stream, and the result.
pub struct Found<'py> {
    pub x: u64,
    pub y: u64,
    pub stream: u64,
    pub out: Bound<'py, PyAny>,
}

impl Wanted<'_> {
    /// Finds the vectors of a product; makes the result if `out` is None. Returns nothing unless all can
    /// be used as they are.
    pub fn find<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
    ) -> Option<Found<'py>> {
        let package = Package::of(x.py(), &x.get_type())?;
        let [ncols, nrows] = self.lengths;
        let x_at = self.address(package, x, ncols)?;
        let stream = package.stream_at(stream, self.gpu).ok()?;
        if out.is_none() {
            let (out, y) = self.result(package, x, stream)?;
            return Some(Found { x: x_at, y, stream, out });
        }
        if !out.get_type().is(&package.vector) {
            return None;
        }
        let (out, y_at) = (out.clone(), self.address(package, out, nrows)?);
        let [x_bytes, y_bytes] =
            self.lengths.map(|length| (length * self.precision.bytes()) as u64);
        let overlap = x_at < y_at + y_bytes && y_at < x_at + x_bytes;
        (!overlap).then_some(Found { x: x_at, y: y_at, stream, out })
    }

    /// Returns a vector for the result of a product with x, and its address.
    fn result<'py>(
        &self,
        package: &Package,
        x: &Bound<'py, PyAny>,
        stream: u64,
    ) -> Option<(Bound<'py, PyAny>, u64)> {
        let [_, nrows] = self.lengths;
        let keeps = matches!(package.kind, Kind::Cupy)
            && nrows * self.precision.bytes() <= KEPT_BYTES
            && nrows > 0;
        if keeps && let Some(found) = self.results.reuse(x.py(), nrows, stream) {
            return Some(found);
        }
        let out = package.new_vector(x, nrows, self.precision).ok()?;
        let address = package.address_of_new(&out, self.gpu).ok()??;
        if keeps && let Ok(kept) = Kept::new(&out, address, stream) {
            self.results.keep(kept);
        }
        Some((out, address))
    }

    /// Returns the address of a vector of this length, if it is as the operator needs it.
    fn address(&self, package: &Package, vector: &Bound<'_, PyAny>, length: usize) -> Option<u64> {
        let py = vector.py();
        let dtype = vector.getattr(intern!(py, "dtype")).ok()?;
        let shape = vector.getattr(intern!(py, "shape")).ok()?;
        let fits = dtype.is(&package.types[self.precision as usize]) && only(&shape)? == length;
        let (gpu, address, contiguous) = package.place(vector, self.precision).ok()?;
        let here = gpu == i64::from(self.gpu);
        (fits && here && (contiguous || length <= 1)).then_some(address)
    }
}

/// Returns the number in a tuple of one number.
fn only(tuple: &Bound<'_, PyAny>) -> Option<usize> {
    let tuple = tuple.cast::<PyTuple>().ok()?;
    (tuple.len() == 1).then(|| tuple.get_item(0).ok()?.extract().ok()).flatten()
}
