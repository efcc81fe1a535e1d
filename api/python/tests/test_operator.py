"""Operators against SciPy."""

import threading
import warnings

import ellect
import numpy as np
import pytest
import scipy.sparse as sparse
import scipy.sparse.linalg as linalg
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = [np.float32, np.float64]


def random_matrix(rows, columns, density, dtype, seed):
    """Return a random CSR array with small whole values, so that sums are exact."""
    random = np.random.default_rng(seed)

    def values(size):
        return random.integers(-8, 9, size).astype(dtype)

    shape, options = (rows, columns), {"format": "csr", "dtype": dtype, "rng": random}
    return sparse.random_array(shape, density=density, data_sampler=values, **options)


def vector(size, dtype, seed):
    return np.random.default_rng(seed).integers(-8, 9, size).astype(dtype)


matrices = st.builds(
    random_matrix,
    st.integers(0, 40),
    st.integers(0, 40),
    st.floats(0.0, 1.0),
    st.sampled_from(DTYPES),
    st.integers(0, 1 << 30),
)


@settings(max_examples=40, deadline=None)
@given(matrices, st.integers(0, 1 << 30), st.booleans())
def test_fused_products_equal_those_of_numpy(A, seed, with_x):
    op = ellect.prepare(A)
    x, y = vector(A.shape[1], A.dtype, seed), vector(A.shape[0], A.dtype, seed + 1)
    z, w = vector(A.shape[0], A.dtype, seed + 2), vector(A.shape[0], A.dtype, seed + 3)
    dots = [z, "out", "x"] if with_x and A.shape[0] == A.shape[1] else [z, "out"]
    wanted, out, sums = 2 * (A @ x) - y, y.copy(), w.copy()
    product, results = op.apply_fused(x, out, 2.0, -1.0, dots=dots, add=(-3.0, sums))
    assert product is out and np.array_equal(out, wanted)
    assert np.array_equal(sums, w - 3 * wanted)
    sums = [wanted.astype(float) @ other for other in [z, wanted, x][: len(dots)]]
    assert results.dtype == A.dtype and results.tolist() == np.array(sums, A.dtype).tolist()

    # Without anything to sum up, and with vectors of other types and with gaps.
    product, results = op.apply_fused(np.stack([x, x], axis=1)[:, 0].astype(np.int64))
    assert np.array_equal(product, A @ x) and results.shape == (0,)


def test_fused_products_with_one_array_in_two_places():
    A = sparse.csr_array(np.array([[2.0, 1.0], [0.0, 3.0]]))
    op = ellect.prepare(A)
    x = np.array([1.0, 2.0])
    # x is also the other vector, and w: both are read as they were before.
    product, results = op.apply_fused(x, dots=[x, "x"], add=(1.0, x))
    assert product.tolist() == [4.0, 6.0] and results.tolist() == [16.0, 16.0]
    assert x.tolist() == [5.0, 8.0]
    product, results = op.apply_fused(x, out=x, dots=["x"])
    assert product is x and x.tolist() == [18.0, 24.0]
    assert results.tolist() == [18.0 * 5.0 + 24.0 * 8.0]
    with pytest.raises(ellect.ArgumentError, match="out and w overlap"):
        op.apply_fused(x, out=x, add=(1.0, x))


