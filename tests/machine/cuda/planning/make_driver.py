#!/usr/bin/env python3
"""Writes C code of a CUDA driver without a device, with the names of the toolkit's stub: make_driver.py libcuda.so driver.c

It runs nothing, but libraries can plan with it: their modules seem to load.
"""
import subprocess
import sys

STUB = 34  # CUDA_ERROR_STUB_LIBRARY, as the toolkit's own says
GIVE_HANDLE = {"cuLibraryLoadData", "cuLibraryGetKernel", "cuLibraryGetModule", "cuKernelGetFunction", "cuModuleLoadData",
               "cuModuleLoadDataEx", "cuModuleGetFunction"}  # as their first argument
SUCCEED = {"cuFuncSetAttribute", "cuKernelSetAttribute", "cuFuncLoad", "cuLibraryUnload", "cuModuleUnload"}


def main():
    listed = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], check=True, capture_output=True, text=True).stdout
    names = sorted({line.split()[-1] for line in listed.splitlines() if line.split()[-1].startswith("cu")})
    missing = sorted((GIVE_HANDLE | SUCCEED) - set(names))
    if missing:
        sys.exit(f"{sys.argv[1]} has no {', '.join(missing)}")
    lines = ["static long loaded[64];"]
    for name in names:
        if name in GIVE_HANDLE:
            lines.append(f"int {name}(void** handle) {{ *handle = loaded; return 0; }}")
        else:
            lines.append(f"int {name}(void) {{ return {0 if name in SUCCEED else STUB}; }}")
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
