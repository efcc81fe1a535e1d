"""Writes matlab73.mat as MATLAB writes `save -v7.3`: HDF5 of the oldest version behind 512 bytes.

Usage: python matlab73.py matlab73.mat   (needs h5py)
The file holds the structure Problem with the sparse matrix A of the tests, compressed, and a name.
"""

import sys

import h5py
import numpy as np

TEXT = "MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Thu Jan  1 00:00:00 1970 HDF5 schema 1.00 ."


def main(path):
    with h5py.File(path, "w", libver="earliest", userblock_size=512) as file:
        problem = file.create_group("Problem")
        problem.attrs["MATLAB_class"] = np.bytes_("struct")
        name = problem.create_dataset("name", data=np.array([[ord("x")]], np.uint16))
        name.attrs["MATLAB_class"] = np.bytes_("char")
        a = problem.create_group("A")
        a.attrs["MATLAB_class"] = np.bytes_("double")
        a.attrs["MATLAB_sparse"] = np.uint64(3)
        arrays = {
            "data": np.array([4.0, 2.0, 5.0, 1.0, 6.0]),
            "ir": np.array([0, 2, 1, 0, 2], np.uint64),
            "jc": np.array([0, 2, 3, 5], np.uint64),
        }
        for name, array in arrays.items():
            a.create_dataset(name, data=array, chunks=(4,), compression="gzip", track_times=False)
    with open(path, "r+b") as file:
        file.write(TEXT.ljust(116).encode() + bytes(8) + b"\x00\x02IM")


main(sys.argv[1])