def test_wrong_fused_products_are_refused():
    A = sparse.csr_array(np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0]]))
    op = ellect.prepare(A)
    x, y = np.ones(3), np.ones(2)
    for error, words, given in [
        (ellect.ArgumentError, "no dot product 'y'", {"dots": ["y"]}),
        (ellect.ArgumentError, "names 2 vectors", {"dots": [y, y]}),
        (ellect.ArgumentError, "square", {"dots": ["x"]}),
        (ellect.ArgumentError, "at most 3", {"dots": ["out"] * 4}),
        (ellect.ArgumentError, "out is missing", {"beta": 1.0}),
        (ellect.ArgumentError, "leave stream out", {"stream": 1}),
        (ellect.ArgumentError, "w is not contiguous", {"add": (1.0, np.ones(4)[::2])}),
        (ellect.ShapeError, r"w has shape \(3,\)", {"add": (1.0, np.ones(3))}),
        (ellect.ShapeError, r"dots has shape \(3,\)", {"dots": [np.ones(3)]}),
        (ellect.ShapeError, r"out has shape \(3,\)", {"out": np.ones(3)}),
        (ellect.KindError, "w has type float32", {"add": (1.0, np.ones(2, np.float32))}),
        (ellect.KindError, "must be real", {"dots": [np.ones(2, complex)]}),
    ]:
        with pytest.raises(error, match=words):
            op.apply_fused(x, **given)
    with pytest.raises(ellect.ShapeError, match="x has shape"):
        op.apply_fused(np.ones((3, 1)))


@settings(max_examples=60, deadline=None)
@given(matrices, st.integers(0, 1 << 30), st.sampled_from([1, 10, 10**7]))
def test_products_equal_those_of_scipy(A, seed, spmvs):
    op = ellect.prepare(A, spmvs=spmvs)
    assert (op.shape, op.dtype, op.nnz) == (A.shape, A.dtype, A.nnz)
    x, y = vector(A.shape[1], A.dtype, seed), vector(A.shape[0], A.dtype, seed + 1)
    assert np.array_equal(op @ x, A @ x)
    assert (op @ x).dtype == A.dtype
    assert np.array_equal(op.rmatvec(y), A.T @ y)
    assert np.array_equal(y @ op, y @ A)
    out = y.copy()
    assert op.apply(x, out=out, alpha=2.0, beta=-3.0) is out
    assert np.array_equal(out, 2 * (A @ x) - 3 * y)
    X = np.stack([x, 2 * x, x - 1], axis=1)
    for several in (X, np.asfortranarray(X)):
        assert np.array_equal(op @ several, A @ several)
    assert np.array_equal(op.rmatmat(np.stack([y, -y], axis=1)), A.T @ np.stack([y, -y], axis=1))


@settings(max_examples=30, deadline=None)
@given(matrices, st.integers(0, 1 << 30))
def test_updates_equal_a_new_matrix(A, seed):
    op = ellect.prepare(A, spmvs=1000, updates=3)
    y = vector(A.shape[0], A.dtype, seed)
    for step in range(3):
        B = sparse.csr_array((vector(A.nnz, A.dtype, seed + step), A.indices, A.indptr), A.shape)
        op.update_values(B.data)
        x = vector(A.shape[1], A.dtype, seed)
        assert np.array_equal(op @ x, B @ x)
        assert np.array_equal(op.T @ y, B.T @ y)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("family", ["array", "matrix"])
def test_all_kinds_of_scipy_matrices(kind, family):
    A = random_matrix(12, 12, 0.4, np.float64, 1)
    made = getattr(sparse, f"{kind}_{family}")(A)
    x = vector(12, np.float64, 2)
    assert np.array_equal(ellect.prepare(made) @ x, A @ x)


@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint32, np.uint8, np.int16])
@pytest.mark.parametrize("pointer", [np.int32, np.int64, np.uint64])
def test_indices_of_any_width(index, pointer):
    A = random_matrix(30, 20, 0.3, np.float64, 3)
    arrays = (A.data, A.indices.astype(index), A.indptr.astype(pointer))
    x = vector(20, np.float64, 4)
    with ellect.prepare(arrays, shape=A.shape) as op:
        assert np.array_equal(op @ x, A @ x)


