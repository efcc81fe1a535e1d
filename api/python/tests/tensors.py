"""Tensors with DLPack that tests make: NumPy's memory, said to be on any device."""

import ctypes

import numpy as np

CPU, CUDA, MANAGED, ROCM = 1, 2, 13, 10

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """An array of some package: it has DLPack and nothing else."""

    def __init__(self, array, device=(CPU, 0), version=None, flags=0, offset=0, code=None):
        self.array, self.device, self.version = array, device, version
        self.flags, self.offset, self.code = flags, offset, code
        self.streams = []
        #: Number of tensors that were given out and not given back.
        self.held = 0

    @property
    def shape(self):
        return self.array.shape

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, **later):
        if later and self.version is None:
            raise TypeError("unexpected keyword argument")
        self.streams.append(stream)
        array, dimensions = self.array, ctypes.c_int64 * max(self.array.ndim, 1)
        steps = [stride // array.itemsize for stride in array.strides]
        shape, strides = dimensions(*array.shape), dimensions(*steps)
        tensor = _Tensor(
            array.ctypes.data - self.offset,
            (ctypes.c_int32 * 2)(*self.device),
            array.ndim,
            _CODES[array.dtype.kind] if self.code is None else self.code,
            8 * array.itemsize,
            1,
            shape,
            strides,
            self.offset,
        )

        def give_back(_):
            self.held -= 1
            kept.clear()

        deleter = _Deleter(give_back)
        if self.version is None:
            managed, name = _Managed(tensor, None, deleter), b"dltensor"
        else:
            version = (ctypes.c_uint32 * 2)(*self.version)
            managed = _Versioned(version, None, deleter, self.flags, tensor)
            name = b"dltensor_versioned"
        kept = [managed, shape, strides, array, name]
        _KEPT.append((kept, deleter))
        self.held += 1
        return _new_capsule(ctypes.addressof(managed), name, None)


#: Functions that C code may call, which must not be freed while they run; and capsules' names.
_KEPT = []


class FakeGpu:
    """Stands for the compiled operator on GPU 0: it multiplies at addresses of the host."""

    def __init__(self, matrix, gpu=0):
        self.matrix, self.gpu = matrix, gpu
        self.shape, self.nnz, self.precision = matrix.shape, matrix.nnz, "f64"
        self.candidate = "csr"
        self.streams = []

    def apply_at(self, x, y, stream, columns):
        assert columns == 1
        self.streams.append(stream)
        (x_at, alpha), (y_at, beta) = x, y
        nrows, ncols = self.shape
        given = np.ctypeslib.as_array((ctypes.c_double * ncols).from_address(x_at))
        result = np.ctypeslib.as_array((ctypes.c_double * nrows).from_address(y_at))
        result[...] = alpha * (self.matrix @ given) + (beta * result if beta else 0.0)

    def update_at(self, values, stream):
        self.streams.append(stream)
        count = self.matrix.nnz
        self.matrix.data[...] = np.ctypeslib.as_array(
            (ctypes.c_double * count).from_address(values)
        )
