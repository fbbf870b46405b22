#!/usr/bin/env python3
"""Two hosts under mpirun: what preflight says of an odd one, and a cable that is pulled during a run.

    tests/slurm/check_hosts.py [-v]      skipped, with the reason, if network namespaces cannot be created
"""
import os
import pathlib
import shutil
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]
from harness import PROGRAM, Job, SystemTest, events, last_step, losses, options, scaled, step  # noqa: E402
from hosts import Hosts, missing  # noqa: E402

DEADLINE = 8  # seconds of a step, and of a save, in which a host may be lost too


@unittest.skipIf(missing(), missing())
class TwoHosts(SystemTest):
    def setUp(self):
        self.hosts = Hosts(self.folder / f"hosts-{self._testMethodName}").__enter__()
        self.addCleanup(self.hosts.__exit__)

    def start_on_both(self, program, *arguments):
        type(self).jobs += 1
        return Job([*self.hosts.mpirun, program, *arguments], self.folder / f"output-hosts-{self.jobs}")

    def preflight(self, run, program=PROGRAM, *words):
        return self.start_on_both(program, "preflight", *options(self.settings(run)), *words)

    def test_preflight_of_equal_hosts(self):
        bad = self.folder / "bad"
        began = time.monotonic()
        text = self.expect(0, self.preflight(self.folder / "equal", PROGRAM, "--ranks", "4", "--bad-hosts", bad))
        self.assertIn("preflight: 4 ranks fit", text)
        self.assertLess(time.monotonic() - began, scaled(10))
        self.assertEqual(bad.read_text(), "")
        text = self.expect(76, self.preflight(self.folder / "equal", PROGRAM, "--ranks", "8"))
        self.assertIn("4 ranks found each other, but --ranks is 8", text)

    def test_another_program_on_one_host(self):
        """Of two hosts nobody knows which is the odd one: one of them is named."""
        other = self.folder / "other"
        shutil.copy(PROGRAM, other)
        with open(other, "ab") as stream:
            stream.write(b"another build")
        chosen = self.folder / "chosen"
        chosen.write_text(f'#!/bin/sh\n[ "$(hostname)" = h2.lab ] && exec {other} "$@"\nexec {PROGRAM} "$@"\n')
        chosen.chmod(0o755)
        bad = self.folder / "bad-program"
        text = self.expect(70, self.preflight(self.folder / "odd", chosen, "--bad-hosts", bad))
        self.assertIn("the program differs from the other hosts'", text)
        self.assertIn(bad.read_text().strip(), ("h1.lab", "h2.lab"))

    def test_a_folder_that_is_not_shared(self):
        run = self.folder / "unshared"
        run.mkdir()
        holder = self.hosts.holders["h2"].pid
        self.must_run("nsenter", "-t", holder, "-m", "mount", "-t", "tmpfs", "none", run)
        text = self.expect(70, self.preflight(run))
        self.assertIn("must be on a shared file system", text)
        # Without preflight the error comes before the first step: no step could be saved.
        text = self.expect(76, self.start_on_both(PROGRAM, "train", *options(self.settings(run))))
        self.assertIn("on h2.lab does not show what rank 0 wrote there", text)
        self.assertFalse((run / "metrics.jsonl").exists())

    def must_run(self, *words):
        job = Job(list(map(str, words)), self.folder / "output-words")
        self.assertEqual(job.wait(), 0, job.text())

    def test_a_pulled_cable(self):
        run = self.folder / "cable"
        settings = {**self.settings(run, train__steps=10**8), "parallel.tp": 2, "checkpoint.every": 20, "fault.step_deadline": DEADLINE,
                    "fault.checkpoint_deadline": DEADLINE, "train.deterministic": "repeat"}
        job = self.start_on_both(PROGRAM, "train", *options(settings))
        self.wait_for(lambda: last_step(run) > 25, job)
        self.hosts.pull_cable("h2")
        pulled = time.monotonic()
        code = job.wait(60)
        self.assertLess(time.monotonic() - pulled, scaled(DEADLINE + 12))
        self.assertIn(code, (71, 205), job.text()[-3000:])  # 205: mpirun saw it first
        # The rank that is cut off exits too, and the message names a host.
        self.hosts.plug_in("h2")
        self.assert_gone(DEADLINE + 20)
        answer = job.text() + "".join(str(event) for event in events(run, "hang"))
        self.assertIn("h2", answer)
        last = last_step(run)
        settings["train.steps"] = last + 3
        self.expect(0, self.start_on_both(PROGRAM, "train", *options(settings)), 120)
        self.assertEqual(sorted(losses(run)), list(range(1, last + 4)))
        whole = self.folder / "cable-whole"
        self.expect(0, self.train(4, {**settings, "output.directory": whole}))
        self.assert_same_step(step(run, last + 3), step(whole, last + 3))


if __name__ == "__main__":
    unittest.main(verbosity=2)
