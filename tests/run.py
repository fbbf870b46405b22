#!/usr/bin/env python3
"""Runs ctest so that its verdict does not depend on how loaded the machine is.

    tests/run.py BUILD_DIRECTORY LIMIT BUDGET [--with BUILD_DIRECTORY LABEL] [ctest options]

--with: at the same time, one by one, those tests of another build that have the label; shown after them. LIMIT: seconds after which a
test counts as hanging, scaled by how slow this machine is now; SHIFTRON_TEST_TIME_SCALE carries the scale to the tests' own limits. Tests run two
at a time, those of whole programs one by one; they wait more than they compute, so that a third one fits on two cores. BUDGET: CPU seconds
(user and system) of all tests together, which other processes do not change; seen when a test ends. Last line: "N passed, N failed", and
", N skipped" where some cannot run here; the exit code is 0 only if none failed, within the budget.
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
MARGIN = 2  # the load may grow after the measurement


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


def watch(runs, budget):
    """Prints what ctests write, one after another, until all have ended; ends them once they exceed the budget. Returns their CPU seconds."""
    before, unshown = children_seconds(), list(runs)
    while unshown:
        ended = unshown[0].ctest.poll() is not None
        sys.stdout.buffer.write(unshown[0].output.read())
        sys.stdout.buffer.flush()
        if ended:
            del unshown[0]
            continue
        alive = [run.ctest.pid for run in unshown if run.ctest.poll() is None]
        if children_seconds() - before + sum(map(cpu_seconds, alive)) > budget:
            interrupt(unshown)
        time.sleep(0.2)
    return children_seconds() - before


def interrupt(runs):
    for run in runs:
        if run.ctest.poll() is None:
            run.ctest.send_signal(signal.SIGINT)  # it ends its tests too


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Run:
    """ctest in one build, begun; it writes to a file of the build."""

    def __init__(self, build, at_a_time, limit, scale, options):
        self.log = build / "ctest-output.log"
        command = ["ctest", "--test-dir", build, "--output-on-failure", "--parallel", str(at_a_time), "--timeout", str(round(limit * scale)), *options]
        with open(self.log, "wb") as log:
            self.ctest = subprocess.Popen(command, stdout=log, env=dict(os.environ, SHIFTRON_TEST_TIME_SCALE=f"{scale:.2f}"))
        self.output = open(self.log, "rb")

    def counts(self):
        """(passed, failed, skipped) by ctest's closing lines, or by those of its tests."""
        text = self.log.read_text(errors="replace")
        *_, closing = re.split(r"^(?=\d+% tests passed)", text, flags=re.M)
        if counted := re.match(r"\S+ tests passed, (\d+) tests failed out of (\d+)", closing):
            failed, total = map(int, counted.groups())
            skipped = len(re.findall(r"\(Skipped\)$", closing, re.M))
            return total - failed - skipped, failed, skipped
        ends = re.findall(r"^ *\d+/\d+ Test +#\d+: \S+ \.*(\*\*\*Skipped|\*\*\*| +Passed)", text, re.M)
        skipped = ends.count("***Skipped")
        failed = ends.count("***")
        return len(ends) - failed - skipped, failed, skipped


def main():
    build, limit, budget, options = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    others = []
    if options[:1] == ["--with"]:
        others.append((pathlib.Path(options[1]), 1, ["-L", f"^{options[2]}$"]))
        options = options[3:]
    scale = float(os.environ.get("SHIFTRON_TEST_TIME_SCALE") or measured_scale())
    print(f"limits of this run: {limit * scale:.0f} s a test (scale {scale:.1f}), {budget:.0f} CPU seconds in all", flush=True)
    runs = []
    try:
        for where, at_a_time, own in [(build, 2, []), *others]:
            runs.append(Run(where, at_a_time, limit, scale, own + options))
        spent = watch(runs, budget)
    finally:
        interrupt(runs)
    passed, failed, skipped = map(sum, zip(*(run.counts() for run in runs)))
    print(f"{spent:.0f} CPU seconds\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    if spent > budget:
        print(f"test: the tests took more than {budget:.0f} CPU seconds\n  next: ctest --test-dir {build} --output-on-failure", file=sys.stderr)
        return 1
    if passed + failed + skipped == 0:
        print(f"test: ctest ran no test\n  next: ctest --test-dir {build} -N", file=sys.stderr)
        return 1
    return next((run.ctest.returncode for run in runs if run.ctest.returncode), 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through finally: ctest goes too
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
