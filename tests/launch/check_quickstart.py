#!/usr/bin/env python3
"""launch/quickstart removes only what it created, and says how a stop went; every script next to it has a --help."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "launch" / "quickstart.py"
sys.path.insert(0, str(SCRIPT.parent))
SPECIFICATION = importlib.util.spec_from_file_location("quickstart", SCRIPT)
quickstart = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(quickstart)


def files(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


class Directories(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-quickstart-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *arguments):
        """The command without its phases; (exit code, stderr)."""
        answer = subprocess.run([sys.executable, "-B", SCRIPT, "--caller", self.folder, "--check", *arguments], capture_output=True, text=True,
                                check=False, cwd="/")
        return answer.returncode, answer.stderr

    def assert_refused(self, words, *arguments):
        before = files(self.folder)
        code, text = self.start(*arguments)
        self.assertEqual(code, 76, text)
        self.assertIn(words, text)
        self.assertRegex(text, r"(?m)^  next: .*(--out DIR|mv )")
        self.assertEqual(files(self.folder), before)

    def make(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} of the user")

    def run_phases(self, *arguments, run=lambda self: None):
        with (unittest.mock.patch.object(quickstart.QuickStart, "run", run), contextlib.chdir(self.folder),
              unittest.mock.patch.object(sys, "argv", ["quickstart", "--caller", str(self.folder), *arguments])):
            return quickstart.main()

    def test_files_of_others_are_refused(self):
        self.make("mine/data/notes.txt", "with space/kv-shift/x", "file")
        (self.folder / "link").symlink_to("mine")
        (self.folder / "nowhere").symlink_to("absent/absent")
        for name in ("mine", "link", "with space"):
            for arguments in (["--out", name], ["--out", name, "--fresh"], ["--out", str(self.folder / name)]):
                with self.subTest(arguments=arguments):
                    self.assert_refused("but no made-by-quickstart.txt", *arguments)
        self.assertEqual(self.run_phases("--out", "mine", "--fresh"), 76)
        self.assertEqual((self.folder / "mine" / "data" / "notes.txt").read_text(), "mine/data/notes.txt of the user")
        self.assert_refused("cannot be used", "--out", "file")
        self.assertNotEqual(self.start("--out", "nowhere")[0], 1)

    def test_a_directory_that_may_not_be_written(self):
        (self.folder / "closed").mkdir()
        with unittest.mock.patch.object(os, "access", lambda path, mode: False), contextlib.redirect_stderr(io.StringIO()):
            with unittest.mock.patch.object(quickstart, "say", lambda text, stream=1: self.assertRegex(
                    text, r"closed cannot be used \(Permission denied\)\n  next: launch/quickstart --out DIR")):
                self.assertEqual(self.run_phases("--out", "closed"), 76)

    def test_an_option_is_no_directory(self):
        for words in (["--out", "--fresh"], ["--out"]):
            answer = subprocess.run([ROOT / "launch" / "quickstart", *words], capture_output=True, text=True, check=False)
            self.assertEqual((answer.returncode, answer.stdout), (76, ""))
            self.assertIn("--out needs a directory\n  next: launch/quickstart --out DIR", answer.stderr)

    def test_an_earlier_versions_directory(self):
        self.make("old/logs/corpus.log", "old/phases.json", "old/data/train/dataset.json")
        self.assert_refused("an earlier version", "--out", "old", "--fresh")

    def test_new_and_empty_directories(self):
        (self.folder / "empty").mkdir()
        (self.folder / "link").symlink_to("empty")
        for name in ("new", "link", "deep/er", "with space"):
            self.assertEqual(self.start("--out", name), (0, ""))
            self.assertTrue((self.folder / name / quickstart.MARKER).exists())
            self.assertEqual(self.start("--out", name), (0, ""))

    def test_fresh_removes_its_own(self):
        def make_all(self):
            self.directory.own("corpus", "data", "kv-shift", "report.md")
            for name in ("corpus/packages/a.deb", "data/train/shard", "kv-shift/metrics.jsonl", "report.md"):
                (self.out / name).parent.mkdir(parents=True, exist_ok=True)
                (self.out / name).write_text("made")
        self.run_phases("--out", "out", run=make_all)
        self.make("out/mine/notes.txt", "out/vanilla/notes.txt", "out/report.txt")
        (self.folder / "out" / quickstart.MARKER).open("a").write("../out/mine\n..\n.\n/\n\n")
        self.assertEqual(self.run_phases("--out", "out", "--fresh"), 0)
        left = set(files(self.folder / "out")) - {quickstart.MARKER}
        self.assertEqual(left, {"corpus/packages/a.deb", "mine/notes.txt", "vanilla/notes.txt", "report.txt"})

    def test_a_phase_leaves_what_it_did_not_make(self):
        self.run_phases("--out", "out")
        self.make("out/data/notes.txt")

        def one_phase(self):
            self.phase("data", "token shards", [], lambda: None, ["data"], fresh="data")
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(self.run_phases("--out", "out", run=one_phase), 76)
        self.assertTrue((self.folder / "out" / "data" / "notes.txt").exists())
        shutil.rmtree(self.folder / "out" / "data")
        self.assertEqual(self.run_phases("--out", "out", run=one_phase), 0)
        self.make("out/data/shard")
        (self.folder / "out" / "phases.json").write_text(json.dumps({"data": {"key": "other inputs", "done": True, "seconds": 1}}))
        self.assertEqual(self.run_phases("--out", "out", run=one_phase), 0)
        self.assertFalse((self.folder / "out" / "data").exists())

    def test_a_stop_between_two_datasets(self):
        stops = ["data-held-out"]

        def build(self, name, *command):
            command[-1].mkdir(parents=True)  # fails where it is there, as the program does
            if name in stops:
                stops.remove(name)
                raise quickstart.Fault("stopped", self.again, 75)

        def one_phase(self):
            self.phase("data", "token shards", [], self.data, ["data"])
        with unittest.mock.patch.object(quickstart.QuickStart, "call", build), contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(self.run_phases("--out", "out", run=one_phase), 75)
            self.assertEqual(self.run_phases("--out", "out", run=one_phase), 0)

    def test_a_stop_whose_save_fails(self):
        """A stop reaches the command under way, which then ends as it does."""
        for ending, code, words in (("exit 75", 75, "stopped; the run is saved"), ("exit 70", 70, "failed with exit code 70:\n$ sh -c"),
                                    ("exit 0", 75, "stopped\n"), ("kill -TERM $$", 75, "stopped\n"), ("exit 130", 75, "stopped\n")):
            def one_command(self, ending=ending):
                self.call("train", "sh", "-c", f"trap '{ending}' TERM; kill -TERM {os.getpid()}; sleep 9 & wait")
            with self.subTest(ending=ending), contextlib.redirect_stderr(io.StringIO()):
                said = []
                with unittest.mock.patch.object(quickstart, "say", lambda text, stream=1, said=said: said.append(text)):
                    self.assertEqual(self.run_phases("--out", "out", run=one_command), code)
                self.assertIn(words, "\n".join(said))

    def test_a_stop_while_a_command_starts(self):
        started = []

        def start(*arguments, popen=subprocess.Popen, **options):
            started.append(popen(*arguments, **options))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)  # Python runs its handler
            return started[0]
        with unittest.mock.patch.object(subprocess, "Popen", start), contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(self.run_phases("--out", "out", run=lambda self: self.call("train", "sleep", "60")), 75)
        self.assertEqual(started[0].returncode, -signal.SIGTERM)

    def test_the_middle_step_outlives_stops(self):
        """Each stop saves a step, and after two of them an older one that is not kept forever is removed."""
        middle = quickstart.read_config(ROOT / "configs" / "quickstart.conf")["checkpoint"]["every"]
        commands = []

        def both(self):
            with unittest.mock.patch.object(self, "call", lambda _, *command, **_options: commands.append([str(word) for word in command])):
                self.train("kv-shift")
                self.other_layout()
        errors = io.StringIO()
        with unittest.mock.patch.object(quickstart, "say", lambda text, stream=1: errors.write(text)):
            self.assertEqual(self.run_phases("--out", "out", run=both), 1)
            self.assertIn(f"step-{int(middle):08d} no longer exists\n  next: launch/quickstart --out {self.folder}/out --fresh", errors.getvalue())
            quickstart.step_directory(self.folder / "out" / "kv-shift", int(middle)).mkdir(parents=True)
            self.assertEqual(self.run_phases("--out", "out", run=both), 0)
        for command in commands:
            self.assertEqual(command[command.index("--checkpoint.keep_every") + 1], middle)

    def test_a_note_of_phases_that_was_cut(self):
        self.assertEqual(self.run_phases("--out", "out"), 0)
        for text in ("", '{"data": {"key"', "[]"):
            with self.subTest(text=text):
                (self.folder / "out" / "phases.json").write_text(text)
                self.assertEqual(self.run_phases("--out", "out", run=lambda self: self.phase("data", "data", [], lambda: None, [])), 0)
                self.assertTrue(json.loads((self.folder / "out" / "phases.json").read_text())["data"]["done"])

    def test_a_skipped_step_has_no_loss(self):
        (self.folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": null}\n{"step": 3, "lo')
        self.assertEqual(list(quickstart.read_metrics(self.folder)), [1])

    def test_what_a_model_writes_stays_text(self):
        """In report.md it is neither Markdown nor HTML; on the terminal it steers nothing."""
        text = "a `b` ````\n```\n<script>alert(1)</script> ![x](http://x/) | \x1b[2J\n\n"
        self.assertEqual(quickstart.fenced(text), "`````text\n" + text.rstrip() + "\n`````\n")
        self.assertEqual(quickstart.fenced("a"), "```text\na\n```\n")
        code = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import quickstart; quickstart.say({text!r} + 'ä\\u202e\\x9b\\udcff')"
        reported = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, check=True).stdout.decode()
        self.assertEqual(reported, text.replace("\x1b", r"\x1B") + r"ä\xE2\x80\xAE\xC2\x9B\xFF" + "\n")

    def test_two_at_once(self):
        def second(_):
            code, text = self.start("--out", "out")
            self.assertEqual(code, 76, text)
            self.assertIn("another quick start is running", text)
        self.run_phases("--out", "out", run=second)
        self.assertEqual(self.start("--out", "out"), (0, ""))


class Scripts(unittest.TestCase):
    def test_help_does_nothing_else(self):
        for script in sorted((ROOT / "launch").iterdir()):
            if script.suffix:
                continue
            with self.subTest(script.name):
                answer = subprocess.run([script, "--help"], capture_output=True, text=True, check=False, cwd="/")
                self.assertEqual((answer.returncode, answer.stderr), (0, ""))
                self.assertIn(script.name, answer.stdout)
                self.assertNotIn("install-deps: all", answer.stdout)

    def test_nothing_asked_is_nothing_done(self):
        for name in ("benchmarks-data", "corpus", "draw-loss", "local", "slurm"):
            with self.subTest(name):
                self.assertNotEqual(subprocess.run([ROOT / "launch" / name], capture_output=True, check=False).returncode, 0)


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main(verbosity=2)
