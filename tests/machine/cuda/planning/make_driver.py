#!/usr/bin/env python3
"""Writes C of a CUDA driver without a device from the names of the toolkit's stub: make_driver.py libcuda.so > driver.c

Nothing can be run with it, but libraries can plan: their modules seem to load.
"""
import subprocess
import sys

STUB = 34  # CUDA_ERROR_STUB_LIBRARY, as the toolkit's own says
# By name: the number of the argument behind which a handle is handed out; −1: nothing is.
LOADS = {"cuLibraryLoadData": 0, "cuLibraryGetKernel": 0, "cuLibraryGetModule": 0, "cuKernelGetFunction": 0,
         "cuModuleLoadData": 0, "cuModuleLoadDataEx": 0, "cuModuleGetFunction": 0, "cuFuncSetAttribute": -1,
         "cuKernelSetAttribute": -1, "cuFuncLoad": -1, "cuLibraryUnload": -1, "cuModuleUnload": -1}


def main():
    listed = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], check=True, capture_output=True, text=True).stdout
    names = sorted({line.split()[-1] for line in listed.splitlines() if line.split()[-1].startswith("cu")})
    missing = sorted(set(LOADS) - set(names))
    if missing:
        sys.exit(f"{sys.argv[1]} has no {', '.join(missing)}")
    print("static long loaded[64];")
    for name in names:
        if LOADS.get(name) == 0:
            print(f"int {name}(void** handle) {{ *handle = loaded; return 0; }}")
        else:
            print(f"int {name}(void) {{ return {0 if name in LOADS else STUB}; }}")


if __name__ == "__main__":
    main()
