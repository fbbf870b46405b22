#!/usr/bin/env python3
"""Every command refuses unknown arguments: all errors of a command line at once, exit code 76, before anything is created."""
import ctypes
import errno
import functools
import json
import os
import platform
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import unittest
import unittest.mock

from harness import PROGRAM, SystemTest, command_of, environment, mpi_launcher, options, scaled, step

BAD_NUMBERS = ["x", "", "-1", "nan", "1e400", "4294967297", "99999999999999999999"]
# Numbers that these options may hold.
LEGAL = {"4294967297": {"documents", "seed", "shuffle", "sample-bytes", "shard-tokens", "skip-bad", "train.seed"}}
NUMBERS = {"N", "N,N,...", "X", "X,X"}  # placeholders in --help; "X" may be any large number


def run(words, ranks=1, before=None, stdin=b""):
    """Exit code and output of the program; bytes that are no UTF-8 are replaced. before(): in its process, in front of it."""
    result = subprocess.run([word if isinstance(word, bytes) else str(word) for word in command_of(ranks, words)], capture_output=True, env=environment(),
                            timeout=120, check=False, input=stdin, preexec_fn=before)
    return result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")


@functools.cache
def table():
    """{command: its row of `shiftron --help json`}; options of configured commands hold every configuration key."""
    help_text = json.loads(run(["--help", "json"])[1])
    keys = [{**key, "name": f"--{key['name']}"} for key in help_text["keys"]]
    return {row["name"]: {**row, "options": row["options"] + (keys if row["takes_keys"] else [])} for row in help_text["commands"]}


def commands():
    """Names of all commands, as the program lists them."""
    return list(table())


def options_of(command):
    """{name: placeholder, "" for a flag} of all options that the command lists."""
    return {option["name"][2:]: option["argument"] for option in table()[command]["options"] if option["name"] != "--help"}


