#!/usr/bin/env python3
"""What users run into: two starts of one run, readers that exit, closed terminals, moved data, changed options."""
import array
import ctypes
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from harness import LAYOUTS, PROGRAM, SystemTest, environment, events, last_step, lines, losses, options, scaled, shiftron, step


def xxh3_128(data):
    """As 32 hexadecimal digits, of the library that the program uses."""
    class Digest(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    function = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    function.restype, function.argtypes = Digest, [ctypes.c_char_p, ctypes.c_size_t]
    digest = function(data, len(data))
    return f"{digest.high:016x}{digest.low:016x}"


class Accidents(SystemTest):
    ENDLESS = {"train__steps": 100000}

    def steps_of(self, run):
        return sorted(path.name for path in (run / "checkpoints").iterdir())

    def start_with(self, settings, **how):
        """One process without a launcher; `how` as of Popen."""
        process = subprocess.Popen([PROGRAM, "train", *options(settings)], stdin=subprocess.DEVNULL, env=environment(),
                                   start_new_session=True, **how)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_until(self, what, process):
        while not what():
            self.assertIsNone(process.poll(), "the run has ended")
            time.sleep(0.02)

    # Two starts of one run.
    def test_a_second_start_is_refused(self):
        run = self.folder / "twice"
        ranks, parallel = LAYOUTS["dp2"]
        settings = {**self.settings(run, checkpoint__every=2, **self.ENDLESS), **parallel}
        first = self.train(ranks, settings)
        self.wait_for(lambda: last_step(run) >= 3, first)
        holder = first.ranks()[0]
        text = self.expect(76, self.train(ranks, settings))
        self.assert_printed_once(text, f"{run} is in use: process {holder} on {socket.gethostname()} has held it since 20")
        self.assertNotIn("temporar", text)
        self.assertEqual(len(events(run, "start")), 1)
        self.assertEqual(events(run, "exit"), [])
        before = last_step(run)
        self.wait_for(lambda: last_step(run) >= before + 3, first)
        os.killpg(first.process.pid, signal.SIGKILL)  # with its launcher
        for process in first.ranks().values():
            os.kill(process, signal.SIGKILL)
        first.wait()
        self.assert_gone(10)
        third = self.train(ranks, {**settings, "train.steps": last_step(run) + 2})
        self.expect(0, third)
        self.assertEqual(sorted(losses(run)), list(range(1, max(losses(run)) + 1)))
        self.assertFalse((run / ".lock").exists())

    def test_a_lock_removed_by_hand_costs_nothing(self):
        run = self.folder / "unlocked"
        process = self.start_with(self.settings(run, **self.ENDLESS), stderr=subprocess.DEVNULL)
        self.wait_until(lambda: last_step(run) >= 2, process)
        shutil.rmtree(run / ".lock")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(scaled(60)), 75)
        self.assertEqual(self.steps_of(run), [f"step-{last_step(run):08d}"])
        self.assertFalse((run / ".lock").exists())

    def test_a_start_that_was_taken_over_writes_nothing_more(self):
        run = self.folder / "taken"
        job = self.train(1, self.settings(run, checkpoint__every=2, **self.ENDLESS))
        self.wait_for(lambda: last_step(run) >= 3, job)
        other = {"host": "elsewhere", "process": 1, "since": "2026-01-01T00:00:00.000Z", "begin": "1", "processes": "other"}
        (run / ".lock" / "2").write_text(json.dumps(other))
        with open(run / "events.jsonl", "a") as stream:
            stream.write(json.dumps({"host": "elsewhere", "process": 1, "event": "start"}) + "\n")
        (run / ".lock" / "1").unlink()
        self.assertIn("another start has taken over the run's directory", self.expect(70, job))
        self.assertTrue((run / ".lock" / "2").exists())

    def test_remains_of_killed_starts_are_removed(self):
        run = self.folder / "remains"
        run.mkdir()
        for name in ("config.conf.temporary-123", "metrics.jsonl.temporary-77", "notes.temporary-draft"):
            (run / name).write_text("half")
        self.expect(0, self.train(1, self.settings(run, train__steps=1)))
        self.assertEqual(sorted(path.name for path in run.glob("*temporary*")), ["notes.temporary-draft"])

    # Readers that leave, terminals that close.
    def test_a_reader_that_leaves_ends_nothing(self):
        run = self.folder / "pipe"
        read_end, write_end = os.pipe()
        process = self.start_with(self.settings(run, train__steps=40, checkpoint__every=20), stdout=write_end, stderr=write_end,
                                  restore_signals=True)
        os.close(write_end)
        os.read(read_end, 1)
        os.close(read_end)
        self.assertEqual(process.wait(scaled(60)), 0)
        self.assertEqual(last_step(run), 40)
        self.assertIn("step-00000040", self.steps_of(run))

    def test_a_save_without_a_reader(self):
        run = self.folder / "unread"
        read_end, write_end = os.pipe()
        process = self.start_with(self.settings(run, **self.ENDLESS), stdout=write_end, stderr=write_end)
        os.close(write_end)
        os.close(read_end)
        self.wait_until(lambda: last_step(run) >= 2, process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)  # of the kernel and of the shell
        self.assertEqual(process.wait(scaled(60)), 75)
        self.assertEqual(self.steps_of(run), [f"step-{last_step(run):08d}"])

    def test_ignored_signals_stay_ignored(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        run = self.folder / "nohup"
        process = self.start_with(self.settings(run, **self.ENDLESS), stderr=subprocess.DEVNULL, preexec_fn=ignore)
        self.wait_until(lambda: last_step(run) >= 2, process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        before = last_step(run)
        self.wait_until(lambda: last_step(run) >= before + 20, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(scaled(60)), 75)

    # Evaluations.
    def evaluate(self, name, deadline, sources):
        """Seconds of a run's one evaluation, on `sources` times the training data."""
        run = self.folder / name
        settings = self.settings(run, train__steps=1, evaluation__every=1, fault__setup_deadline=deadline)
        job = self.start(1, ["train", *options(settings), *sources * ["--data.validation", str(self.folder / "data" / "train")]])
        self.wait_for(lambda: last_step(run) == 1, job)
        began = time.monotonic()
        self.expect(0, job, 200)
        self.assertEqual([line["step"] for line in lines(run / "metrics.jsonl") if "validation_loss" in line], [1])
        return time.monotonic() - began

    def test_a_long_evaluation_is_no_hang(self):
        deadline = scaled(2)
        sources = 1 + math.ceil(1.5 * deadline / self.evaluate("short", 600, 1))
        while self.evaluate(f"long-{sources}", deadline, sources) <= deadline:  # the machine has become faster
            sources *= 2

    def test_an_interrupted_evaluation_is_repeated(self):
        seconds = self.evaluate("length", 600, 1)
        held_out = math.ceil(scaled(3) / seconds) * ["--data.validation", str(self.folder / "data" / "train")]

        def start(run, more=()):
            return self.start(1, ["train", *options(self.settings(run, train__steps=4, evaluation__every=2)), *held_out, *more])

        def in_evaluation(run, number, job):
            self.wait_for(lambda: (step(run, number) / "manifest.json").exists(), job)
            time.sleep(scaled(0.3))
            return job.process
        def reported(run):
            return {line["step"]: line["validation_loss"] for line in lines(run / "metrics.jsonl") if "validation_loss" in line}
        whole, killed, stopped = (self.folder / name for name in ("made-whole", "made-killed", "made-stopped"))
        self.expect(0, start(whole), 200)
        self.assertEqual(list(reported(whole)), [2, 4])
        # Killed after the last step, which has been saved by then.
        job = start(killed)
        in_evaluation(killed, 4, job).kill()
        job.wait()
        self.assertEqual(list(reported(killed)), [2])
        self.assertIn("step 4: completing its evaluation", self.expect(0, start(killed), 200))
        self.assertEqual(reported(killed), reported(whole))
        self.assertNotIn("completing", self.expect(0, start(killed)))
        # Stopped there, at once; again where it is made up, and killed there: a run is not done before its last evaluation.
        tasks = ["--evaluation.tasks", f"perplexity:{self.folder / 'text.jsonl'}", "--evaluation.limit", 20]

        def status():
            return json.loads(self.must(shiftron("status", stopped, "--json")))["state"]
        for times in (1, 2, 3):
            job = start(stopped, tasks)
            process = in_evaluation(stopped, 4, job)
            if times > 1:
                self.wait_for(lambda: "completing its evaluation" in job.text(), job)
            if times == 3:
                process.kill()
                job.wait()
                break
            process.send_signal(signal.SIGUSR1)
            sent = time.monotonic()
            self.assertIn("step 4: its evaluation is left for the next start", self.expect(75, job))
            self.assertLess(time.monotonic() - sent, scaled(2))
            self.assertEqual(status(), "saved")
        self.assertEqual(status(), "silent")
        self.expect(0, start(stopped, tasks), 200)
        self.assertEqual(reported(stopped), reported(whole))
        rows = [line for line in lines(stopped / "metrics.jsonl") if "benchmarks" in line]
        self.assertEqual([row["step"] for row in rows], [2, 4])
        self.assertEqual(status(), "done")
        # What is missing is what counts, however often it was cut off.
        (stopped / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(stopped / "metrics.jsonl") if line != rows[1]))
        self.expect(0, start(stopped, tasks))
        self.assertEqual(lines(stopped / "metrics.jsonl")[-1]["benchmarks"], rows[1]["benchmarks"])

    def test_an_evaluation_interrupted_twice_is_skipped(self):
        """Else a run whose evaluation does not fit between two stops would not get on."""
        run = self.folder / "left-out"
        validation = {"data__validation": self.folder / "data" / "validation", "evaluation__every": 2, "evaluation__sequences": 2}
        settings = self.settings(run, train__steps=4, **validation)
        self.expect(75, self.train(1, {**settings, "train.stop_at": 2}))
        rows = lines(run / "metrics.jsonl")
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if "validation_loss" not in row))
        with open(run / "events.jsonl", "a") as stream:
            stream.write(2 * (json.dumps({"event": "evaluation_left", "step": 2}) + "\n"))
        self.assertIn("step 2: its evaluation was interrupted 2 times and is skipped", self.expect(0, self.train(1, settings)))
        self.assertEqual([line["step"] for line in lines(run / "metrics.jsonl") if "validation_loss" in line], [4])

    # Saves that people count on.
    def test_the_last_step_is_always_saved(self):
        run = self.folder / "last"
        self.expect(0, self.train(1, self.settings(run, train__steps=3)))
        self.assertEqual(self.steps_of(run), ["step-00000003"])

    def test_fewer_steps_than_there_are(self):
        run = self.folder / "fewer"
        self.expect(0, self.train(1, self.settings(run, train__steps=4, checkpoint__every=2)))
        before, steps = (run / "config.conf").read_text(), self.steps_of(run)
        text = self.expect(0, self.train(1, self.settings(run, train__steps=3, checkpoint__every=3, checkpoint__keep=1)))
        self.assertIn("step 4 is already done, and train.steps=3: nothing to do", text)
        self.assertEqual((run / "config.conf").read_text(), before)
        self.assertEqual(self.steps_of(run), steps)

    def test_a_passed_stop_is_reported(self):
        run = self.folder / "passed-stop"
        settings = self.settings(run, train__steps=12)
        self.expect(75, self.train(1, {**settings, "train.stop_at": 4}))
        self.assertNotIn("train.stop_at=", self.expect(75, self.train(1, {**settings, "train.stop_at": 6})))
        for stop, resumed in ((6, 6), (4, 8)):  # the same command resumes, however far the run has come
            text = self.expect(0, self.train(1, {**settings, "train.steps": resumed + 2, "train.stop_at": stop}))
            self.assert_printed_once(text, f"train.stop_at={stop} is not after step {resumed}, from which training resumes, so it "
                                        f"runs to train.steps={resumed + 2}; to stop earlier, set train.stop_at above {resumed}")

    def test_going_back_happens_once(self):
        run = self.folder / "back"
        settings = self.settings(run, train__steps=20, checkpoint__every=2, checkpoint__keep=20)
        self.expect(75, self.train(1, {**settings, "train.stop_at": 8}))
        back = {**settings, "checkpoint.resume": 4}
        self.expect(75, self.train(1, {**back, "train.stop_at": 6}))
        self.assertEqual(events(run, "resume")[-1]["step"], 4)
        text = self.expect(75, self.train(1, {**back, "train.stop_at": 10}))
        self.assertEqual(events(run, "resume")[-1]["step"], 6)
        self.assertIn("checkpoint.resume=4 already took effect: step 6 was saved after it", text)
        self.expect(0, self.train(1, back))
        self.assertEqual(events(run, "resume")[-1]["step"], 10)
        self.assertEqual(sorted(losses(run)), list(range(1, 21)))
        text = self.expect(75, self.train(1, {**settings, "checkpoint.resume": 8, "train.stop_at": 9}))  # another request
        self.assertEqual(events(run, "resume")[-1]["step"], 8)

    def test_steps_kept_for_ever_stay(self):
        run = self.folder / "kept"
        settings = self.settings(run, train__steps=20, checkpoint__every=2, checkpoint__keep=1)
        self.expect(75, self.train(1, {**settings, "checkpoint.keep_every": 4, "train.stop_at": 6}))
        self.expect(0, self.train(1, settings))
        self.assertEqual(self.steps_of(run), ["step-00000000", "step-00000004", "step-00000020"])

    # Changes between two starts.
    def test_data_may_move_but_not_change(self):
        run, moved = self.folder / "moved", self.folder / "elsewhere"
        validation = {"data__validation": self.folder / "data" / "validation", "evaluation__every": 2, "evaluation__sequences": 2}
        settings = self.settings(run, train__steps=6, **validation)
        self.expect(75, self.train(1, {**settings, "train.stop_at": 2}))
        shutil.copytree(self.folder / "data", moved)
        there = {**settings, "data.train": moved / "train", "data.validation": moved / "validation"}
        text = self.expect(75, self.train(1, {**there, "train.stop_at": 4}))
        self.assertIn(f"resume: data.train was {self.folder}/data/train, is {moved}/train", text)
        text = self.expect(76, self.train(1, {**there, "data.train": moved / "validation"}))
        self.assert_printed_once(text, "data.train: the data has changed since step 4 was saved")
        self.expect(0, self.train(1, there))

    def test_other_held_out_data_is_reported_and_decides_nothing(self):
        data = self.folder / "data"
        whole, other = self.folder / "one-validation", self.folder / "another-validation"
        settings = self.settings(whole, train__steps=6, evaluation__every=2, evaluation__sequences=2, data__validation=data / "validation")
        self.expect(0, self.train(1, settings))
        changed = {**settings, "output.directory": other}
        self.expect(75, self.train(1, {**changed, "train.stop_at": 2}))
        changed["data.validation"] = data / "train"
        text = self.expect(75, self.train(1, {**changed, "train.stop_at": 4}))
        self.assert_printed_once(text, "data.validation: the data has changed since step 2 was saved")
        self.assertEqual([event["step"] for event in events(other, "validation_changed")], [2])
        self.assertNotIn("the data has changed", self.expect(0, self.train(1, changed)))
        self.assertEqual(losses(other), losses(whole))

    def test_the_held_out_loss_of_a_run_is_what_evaluate_says(self):
        run, data = self.folder / "asked-again", [self.folder / "data" / "validation", self.folder / "data" / "train"]
        settings = self.settings(run, train__steps=2, evaluation__every=2, evaluation__sequences=40, data__validation=data[0])
        self.expect(0, self.start(1, ["train", *options(settings), "--data.validation", data[1]]))
        row, = [line for line in lines(run / "metrics.jsonl") if "validation_loss" in line]
        asked = ["evaluate", "--checkpoint", step(run, 2), "--data", *data]
        answers = [json.loads(self.must(shiftron(*asked, "--json", *limit))) for limit in (["--limit", 40], [], ["--limit", 10 ** 6])]
        self.assertAlmostEqual(answers[0]["loss"], row["validation_loss"], delta=1e-6)
        self.assertAlmostEqual(answers[0]["accuracy"], row["validation_accuracy"], delta=1e-9)
        self.assertGreater(abs(answers[1]["loss"] - row["validation_loss"]), 1e-5)
        every = answers[1]["windows"]
        self.assertEqual([(answer["windows"], answer["windows_of_dataset"]) for answer in answers], [(40, every), (every, every), (every, every)])
        self.assertEqual(answers[2]["loss"], answers[1]["loss"])
        self.assertEqual(list(row["validation_sources"]), ["validation", "train"])
        self.assertEqual([source["data"] for source in answers[0]["sources"]], [str(one) for one in data])
        for of_run, source in zip(row["validation_sources"].values(), answers[0]["sources"]):
            self.assertGreater(source["windows"], 0)
            self.assertAlmostEqual(source["loss"], of_run["loss"], delta=1e-6)
            self.assertAlmostEqual(source["accuracy"], of_run["accuracy"], delta=1e-9)
        self.assertEqual(sum(source["targets"] for source in answers[0]["sources"]), answers[0]["targets"])
        text = self.must(shiftron(*asked, "--limit", 40)).splitlines()
        self.assertEqual(len(text), 3)
        for line, name, answer in zip(text, ["loss", *(f"  {one}: loss" for one in data)], [answers[0], *answers[0]["sources"]]):
            self.assertTrue(line.startswith(f"{name} {answer['loss']:.6f} "), line)
            self.assertIn(f"accuracy {answer['accuracy']:.4f} ", line)

    def test_weights_of_validation_decide_nothing(self):
        run = self.folder / "weighted"
        data = {"--data.train": ["train:1", "validation:3"], "--data.validation": ["train:2", "validation:1"]}
        settings = options({key: value for key, value in self.settings(run, evaluation__every=2, evaluation__sequences=2).items()
                            if key != "data.train"})

        def start(stop, data):
            sources = [word for key, ones in data.items() for one in ones for word in (key, self.folder / "data" / one)]
            return self.start(1, ["train", *settings, *sources, "--train.stop_at", stop])
        self.assertIn("data.validation: weights have no effect", self.expect(75, start(2, data)))
        text = self.expect(76, start(4, {**data, "--data.train": ["train:1", "validation:2"]}))
        self.assert_printed_once(text, "data.train: the data has changed since step 2 was saved",
                              "restore the datasets, their order and their weights (the path does not matter)")
        self.expect(75, start(4, {**data, "--data.validation": ["train", "validation"]}))

    def test_unused_validation_data_is_reported(self):
        settings = {key: value for key, value in self.settings(self.folder / "unasked", train__steps=2).items() if key != "evaluation.every"}
        settings["data.validation"] = self.folder / "data/validation"
        self.assert_printed_once(self.expect(0, self.train(1, settings)), "data.validation is not used: set evaluation.every")
        never = {**settings, "evaluation.every": 0, "output.directory": self.folder / "never"}
        self.assertNotIn("data.validation is not used", self.expect(0, self.train(1, never)))

    def test_names_of_bad_hosts_need_a_place_before_the_look(self):
        settings = options(self.settings(self.folder / "looked-at"))
        for place in ("", self.folder, self.folder / "nowhere/bad-hosts"):
            text = self.expect(76, self.start(1, ["preflight", *settings, "--bad-hosts", place]))
            self.assert_printed_once(text, f"--bad-hosts '{place}' is not a file that can be written")
        text = self.expect(70, self.start(1, ["preflight", *settings, "--bad-hosts", self.folder / ("long" * 70)]))
        self.assert_printed_once(text, "preflight: 1 ranks fit", "--bad-hosts: ")

    def test_names_of_bad_hosts_replace_nothing(self):
        run = self.folder / "looked-at-again/once"
        settings = options(self.settings(run))
        place = self.folder / "hosts"
        for text in ("node1 slots=8\n", "node1\nnode2\n"):
            place.write_text(text)
            reported = self.expect(76, self.start(1, ["preflight", *settings, "--bad-hosts", place]))
            self.assert_printed_once(reported, f"--bad-hosts {place} exists and is not empty; remove it, or choose another file")
            self.assertEqual(place.read_text(), text)
        place.write_text("")
        self.expect(0, self.start(1, ["preflight", *settings, "--bad-hosts", place]))
        self.assertEqual(place.read_text(), "")
        self.assertFalse(run.parent.exists())  # made for the look, and empty
        run.mkdir(parents=True)
        self.expect(0, self.start(1, ["preflight", *settings]))
        self.assertEqual(list(run.iterdir()), [])
        through = self.folder / "not-there-yet/../looked-at-through-it"  # Path keeps the ".."
        self.expect(0, self.start(1, ["preflight", *options(self.settings(through))]))
        for made in (through, through.parent.parent):
            self.assertFalse(made.exists(), made)

    def test_validation_on_the_training_data_is_reported(self):
        """Also of one source among several, in any order and with weights."""
        settings = self.settings(self.folder / "same-data", evaluation__every=2, evaluation__sequences=2, train__steps=2)
        first, second = self.folder / "data" / "train", self.folder / "data" / "validation"
        runs = [([first], [first], [first]), ([first], [second], []), ([f"{first}:1", f"{second}:3"], [first, second], [first, second]),
                ([first, second], [second], [second]), ([first, second], [second, first], [first, second]),
                ([f"{first}:1"], [first], [first])]
        for number, (learned, held_out, reported) in enumerate(runs):
            sources = [word for key, places in (("train", learned), ("validation", held_out)) for place in places for word in (f"--data.{key}", place)]
            own = {key: value for key, value in settings.items() if key not in ("data.train", "data.validation")}
            text = self.expect(0, self.start(1, ["train", *options({**own, "output.directory": self.folder / f"on-{number}"}), *sources]))
            for place in (first, second):
                self.assertEqual(text.count(f"data.validation: {place} is also in data.train"), int(place in reported), text)

    def test_how_often_a_source_is_read_is_reported(self):
        first, second = self.folder / "data" / "train", self.folder / "data" / "validation"
        settings = self.settings(self.folder / "passes", train__steps=2)
        text = self.expect(0, self.train(1, settings))
        self.assertRegex(text, r"windows of \d+ tokens \(\d+ tokens dropped\); 2 steps read the data [0-9.e-]+ times\n")
        own = {key: value for key, value in settings.items() if key != "data.train"}
        text = self.expect(0, self.start(1, ["train", *options({**own, "output.directory": self.folder / "passes-of-two"}),
                                             "--data.train", f"{first}:1", "--data.train", f"{second}:99"]))
        found = re.search(rf"2 steps read the data ([0-9.e-]+) times {first}, ([0-9.e-]+) times {second}\n", text)
        self.assertTrue(found, text)
        self.assertGreater(float(found[2]), 20 * float(found[1]))

    @unittest.skipUnless(shutil.which("strace"), "strace is missing\n  next: launch/install-deps")
    def test_a_file_system_that_fails_takes_no_step_away(self):
        """What Lustre, FUSE and NFS tell while a server is away is no damage: the newest step stays the newest."""
        run = self.folder / "on-a-network"
        settings = self.settings(run, checkpoint__every=2, train__steps=4)
        self.expect(0, self.train(1, settings))
        newest = step(run, 4)
        for calls, file, error in (("open,openat", "manifest.json", "ESHUTDOWN"), ("pread64", "rank-00000.h5", "ENOTCONN"),
                                   ("open,openat", "rank-00000.h5", "ETIMEDOUT")):
            fails = ["strace", "-f", "-q", "-o", "/dev/null", "-P", newest / file, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"]
            words = ["train", *options({**settings, "train.steps": 8})]
            ended = subprocess.run(list(map(str, [*fails, PROGRAM, *words])), env=environment(), capture_output=True, text=True, check=False,
                                   timeout=scaled(60))
            self.assertEqual(ended.returncode, 70, (error, ended.stdout, ended.stderr))
            self.assertIn("start again when it works", ended.stdout + ended.stderr)
            self.assertEqual(self.steps_of(run), ["step-00000002", "step-00000004"])
            ended = subprocess.run(list(map(str, [*fails, PROGRAM, "checkpoint", "verify", newest])), env=environment(), capture_output=True,
                                   text=True, check=False, timeout=scaled(60))
            self.assertEqual(ended.returncode, 70, (error, ended.stdout, ended.stderr))
        interrupted = ["strace", "-f", "-q", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EINTR:when=3+4"]
        words = ["train", *options({**settings, "train.steps": 8})]
        ended = subprocess.run(list(map(str, [*interrupted, PROGRAM, *words])), env=environment(), capture_output=True, text=True, check=False,
                               timeout=scaled(60))
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(len(losses(run)), 8)

    @staticmethod
    def remove_group(group):
        """Once all that a run started there has ended, mpirun's helper too, which outlives it a moment."""
        until = time.monotonic() + scaled(30)
        while True:
            try:
                return group.rmdir()
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def control_group(self, megabytes):
        """A control group with so much memory, in the one that holds this process; skips where none can be made."""
        for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, inside = line.split(":", 2)
            mount, limit = {"": ("/sys/fs/cgroup", "memory.max"), "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")}.get(
                controllers, (None, None))
            if not mount:
                continue
            for held in (mount + inside, mount):
                group = pathlib.Path(held, f"shiftron-test-{os.getpid()}")
                try:
                    group.mkdir()
                    self.addCleanup(self.remove_group, group)
                    (group / limit).write_text(str(megabytes << 20), encoding="utf-8")
                    return group
                except OSError:
                    continue
        return self.skipTest("no control group can be made here")

    def test_a_run_that_does_not_fit_its_control_group_is_refused(self):
        """As Slurm and containers limit jobs: the kernel would kill it without a message."""
        group = self.control_group(400)
        settings = self.settings(self.folder / "too-large", train__micro_batch=512, train__global_batch=512, train__sequence_length=512)
        ended = subprocess.run(list(map(str, [PROGRAM, "train", *options(settings)])), env=environment(), capture_output=True, text=True, check=False,
                               timeout=scaled(60), preexec_fn=lambda: (group / "cgroup.procs").write_text("0"))  # pylint: disable=W1509
        self.assertEqual(ended.returncode, 76, ended.stdout + ended.stderr)
        self.assertRegex(ended.stderr, r"not enough memory on the host of rank 0 on \S+ .* planned, 0\.\d+ GB of 0\.419 GB free")
        self.assertIn("train.micro_batch=256", ended.stderr)

    def test_changed_keys_are_named(self):
        run = self.folder / "keys"
        settings = self.settings(run, train__steps=4)
        self.expect(75, self.train(1, {**settings, "train.stop_at": 2}))
        text = self.expect(76, self.train(1, {**settings, "model.hidden": 64, "model.ffn": 96}))
        self.assertIn("model.hidden was '32', is now '64' (command line)", text)
        self.assertIn("model.ffn was '64', is now '96' (command line)", text)
        self.assertNotIn("in the checkpoint", text)  # no list of tensors
        text = self.expect(76, self.train(1, {**settings, "optimizer.learning_rate": "2e-2"}))
        new = self.folder / "keys-new"
        self.follow(text, step(run, 2), new, "--config YOURS.conf",
                    options({**settings, "train.stop_at": 1, "optimizer.learning_rate": "2e-2"}), 75)

    def follow(self, text, origin, new, configuration, wanted, code):
        """Does what the message says, with a new run's directory for NEW and words of our own for the configuration."""
        self.assert_printed_once(text, f"shiftron checkpoint import {origin} --format shiftron --output NEW, then shiftron train "
                                    f"--config NEW/config.conf {configuration} --output.directory NEW")
        self.must(shiftron("checkpoint", "import", origin, "--format", "shiftron", "--output", new))
        self.expect(code, self.start(1, ["train", "--config", new / "config.conf", *wanted, "--output.directory", new]))
        self.assertTrue(losses(new))

    def test_steps_without_a_finite_loss_have_a_way_out(self):
        run = self.folder / "lost"
        settings = self.settings(run, checkpoint__every=2, optimizer__learning_rate="1e30", train__stop_at=1)
        self.expect(75, self.train(1, settings))
        text = self.expect(72, self.train(1, {**settings, "train.stop_at": 6, "checkpoint.resume": 1}))
        self.follow(text, step(run, 1), self.folder / "lost-new", f"--config {run}/config.conf --optimizer.learning_rate 5e+29 "
                    "--checkpoint.resume auto --train.stop_at 0",
                    ["--config", run / "config.conf", "--optimizer.learning_rate", "1e-2", "--checkpoint.resume", "auto",
                     "--train.stop_at", "1"], 75)
        run = self.folder / "lost-at-once"
        text = self.expect(72, self.train(1, self.settings(run, checkpoint__every=0, optimizer__learning_rate="1e30")))
        self.assertIn("no earlier checkpoint exists: start a new run with a lower optimizer.learning_rate: "
                      f"shiftron train --config {run}/config.conf --optimizer.learning_rate 5e+29 --output.directory NEW", text)

    def test_a_finite_norm_that_is_too_large_is_reported_as_such(self):
        settings = self.settings(self.folder / "steep", checkpoint__every=0, train__precision="fp64", optimizer__clip=0, optimizer__learning_rate="1e20")
        text = self.expect(72, self.train(1, settings))
        self.assertIn("3 steps in a row had a gradient norm whose square overflows in float32 (above 1.8e+19)", text)
        self.assertNotIn("nan", text)

    def test_an_overflow_that_norms_hide_is_reported(self):
        """A norm divides by an infinite sum of squares: all logits are 0, no value is non-finite, and nothing is learned."""
        base, exported, run = self.folder / "sound", self.folder / "exported", self.folder / "overflows"
        data = {"data.train": self.folder / "data" / "train", "data.validation": self.folder / "data" / "validation"}
        self.assertNotIn("exactly 0", self.expect(0, self.train(1, self.settings(base, train__steps=2))))
        self.must(shiftron("checkpoint", "export", step(base, 2), "--format", "hf", "--output", exported))
        again = shiftron("checkpoint", "import", exported, "--format", "hf", "--output", self.folder / "sound-again")
        self.assertNotIn("note:", self.must(again))
        content = bytearray((exported / "model.safetensors").read_bytes())
        tensors = 8 + int.from_bytes(content[:8], "little")
        begin, end = (tensors + at for at in json.loads(content[8:tensors])["model.embed_tokens.weight"]["data_offsets"])
        content[begin:end] = array.array("f", [1e22 * value for value in array.array("f", bytes(content[begin:end]))]).tobytes()
        (exported / "model.safetensors").write_bytes(content)
        result = shiftron("checkpoint", "import", exported, "--format", "hf", "--output", run)
        self.assertRegex(self.must(result), r"note: the weights are so large that activations may reach \d\.\de\+2\d; above 1\.8e\+19 their squares overflow in float32")
        own = {key: value for key, value in self.settings(run).items() if not key.startswith("model.")}
        settings = {**own, **data, "train.steps": 5, "evaluation.every": 5, "evaluation.sequences": 2}
        text = self.expect(0, self.start(1, ["train", "--config", run / "config.conf", *options(settings)]))
        for number in (1, 2, 4):  # ever more rarely
            self.assert_printed_once(text, f"warning: step {number}: the gradient of all parameters is exactly 0 although ")
        self.assertEqual([event["step"] for event in events(run, "zero_gradient")], [1, 2, 4])
        self.assert_printed_once(text, "warning: step 5: the loss is ln(model.vocab)")
        result = shiftron("checkpoint", "export", step(run, 5), "--format", "hf", "--output", self.folder / "exported-overflow")
        self.assertIn("note: the weights are so large that activations may reach", self.must(result))
        result = shiftron("evaluate", "--checkpoint", step(run, 5), "--data", data["data.validation"])
        self.must(result)
        self.assert_printed_once(result.stderr, "the loss is ln(model.vocab), as if all logits were equal")

    def test_a_way_out_where_only_skipped_steps_are_kept(self):
        run = self.folder / "lost-and-pruned"
        text = self.expect(72, self.train(1, self.settings(run, checkpoint__every=1, checkpoint__keep=1, train__steps=20,
                                                           optimizer__learning_rate="1e30")))
        kept = sorted((run / "checkpoints").glob("step-*"))[-1]
        self.assertIn(f"no earlier checkpoint exists, but {kept} has the parameters of step", text)
        self.follow(text, kept, self.folder / "lost-and-pruned-new", f"--config {run}/config.conf --optimizer.learning_rate 5e+29",
                    ["--config", run / "config.conf", "--optimizer.learning_rate", "1e-2", "--train.stop_at", "1"], 75)

    def test_the_reason_is_reported_however_long_it_takes_to_find(self):
        """Of thousands of ranks a manifest is read for a second, in which the others must not leave."""
        run = self.folder / "slow-way-out"
        settings = self.settings(run, optimizer__learning_rate="1e30", train__steps=20)
        self.expect(75, self.train(2, {**settings, "train.stop_at": 1}))
        manifest = step(run, 1) / "manifest.json"
        body = manifest.read_text().split("\n", 1)[1].removesuffix("}\n") + " " * (120 << 20) + "}\n"
        manifest.write_text(f'{{"xxh3_128":"{xxh3_128(body.encode())}",\n{body}')
        text = self.expect(72, self.train(2, settings))
        self.assert_printed_once(text, "steps in a row had a loss or gradient that is not finite")
        self.assertEqual([event["code"] for event in events(run, "exit")], [75, 72])

    def test_a_save_that_is_due_before_the_last_one_has_its_time(self):
        run = self.folder / "allocation"
        settings = self.settings(run, checkpoint__every=1, train__steps=60)
        self.expect(75, self.train(1, {**settings, "train.stop_at": 2}))
        rows = [{**event, "seconds": 100} if event["event"] == "checkpoint" else event for event in lines(run / "events.jsonl")]
        (run / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Of two saves of 100 s there is time for one.
        text = self.expect(75, self.start(1, ["train", *options(settings), "--end-time", int(time.time()) + 150]))
        self.assertIn("s: saving and stopping", text)

    def test_steps_without_a_target_are_the_datas_fault(self):
        letters, data = self.folder / "letters.jsonl", self.folder / "letters"
        letters.write_text('{"text": "a"}\n' * 200)
        self.must(shiftron("data", "build", "--input", letters, "--tokenizer", self.folder / "tokenizer.model", "--output", data))
        run = self.folder / "no-target"
        text = self.expect(76, self.train(1, self.settings(run, train__sequence_length=1, train__global_batch=1, train__steps=50,
                                                           fault__non_finite_in_row=1, data__train=data)))
        self.assertRegex(text, r"error: 1 steps in a row had no counted target to learn from, the last is step \d+; ")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertIsNone(rows[-1]["loss"])

    def test_a_line_cut_by_a_crash_costs_no_other(self):
        run = self.folder / "cut"
        settings = self.settings(run, train__steps=4)
        self.expect(75, self.train(1, {**settings, "train.stop_at": 2}))
        for name in ("events.jsonl", "metrics.jsonl"):
            with open(run / name, "rb+") as stream:
                stream.truncate(stream.seek(0, os.SEEK_END) - 1)  # of a line that is whole the end alone
        self.expect(0, self.train(1, settings))
        self.assertEqual([event["code"] for event in events(run, "exit")], [75, 0])
        self.assertEqual(len(events(run, "start")), 2)
        self.assertEqual(set(losses(run)), {1, 2, 3, 4})

    def test_a_moved_run_continues_in_its_place(self):
        run, moved = self.folder / "here", self.folder / "there"
        job = self.train(1, self.settings(run, checkpoint__every=5, **self.ENDLESS))
        self.wait_for(lambda: last_step(run) >= 2, job)
        run.rename(moved)
        self.wait_for(lambda: (run / "config.conf").exists(), job)
        job.process.send_signal(signal.SIGUSR1)
        text = self.expect(75, job)
        self.assert_printed_once(text, "metrics.jsonl was moved or replaced")
        self.assertEqual(last_step(run), max(losses(run)))
        self.assertEqual(min(losses(run)), last_step(moved) + 1)
        self.assertEqual((run / "config.conf").read_text(), (moved / "config.conf").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
