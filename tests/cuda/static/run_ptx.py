#!/usr/bin/env python3
"""Runs our CUDA kernels as nvcc compiled them on the emulator: the host compiler's code for the same source may be right where
nvcc's is not.

    tests/cuda/static/run_ptx.py PROGRAM [ROOT] [--filter FILTER] [--architecture N …]

PROGRAM: build/cuda-machine/tests/cuda_tests; FILTER: its tests (default: own kernels in bfloat16, against their specification). Compiles
src/kernels/*_cuda.cu to PTX for each architecture, two at a time, and keeps it in ROOT/build/cuda-static. Returns 77, and says why,
if nvcc is missing.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

import check_static

# Own kernels in bfloat16, against their specification, without those that take long.
KERNELS = "*Kernels.MatchSpecificationInBfloat16*:*Attention.MatchesSpecification*:*EveryKernel*-*_long*:*_head_dim_*"


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("program", type=pathlib.Path)
    words.add_argument("root", nargs="?", default=".", type=pathlib.Path)
    words.add_argument("--filter", default=KERNELS)
    words.add_argument("--architecture", type=int, action="append", choices=list(check_static.ARCHITECTURES))
    given = words.parse_args()
    root = given.root.resolve()
    source, cache, nvcc = root / "src", root / "build/cuda-static", check_static.tool("nvcc", root)
    for architecture in given.architecture or check_static.ARCHITECTURES:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            made = list(pool.map(lambda path, to=architecture: check_static.ptx_of(path, to, nvcc, source, cache),
                                 check_static.kernel_files(source)))
        folder = made[0].parent
        for old in set(folder.glob("*.ptx")) - set(made):  # of a file that is no more
            old.unlink()
        print(f"kernels as nvcc compiled them for sm_{architecture}:", flush=True)
        code = subprocess.run([given.program, "--gtest_brief=1", f"--gtest_filter={given.filter}"], check=False,
                              env={**os.environ, "SHIFTRON_PTX": str(folder)}).returncode
        if code != 0:
            print(f"failed for sm_{architecture}; again: SHIFTRON_PTX={folder} {given.program} --gtest_filter='{given.filter}'")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
