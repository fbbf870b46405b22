"""Drives the real program under its MPI's real launcher: a corpus, a tiny model, jobs, and what their runs left."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "launch")]
import mpi_launcher  # noqa: E402
from time_scale import scaled  # noqa: E402

for number in (signal.SIGINT, signal.SIGHUP):  # the caller of the tests may ignore them, as under nohup
    signal.signal(number, signal.default_int_handler)

LOCAL = ROOT / "launch" / "local"
PROGRAM = os.environ.get("SHIFTRON", str(ROOT / "build" / "release" / "shiftron"))
SEED = int(os.environ.get("SHIFTRON_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
MARK = f"SHIFTRON_SYSTEM_TEST={uuid.uuid4()}"  # in the environment of every process that this test starts
VOCAB = 384

MODEL = {
    "model.layers": 2, "model.hidden": 32, "model.heads": 4, "model.kv_heads": 2, "model.ffn": 64, "model.vocab": VOCAB,
    "train.global_batch": 4, "train.sequence_length": 32, "train.steps": 6, "optimizer.learning_rate": "1e-2",
    "device.threads": 1, "output.log_every": 1,
}
LAYOUTS = {
    "tp2pp2": (4, {"parallel.tp": 2, "parallel.pp": 2}),
    "dp2": (2, {}),
    "zero": (2, {"parallel.zero": 1}),
    "zero_zbv": (4, {"parallel.pp": 2, "parallel.zero": 1, "parallel.pipeline": "zb-v"}),
    "interleaved": (4, {"parallel.tp": 2, "parallel.pp": 2, "parallel.pipeline": "interleaved", "parallel.chunks": 2}),
    "eight": (8, {"parallel.tp": 2, "parallel.pp": 2, "parallel.zero": 1, "parallel.pipeline": "interleaved", "parallel.chunks": 2}),
    "single": (1, {}),
}


def environment():
    name, value = MARK.split("=")
    return dict(os.environ, **mpi_launcher.OF_RANKS, **{name: value, "SHIFTRON": PROGRAM, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"})


def shiftron(*arguments, timeout=60):
    """`timeout`, here and below, is in seconds of an idle machine."""
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, errors="replace", env=environment(),
                          timeout=scaled(timeout), check=False, stdin=subprocess.DEVNULL)


def command_of(ranks, arguments, launcher="mpirun"):
    """The command that starts the program. Hydra returns another code than that of a rank that fails, so launch/local starts MPICH's ranks."""
    if launcher == "local" or ranks > 1 and mpi_launcher.is_mpich(PROGRAM):
        return [LOCAL, ranks, *arguments]
    return [*(mpi_launcher.start(PROGRAM, ranks) if ranks > 1 else []), PROGRAM, *arguments]


