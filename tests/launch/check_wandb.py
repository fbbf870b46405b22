#!/usr/bin/env python3
"""launch/wandb sends each row once, whatever happens to it or to the run, and writes only to RUN/wandb/.

    tests/launch/check_wandb.py            with a module that stands in for wandb
    tests/launch/check_wandb.py Package    the package itself, offline; skipped (77) without it
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "launch" / "wandb"
PYTHON = ROOT / "build" / "wandb" / "bin" / "python"
CONFIG = "[train]\nsteps = 9\nprecision = fp32\n# stop_at =\n\n[optimizer]\nbetas = 0.9,0.95\nlearning_rate = 1e-3\n\n[model]\ntie_embeddings = false\n"


def load():
    """The script as a module."""
    sys.path.insert(0, str(SCRIPT.parent))
    loader = importlib.machinery.SourceFileLoader("mirror", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mirror", loader))
    loader.exec_module(module)
    return module


class Killed(BaseException):
    """The end of a process that is killed."""


class StandIn:
    """What the script uses of wandb. Runs keep their steps by id, as the server does, which ignores steps that it has."""
    Error = RuntimeError

    def __init__(self):
        self.runs, self.starts, self.ends, self.repeated, self.kill_at = {}, [], [], [], None

    def Settings(self, **settings):  # pylint: disable=invalid-name
        return settings

    def init(self, **settings):
        self.starts.append(settings)
        known = self.runs.setdefault(settings["id"], {})

        def log(values, step, commit):
            assert commit
            if step in known:
                self.repeated.append(step)
            known.setdefault(step, dict(values))
            if step == self.kill_at:
                raise Killed
        configuration = {}
        update = lambda values, allow_val_change: configuration.update(values)  # pylint: disable=unnecessary-lambda-assignment
        online = settings["mode"] is None
        return types.SimpleNamespace(step=max(known, default=-1) + 1 if online else 0, log=log, finish=lambda exit_code: self.ends.append(exit_code),
                                     config=types.SimpleNamespace(update=update, values=configuration))

    @property
    def sent(self):
        """{step: values} of the only run."""
        (only,) = self.runs.values()
        return only


class Wandb(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron wandb-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.run_directory = self.folder / "a run"
        self.run_directory.mkdir()
        (self.run_directory / "config.conf").write_text(CONFIG)
        self.metrics = self.run_directory / "metrics.jsonl"
        self.events = self.run_directory / "events.jsonl"
        self.script, self.wandb = load(), StandIn()
        self.script.say = lambda text: self.said.append(text)
        self.said = []

    @staticmethod
    def rows(first, last, loss=5.0):
        """Of these steps; each third one has a held-out loss and a benchmark."""
        rows = []
        for step in range(first, last + 1):
            rows.append({"step": step, "loss": loss - step / 10, "gradient_norm": None, "shift": {"0": {"key": [0.5, step]}}})
            if step % 3 == 0:
                rows += [{"step": step, "validation_loss": 4.5}, {"step": step, "benchmarks": {"copa": {"acc": 0.5}}}]
        return "".join(json.dumps(row) + "\n" for row in rows)

    def add_events(self, *events):
        with open(self.events, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(event) + "\n" for event in events))

    def end(self, code):
        self.add_events({"event": "start"}, {"event": "exit", "code": code})

    def follow(self, sleep=None, **options):
        options = {"project": "p", "name": None, "once": sleep is None, "offline": False, **options}
        return self.script.follow(self.run_directory, self.wandb, types.SimpleNamespace(**options), sleep)

    def expect_steps(self, last):
        self.assertEqual(list(self.wandb.sent), list(range(1, last + 1)))
        for step, values in self.wandb.sent.items():
            self.assertEqual("validation_loss" in values and "benchmarks/copa/acc" in values, step % 3 == 0, step)
        self.assertEqual(self.wandb.repeated, [])

    def test_rows_of_a_step_are_sent_together(self):
        self.metrics.write_text(self.rows(1, 9))
        self.follow()
        self.expect_steps(8)  # step 9 may still get rows
        self.end(0)
        self.follow(name="mine")
        self.expect_steps(9)
        self.assertEqual(self.wandb.sent[3], {"loss": 4.7, "shift/0/key/0": 0.5, "shift/0/key/1": 3, "validation_loss": 4.5, "benchmarks/copa/acc": 0.5})
        self.follow(project=None)
        first, second, third = self.wandb.starts
        self.assertEqual((third["name"], third["project"]), ("mine", "p"))
        self.assertEqual((first["project"], first["name"], second["name"], first["resume"]), ("p", "a run", "mine", "allow"))
        self.assertEqual((first["id"], first["dir"]), (second["id"], str(self.run_directory)))
        self.assertEqual(self.script.configuration(self.run_directory), {
            "train": {"steps": 9, "precision": "fp32"}, "optimizer": {"betas": "0.9,0.95", "learning_rate": 0.001}, "model": {"tie_embeddings": False}})

    def test_a_kill_neither_loses_nor_repeats_a_step(self):
        for offline in (False, True):
            self.metrics.write_text(self.rows(1, 9))
            self.end(0)
            for self.wandb.kill_at in (4, 7):
                with self.assertRaises(Killed):
                    self.follow(offline=offline)
            self.wandb.kill_at = None
            self.follow(offline=offline)
            self.expect_steps(9)
            shutil.rmtree(self.run_directory / "wandb")
            self.wandb = StandIn()

    def test_online_the_server_decides_what_was_sent(self):
        """A kill lost what was on its way."""
        self.metrics.write_text(self.rows(1, 9))
        self.follow()
        for step in (7, 8):
            del self.wandb.sent[step]
        self.follow()
        self.expect_steps(8)

    def test_a_run_that_resumes_at_an_earlier_step(self):
        self.metrics.write_text(self.rows(1, 7))
        looks = iter([self.rows(1, 4), self.rows(1, 4) + self.rows(5, 11, loss=6)[:-9],  # the second ends within a row
                      self.rows(1, 4) + self.rows(5, 13, loss=7), self.rows(1, 4) + self.rows(5, 14, loss=7)])

        def sleep(_):
            text = next(looks, None)
            if text is None:
                self.end(0)
            else:
                self.metrics.write_text(text)
        self.assertEqual(self.follow(sleep), 0)
        self.expect_steps(14)
        self.assertEqual([round(self.wandb.sent[step]["loss"], 9) for step in (6, 8, 10, 13)], [4.4, 5.2, 6.0, 5.7])
        self.assertEqual([line.split("; ")[1] for line in self.said], [f"steps up to {step} are not sent again" for step in (6, 9)])

    def test_rows_that_are_cut_or_foreign_are_left_out(self):
        whole = self.rows(1, 5)
        cut = whole.index('"shift"', whole.index('"step": 4'))
        self.metrics.write_text(whole[:cut])
        mirror = self.script.Mirror(self.run_directory, self.wandb, types.SimpleNamespace(project="p", name=None, offline=False))
        mirror.send_new(False)
        self.expect_steps(2)
        self.metrics.write_text(whole + '[1]\n{"step": "6"}\n{"loss": 1}\n{"step": 6, "lo\nnull\n' + self.rows(6, 7))
        mirror.send_new(True)
        self.expect_steps(7)

    def test_the_end(self):
        self.metrics.write_text(self.rows(1, 3))
        seconds = []
        actions = {2: lambda: self.end(75), 30: lambda: self.end(70), 32: lambda: self.add_events({"event": "requeue"}),
                   60: lambda: self.end(72)}

        def sleep(time):
            seconds.append(time)
            actions.get(len(seconds), lambda: None)()
        self.assertEqual(self.follow(sleep), 72)
        self.assertEqual(len(seconds), 60 + self.script.FAILED_SECONDS // self.script.POLL_SECONDS)
        self.assertEqual(self.wandb.ends, [72])
        self.end(0)
        self.assertEqual(self.follow(sleep), 0)
        self.expect_steps(3)

        def interrupted(_):
            raise KeyboardInterrupt
        self.events.write_text('{"event": "start"}\n')
        self.assertEqual(self.follow(interrupted), 0)
        self.assertIn("the same command resumes", self.said[-1])
        self.assertEqual(self.wandb.ends, [72, 0, 0])

    def test_only_its_own_folder_is_written(self):
        self.metrics.write_text(self.rows(1, 9))
        self.end(0)

        def state():
            return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in self.run_directory.iterdir() if path.name != "wandb"}
        before = state()
        self.follow()
        self.assertEqual(state(), before)
        self.assertEqual(json.loads((self.run_directory / "wandb" / "follower.json").read_text())["step"], 9)

    def test_what_cannot_be_mirrored(self):
        self.metrics.write_text(self.rows(1, 9))
        self.follow()
        with self.assertRaisesRegex(self.script.Fault, "mirrored to the project p, not q"):
            self.follow(project="q")
        (self.run_directory / "wandb" / "follower.json").write_text("{}")
        with self.assertRaisesRegex(self.script.Fault, "follower.json cannot be read"):
            self.follow()
        with self.script.lock(self.run_directory):
            with self.assertRaisesRegex(self.script.Fault, "already mirrored"):
                self.script.lock(self.run_directory)

    def test_command_line(self):
        """Of a copy, next to which there is no build/, under a Python without packages."""
        launch = shutil.copytree(ROOT / "launch", self.folder / "launch")

        def answer(*words):
            result = subprocess.run([sys.executable, "-S", launch / "wandb", *words], capture_output=True, text=True, check=False)
            return result.returncode, result.stdout + result.stderr
        code, text = answer(self.run_directory)
        self.assertEqual(code, 76)
        self.assertIn("no package wandb\n  next: launch/install-deps --wandb", text)
        for words, fault in (([], "required: run"), ([self.run_directory, "--projekt"], "--projekt"), ([self.folder], "has no config.conf")):
            code, text = answer(*words)
            self.assertEqual(code, 76)
            self.assertIn(fault, text)
        self.assertEqual(answer("--help")[0], 0)


def history(path):
    """[(step, {name: number})] of a file that wandb wrote offline: records of LevelDB's log format, each a message of protobuf."""
    from wandb.proto import wandb_internal_pb2  # pylint: disable=import-error
    data, at, record, steps = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            message = wandb_internal_pb2.Record.FromString(record)
            if message.HasField("history"):
                items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in message.history.item}
                steps.append((items["_step"], {name: value for name, value in items.items() if not name.startswith("_")}))
            record = b""
    return steps


