#!/usr/bin/env python3
"""Of several HDF5 versions the named and new enough one is used; the advice for the case without one works.

    tests/check_dependencies.py ROOT
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(dependencies LANGUAGES C CXX)
include(cmake/dependencies.cmake)
message(NOTICE "taken: ${HDF5_TARGET} ${HDF5_VERSION}")
"""
OLD = "typedef int hid_t;\n"  # declares no H5Pset_file_locking


def configure(folder, *words, **variables):
    ran = subprocess.run(["cmake", "-S", folder, "-B", folder / "build", *words], env={**os.environ, **variables}, capture_output=True, text=True,
                         check=False)
    return ran.returncode, ran.stdout + ran.stderr


def package(folder, name, version, flags):
    (folder / f"{name}.pc").write_text(f"Name: {name}\nDescription: {name}\nVersion: {version}\nCflags: {flags}\n")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "cmake").symlink_to(pathlib.Path(sys.argv[1], "cmake").resolve())
        (folder / "CMakeLists.txt").write_text(PROJECT)
        (folder / "hdf5.h").write_text(OLD)
        package(folder, "hdf5-serial", "1.10.6", "")
        package(folder, "hdf5", "99.9", f"-I{folder}")
        code, text = configure(folder, PKG_CONFIG_PATH=str(folder))
        assert code != 0 and "HDF5 99.9 has no H5Pset_file_locking" in text and "--fresh" in text, text
        (folder / "hdf5.h").write_text(OLD + "extern \"C\" inline int H5Pset_file_locking(hid_t, int, int) { return 0; }\n")
        code, text = configure(folder, "--fresh", PKG_CONFIG_PATH=str(folder))
        assert code == 0 and "taken: PkgConfig::PACKAGED_HDF5 99.9" in text, text
        if found := shutil.which("h5cc"):
            root = folder / "root"
            (root / "bin").mkdir(parents=True)
            (root / "bin" / "h5cc").symlink_to(found)
            code, text = configure(folder, f"-DHDF5_ROOT={root}", PKG_CONFIG_PATH=str(folder))
            assert code == 0 and "taken: hdf5::hdf5 " in text and "99.9" not in text.split("taken:")[1], text


main()