class CommandLine(SystemTest):
    # Where root runs the tests, whom no permissions stop.
    WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = cls.folder
        cls.run_directory = folder / "run"
        settings = cls.settings(cls, cls.run_directory, train__steps=2, checkpoint__every=2)
        cls.must_run(["train", *options(settings)])
        cls.step = step(cls.run_directory, 2)
        cls.validation = folder / "data" / "validation"
        config = cls.run_directory / "config.conf"
        report = ["--tasks", f"perplexity:{folder / 'text.jsonl'}", "--limit", "2", "--output", folder / "report"]
        cls.must_run(["evaluate", "--checkpoint", cls.step, "--data", folder, *report])
        (folder / "tokens.npy").write_bytes(struct.pack("<4H", 1, 2, 4, 3))
        (folder / "ids.txt").write_text("[260, 261]\n")
        # A line of each command that works. A new command needs a row here.
        cls.rows = {
            "train": ["--config", config, "--dry-run"],
            "evaluate": ["--checkpoint", cls.step, "--data", cls.validation],
            "evaluate compare": [folder / "report", folder / "report"],
            "generate": ["--checkpoint", cls.step, "--prompt", "The", "--tokens", "2"],
            "data dump": ["--config", config, "--step", "1"],
            "data build": ["--input", folder / "text.jsonl", "--tokenizer", folder / "tokenizer.model", "--output", folder / "built"],
            "data generate": ["hop", "--documents", "2", "--jsonl"],
            "data import": [folder / "tokens.npy", "--format", "raw", "--dtype", "u16", "--vocab", "384", "--end-of-document", "3",
                            "--output", folder / "imported-tokens"],
            "data export": [cls.validation, "--format", "megatron", "--output", folder / "tokens"],
            "data merge": [cls.validation, cls.validation, "--output", folder / "merged"],
            "data split": [cls.validation, "--documents", "1", "--output", folder / "split"],
            "data inspect": [cls.validation],
            "data verify": [cls.validation],
            "tokenizer train": ["--input", folder / "text.jsonl", "--vocab", "384", "--output", folder / "made.model"],
            "tokenizer inspect": [folder / "tokenizer.model"],
            "tokenizer encode": [folder / "tokenizer.model", "--input", folder / "text.jsonl"],
            "tokenizer decode": [folder / "tokenizer.model", "--input", folder / "ids.txt"],
            "tokenizer export": [folder / "tokenizer.model", "--output", folder / "exported-tokenizer"],
            "self-test": ["--size", "small"],
            "preflight": ["--config", config],
            "status": [cls.run_directory],
            "compare": [cls.run_directory, "--", cls.run_directory, "--metric", "loss"],
            "checkpoint list": [cls.run_directory],
            "checkpoint inspect": [cls.step],
            "checkpoint verify": [cls.step],
            "inspect heads": [cls.step],
            "checkpoint diff": [cls.step, cls.step],
            "checkpoint convert": [cls.step, "--layout", "tp=2", "--output", folder / "converted"],
            "checkpoint consolidate": [cls.step, "--output", folder / "consolidated"],
            "checkpoint prune": [cls.run_directory],
            "checkpoint export": [cls.step, "--format", "hf", "--output", folder / "exported"],
            "checkpoint import": [folder / "exported", "--format", "hf", "--output", folder / "imported"],  # after the export
        }

    @classmethod
    def must_run(cls, words, ranks=1, stdin=b""):
        code, out, err = run(words, ranks, stdin=stdin)
        if code != 0:
            raise AssertionError(f"{words} gave {code}: {out}{err}")
        return out

    def refused(self, words, *phrases, ranks=1):
        code, out, err = run(words, ranks)
        self.assertEqual(code, 76, f"{words}: {out[-500:]}{err[-2000:]}")
        for phrase in phrases:
            self.assertEqual(err.count(phrase), 1, f"{phrase!r} of {words} in:\n{err[-3000:]}")
        return err

    def test_every_command_has_a_row_and_works(self):
        self.assertEqual(sorted(commands()), sorted(self.rows))
        for command, row in self.rows.items():
            with self.subTest(command):
                self.must_run([*command.split(), *row])

    def test_unknown_options_and_stray_words(self):
        for command, row in self.rows.items():
            with self.subTest(command):
                words = [*command.split(), *row]
                names_stand_alone = {"directory", "file"} & options_of(command).keys() or command == "data generate"
                stray = ["are given"] if names_stand_alone else ["unexpected word 'stray'"]
                if command in ("compare", "evaluate compare", "data import", "data merge"):  # which take any number of names
                    stray = []
                self.refused([*words, "--jsno=1", "--helf", "0.8", "stray"], "unknown option --jsno",
                             "unknown option --helf; did you mean --help?", *stray)

    def test_help_says_what_to_type(self):
        """Of every command: code 0, usage, options, an example, keys only on request."""
        for command, row in table().items():
            with self.subTest(command):
                code, text, err = run([*command.split(), "--help"])
                self.assertEqual((code, err), (0, ""))
                self.assertRegex(text, rf"^shiftron {command}: .+\n(.+\n)*\nUsage: shiftron {command}")
                self.assertIn(f"\nExample:\n  {row['example']}\n", text)
                self.assertEqual(f"shiftron {command} --help all" in text, row["takes_keys"])
                self.assertNotIn("--model.rope_base", text)
                code, text, _ = run([*command.split(), "--help", "all"])
                self.assertEqual((code, "--model.rope_base" in text), (0, row["takes_keys"]))

    def test_a_reader_that_has_left_is_no_fault(self):
        for kind, (read_end, write_end) in (("pipe", os.pipe()), ("socket", [end.detach() for end in socket.socketpair()])):
            os.close(read_end)
            result = subprocess.run([PROGRAM, "evaluate", "--tasks", "list"], stdout=write_end, stderr=subprocess.PIPE, env=environment(), check=False)
            os.close(write_end)
            self.assertEqual((kind, result.returncode, result.stderr), (kind, 0, b""))
        with open("/dev/full", "wb") as full:
            result = subprocess.run([PROGRAM, "evaluate", "--tasks", "list"], stdout=full, stderr=subprocess.PIPE, env=environment(), check=False)
        self.assertEqual((result.returncode, result.stderr), (70, b"shiftron: cannot write to stdout\n"))

    def test_closed_descriptors_become_no_files(self):
        run_directory = self.copy_without_an_end("followed")
        for closed in ((0,), (2,), (0, 2)):
            with subprocess.Popen([PROGRAM, "status", run_directory, "--follow"], env=environment(), stdout=subprocess.PIPE,
                                  preexec_fn=lambda closed=closed: [os.close(number) for number in closed]) as process:
                try:
                    process.stdout.readline()
                    open_now = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}
                    self.assertLessEqual({0, 1, 2}, open_now, closed)
                    for number in closed:
                        self.assertEqual(os.readlink(f"/proc/{process.pid}/fd/{number}"), "/dev/null", closed)
                finally:
                    process.kill()

    def copy_without_an_end(self, name):
        """Of the run, as it is while its last step is long past: silent."""
        copy = self.folder / name
        copy.mkdir()
        for file in ("config.conf", "metrics.jsonl"):
            shutil.copy(self.run_directory / file, copy)
        reported = (self.run_directory / "events.jsonl").read_text().splitlines(True)
        (copy / "events.jsonl").write_text("".join(line for line in reported if '"exit"' not in line))
        return copy

    def test_who_follows_hears_at_once_and_may_leave(self):
        run_directory = self.copy_without_an_end("heard")
        for words in ([], ["--json"]):
            with subprocess.Popen([PROGRAM, "status", run_directory, "--follow", *words], env=environment(), stdout=subprocess.PIPE) as process:
                try:
                    text = process.stdout.readline()
                    if words:
                        self.assertEqual(json.loads(text)["steps"], 2)
                        self.assertEqual(json.loads(process.stdout.readline())["step"], 2)
                    self.assertIsNone(process.poll())
                    process.stdout.close()
                    self.assertIn(process.wait(timeout=scaled(20)), (0, -signal.SIGPIPE))
                finally:
                    process.kill()

    def test_a_run_without_a_readable_configuration_has_a_status(self):
        run_directory = self.copy_without_an_end("unreadable")
        config = run_directory / "config.conf"

        def status(reported):
            text = self.must_run(["status", run_directory])
            self.assertIn("step 2, loss ", text)
            self.assertEqual(text.count("the run's number of steps is unknown: "), reported, text)
            self.assertIsNone(json.loads(self.must_run(["status", run_directory, "--json"]))["steps"])
            return text
        config.write_text("[train\n")
        self.assertIn("config.conf:1", status(1))
        config.unlink()
        status(0)
        config.mkdir()
        status(1)
        config.rmdir()
        config.touch(0)
        answer = subprocess.run([*self.WITHOUT_RIGHTS, PROGRAM, "status", run_directory], env=environment(), capture_output=True, text=True, check=False)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        self.assertIn("the run's number of steps is unknown: cannot open", answer.stdout)

    def test_following_retries_when_files_cannot_be_read(self):
        run_directory = self.copy_without_an_end("lost-for-a-while")
        events = run_directory / "events.jsonl"
        with subprocess.Popen([*self.WITHOUT_RIGHTS, PROGRAM, "status", run_directory, "--follow", "--json"], env=environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(json.loads(process.stdout.readline())["state"], "silent")
                events.chmod(0)
                self.assertIn("events.jsonl: Permission denied", process.stderr.readline())
                shutil.copy(self.run_directory / "events.jsonl", run_directory / "new")  # which may be read
                (run_directory / "new").rename(events)
                *_, last = process.stdout
                self.assertEqual((json.loads(last)["state"], process.wait(timeout=scaled(20))), ("done", 0))
            finally:
                process.kill()
        events.chmod(0)
        answer = subprocess.run([*self.WITHOUT_RIGHTS, PROGRAM, "status", run_directory, "--follow"], env=environment(), capture_output=True, check=False)
        self.assertEqual(answer.returncode, 76)  # at the first look

    def test_the_list_of_tasks_refuses_what_it_does_not_know(self):
        self.refused(["evaluate", "--tasks", "list", "--jsno", "--data"], "unknown option --jsno", "--data needs a value")
        self.refused(["evaluate", "--tasks", "list", "--tasks", "list"], "--tasks takes 1 value, 2 are given")
        self.refused(["evaluate", "--tasks", "list", "--train.steps", "x"], "train.steps")

    def test_messages_lead_to_what_is_wrong(self):
        folder = self.folder
        of_step = ["evaluate", "--checkpoint", self.step]
        self.assertNotIn("--data", self.refused([*of_step, "--tasks", "nope", "--output", folder / "none"], "no such task"))
        self.assertNotIn("--data", self.refused([*of_step, "--tasks", "list,hellaswag", "--output", folder / "none"],
                                                "--tasks list prints the available tasks"))
        self.refused(["checkpoint", "list", self.step], f"{self.step} is itself a step; `shiftron checkpoint inspect {self.step}`")
        self.must_run(["checkpoint", "export", self.step, "--format", "hf", "--output", folder / "exported-once"])
        self.refused(["checkpoint", "import", folder / "exported-once", "--format", "megatron", "--output", folder / "none"],
                     "seems to be in the format hf; give --format hf")
        self.refused(["train", "--config", self.run_directory / "config.conf", "--dry-run", "--draw", ""],
                     "--draw is empty")

    def test_missing_values(self):
        for command in self.rows:
            with self.subTest(command):
                valued = [name for name, value in options_of(command).items() if value]
                self.refused([*command.split(), *[f"--{name}" for name in valued]], *[f"--{name} needs a value" for name in valued])

    def test_bad_numbers(self):
        for command, row in self.rows.items():
            numeric = {name: value for name, value in options_of(command).items() if value in NUMBERS}
            for bad in BAD_NUMBERS if numeric else []:
                with self.subTest(command, number=bad):
                    own = [name for name in numeric if "." not in name]
                    kept = [word for index, word in enumerate(map(str, row))
                            if word[2:] not in own and (index == 0 or str(row[index - 1])[2:] not in own)]
                    text = self.refused([*command.split(), *kept, *[f"--{name}={bad}" for name in numeric]])
                    for name, value in numeric.items():
                        legal = name in LEGAL.get(bad, ()) or (bad[:2] in ("42", "99") and value == "X") \
                            or (bad == "" and value == "N,N,...")
                        if not legal:
                            self.assertRegex(text, rf"(?m)^  (--)?{re.escape(name)} ")

    def test_one_huge_number_alone(self):
        row = [*self.rows["train"]]
        self.refused(["train", *row, "--ranks", "4294967297"], "--ranks '4294967297' must be <= 1000000")
        self.refused(["tokenizer", "inspect", self.folder / "tokenizer.model", "--pieces", "4294967297"], "--pieces '4294967297' must be <=")
        ids = self.folder / "wrong-ids.txt"
        for wrong in ("4294967338", "42.9", "true"):
            ids.write_text(f"[1]\n[{wrong}]\n")
            self.refused(["tokenizer", "decode", self.folder / "tokenizer.model", "--input", ids], f"ids.txt:2: {wrong} is not an id")
        self.refused(["generate", *self.rows["generate"][:-2], "--tokens", "99999999999999999999"], "--tokens '99999999999999999999'")

    def test_nothing_of_the_checkpoint_is_computed_otherwise(self):
        for command in ("generate", "evaluate"):
            row = [command, *self.rows[command]]
            self.refused([*row, "--model.hidden", "abc"], "model.hidden 'abc' is not a whole number", "1 fault")
            self.refused([*row, "--model.hidden", "64"], "model.hidden is '32' in the checkpoint and cannot be changed to '64'")
            self.refused([*row, "--shift.form", "project"], "shift.form is 'free' in the checkpoint and cannot be changed to 'project'")
            self.refused([*row, "--config", "nosuch", "--temprature", "1"], "cannot read a configuration file: cannot open nosuch", "unknown option --temprature")
            self.refused([*row, "--parallel.tp", "0"], "parallel.tp 0 must be >= 1")
            self.refused([*row, "--parallel.cp", "2"], "parallel.cp 2 is not implemented")
            self.refused([command, "--checkpoint", self.run_directory, *row[3:]], f"its newest step is {self.step}")
        self.refused(["generate", "--checkpoint", self.step, "--prompt", "--tokens", "2"], "--prompt needs a value")

    def test_generate_uses_all_ranks_by_tp(self):
        row = ["generate", *self.rows["generate"]]
        alone = self.must_run(row)
        for more in ([], ["--parallel.tp", "2"]):
            code, out, err = run([*row, *more], ranks=2)
            self.assertEqual((code, out), (0, alone), err)
        self.refused([*row, "--parallel.tp", "2"], "generate splits a model by tp over all ranks, here 1")
        self.refused([*row, "--parallel.tp", "1"], "generate splits a model by tp over all ranks, here 2", ranks=2)
        self.refused([*row, "--parallel.pp", "2"], "generate splits a model by tp over all ranks, here 2", ranks=2)
        self.refused([*row, "--nosuch"], "unknown option --nosuch", ranks=2)

    def test_many_prompts_are_continued_as_single_ones(self):
        texts = ["The", "the key and", " of it"]
        base = ["generate", "--checkpoint", self.step, "--tokens", "6"]
        expected = "\n".join(self.must_run([*base, f"--prompt={text}"]) for text in texts)
        lines, objects, output = (self.folder / name for name in ("prompts.txt", "prompts.jsonl", "continued.txt"))
        lines.write_text("\n".join([texts[0], "", *texts[1:]]) + "\r\n")
        objects.write_text("".join(json.dumps({"prompt": text, "id": 1}) + "\n" for text in texts))
        self.assertEqual(self.must_run([*base, "--prompts", lines]), expected)
        self.assertEqual(self.must_run([*base, "--prompts", objects], ranks=2), expected)
        for ranks in (1, 2):
            self.assertEqual(self.must_run([*base, "--prompts", "-"], ranks, lines.read_bytes()), expected)
        self.assertEqual(self.must_run([*base, "--prompts", lines, "--output", output]), "")
        self.assertEqual(output.read_bytes().decode(errors="replace"), expected)

        rows = [json.loads(line) for line in self.must_run([*base, "--prompts", objects, "--json"]).splitlines()]
        self.assertEqual([(row["prompt"], row["sample"]) for row in rows], [(text, 0) for text in texts])
        together = "\n".join(f"{row['prompt']}{row['text']}\n" for row in rows)
        self.assertEqual(together.replace("\ufffd", ""), expected.replace("\ufffd", ""))  # which stands for bytes that are not UTF-8
        for row in rows:
            self.assertEqual(list(row), ["prompt", "sample", "text", "ids", "ended", "log_probability"])
            self.assertEqual(row["ended"], len(row["ids"]) < 6)
            self.assertLess(row["log_probability"], 0)

    def test_samples_have_draws_of_their_own(self):
        base = ["generate", "--checkpoint", self.step, "--tokens", "6", "--temperature", "1", "--seed", "7"]
        filtered = [*base, "--top-k", "200", "--top-p", "0.99"]
        plain = self.must_run([*base, "--prompt", "The", "--json"])

        def rows(words, count, ranks=1):
            text = self.must_run([*words, "--prompts", "-", "--samples", count, "--json"], ranks, b"The\nThe\nof it\n")
            return {(index // count, row["sample"]): row["ids"] for index, row in enumerate(map(json.loads, text.splitlines()))}
        self.assertEqual(rows(base, 2)[0, 0], json.loads(plain)["ids"])
        four = rows(filtered, 4)
        self.assertEqual(sorted(four), [(prompt, sample) for prompt in range(3) for sample in range(4)])
        self.assertEqual(len(set(map(tuple, four.values()))), 12)
        for ranks in (1, 2):
            self.assertLessEqual(rows(filtered, 2, ranks).items(), four.items())
        texts = self.must_run([*filtered, "--prompt", "The", "--samples", "2"])
        self.assertEqual(texts.count("The"), 2)

    def test_options_of_generate_that_do_not_fit(self):
        row = ["generate", *self.rows["generate"]]
        prompts = self.folder / "some.txt"
        prompts.write_text("The\n")
        self.refused([*row, "--prompts", prompts], "--prompt and --prompts both define what to continue")
        self.refused([*row, "--top-p", "1.5", "--temperature", "1"], "--top-p '1.5' must be <= 1")
        self.refused([*row, "--top-p", "0", "--temperature", "1"], "--top-p '0' must be > 0")
        self.refused([*row, "--top-k", "-1", "--samples", "0"], "--top-k '-1' must be >= 0", "--samples '0' must be >= 1")
        self.refused([*row, "--top-k", "5", "--top-p", "0.5", "--samples", "2"], "3 faults", *(
            f"--{words} does nothing at --temperature 0" for words in ("top-k 5", "top-p 0.5", "samples 2")))
        row = row[:3]
        self.refused([*row, "--prompts", prompts, "--output", prompts], f"--output {prompts} is also an input")
        self.refused([*row, "--prompts", self.folder / "none.txt"], "none.txt")
        self.refused([*row, "--prompts", "-"], "stdin has no prompt")
        self.refused([*row, "--prompts", "-"], "stdin has no prompt", ranks=2)

    def test_a_step_without_a_tokenizer_is_scored_on_tokens(self):
        exported, imported = self.folder / "bare-export", self.folder / "bare"
        self.must_run(["checkpoint", "export", self.step, "--format", "hf", "--output", exported])
        for name in ("tokenizer.model", "tokenizer.json"):
            (exported / name).unlink()
        self.must_run(["checkpoint", "import", exported, "--format", "hf", "--output", imported])
        row = ["--checkpoint", step(imported, 0)]
        length = ["--train.sequence_length", 32]
        found, expected = (json.loads(self.must_run(["evaluate", "--checkpoint", place, "--data", self.validation, "--json", *length]))
                           for place in (step(imported, 0), self.step))
        self.assertAlmostEqual(found["loss"], expected["loss"], delta=1e-5)
        self.assertEqual(found["bytes"], expected["bytes"])
        code, out, err = run(["generate", *row, "--prompt", "The"])
        self.assertEqual((code, out), (76, ""), err)
        self.assertIn("has no tokenizer", err)

    def test_precision_of_a_step_with_moments(self):
        code, _, err = run(["evaluate", *self.rows["evaluate"], "--train.precision", "fp64"])
        self.assertEqual(code, 76, err)
        self.assertIn(f"shiftron checkpoint import {self.step} --format shiftron", err)
        self.assertNotIn("another model", err)

    def test_what_is_no_utf8(self):
        odd = os.fsencode(self.folder) + b"/caf\xe9"
        settings = options({**self.settings("run"), "output.directory": "OUTPUT"})
        settings[settings.index("OUTPUT")] = odd
        self.refused(["train", *settings], r"caf\xE9 must be UTF-8")
        self.refused(["train", *options(self.settings(self.folder / "never")), b"--data.train=" + odd], r"caf\xE9 path must be UTF-8")
        self.assertFalse((self.folder / "never").exists())
        build = self.rows["data build"][:-1]
        self.assertEqual(json.loads(self.must_run(["data", "build", *build, odd, "--json"]))["inputs"][0]["kind"], "jsonl")
        self.assertTrue(json.loads(self.must_run(["data", "verify", odd, "--json"]))["valid"])
        self.must_run(["data", "inspect", odd, "--json"])
        text = odd + b".txt"
        with open(text, "wb") as stream:
            stream.write(b"caf\xe9 and a text\n" * 20)
        out = self.must_run(["data", "build", "--input", text, "--tokenizer", self.folder / "tokenizer.model", "--output", self.folder / "latin"])
        self.assertIn("1 file read as text", out)
        self.assertIn("20 bytes of the texts are NUL or not UTF-8", out)
        self.assertIn(r"caf\xE9.txt", self.must_run(["data", "inspect", self.folder / "latin"]))
        self.must_run(["tokenizer", "train", "--input", self.folder / "text.jsonl", "--vocab", "384", "--output", odd + b".model", "--json"])
        self.must_run(["evaluate", "--checkpoint", self.step, "--data", odd, "--json"])
        self.must_run(["generate", "--checkpoint", self.step, "--tokens", "2", b"--prompt=caf\xe9"])

    def test_foreign_text_does_not_control_the_terminal(self):
        """Names, events, tasks and configurations of others: on stdout and stderr their control characters are \\xNN, in JSON they mean the same."""
        evil = "\x1b[2J\x07\r\x9b1m\u202e|<b>"
        steering = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
        runs = self.folder / f"odd{evil}" / "run"
        shutil.copytree(self.run_directory, runs)
        with open(runs / "events.jsonl", "a", encoding="utf-8") as stream:
            for event in ({"event": "queued", "job": f"7{evil}", "why": f"{evil}\nstep 9"}, {"event": "exit", "code": 76, "error": f"{evil}\nstep 9"}):
                stream.write(json.dumps({"time": "2026-01-01T00:00:00.000Z", "host": evil, **event}) + "\n")
        (self.folder / "items.jsonl").write_text(json.dumps({"text": "the key"}) + "\n")
        task = self.folder / "task.json"
        task.write_text(json.dumps({"name": "own", "alias": f"own{evil}\nx", "help": evil, "kind": "rolling", "files": {"test": "items.jsonl"},
                                    "split": "test", "metrics": ["word_perplexity"]}))
        (self.folder / "bad.conf").write_text(f"train.steps = {evil}\nx{evil} = 1\n")
        shown = r"\x1B[2J\x07\x0D\xC2\x9B1m\xE2\x80\xAE"
        saved = step(runs, 2)
        for code, words, phrase in (
                (0, ["status", runs], f"{shown}|<b>\n    step 9\n"), (0, ["status", runs, "--json"], None),
                (0, ["checkpoint", "list", runs], shown), (0, ["checkpoint", "list", runs, "--json"], None),
                (0, ["checkpoint", "verify", saved], shown), (0, ["checkpoint", "inspect", saved], shown),
                (76, ["checkpoint", "inspect", runs], shown), (76, ["data", "verify", runs], shown),
                (0, ["evaluate", "--checkpoint", self.step, "--tasks", task], "| own" + shown.replace("[", "\\[") + r"\|\<b\>\x0Ax |"),
                (76, ["train", "--config", self.folder / "bad.conf"], shown), (76, ["status", "--" + evil], shown),
                (76, ["evaluate", "--checkpoint", saved, "--data", f"{evil}\n"], shown)):
            with self.subTest(words=words):
                found, out, err = run(words)
                self.assertEqual(found, code, out + err)
                self.assertEqual(steering.findall(out + err), [])
                if phrase is None:
                    json.loads(out)
                    self.assertIn("\\u202e", out.lower())
                else:
                    self.assertIn(phrase, out + err)

    def test_a_low_limit_of_open_files_is_raised(self):
        build = [str(word) for word in self.rows["data build"][:-1]] + [str(self.folder / "by-few-files")]
        limited = ["bash", "-c", 'ulimit -Sn 5; exec "$@"', "bash", PROGRAM, "data", "build", *build]
        done = subprocess.run(limited, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_marks_between_documents_get_no_token(self):
        texts = {"marked.txt": "the key\nthe value<|end|>the key<|end|>", "plain.txt": "the key\nthe value\nthe key\n"}
        models = []
        for name, text in texts.items():
            (self.folder / name).write_text(50 * text)
            models.append(self.folder / f"{name}.model")
            self.must_run(["tokenizer", "train", "--input", self.folder / name, "--vocab", "280", "--output", models[-1],
                           *(["--document-separator", "<|end|>"] if name == "marked.txt" else [])])
        self.assertEqual(models[0].read_bytes(), models[1].read_bytes())

    def test_threads_without_stack_are_refused(self):
        words = ["evaluate", *self.rows["evaluate"], "--device.threads", "2"]
        limit = resource.getrlimit(resource.RLIMIT_STACK)
        try:
            resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, limit[1]))
            self.refused(words, "have 128 KiB of stack, but need", "(ulimit -s 256)")
        finally:
            resource.setrlimit(resource.RLIMIT_STACK, limit)

    def test_forbidden_machine_code_is_reported(self):
        set_mdwe, refuse_exec_gain = 65, 1  # prctl(2), of Linux 6.3

        def forbidden():
            if ctypes.CDLL(None, use_errno=True).prctl(set_mdwe, refuse_exec_gain, 0, 0, 0) != 0:
                os._exit(99)
        code, _, err = run(["evaluate", *self.rows["evaluate"]], before=forbidden)
        if code == 99:
            self.skipTest("this Linux cannot forbid it")
        self.assertEqual(code, 76, err)
        self.assertRegex(err, "oneDNN cannot compute a product of .*MemoryDenyWriteExecute")

    def test_a_shell_that_srun_started_is_no_rank(self):
        step_of_one = {"SLURM_JOB_ID": "77", "SLURM_JOBID": "77", "SLURM_NODELIST": "host", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}
        with unittest.mock.patch.dict(os.environ, step_of_one):
            for command in ("generate", "train", "evaluate"):
                self.must_run([command, *self.rows[command]])

    def test_processes_that_do_not_find_each_other(self):
        """Of srun without PMIx, of another MPI's mpirun: each would be the only rank of a job of its own."""
        step_of_four = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
        for variables, source in (({"PMI_SIZE": "4"}, "PMI_SIZE=4"), (step_of_four, "SLURM_STEP_NUM_TASKS=4")):
            for rank, command in ((0, "evaluate"), (3, "generate")):
                with unittest.mock.patch.dict(os.environ, {**variables, "PMI_RANK" if "PMI_SIZE" in variables else "SLURM_PROCID": str(rank)}):
                    code, out, err = run([command, *self.rows[command]])
                self.assertEqual((code, out), (76, ""), err)
                self.assertEqual(f"started 4 processes ({source}), but MPI sees only 1:" in err, rank == 0, err)

    def test_one_process_does_not_start_mpi(self):
        """It needs no folder for temporary files, no HOME and no daemon, and leaves nothing."""
        with unittest.mock.patch.dict(os.environ, {"TMPDIR": "/dev/null/none"}):
            os.environ.pop("HOME", None)
            for command in ("generate", "train", "evaluate"):
                self.must_run([command, *self.rows[command]])

    def test_ranks_that_may_not_read_each_other_are_quiet(self):
        """MPI prints a line for every large message where a container's filter forbids process_vm_readv."""
        no_new_privileges, set_filter, mode_filter, number, allow, refuse = 38, 22, 2, 310, 0x7FFF0000, 0x50000 | errno.EPERM
        if platform.machine() != "x86_64":
            self.skipTest("the number of the system call is that of x86-64")
        code = b"".join(struct.pack("HBBI", *line) for line in (
            (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, refuse), (0x06, 0, 0, allow)))
        lines = ctypes.create_string_buffer(code, len(code))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(lines)))

        def forbidden():
            libc = ctypes.CDLL(None)
            if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_filter, mode_filter, program):
                os._exit(99)
        settings = self.settings(self.folder / "filtered", train__steps=1, train__sequence_length=128, model__hidden=128, parallel__tp=2)
        words = ["train", *options(settings)]
        code, _, err = run(words, ranks=2, before=forbidden)
        if code == 99:
            self.skipTest("this system has no filters")
        self.assertEqual((code, err.count("Read -1")), (0, 0), err[-2000:])

    def test_a_rank_that_is_bound_is_warned_of(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one processor")
        for command in ("generate", "evaluate"):
            words = [PROGRAM, command, *map(str, self.rows[command]), "--device.threads", "0"]
            for bound, warnings in ("core", 1), ("none", 0):
                option = "-bind-to" if mpi_launcher.is_mpich(PROGRAM) else "--bind-to"
                result = subprocess.run([mpi_launcher.launcher(PROGRAM), option, bound, "-n", "1", *words], capture_output=True, text=True,
                                        errors="replace",  # an untrained model may write any bytes
                                        env=environment(), timeout=scaled(60), check=True, stdin=subprocess.DEVNULL)
                self.assertEqual(result.stderr.count(f"{command}: warning: the launcher has bound the rank"), warnings, result.stderr)

    def test_threads_without_memory_are_reported(self):
        draw = random.Random(1)
        with open(self.folder / "random.txt", "w", encoding="utf-8") as stream:
            for _ in range(10000):
                stream.write("".join(draw.choices("abcdefghijklmnop     ", k=400)) + "\n")
        words = ["tokenizer", "train", "--input", self.folder / "random.txt", "--vocab", "600", "--output", self.folder / "random.model"]

        def within(megabytes, words):
            limit = megabytes << 20
            return run(words, before=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        least = next(megabytes for megabytes in range(50, 4000, 5) if within(megabytes, ["--version"])[0] == 0)
        for more in (10, 25, 40, 60):
            code, _, err = within(least + more, words)
            self.assertEqual(code, 76, f"{least} + {more} MiB: {err}")
            self.assertRegex(err, "shiftron: not enough memory; |shiftron: cannot start a thread")


if __name__ == "__main__":
    unittest.main(verbosity=2)