def test_unsorted_and_repeated_entries_are_repaired_and_told():
    data = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    indices, indptr = np.array([2, 0, 1, 1, 0]), np.array([0, 2, 5])
    A = sparse.csr_array((data, indices, indptr), shape=(2, 3))
    x = np.array([1.0, 10.0, 100.0])
    with pytest.warns(ellect.RepairedWarning, match="1 entries were summed"):
        op = ellect.prepare((data, indices, indptr), shape=(2, 3))
    assert op.nnz == 4
    assert np.array_equal(op @ x, A @ x)
    B = sparse.csr_array((data * 2 + 1, indices, indptr), shape=(2, 3))
    op.update_values(data * 2 + 1)
    assert np.array_equal(op @ x, B @ x)
    with pytest.raises(ellect.ShapeError, match="4 values for 5 entries"):
        op.update_values(data[:4])


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_and_odd_vectors(dtype):
    A = random_matrix(25, 25, 0.3, dtype, 5)
    op, wide = ellect.prepare(A), vector(100, dtype, 6)
    unaligned = np.frombuffer(b"x" + wide[:25].tobytes(), np.uint8)[1:].view(dtype)
    swapped = wide[:25].astype(np.dtype(dtype).newbyteorder())
    for x in (wide[:25], wide[::4], wide[24::-1], unaligned, swapped, list(wide[:25])):
        assert np.array_equal(op @ x, A @ np.asarray(x, dtype))
    for out in (wide[::4].copy(), np.zeros(50, dtype)[::2], np.zeros(25, dtype)[::-1]):
        out[...] = 3
        op.apply(wide[:25], out=out, alpha=1.0, beta=2.0)
        assert np.array_equal(out, A @ wide[:25] + 6)
    square = wide[:25].copy()
    op.apply(square, out=square)
    assert np.array_equal(square, A @ wide[:25]), "x and out may be one array"
    column = wide[:25].reshape(25, 1)
    assert np.array_equal(op.matvec(column), A @ column)
    assert np.array_equal(op @ np.arange(25), A @ np.arange(25))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [0, 1, 2, 3, 5, 8, 17])
def test_matrices_of_vectors_in_both_orders(dtype, columns):
    A = random_matrix(25, 31, 0.3, dtype, 8)
    op = ellect.prepare(A, vectors=max(columns, 1))
    by_rows = vector(31 * columns, dtype, 9).reshape(31, columns)
    wide = np.repeat(by_rows, 2, axis=1)[:, ::2]
    expected = A @ by_rows
    for X in (by_rows, np.asfortranarray(by_rows), wide, by_rows[::-1][::-1]):
        assert np.array_equal(op @ X, expected)
        assert np.array_equal(op.matmat(X), expected)
        for order in "CF":
            out = np.full((25, columns), 3, dtype, order)
            assert op.apply(X, out=out, alpha=2.0, beta=-1.0) is out
            assert np.array_equal(out, 2 * expected - 3)
        gaps = np.full((50, 2 * columns), 3, dtype)
        op.apply(X, out=gaps[::2, ::2])
        assert np.array_equal(gaps[::2, ::2], expected)
        assert (gaps[1::2] == 3).all() and (gaps[:, 1::2] == 3).all()
    if columns > 1:
        assert (op @ by_rows).flags.c_contiguous
        assert (op @ np.asfortranarray(by_rows)).flags.f_contiguous
    assert op.choice.vectors == max(columns, 1)


def test_no_vectors_are_refused():
    with pytest.raises(ellect.ArgumentError, match="it must be from 1 to 1024"):
        ellect.prepare(random_matrix(4, 6, 0.5, np.float64, 7), vectors=0)


