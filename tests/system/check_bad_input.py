#!/usr/bin/env python3
"""Wrong input is refused or survived: the exact code, one message with file, value and what to do, and nothing is lost."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import unittest

from harness import LAYOUTS, MODEL, PROGRAM, VOCAB, Job, SystemTest, events, last_step, lines, losses, main, mpi_launcher, options, shiftron, step


def flip(path, place):
    with open(path, "r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 4]))


def content(folder):
    """Of what must not be lost: {path: bytes} without logs and events."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "events.jsonl" and path.parent.name not in ("logs", "tensorboard")}


class BadInput(SystemTest):
    RANKS, LAYOUT = LAYOUTS["tp2pp2"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shard = next((cls.folder / "data" / "train").glob("*.h5")).name

    def refused(self, code, settings, *phrases, ranks=None, extra=()):
        job = self.start(ranks or self.RANKS, ["train", *extra, *[f"--{key}={value}" for key, value in settings.items()]])
        text = self.expect(code, job)
        self.assert_printed_once(text, *phrases)
        self.assert_gone()
        return text

    def of(self, run, **more):
        return {**self.settings(run, **more), **self.LAYOUT}

    def copy_data(self, name):
        shutil.copytree(self.folder / "data" / "train", self.folder / name)
        return self.folder / name, self.folder / name / self.shard

    def test_damaged_shards(self):
        directory, shard = self.copy_data("cut")
        os.truncate(shard, shard.stat().st_size - 1000)
        self.refused(76, self.of(self.folder / "cut-run", data__train=directory), f"{shard}: {shard.stat().st_size} bytes, but dataset.json says")
        self.assertEqual(shiftron("data", "verify", directory).returncode, 76)
        directory, shard = self.copy_data("flipped")
        flip(shard, shard.stat().st_size // 2)
        result = shiftron("data", "verify", directory)
        self.assertEqual(result.returncode, 76)
        self.assertIn(str(shard), result.stdout)
        run = self.folder / "flipped-run"
        self.refused(76, self.of(run, data__train=directory), f"{shard}: block 0 of /tokens")
        self.assertEqual({event["code"] for event in events(run, "exit")}, {76})
        self.assertIn(str(shard), events(run, "exit")[0]["error"])

    def test_vocabulary_and_tokenizers(self):
        self.refused(76, self.of(self.folder / "small", model__vocab=VOCAB - 84),
                     f"the data's vocabulary has {VOCAB} tokens, but model.vocab is {VOCAB - 84}; set model.vocab={VOCAB} or more")
        self.make_tokenizer("other.model", VOCAB - 16)
        self.make_data("other", "other.model")
        run = self.folder / "for-evaluation"
        self.expect(0, self.train(1, self.settings(run, train__steps=1, checkpoint__every=1)))
        arguments = ["evaluate", "--checkpoint", step(run, 1), "--data"]
        other = self.folder / "other" / "validation"
        text = self.expect(76, self.start(2, [*arguments, other]))
        self.assert_printed_once(text, f"{other} was built with tokenizer", "build the dataset with")
        self.expect(0, self.start(2, [*arguments, self.folder / "data" / "validation"]))
        self.refused(76, self.of(self.folder / "mixed", evaluation__every=1, evaluation__sequences=2, data__validation=other),
                     "data.train and data.validation were built with different tokenizers")

    def differ(self, one, other, *phrases, programs=(PROGRAM, PROGRAM)):
        """Two ranks with different commands, in different folders with the same names for different things, are refused."""
        type(self).jobs += 1
        ranks = [["-n", 1, "-wdir", self.folder / f"rank-{rank}", program, *words] for rank, (program, words) in enumerate(zip(programs, (one, other)))]
        job = Job([*mpi_launcher.start(PROGRAM), *ranks[0], ":", *ranks[1]], self.folder / f"output-differ-{self.jobs}")
        text = self.expect(76, job)
        self.assert_printed_once(text, "the ranks were started with different settings", *phrases)
        self.assert_gone()

    def test_ranks_that_were_given_different_things(self):
        here = f" on {socket.gethostname()} has "
        trained = self.folder / "two-steps"
        self.expect(0, self.train(1, self.settings(trained, train__steps=1, checkpoint__every=1)))
        for rank, part in enumerate(("train", "validation")):
            (self.folder / f"rank-{rank}").mkdir(exist_ok=True)
            (self.folder / f"rank-{rank}" / "data").symlink_to(self.folder / "data" / part)
            (self.folder / f"rank-{rank}" / "model").symlink_to(step(trained, rank))
        run = self.folder / "differ-run"
        base = options(self.settings(run, data__train="data"))
        seed = f"rank 1{here}train.seed=2, but rank 0{here}1"
        for command in (["train"], ["train", "--dry-run"], ["preflight"]):
            self.differ([*command, *base, "--train.seed", "1"], [*command, *base, "--train.seed", "2"], seed)
        # Each would wait for the other.
        self.differ(["train", *base], ["train", *base, "--train.steps", "9", "--config", "missing"],
                    f"rank 1{here}faults of the configuration=cannot read a configuration file: cannot open missing",
                    f"rank 1{here}train.steps=9, but rank 0{here}{MODEL['train.steps']}")
        for command in (["train"], ["preflight"]):
            self.differ([*command, *base], [*command, *base], f"rank 1{here}data.train data=(fingerprint ")
        validated = ["train", *options(self.settings(run, evaluation__every=2, data__validation="data"))]
        self.differ(validated, validated, f"rank 1{here}data.validation data=(fingerprint ")
        for command in (["evaluate", "--data", self.folder / "data" / "validation"], ["generate", "--prompt", "a"]):
            asked = [*command, "--checkpoint", "model"]
            self.differ(asked, asked, f"rank 1{here}the checkpoint model=step 1 (hash ", f"rank 0{here}step 0 (hash ")
        asked = ["evaluate", "--checkpoint", step(trained, 1), "--data", "data"]
        self.differ(asked, asked, f"rank 1{here}the dataset data=(fingerprint ")
        asked = ["generate", "--checkpoint", step(trained, 1), "--prompt"]
        self.differ([*asked, "a"], [*asked, "b"], f"rank 1{here}--prompt=b, but rank 0{here}a")
        self.differ(["self-test", "--size", "small"], ["self-test"], f"rank 1{here}--size=nothing, but rank 0{here}small")
        self.assertFalse(run.exists())

    def test_ranks_of_two_builds(self):
        """The same commit, other bytes."""
        program = bytearray(pathlib.Path(PROGRAM).read_bytes())
        note = program.index(b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0") + 16
        (self.folder / "rank-0").mkdir(exist_ok=True)
        (self.folder / "rank-1").mkdir(exist_ok=True)
        program[note] ^= 1
        other = self.folder / "shiftron"
        other.write_bytes(program)
        other.chmod(0o755)
        words = ["train", *options(self.settings(self.folder / "two-builds"))]
        self.differ(words, words, " has the program=shiftron ", f", build {program[note:note + 20].hex()}", programs=(PROGRAM, other))

    def test_a_step_that_one_host_does_not_see(self):
        """A stale cache of a network file system: rank 0 finds the newest step whole, so no rank may call it broken."""
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no mount namespaces here")
        run, older = self.folder / "stale", self.folder / "older"
        words = options(self.settings(run, train__steps=4, checkpoint__every=2))
        self.expect(0, self.train(2, self.settings(run, train__steps=4, checkpoint__every=2)))
        shutil.copytree(step(run, 2), older / step(run, 2).name)
        rank = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 0 ] || mount --bind {older} {run}/checkpoints; exec "$@"'
        job = Job([*mpi_launcher.start(PROGRAM, 2), "unshare", "-m", "sh", "-c", rank, "rank", PROGRAM, "train", *words,
                   "--train.steps", "6"], self.folder / "stale.log")
        text = self.expect(70, job)
        self.assertIn("rank 0 sees all files of the step", text)
        self.assertEqual(sorted(path.name for path in (run / "checkpoints").iterdir()), ["step-00000002", "step-00000004"])

    def test_outputs_that_would_be_lost(self):
        text = self.folder / "mine.jsonl"
        shutil.copy(self.folder / "text.jsonl", text)
        before = text.read_bytes()
        for output, reason in ((text, "is also an input"), (self.folder / "data", "is a directory"),
                               (self.folder / "text.jsonl", "not a tokenizer model"),
                               (self.folder / "nowhere" / "model", "No such file")):
            result = shiftron("tokenizer", "train", "--input", text, "--vocab", VOCAB, "--output", output)
            self.assertEqual((result.returncode, reason in result.stderr), (76, True), result.stderr)
        self.assertEqual(text.read_bytes(), before)
        dataset = self.folder / "data" / "train"
        self.refused(76, self.of(dataset), f"output.directory {dataset} contains dataset.json, so it is not a run's directory")

    def test_configurations(self):
        run = self.folder / "refused"
        self.refused(76, self.of(run), "ranks 3 not divisible by tp 2 * cp 1 * pp 2 = 4", ranks=3)
        self.refused(76, {**self.of(run), "model.hiden": 3}, "unknown option --model.hiden; did you mean --model.hidden?")
        wrong = self.folder / "wrong.conf"
        wrong.write_text("[model]\nhiden = 64\n[train]\nsteps = many\n")
        self.refused(76, {key: value for key, value in self.of(run).items() if key != "train.steps"},
                     f"unknown key model.hiden; did you mean model.hidden? ({wrong}:2)",
                     f"train.steps 'many' is not a whole number ({wrong}:4)", "2 faults", extra=["--config", wrong])
        for name in ("missing.conf", "."):
            self.refused(76, self.of(run), "cannot read a configuration file: ", f"{self.folder / name}: ",
                         extra=["--config", self.folder / name])
        absent = self.folder / "absent"
        self.refused(76, self.of(run, data__train=absent), f"{absent} is not a dataset", "`shiftron data build` creates one")
        self.assertFalse(run.exists())
        blocked = self.folder / "text.jsonl" / "run"  # below a file: root may not either
        self.refused(76, self.of(blocked), f"output.directory {blocked} cannot be written", "choose another path")

    def test_resume_of_another_run(self):
        run = self.folder / "resumed"
        self.expect(0, self.train(self.RANKS, self.of(run, train__steps=4, checkpoint__every=2)))
        before = content(run)
        more = {"train__steps": 6, "checkpoint__every": 2}
        self.refused(76, self.of(run, **more, checkpoint__resume="never"), "contains steps, but checkpoint.resume=never", "choose another")
        self.refused(76, self.of(run, **more, train__seed=5), "train.seed was '0', is now '5' (command line)")
        self.refused(76, self.of(run, **more, checkpoint__resume=3), "step 3 is not in", "available steps: 4, 2")
        self.make_data("reordered", "tokenizer.model", seed=3)
        data = self.folder / "data" / "train"
        data.rename(self.folder / "kept")
        (self.folder / "reordered" / "train").rename(data)
        try:
            self.refused(76, self.of(run, **more), "the data has changed since step 4 was saved", "restore the dataset")
        finally:
            data.rename(self.folder / "reordered" / "train")
            (self.folder / "kept").rename(data)
        self.assertEqual(content(run), before)
        text = self.refused(0, self.of(run, **more, optimizer__schedule="constant"), "resuming after step 4")
        self.assertNotIn("depends on the end of the run", text)

    def test_a_new_end_of_a_falling_rate(self):
        run = self.folder / "falling"
        settings = self.of(run, train__steps=4, checkpoint__every=4, optimizer__schedule="cosine")
        self.expect(0, self.train(self.RANKS, settings))
        self.refused(0, {**settings, "train.steps": 6}, "train.steps was 4 and is now 6: optimizer.schedule=cosine with decay_steps=0 depends",
                     "train.steps=4 keeps the schedule")

    def test_a_new_end_within_the_fall_of_wsd(self):
        stages = {"optimizer.schedule": "wsd", "optimizer.decay_steps": 4}
        for stop, answer in ((3, 0), (5, 1)):  # the decay begins after step 4
            with self.subTest(stop=stop):
                run = self.folder / f"within-the-fall-{stop}"
                settings = {**self.of(run, train__steps=8), **stages}
                self.expect(75, self.train(self.RANKS, {**settings, "train.stop_at": stop}))
                text = self.refused(0, {**settings, "train.steps": 12}, f"resuming after step {stop}")
                phrase = "so the learning rate of step 6 is 0.01 instead of 0.00292893; train.steps=8 keeps the schedule"
                self.assertEqual((text.count("depends on the end of the run"), text.count(phrase)), (answer, answer), text)

    def test_damaged_checkpoints(self):
        run, whole = self.folder / "damaged", self.folder / "sound"
        settings = self.of(run, train__steps=6, checkpoint__every=2)
        self.expect(0, self.train(self.RANKS, settings))
        shutil.copytree(run, whole)
        newest = step(run, 6) / "rank-00000.h5"
        flip(newest, newest.stat().st_size // 2)
        self.assertEqual(shiftron("checkpoint", "verify", step(run, 6)).returncode, 74)
        text = self.refused(0, settings, "step 6 cannot be used", "resuming after step 4")
        self.assertIn(str(newest), text)
        broken = run / "checkpoints" / "broken-step-00000006"
        self.assertTrue(broken.is_dir())
        event, = events(run, "checkpoint_broken")
        self.assertEqual((event["step"], event["now"]), (6, str(broken)))
        self.assertIn(str(newest), event["reason"])
        self.assertEqual(losses(run), losses(whole))
        self.assertEqual([line["step"] for line in lines(run / "metrics.superseded.jsonl")], [5, 6])
        self.assert_same_step(step(whole, 6), step(run, 6))
        for number in (4, 6):
            os.truncate(step(run, number) / "rank-00001.h5", 5000)
        before = content(run)
        text = self.refused(74, settings, "no valid checkpoint in")
        self.assertRegex(text, r"(?s)no valid checkpoint in .*step 6: .*rank-00001.h5.*step 4: .*rank-00001.h5")
        self.assertEqual(content(run), before)
        self.assertEqual(events(run, "exit")[-1]["code"], 74)


@unittest.skipUnless(os.geteuid() == 0, "mounts a small disk: root only")
class FullDisk(SystemTest):
    def setUp(self):
        self.disk = self.folder / f"disk-{self.id()}"
        self.disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2300k", "none", self.disk], capture_output=True, check=False).returncode:
            self.skipTest("may not mount")
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.disk)], check=False)

    def test_older_steps_free_space(self):
        subprocess.run(["mount", "-o", "remount,size=19200k", self.disk], check=True)
        run = self.disk / "run"
        settings = self.settings(run, train__steps=8, checkpoint__every=2, model__layers=20, model__hidden=64)
        text = self.expect(0, self.train(1, settings))
        for number in (4, 6, 8):
            self.assert_printed_once(text, f"before saving step {number}, because the disk has no space for both; checkpoint.keep is 2")
        self.assertEqual(sorted(path.name for path in (run / "checkpoints").iterdir()), ["step-00000006", "step-00000008"])
        text = self.expect(0, self.start(1, ["preflight", *options(settings)]))
        self.assert_printed_once(text, f"{run} has space for 2 of the 3 checkpoints that checkpoint.keep=2 needs")

    def test_a_save_fails(self):
        ranks, layout = LAYOUTS["tp2pp2"]
        run = self.disk / "run"
        settings = {**self.settings(run, train__steps=8, checkpoint__every=2), **layout, "checkpoint.keep_every": 2}
        text = self.expect(70, self.train(ranks, settings))
        for number in (4, 6, 8):
            self.assert_printed_once(text, f"step {number} could not be saved: ")
        self.assert_printed_once(text, "the last step could not be saved (reason above); fix the cause, then run the same command to repeat everything after step 2")
        self.assertEqual(text.count("bytes free, but the checkpoint needs"), 3)
        self.assertEqual([event["step"] for event in events(run, "checkpoint_failed")], [4, 6, 8])
        self.assertEqual(sorted(losses(run)), list(range(1, 9)))
        self.assertEqual(sorted(path.name for path in (run / "checkpoints").iterdir()), ["step-00000000", "step-00000002"])
        for number in (0, 2):
            self.assertEqual(shiftron("checkpoint", "verify", step(run, number)).returncode, 0)
        first = losses(run)
        subprocess.run(["mount", "-o", "remount,size=9m", self.disk], check=True)
        self.assert_printed_once(self.expect(0, self.train(ranks, settings)), "resuming after step 2")
        self.assertEqual(losses(run), first)

    def test_a_full_disk_to_the_last_byte(self):
        run = self.disk / "run"
        job = self.train(2, {**self.settings(run, train__steps=100000), "parallel.tp": 2})
        self.wait_for(lambda: last_step(run) >= 2, job)
        ballast = self.disk / "ballast"
        with open(ballast, "wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(4096))
            except OSError:
                pass
        self.wait_for(lambda: "wait until it can be written" in job.text(), job)
        reached = int(re.findall(r"step (\d+)/100000", job.text())[-1])
        self.wait_for(lambda: int(re.findall(r"step (\d+)/100000", job.text())[-1]) > reached + 3, job)
        ballast.unlink()
        known = last_step(run)
        self.wait_for(lambda: last_step(run) > known, job)
        job.process.send_signal(signal.SIGUSR1)
        text = self.expect(75, job)
        self.assertTrue(all(isinstance(line, dict) for line in lines(run / "metrics.jsonl")))
        self.assertEqual(sorted(losses(run)), list(range(1, last_step(run) + 1)))  # those of the full disk too
        self.assertTrue((step(run, last_step(run)) / "manifest.json").exists(), text[-1000:])


if __name__ == "__main__":
    main(defaultTest="BadInput")
