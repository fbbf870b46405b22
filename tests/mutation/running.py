"""Records which tests reach which mutants, and runs a mutant's tests, cheapest first, until one fails."""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

STEPS = (2, 20, 1e9)  # seconds of the cases that one process runs: first the cheapest ones of each program
SLACK, FACTOR = 15, 6  # limit of a process: SLACK + FACTOR · recorded seconds
MEMORY = 8 << 30  # bytes of a process: a mutant may never stop to allocate. Files have no limit: tests make huge sparse ones
TIME_SCALE = "2"  # of the tests' own limits (tests/time_scale.py), as the machine may be loaded


class RecordError(Exception):
    pass


@dataclasses.dataclass
class Outcome:
    killer: str = ""  # empty: it survived
    seconds: float = 0.0
    tests: int = 0  # that reach it and were run


def run_limited(command, limit, environment, folder, log, memory="as"):
    """Exit code; None if it was stopped at its limit. Its whole session ends with it. It writes into a pipe, as under ctest: tests lower the
    limit of file sizes, and a log that is a file may exceed that. `memory`: which of prlimit's limits is MEMORY."""
    with open(log, "wb") as output, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output) as reader:
        process = subprocess.Popen(["prlimit", f"--{memory}={MEMORY}", *command], stdout=reader.stdin, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, cwd=folder, env=environment, start_new_session=True)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            reader.stdin.close()
            try:
                reader.wait(5)
            except subprocess.TimeoutExpired:  # a process that left the session holds the pipe
                reader.kill()