def test_wrong_vectors_are_named():
    op = ellect.prepare(random_matrix(4, 6, 0.5, np.float64, 7))
    with pytest.raises(ValueError, match=r"x has shape \(5,\); it must be \(6,\)"):
        op @ np.ones(5)
    with pytest.raises(ellect.ShapeError, match="x has shape"):
        op @ np.ones((6, 2, 2))
    with pytest.raises(ellect.ShapeError, match=r"out has shape \(6,\); it must be \(4,\)"):
        op.apply(np.ones(6), out=np.ones(6))
    with pytest.raises(TypeError, match="out has type float32"):
        op.apply(np.ones(6), out=np.ones(4, np.float32))
    with pytest.raises(ellect.KindError, match="out has type float64; it must be complex128"):
        op.apply(np.ones(6, complex), out=np.ones(4))
    read_only = np.ones(4)
    read_only.flags.writeable = False
    for out in (read_only, read_only[::-1]):
        with pytest.raises(ellect.ArgumentError, match="read-only"):
            op.apply(np.ones(6), out=out)
    with pytest.raises(ellect.ArgumentError, match="out is missing"):
        op.apply(np.ones(6), beta=1.0)
    with pytest.raises(ellect.ShapeError, match="matmat"):
        op.matvec(np.ones((6, 2)))


def test_wrong_matrices_are_named():
    ones, pointers = np.ones(2), np.array([0, 1, 2])
    cases = [
        ((ones, np.array([0, 3]), pointers), "column 3"),
        ((ones, np.array([0, -1]), pointers), "column index is -1"),
        ((ones, np.array([0, 1]), np.array([0, 2])), "row_ptr has length 2"),
        ((ones, np.array([0, 1]), np.array([0, 3, 2])), "falls from 3 to 2"),
        ((ones[:1], np.array([0, 1]), pointers), "values has length 1"),
    ]
    for arrays, stated in cases:
        with pytest.raises(ValueError, match=stated) as raised:
            ellect.prepare(arrays, shape=(2, 3))
        assert isinstance(raised.value, ellect.EllectError)
    with pytest.raises(ellect.ArgumentError, match="shape is missing"):
        ellect.prepare((ones, np.array([0, 1]), pointers))
    with pytest.raises(TypeError, match="csr_array converts"):
        ellect.prepare(np.ones((2, 2)))
    with pytest.raises(ellect.KindError, match="object"):
        ellect.prepare((ones.astype(object), np.array([0, 1]), pointers), shape=(2, 3))


def test_precision_is_kept_or_converted():
    A = sparse.eye_array(3, dtype=np.int16, format="csr")
    assert ellect.prepare(A).dtype == np.float64
    assert ellect.prepare(A, precision="f32").dtype == np.float32
    with pytest.raises(ellect.ArgumentError, match="'f32' or 'f64'"):
        ellect.prepare(A, precision="f16")


@pytest.fixture(scope="module")
def poisson():
    side = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(30, 30))
    one = sparse.eye_array(30)
    return (sparse.kron(side, one) + sparse.kron(one, side)).tocsr()


def test_solvers_of_scipy(poisson):
    op, b = ellect.prepare(poisson, spmvs=10**6), np.linspace(0.0, 1.0, poisson.shape[0])
    for solve in (linalg.cg, linalg.gmres, linalg.bicgstab, linalg.minres, linalg.bicg):
        x, info = solve(op, b, rtol=1e-8)
        assert info == 0, solve
        own = solve(poisson, b, rtol=1e-8)[0]
        residual, wanted = np.linalg.norm(poisson @ x - b), np.linalg.norm(poisson @ own - b)
        assert residual <= 2 * wanted, solve
    start = np.ones(len(b))
    found = linalg.eigsh(op, k=3, v0=start, return_eigenvectors=False)
    assert np.allclose(found, linalg.eigsh(poisson, k=3, v0=start, return_eigenvectors=False))
    x = linalg.lsqr(op, b, atol=1e-10, btol=1e-10)[0]
    assert np.linalg.norm(poisson @ x - b) <= 1e-6 * np.linalg.norm(b)
    wrapped = linalg.aslinearoperator(op)
    assert np.allclose((2 * wrapped + wrapped.T) @ b, 3 * (poisson @ b))


