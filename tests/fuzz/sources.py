#!/usr/bin/env python3
"""The sources that a fuzz target is linked from: its own, and for every header X.h that one of them includes, directly or not, X.cpp and its parts:
sources of its folder without their own header that include X.h first. Headers without a source count before others. None needs MPI, because no
reader talks to other ranks.

    sources.py NAME     of tests/fuzz/NAME_fuzz.cpp; run in the project's folder
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^#include "(.+)"', re.M)

parts = {}  # by header
for file in pathlib.Path("src").rglob("*.cpp"):
    own = [name for name in INCLUDE.findall(file.read_text()) if pathlib.Path("src", name).parent == file.parent]
    if own and not file.with_suffix(".h").exists():
        header = next((name for name in own if not pathlib.Path("src", name).with_suffix(".cpp").exists()), own[0])
        parts.setdefault(header, []).append(file)
waiting = [pathlib.Path(f"tests/fuzz/{sys.argv[1]}_fuzz.cpp"), pathlib.Path("tests/fuzz/fuzzer_main.cpp")]
seen = set()
while waiting:
    file = waiting.pop()
    text = file.read_text()
    if file in seen or "#include <mpi.h>" in text:
        continue
    seen.add(file)
    for name in INCLUDE.findall(text):
        header = next(path for path in (pathlib.Path(folder, name) for folder in ("src", "tests")) if path.exists())
        waiting += [header, *header.parent.glob(f"{header.stem}.cpp")]
        waiting += parts.get(name, [])
print(*sorted(str(file) for file in seen if file.suffix == ".cpp"), sep="\n")