def options(settings):
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def processes():
    """{process id: rank or None} of all living processes that this test has started."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            state = (path / "stat").read_text().rsplit(")", 1)[1].split()[0]
            program = os.readlink(path / "exe")
        except OSError:
            continue
        if MARK.encode() not in variables or state == "Z":
            continue
        rank = next((int(one.split(b"=")[1]) for one in variables if one.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK="))), None)
        found[int(path.name)] = rank if os.path.basename(program) == os.path.basename(os.path.realpath(PROGRAM)) else None
    return found


def main(**settings):
    """Of unittest; exit code 77, which ctest shows as skipped, where every test was."""
    result = unittest.main(verbosity=2, exit=False, **settings).result
    ran = result.testsRun - sum(isinstance(test, unittest.TestCase) for test, _ in result.skipped)
    sys.exit(77 if result.skipped and result.wasSuccessful() and ran == 0 else not result.wasSuccessful())


class Job:
    """A program that is running; its output goes to a file."""

    def __init__(self, command, output):
        self.output = output
        self.began = time.monotonic()
        with open(output, "wb") as stream:
            self.process = subprocess.Popen(list(map(str, command)), stdout=stream, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, env=environment(), start_new_session=True)

    def text(self):
        return self.output.read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def ranks(self):
        """{rank: process id} of this job, which must be the only one."""
        found = {rank: process for process, rank in processes().items() if rank is not None}
        return found or {0: self.process.pid}

    def wait(self, timeout=60):
        try:
            return self.process.wait(scaled(timeout))
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"the job had not ended after {scaled(timeout):.0f} s:\n{self.text()[-3000:]}") from None

    def end(self):
        for process in processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


class SystemTest(unittest.TestCase):
    """One folder with corpus, tokenizer and datasets for all tests of a class."""
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-system-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.random = random.Random(SEED)
        print(f"{cls.__name__}: SHIFTRON_TEST_SEED={SEED}", flush=True)
        paragraphs = [part.strip() for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
                      for part in path.read_text().split("\n\n") if len(part) > 80]
        draw = random.Random(7)
        with open(cls.folder / "text.jsonl", "w") as stream:
            for number in range(300):
                text = f"{number}. {draw.choice(paragraphs)[:400]}"  # in all fewer tokens than a block of a shard holds
                stream.write(json.dumps({"text": text}) + "\n")
        cls.make_tokenizer("tokenizer.model", VOCAB)
        cls.make_data("data", "tokenizer.model")
        cls.jobs = 0

    @classmethod
    def make_tokenizer(cls, name, vocab):
        cls.must(shiftron("tokenizer", "train", "--input", cls.folder / "text.jsonl", "--vocab", vocab, "--output", cls.folder / name))

    @classmethod
    def make_data(cls, name, tokenizer, seed=0):
        cls.must(shiftron("data", "build", "--input", cls.folder / "text.jsonl", "--tokenizer", cls.folder / tokenizer,
                          "--output", cls.folder / name, "--validation-fraction", "0.1", "--seed", seed))

    @staticmethod
    def must(result):
        if result.returncode != 0:
            raise AssertionError(f"{result.args} gave {result.returncode}: {result.stdout}{result.stderr}")
        return result.stdout

    def tearDown(self):
        try:
            self.assert_gone(10)  # a single process has a daemon of Open MPI, which exits after it
        finally:
            for process in processes():
                os.kill(process, signal.SIGKILL)

    # Jobs.
    def settings(self, run, **more):
        changed = {key.replace("__", "."): value for key, value in more.items()}
        return {**MODEL, "data.train": self.folder / "data" / "train", "output.directory": run, **changed}

    def start(self, ranks, arguments, launcher="mpirun"):
        type(self).jobs += 1
        return Job(command_of(ranks, arguments, launcher), self.folder / f"output-{type(self).__name__}-{self.jobs}")

    def train(self, ranks, settings, launcher="mpirun"):
        return self.start(ranks, ["train", *options(settings)], launcher)

    def expect(self, code, job, timeout=60):
        """The job's output; it must end with `code`."""
        found = job.wait(timeout)
        text = job.text()
        self.assertEqual(found, code, text[-3000:])
        return text

    def wait_for(self, what, job, timeout=60):
        began = time.monotonic()
        while not (value := what()):
            self.assertTrue(job.running(), job.text()[-3000:])
            if time.monotonic() > began + scaled(timeout):
                job.end()
                self.fail("waited without success: " + job.text()[-3000:])
            time.sleep(0.02)
        return value

    def assert_gone(self, seconds=5):
        """Every process that was started is gone within `seconds`."""
        until = time.monotonic() + scaled(seconds)
        while (left := processes()) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(left, {}, "orphans")

    def assert_printed_once(self, text, *phrases):
        for phrase in phrases:
            self.assertEqual(text.count(phrase), 1, f"{phrase!r} in:\n{text[-3000:]}")

    def assert_same_step(self, one, other):
        result = shiftron("checkpoint", "diff", one, other)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def last_step(run):
    """Of metrics.jsonl, whose last line may be half written; 0 = none."""
    try:
        found = re.findall(r'^\{"step":(\d+),"tokens".*\}$', (run / "metrics.jsonl").read_text(), re.M)
    except OSError:
        return 0
    return int(found[-1]) if found else 0


def losses(run):
    """{step: the texts of its loss, gradient norm and accuracy}; each step must be there once."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        match = re.match(r'\{"step":(\d+),"tokens":\d+,"loss":([^,]+),"accuracy":([^,]+),"gradient_norm":([^,]+),', line)
        if match:
            assert int(match[1]) not in found, f"step {match[1]} is there twice"
            found[int(match[1])] = (match[2], match[4], match[3])
    return found


def step(run, number):
    return run / "checkpoints" / f"step-{number:08d}"


def events(run, name):
    return [event for event in lines(run / "events.jsonl") if event["event"] == name]


def benchmark_report(folder):
    """The newest results below a folder, ours or lm-evaluation-harness's, and {task: its samples}."""
    path = max(folder.rglob("results_*.json"))
    stamp = path.stem.removeprefix("results_")
    samples = {one.name.removeprefix("samples_").removesuffix(f"_{stamp}.jsonl"): [json.loads(line) for line in one.read_text().split("\n") if line]
               for one in path.parent.glob(f"samples_*_{stamp}.jsonl")}
    return json.loads(path.read_text()), samples