def test_threads_share_an_operator(poisson):
    op, faults = ellect.prepare(poisson, spmvs=10**6, updates=10), []
    x = np.linspace(-1.0, 1.0, poisson.shape[1])
    wanted = {scale: scale * (poisson @ x) for scale in (1.0, 2.0)}

    def multiply():
        for _ in range(200):
            y = op @ x
            if not any(np.allclose(y, right) for right in wanted.values()):
                faults.append(y)

    threads = [threading.Thread(target=multiply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(20):
        op.update_values(poisson.data * (1.0 + step % 2))
    for thread in threads:
        thread.join()
    assert not faults


def test_a_closed_operator_says_so():
    with ellect.prepare(sparse.eye_array(3)) as op:
        assert op.nbytes > 0 and op.T.nbytes > 0
    with pytest.raises(ellect.ArgumentError, match="closed"):
        op @ np.ones(3)
    op.close()


def test_the_transpose_is_prepared_once():
    op = ellect.prepare(random_matrix(5, 7, 0.5, np.float64, 8))
    before = op.nbytes
    assert op.T is op.T and op.T.T is op and op.H is op.T
    assert op.T.shape == (7, 5) and op.nbytes > before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("updates", [0, 3])
def test_both_directions_are_prepared_at_once(dtype, updates):
    A = random_matrix(60, 40, 0.2, dtype, 10)
    op = ellect.prepare(A, spmvs=300, transposed=200, updates=updates, verify=True)
    both = op.nbytes
    assert op.T is op.T and op.T.T is op and op.nbytes == both
    assert (op.choice.spmvs, op.T.choice.spmvs) == (300, 200)
    x, X = np.linspace(0, 1, 60, dtype=dtype), np.ones((60, 3), dtype)
    assert np.allclose(op.rmatvec(x), A.T @ x, rtol=1e-5)
    assert np.allclose(op.rmatmat(X), A.T @ X, rtol=1e-5)
    assert np.allclose(op.T @ x, x @ op, rtol=1e-5)
    op.update_values(2 * A.data)
    assert np.allclose(op.rmatvec(x), 2 * (A.T @ x), rtol=1e-5)
    op.close()
    with pytest.raises(ellect.ArgumentError):
        op.rmatvec(x)


def test_a_symmetric_matrix_is_its_own_transpose():
    A = random_matrix(50, 50, 0.1, np.float64, 11)
    A = sparse.csr_array(A + A.T)
    x = np.linspace(-1, 1, 50)
    for op in (ellect.prepare(A, spmvs=300, transposed=200), ellect.prepare(A)):
        alone = op.nbytes
        assert op.T is op and op.nbytes == alone
        assert np.allclose(op.rmatvec(x), A @ x)
        changed = A.copy()
        changed.data = np.arange(1.0, A.nnz + 1)
        op.update_values(changed.data)
        assert op.T is not op and op.nbytes > alone
        assert np.allclose(op.rmatvec(x), changed.T @ x) and np.allclose(op @ x, changed @ x)
        turned = op.T
        op.update_values(A.data)
        assert op.T is op and np.allclose(turned @ x, A @ x)


def test_one_symmetric_choice_counts_both_directions():
    answer = ellect.recommend(sparse.eye_array(1000), spmvs=30, transposed=20)
    assert answer.spmvs == 50 and answer.transposed is answer
    answer = ellect.recommend(random_matrix(60, 40, 0.2, np.float64, 10), spmvs=30, transposed=20)
    assert (answer.spmvs, answer.transposed.spmvs, answer.transposed.transposed) == (30, 20, None)
    assert ellect.recommend(sparse.eye_array(1000)).transposed is None
    with pytest.raises(ellect.ArgumentError):
        ellect.prepare(sparse.eye_array(3), transposed=-1)


def test_spare_room_behind_the_entries_is_left_out():
    A = random_matrix(6, 6, 0.5, np.float64, 9)
    B = sparse.csr_array(A.shape)
    B.data, B.indices, B.indptr = np.r_[A.data, 7.0], np.r_[A.indices, 0], A.indptr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op = ellect.prepare(B)
    assert np.array_equal(op @ np.ones(6), A @ np.ones(6))
