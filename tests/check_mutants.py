#!/usr/bin/env python3
"""Every patch of tests/mutants applies to the current sources and names existing tests; tests/mutants/run runs them.

    check_mutants.py ROOT                  every patch; of the tests only those of Slurm are looked up
    check_mutants.py ROOT BUILD            also those of a build, whose folder is named after its preset
    check_mutants.py ROOT BUILD PATCH      whether BUILD, whatever its name, has the tests that this patch names
"""
import fnmatch
import functools
import pathlib
import re
import subprocess
import sys

MOST_PATCHES = 100  # a fault that a rule of tests/mutation makes needs none
FIRST_LINE = re.compile(r"# killed by: (?:(?P<preset>[\w-]+)/)?(?P<target>\w+) (?P<tests>\S.*)\n")
# Of a patch, and the preset whose build is asked for its tests; none: release.
BUILDS = {None: "release", "thread": "release", "cuda-machine": "cuda-machine", "ptx": "cuda-machine", "cuda-machine-thread": "cuda-machine"}


@functools.cache
def tests_of_program(program):
    """The names of a gtest program's tests; None where it is not built."""
    if not program.exists():
        return None
    names, suite = [], ""
    for line in subprocess.run([program, "--gtest_list_tests", "--gtest_filter=*"], capture_output=True, text=True, check=True).stdout.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + word)
        else:
            suite = word
    return names


@functools.cache
def tests_of_ctest(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^ +Test +#\d+: (\S+)$", listed, re.M)


def absent(root, build, target, tests):
    """The patterns of a first line that name no test, as far as BUILD or the sources can tell."""
    if target == "slurm":
        text = {"Slurm": "check_slurm.py", "TwoHosts": "check_hosts.py"}
        return [name for name in [tests] if name.split(".")[0] not in text or
                f"    def {name.split('.')[-1]}(" not in (root / "tests/slurm" / text[name.split(".")[0]]).read_text()]
    if build is None:
        return []
    if target == "shiftron":
        return [] if any(re.fullmatch(tests, name) for name in tests_of_ctest(build)) else [tests]
    names = tests_of_program(build / "tests" / target)
    if names is None:
        return []
    taken = tests.replace("{order}", "eager").split("-")[0]
    return [pattern for pattern in re.split(", |:", taken) if not fnmatch.filter(names, pattern or "*")]


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    build = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    alone = sys.argv[3:]
    faults = []
    patches = [pathlib.Path(name) for name in alone] or sorted((root / "tests/mutants").glob("*.patch"))
    for patch in patches:
        line = FIRST_LINE.match(patch.read_text())
        if line is None:
            faults.append(f"{patch.name}: its first line must be '# killed by: <target> <filter>'")
        else:
            asked = build if alone or build and BUILDS.get(line["preset"]) == build.name else None
            faults += [f"{patch.name}: no such test: {line['target']} {name}" for name in absent(root, asked, line["target"], line["tests"])]
        if alone:  # is applied
            continue
        applied = subprocess.run(["git", "apply", "--check", str(patch)], cwd=root, capture_output=True, text=True)
        if applied.returncode != 0:
            faults.append(f"{patch.name}: {applied.stderr.strip().splitlines()[0]}; create it again from the changed lines")
    if len(patches) > MOST_PATCHES:
        faults.append(f"{len(patches)} patches, but at most {MOST_PATCHES} are allowed; delete one whose fault a rule of tests/mutation makes")
    for fault in faults:
        print(fault)
    print(f"{len(patches)} mutants, {len(faults)} faults")
    return 1 if faults or not patches else 0


if __name__ == "__main__":
    sys.exit(main())
