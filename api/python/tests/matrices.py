"""Matrices that the scripts for GPUs and for figures share."""

import inspect


def poisson(package, side, dtype):
    """Return the 7-point matrix of a cube with the functions of a sparse package."""
    one = package.eye(side, dtype=dtype, format="csr")
    line = package.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (side, side), format="csr", dtype=dtype)
    kron = package.kron
    return (
        kron(kron(line, one), one) + kron(kron(one, line), one) + kron(kron(one, one), line)
    ).tocsr()


def tolerance(solver, relative):
    """Return the keyword of a solver's relative tolerance: libraries renamed ``tol`` to ``rtol``."""
    name = "rtol" if "rtol" in inspect.signature(solver).parameters else "tol"
    return {name: relative}
