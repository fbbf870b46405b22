"""Prints the values that GoogleTest tests record, as JSON: a property THEOREM.VALUE becomes {"THEOREM": {"VALUE": …}}; "failed" is the number of failed tests.

    test_values.py SHIFTRON NAME FILTER     NAME: a test program in tests/ next to the program SHIFTRON, such as kernels_tests
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def values_of(report):
    """The values in GoogleTest's JSON report."""
    values = {"failed": 0}
    tests = [test for suite in report["testsuites"] for test in suite["testsuite"] if test["status"] == "RUN"]
    for test in tests:
        values["failed"] += bool(test.get("failures"))
        for name, value in test.items():
            group, dot, inner = name.partition(".")
            if dot:
                values.setdefault(group, {})[inner] = float(value)
    return {"run": len(tests), **values}


def main():
    shiftron, name, chosen = sys.argv[1:]
    program = pathlib.Path(shiftron).parent / "tests" / name
    if not os.access(program, os.X_OK):
        sys.exit(f"no test program at {program}\n  next: cmake --build --preset release --target {name}")
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run([program, f"--gtest_filter={chosen}", f"--gtest_output=json:{report}"], stdout=sys.stderr, check=False)
        if not report.is_file():
            sys.exit(f"{program} ended with {done.returncode} and wrote no report")
        values = values_of(json.loads(report.read_text(encoding="utf-8")))
    if not values["run"]:
        sys.exit(f"{program} has no test {chosen}")
    print(json.dumps(values))


if __name__ == "__main__":
    main()
