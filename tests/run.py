#!/usr/bin/env python3
"""Runs ctest so that its verdict does not depend on how loaded the machine is.

    tests/run.py BUILD_DIRECTORY LIMIT BUDGET [--with BUILD_DIRECTORY LABEL] [ctest options]

--with: behind them those tests of another build that have the label. LIMIT: seconds after which one test hangs, scaled by how slow this machine is now; SHIFTRON_TEST_TIME_SCALE carries the
scale to the tests' own limits. Tests run by twos, those of whole programs one by one. BUDGET: CPU seconds (user and system)
of all tests together, which other processes do not change; seen when a test ends. Last line: "N passed, N failed"; the exit code is 0 only if all passed within the budget.
"""
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

# Of work() on each core at once, on 2 idle cores of an AMD EPYC (family 26). Slower is scaled, faster is not.
REFERENCE_ROUNDS, REFERENCE_SECONDS = 5_000_000, 0.7
MARGIN = 2  # the load may grow behind the measurement


def work():
    state = 1
    for _ in range(REFERENCE_ROUNDS):
        state = state * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF
    return state


def measured_scale():
    """MARGIN times how much longer than the reference the work takes here and now."""
    began = time.monotonic()
    for child in [fork_work() for _ in range(len(os.sched_getaffinity(0)))]:
        os.waitpid(child, 0)
    return MARGIN * max(1.0, (time.monotonic() - began) / REFERENCE_SECONDS)


def fork_work():
    if child := os.fork():
        return child
    work()
    os._exit(0)


def cpu_seconds(process):
    """Of the process and all descendants that have been waited for."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def watch(ctest, budget):
    """CPU seconds of ctest and its tests; ends it once they exceed the budget."""
    before = children_seconds()
    while ctest.poll() is None:
        if cpu_seconds(ctest.pid) > budget:
            ctest.send_signal(signal.SIGINT)  # it ends its test too
        time.sleep(0.2)
    return children_seconds() - before


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def counts(log):
    """(passed, failed) by ctest's closing line, or by those of its tests."""
    text = log.read_text(errors="replace")
    if closing := re.findall(r"tests passed, (\d+) tests failed out of (\d+)", text):
        failed, total = map(int, closing[-1])
        return total - failed, failed
    return len(re.findall(r" Passed +[0-9.]+ sec", text)), len(re.findall(r"\*\*\*", text))


def run(build, limit, budget, scale, options):
    """(passed, failed, CPU seconds, exit code) of ctest in one build."""
    log = build / "ctest-output.log"
    ctest = subprocess.Popen(["ctest", "--test-dir", build, "--output-on-failure", "--parallel", "2", "--timeout", str(round(limit * scale)), *options],
                             stdout=subprocess.PIPE, env=dict(os.environ, SHIFTRON_TEST_TIME_SCALE=f"{scale:.2f}"))
    copier = subprocess.Popen(["tee", log], stdin=ctest.stdout)
    ctest.stdout.close()
    spent = watch(ctest, budget)
    copier.wait()
    return *counts(log), spent, ctest.returncode


def main():
    build, limit, budget, options = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    runs = [(build, [])]
    if options[:1] == ["--with"]:
        runs.append((pathlib.Path(options[1]), ["-L", f"^{options[2]}$"]))
        options = options[3:]
    scale = float(os.environ.get("SHIFTRON_TEST_TIME_SCALE") or measured_scale())
    print(f"limits of this run: {limit * scale:.0f} s a test (scale {scale:.1f}), {budget:.0f} CPU seconds in all", flush=True)
    all_passed, all_failed, all_spent, code = 0, 0, 0.0, 0
    for build, own in runs:
        passed, failed, spent, returned = run(build, limit, budget - all_spent, scale, own + options)
        all_passed, all_failed, all_spent, code = all_passed + passed, all_failed + failed, all_spent + spent, code or returned
        if all_spent > budget:
            break
    print(f"{all_spent:.0f} CPU seconds\n{all_passed} passed, {all_failed} failed", flush=True)
    if all_spent > budget:
        print(f"test: the tests took more than {budget:.0f} CPU seconds\n  next: ctest --test-dir {build} --output-on-failure", file=sys.stderr)
        return 1
    if all_passed + all_failed == 0:
        print(f"test: ctest ran no test\n  next: ctest --test-dir {runs[0][0]} -N", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
