#!/usr/bin/env python3
"""Every patch of tests/mutants names what kills it and applies to the sources as they stand; tests/mutants/run runs them.

check_mutants.py ROOT
"""
import pathlib
import re
import subprocess
import sys


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    faults = []
    patches = sorted((root / "tests/mutants").glob("*.patch"))
    for patch in patches:
        if not re.match(r"# killed by: \S+ \S+", patch.read_text()):
            faults.append(f"{patch.name}: its first line must be '# killed by: <target> <filter>'")
        applied = subprocess.run(["git", "apply", "--check", str(patch)], cwd=root, capture_output=True, text=True)
        if applied.returncode != 0:
            faults.append(f"{patch.name}: {applied.stderr.strip().splitlines()[0]}; make it anew from the changed lines")
    for fault in faults:
        print(fault)
    print(f"{len(patches)} mutants, {len(faults)} faults")
    return 1 if faults or not patches else 0


if __name__ == "__main__":
    sys.exit(main())
