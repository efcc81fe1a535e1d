"""Archives of `ellect convert` multiply right when NumPy reads them: every format, both precisions."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import layouts

# The matrix that each format is tried on, where elasticity does not suit it.
MATRICES = {
    "cdia": "constant5:2500",
    "dia": "constant5:2500",
    "hdia": "constant5:2500",
    "hdia_f32": "constant5:2500",
    "hdia_f16": "constant5:2500",
    "hdia_bf16": "constant5:2500",
    "bhll_f32": "rounded elasticity:900",
    "bhll_f16": "whole elasticity:900",
    "bhll_bf16": "whole elasticity:900",
    "csr_f32": "constant5:2500",
    "csr_f16": "constant5:2500",
    "csr_bf16": "constant5:2500",
    "hll_f32": "constant5:2500",
    "hll_f16": "constant5:2500",
    "hll_bf16": "constant5:2500",
    "hll_vi": "constant5:2500",
    "st_csr_f32": "constant5:2500",
    "st_csr_f16": "constant5:2500",
    "st_csr_bf16": "constant5:2500",
    "st_csr_vi": "constant5:2500",
    "chll": "complex p2:900",
    "hub_ell": "rmat:3000",
    "column_sweep": "rmat:3000",
    "cache_blocked": "uniform:3000",
    "st_csr": "rmat:3000",
    "hyb": "rmat:3000",
    "ehyb": "circuit:3000",
}
# Variants whose arrays differ from those of the default.
VARIANTS = [
    "csr:kernel=adaptive",
    "hll:col=16,sort=512",
    "hll:hack=64,sort=all",
    "bhll:col=16,sort=512",
    "bhll:b=2",
    "bhll_f32:col=16,sort=512",
    "chll:col=16,sort=512",
    "hll_f32:col=16,sort=512",
    "hll_f16:col=16,sort=512",
    "bhll_bf16:col=16,sort=512",
    "hll_vi:col=16",
    "hll_du:sort=512",
    "st_csr:tile=2048",
    "hub_ell:piece=16",
    "ehyb:part=none",
]


def run(*arguments):
    """Run the program and return what it prints as JSON."""
    # -P: the installed package is run, not the folder.
    command = [sys.executable, "-P", "-m", "ellect", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


@pytest.fixture(scope="module")
def device():
    """An H200 with so small a cache that every format applies to small matrices."""
    profiles = run("devices", "--json")
    profile = next(profile for profile in profiles if profile["name"] == "h200")
    profile |= {"name": "h200small", "cache_bytes": 12000}
    folder = pathlib.Path(os.environ["ELLECT_DATA"]) / "devices"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "h200small.json").write_text(json.dumps(profile))
    return "h200small"


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    """Return a function that generates a matrix once: its file, and the matrix."""
    folder, known = tmp_path_factory.mktemp("matrices"), {}

    def make(spec):
        if spec not in known:
            path = folder / f"{spec.replace(':', '-')}.mtx"
            kind, _, generated = spec.rpartition(" ")
            run("generate", generated, "-o", str(path))
            if kind == "complex":
                # The real matrix that stands for a complex one.
                block = [[1.0, -0.5], [0.5, 1.0]]
                scipy.io.mmwrite(path, scipy.sparse.kron(scipy.io.mmread(path), block))
            elif kind == "rounded":
                # Values that f32 holds.
                stored = scipy.io.mmread(path)
                scipy.io.mmwrite(path, stored.astype(np.float32).astype(np.float64), precision=17)
            elif kind == "whole":
                # Values that 16 bits hold.
                stored = scipy.io.mmread(path)
                stored.data = np.clip(np.rint(100 * stored.data), -127, 127)
                scipy.io.mmwrite(path, stored, precision=17)
            known[spec] = path, scipy.io.mmread(path).tocsr()
        return known[spec]

    return make


def test_every_format_that_can_be_written_is_read():
    names = {entry["name"] for entry in run("formats", "--json")}
    assert names - {"cusparse"} == set(layouts.FAMILIES)


@pytest.mark.parametrize(
    ("precision", "basis"), [("f64", "original"), ("f32", "original"), ("f64", "permuted")]
)
@pytest.mark.parametrize("to", [*layouts.FAMILIES, *VARIANTS])
def test_a_layout_multiplies(to, precision, basis, device, matrix, tmp_path):
    if precision == "f32" and "_f32" in to:
        pytest.skip("it stores f64 values in f32")
    if precision == "f64" and ("_f16" in to or "_bf16" in to):
        pytest.skip("it stores f32 values in 16 bits")
    path, csr = matrix(MATRICES.get(to.split(":")[0], "elasticity:900"))
    output = tmp_path / "layout.npz"
    options = ["--to", to, "--device", device, "--precision", precision, "--basis", basis]
    about = run("convert", str(path), *options, "-o", str(output), "--json")
    assert (about["nrows"], about["nnz"]) == (csr.shape[0], csr.nnz)
    x = np.random.default_rng(1).uniform(-1, 1, csr.shape[1])
    with np.load(output) as file:
        y = layouts.multiply(file, x)
    size = abs(csr) @ abs(x) + 1
    assert np.max(abs(csr @ x - y) / size) < (1e-13 if precision == "f64" else 1e-6)
