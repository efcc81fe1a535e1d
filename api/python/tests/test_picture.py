"""Density images."""

import ellect
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.floats(0, 1),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 1 << 20),
)
def test_every_entry_counts_in_its_cell(nrows, ncols, density, rows, columns, seed):
    random = np.random.default_rng(seed)
    A = sparse.random_array((nrows, ncols), density=density, rng=random).tocsr()
    found = ellect.density(A, rows, columns)
    wanted = np.zeros((rows, columns), np.int64)
    of_row, of_column = A.tocoo().coords
    np.add.at(wanted, (of_row * rows // nrows, of_column * columns // ncols), 1)
    assert found.dtype == np.int64 and np.array_equal(found, wanted)


def test_density_of_arrays_files_and_empty_matrices(tmp_path):
    A = sparse.eye_array(100, format="csr")
    sparse.save_npz(tmp_path / "a.npz", A)
    arrays = ellect.density((A.data, A.indices, A.indptr), 5, 5, shape=A.shape)
    assert np.array_equal(arrays, 20 * np.eye(5))
    assert np.array_equal(ellect.density(tmp_path / "a.npz", 5, 5), arrays)
    assert ellect.density(A).shape == (256, 256)
    assert not ellect.density(sparse.csr_array((0, 7)), 2, 2).any()
    for rows, columns, stated in [(0, 5, "1 or more"), (1 << 20, 1 << 20, "at most 67108864")]:
        with pytest.raises(ellect.ArgumentError, match=stated):
            ellect.density(A, rows, columns)
    with pytest.raises(ellect.KindError, match="columns is 'x'"):
        ellect.density(A, 5, "x")


def test_spy_draws_as_the_matrix_lies():
    A = sparse.csr_array(np.array([[1.0, 0, 0], [0, 0, 2.0]]))
    ax = ellect.spy(A)
    (image,) = ax.images
    assert np.array_equal(image.get_array().filled(0), [[1, 0, 0], [0, 0, 1]])
    assert image.get_extent() == [-0.5, 2.5, 1.5, -0.5]
    large = sparse.diags_array([1.0], offsets=[0], shape=(2000, 1000)).tocsr()
    drawn = plt.figure().gca()
    assert ellect.spy(large, drawn, cmap="viridis") is drawn
    (image,) = drawn.images
    share = image.get_array()
    assert share.shape == (500, 500) and image.get_cmap().name == "viridis"
    # A cell of 4 x 2 entries on the diagonal of the upper half holds at most 2 of them.
    assert float(share.max()) == 2 / 8 and not share[300:].count()
    for empty in (sparse.csr_array((0, 4)), sparse.csr_array((4, 4))):
        drawn = ellect.spy(empty)
        drawn.figure.canvas.draw()
    ax.figure.canvas.draw()
    plt.close("all")