class Tests:
    """The tests of a mutated build, with what they reach: {program: {case: [seconds, numbers]}} and {ctest name: [seconds, numbers]}."""

    def __init__(self, build, programs, work, fingerprint, cuda=False):
        self.build, self.programs, self.work, self.fingerprint, self.cuda = build, programs, work, fingerprint, cuda
        self.memory = "data" if cuda else "as"  # the emulator reserves terabytes of addresses
        self.path = work / "recorded.json"
        self.cases, self.system, self.broken = {}, {}, []
        if self.path.exists():
            data = json.loads(self.path.read_text())
            if data["fingerprint"] == fingerprint:
                self.cases, self.system, self.broken = data["cases"], data["system"], data["broken"]

    def save(self):
        data = {"fingerprint": self.fingerprint, "cases": self.cases, "system": self.system, "broken": self.broken}
        self.path.with_suffix(".new").write_text(json.dumps(data))
        self.path.with_suffix(".new").rename(self.path)

    def command(self, program):
        path = str(self.programs[program])
        if program == "late_tests":  # as ctest does
            return ["python3", "-B", str(self.work / "source/tests/on_one_processor.py"), path]
        return [path]

    def environment(self, mutant, temporary, **more):
        return dict(os.environ, SHIFTRON_MUTANT=str(mutant), TMPDIR=temporary, SHIFTRON_TEST_TIME_SCALE=TIME_SCALE, **more)

    def record(self, largest, jobs):
        """Runs all test programs once as the original."""
        missing = [name for name in self.programs if name not in self.cases]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            recordings = [pool.submit(self.record_program, name, largest) for name in missing]
            faults = []
            for recording in concurrent.futures.as_completed(recordings):
                if fault := recording.exception():  # it must not lose what the others record
                    faults.append(fault)
                    continue
                name, cases, broken = recording.result()
                self.cases[name] = cases
                self.broken += broken
                self.save()
                print(f"recorded {name}: {len(cases)} cases, {sum(seconds for seconds, _ in cases.values()):.0f} s"
                      + "".join(f"\n  fails without a mutant: {case}" for case in broken), flush=True)
        if faults:
            raise faults[0]

    def record_program(self, name, largest):
        with tempfile.TemporaryDirectory(prefix="mutation-") as temporary:
            reached, lines = pathlib.Path(temporary, "reached"), pathlib.Path(temporary, "cases")
            reached.write_bytes(bytes(largest + 1))
            environment = self.environment("record", temporary, SHIFTRON_MUTATION_REACHED=str(reached), SHIFTRON_MUTATION_CASES=str(lines))
            log = self.work / f"record-{name}.log"
            code = run_limited(self.command(name), 3600, environment, self.build / "tests", log, self.memory)
            if code not in (0, 1):  # 1: some cases fail, which are left out
                raise RecordError(f"{name} did not end without a mutant (exit code {code}): {log}\n  next: {self.programs[name]}")
            return name, *read_cases(lines.read_text() if lines.exists() else "")

    def all_system(self):
        """Names of ctest's tests that run whole programs of this build; of a build with CUDA: that run kernels or plan them."""
        listed = json.loads(subprocess.run(["ctest", "--test-dir", self.build, "--show-only=json-v1"], capture_output=True, check=True).stdout)
        others = ["cuda_ranks", "cuda_layouts", "machine/cuda/planning/attention_plans"] if self.cuda else ["communicator_mpi"]
        built = [str(self.build / "shiftron"), *(str(self.build / "tests" / program) for program in others)]
        names = []
        for test in listed["tests"]:
            words = [*test.get("command", []), *(str(entry["value"]) for entry in test.get("properties", []) if entry["name"] == "ENVIRONMENT")]
            if self.cuda and not re.search(r"cuda|gpu|attention_plans", test["name"]):
                continue
            if any(program in word for word in words for program in built):
                names.append(test["name"])
        return names

    def record_system(self, largest, names):
        for name in names:
            if name in self.system:
                continue
            with tempfile.TemporaryDirectory(prefix="mutation-") as temporary:
                reached = pathlib.Path(temporary, "reached")
                reached.write_bytes(bytes(largest + 1))
                began = time.monotonic()
                code = self.run_system(name, "record", 1200, temporary, f"record-{name}.log", SHIFTRON_MUTATION_REACHED=str(reached))
                numbers = [number for number, byte in enumerate(reached.read_bytes()) if byte]
            self.system[name] = [time.monotonic() - began, numbers if code == 0 else []]
            if code != 0:
                self.broken.append(name)
            self.save()
            print(f"recorded {name}: {self.system[name][0]:.0f} s" + ("" if code == 0 else ", fails without a mutant"), flush=True)

    def run_system(self, name, mutant, limit, temporary, log, **more):
        command = ["ctest", "--test-dir", self.build, "--output-on-failure", "--timeout", "100000", "-R", f"^{re.escape(name)}$"]
        return run_limited(command, limit, self.environment(mutant, temporary, **more), self.build, self.work / log, self.memory)

    def chunks(self, number, own):
        """[(program, its cases, seconds)] that reach a mutant: those of its folder first within each step."""
        steps = [[] for _ in STEPS]
        for program, cases in self.cases.items():
            mine = sorted((seconds, case) for case, (seconds, numbers) in cases.items() if number in numbers)
            spent, parts = 0.0, [[] for _ in STEPS]
            for seconds, case in mine:
                spent += seconds
                parts[next(i for i, most in enumerate(STEPS) if spent <= most or i == len(STEPS) - 1)].append((seconds, case))
            for step, part in zip(steps, parts):
                if part:
                    step.append((program, [case for _, case in part], sum(seconds for seconds, _ in part)))
        for step in steps:
            step.sort(key=lambda chunk: (chunk[0] != own, chunk[2]))
        return [chunk for step in steps for chunk in step]

    def run_unit(self, number, own, worker):
        """Runs the test cases that reach a mutant."""
        outcome, began = Outcome(), time.monotonic()
        temporary = tempfile.mkdtemp(prefix="mutation-")
        log = self.work / f"mutant-{worker}.log"
        try:
            flags = pathlib.Path(temporary, "flags")
            for program, cases, seconds in self.chunks(number, own):
                flags.write_text(f"--gtest_filter={':'.join(cases)}\n--gtest_fail_fast=1\n")
                code = run_limited([*self.command(program), f"--gtest_flagfile={flags}"], SLACK + FACTOR * seconds,
                                   self.environment(number, temporary), self.build / "tests", log, self.memory)
                outcome.tests += len(cases)
                if code != 0:
                    outcome.killer = f"{program} {blamed_case(log.read_text(errors='replace'))}" + \
                        (" (hangs)" if code is None else f" (signal {-code})" if code < 0 else "")
                    break
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        outcome.seconds = time.monotonic() - began
        return outcome

    def run_programs(self, number, most_seconds):
        """Runs ctest's tests of whole programs that reach a mutant, cheapest first, of together at most most_seconds."""
        outcome, began, planned = Outcome(), time.monotonic(), 0.0
        for name, (seconds, numbers) in sorted(self.system.items(), key=lambda item: item[1][0]):
            planned += seconds if number in numbers else 0
            if number not in numbers or planned > most_seconds:
                continue
            with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as temporary:
                code = self.run_system(name, number, SLACK + FACTOR * seconds, temporary, "mutant-system.log")
            outcome.tests += 1
            if code != 0:
                outcome.killer = name + (" (hangs)" if code is None else "")
                break
        outcome.seconds = time.monotonic() - began
        return outcome


def read_cases(text):
    """({case: [seconds, numbers]}, cases that failed) of what tests/mutation/listener.cpp wrote."""
    cases, shared, broken = {}, {}, []
    for line in text.splitlines():
        name, seconds, ended, numbers = line.split("\t")
        numbers = [int(number) for number in numbers.split()]
        if ended == "other":
            shared.setdefault(name, set()).update(numbers)
        elif ended == "passed":
            cases[name] = [float(seconds), numbers]
        elif ended == "failed":
            broken.append(name)
    for name, entry in cases.items():
        also = shared.get("*", set()) | shared.get(name.partition(".")[0] + ".*", set())
        entry[1] = sorted(also.union(entry[1]))
    return cases, broken


def blamed_case(text):
    """The first case that failed, or that began last."""
    failed = re.search(r"^\[  FAILED  \] ([^\s,(]+)", text, re.M)
    begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
    return failed.group(1) if failed else begun[-1] if begun else "before its first case"