class Package(Wandb):
    """Follows a run that is killed in between."""

    def test_a_run_offline(self):
        self.metrics.write_text(self.rows(1, 6))
        command = [SCRIPT, self.run_directory, "--offline", "--project", "p"]
        environment = {**os.environ, "HOME": str(self.folder), "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}

        def run(*words):
            subprocess.run([sys.executable, *command, *words], env=environment, check=True, timeout=300)
        run("--once")
        self.metrics.write_text(self.rows(1, 4) + self.rows(5, 9))
        self.end(0)
        run()
        run()
        files = sorted(self.run_directory.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
        steps = [step for file in files for step in history(file)]
        self.assertEqual([step for step, _ in steps], list(range(1, 10)))
        self.assertEqual(steps[2][1], {"loss": 4.7, "shift/0/key/0": 0.5, "shift/0/key/1": 3, "validation_loss": 4.5, "benchmarks/copa/acc": 0.5})
        self.assertEqual(len({file.stem for file in files}), 1)  # run-ID


if __name__ == "__main__":
    if sys.argv[1:] == ["Package"]:
        if importlib.util.find_spec("wandb") is None:
            if PYTHON.exists() and pathlib.Path(sys.prefix) != PYTHON.parent.parent:
                os.execv(PYTHON, [str(PYTHON), "-B", *sys.argv])
            print("skipped: no Python with wandb; launch/install-deps --wandb makes one")
            sys.exit(77)
        unittest.main(verbosity=2, argv=[sys.argv[0], "Package.test_a_run_offline"])
    unittest.main(verbosity=2, defaultTest="Wandb")
