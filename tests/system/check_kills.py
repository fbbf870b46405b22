#!/usr/bin/env python3
"""kill -9 of a random rank at random times, and while a step has no row yet: the job ends, nothing remains, and the final result
is the same."""
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

from harness import LAYOUTS, PROGRAM, Job, SystemTest, environment, events, last_step, lines, losses, mpi_launcher, options, processes, scaled, step

TIMES = {"tokens_per_second", "step_seconds", "model_flops_utilization", "time_seconds"}  # of a row of metrics.jsonl


def rows(run):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in lines(run / "metrics.jsonl")]


def count_rows(run):
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def saved_step(run):
    return max((int(path.parent.name[5:]) for path in run.glob("checkpoints/step-????????/manifest.json")), default=0)


class Kills(SystemTest):
    KILLS, STEPS = 10, 40

    def code_of_killed(self, job):
        """Open MPI 4.1.4 sometimes waits forever after its last rank ("PMIX ERROR: UNREACHABLE"); it is then killed here."""
        began = time.monotonic()
        while job.running() and time.monotonic() < began + scaled(40):
            time.sleep(0.02)
            if "PMIX ERROR" in job.text() and not [rank for rank in processes().values() if rank is not None]:
                print("mpirun is left without ranks and does not end", flush=True)
                job.end()
                return 137
        return job.wait(1)

    def test_killed_again_and_again(self):
        ranks, layout = LAYOUTS["tp2pp2"]

        def settings(run):
            return {**self.settings(run, train__steps=self.STEPS, checkpoint__every=2), **layout}
        whole = self.folder / "whole"
        began = time.monotonic()
        self.expect(0, self.train(ranks, settings(whole)))
        span = time.monotonic() - began
        kills, runs, sequences = 0, 0, []
        while kills < self.KILLS or len(sequences) == runs - 1 and not done:
            if runs == len(sequences):
                runs += 1
                run, in_run, done = self.folder / f"run-{runs}", 0, False
            # launch/local once: it notes the code and ends the peers itself
            launcher = "local" if kills == self.KILLS - 1 else "mpirun"
            job = self.train(ranks, settings(run), launcher)
            if kills < self.KILLS:
                self.wait_for(lambda: len(job.ranks()) == ranks, job)  # a start is given up by mpirun in its own way
                if self.random.random() < 0.3:  # at its start, otherwise after one of the remaining steps
                    target, pause = 0, span / 4
                else:
                    at = last_step(run)
                    target, pause = at + self.random.uniform(0, 0.4 if in_run < 4 else 1.1) * (self.STEPS - at), span / self.STEPS
                while job.running() and last_step(run) < target:
                    time.sleep(0.002)
                time.sleep(self.random.uniform(0, pause))
                moment = time.monotonic() - job.began
                victims = job.ranks()
                if job.running() and len(victims) == ranks:
                    rank = self.random.randrange(ranks)
                    try:
                        os.kill(victims[rank], signal.SIGKILL)
                        hit = time.monotonic()
                        kills, in_run = kills + 1, in_run + 1
                    except ProcessLookupError:
                        hit = None
                    code = self.code_of_killed(job)
                    if hit:
                        took = time.monotonic() - hit
                        print(f"kill {kills}: rank {rank} {moment:.2f} s in, {launcher} gave {code} after {took:.1f} s", flush=True)
                        self.assertLess(took, scaled(30 if launcher == "local" else 10))
                        self.assertIn(code, (0, 137), job.text()[-2000:])  # 0: it had done its work
            code = job.wait(120)
            self.assert_gone()
            if code == 0:
                done = True
                sequences.append(in_run)
                self.assertEqual(losses(run), losses(whole))
                self.assertEqual(events(run, "exit")[-1]["code"], 0)
                self.assert_same_step(step(whole, self.STEPS), step(run, self.STEPS))
                self.assertEqual(sorted(path.name for path in (run / "checkpoints").iterdir()),
                                 [f"step-{self.STEPS - 2:08d}", f"step-{self.STEPS:08d}"])
        print(f"kills in each uninterrupted sequence: {sequences}")
        self.assertGreaterEqual(max(sequences), 3)

    def test_killed_and_resumed_in_another_layout(self):
        def settings(run, layout):
            return {**self.settings(run, model__layers=4, train__steps=12, train__precision="fp64", checkpoint__every=2), **LAYOUTS[layout][1]}
        whole, run = self.folder / "whole-fp64", self.folder / "moving"
        self.expect(0, self.train(1, settings(whole, "single")))
        layouts = [name for name in LAYOUTS if LAYOUTS[name][0] > 1]
        self.random.shuffle(layouts)
        for number, layout in enumerate(layouts):
            ranks = LAYOUTS[layout][0]
            job = self.train(ranks, settings(run, layout))
            if number == len(layouts) - 1:
                self.expect(0, job)
                break
            self.wait_for(lambda: len(job.ranks()) == ranks, job)
            self.wait_for(lambda number=number: last_step(run) > 2 * number, job)
            rank = self.random.randrange(ranks)
            print(f"{layout}: rank {rank} killed after step {last_step(run)}", flush=True)
            os.kill(job.ranks()[rank], signal.SIGKILL)
            self.assertEqual(self.code_of_killed(job), 137, job.text()[-2000:])
            self.assert_gone()
        for number, values in losses(whole).items():
            for mine, theirs in zip(losses(run)[number], values):
                self.assertAlmostEqual(float(mine), float(theirs), delta=1e-10, msg=f"step {number}")
        self.assertEqual(set(losses(run)), set(losses(whole)))

    def test_a_rank_that_fails_alone_ends_all(self):
        """Where the launcher leaves the others alone, as launch/slurm has it."""
        run = self.folder / "alone"
        own = {number: self.folder / f"folder-of-{number}" / "data" for number in range(2)}
        for copy in own.values():
            shutil.copytree(self.folder / "data" / "train", copy)
        settings = {**self.settings(run, train__steps=100000, fault__step_deadline=600, data__train="data"), **LAYOUTS["dp2"][1]}
        rank = {number: ["-n", 1, "-wdir", copy.parent, PROGRAM, "train", *options(settings)] for number, copy in own.items()}
        job = Job([*mpi_launcher.start(PROGRAM, patient=True), *rank[0], ":", *rank[1]], self.folder / "output-alone")
        self.wait_for(lambda: last_step(run) > 3, job)
        for shard in own[1].glob("*.h5"):
            os.truncate(shard, 100)
        failed = time.monotonic()
        job.wait()  # this mpirun loses codes
        self.assertLess(time.monotonic() - failed, scaled(15))
        self.assert_printed_once(job.text(), "[rank 1] error: data/shard-", f" (on {socket.gethostname()})")
        self.assertEqual([(event["rank"], event["code"]) for event in events(run, "exit")], [(1, 76)])
        self.assertIn("this rank stops because rank 1 ended with code 76", (run / "logs/rank-00000.log").read_text())

    def test_the_launcher_is_killed(self):
        """Without mpirun the ranks end by themselves."""
        ranks, layout = LAYOUTS["tp2pp2"]
        run = self.folder / "launcher"
        job = self.train(ranks, {**self.settings(run, train__steps=100000), **layout})
        self.wait_for(lambda: losses(run) if (run / "metrics.jsonl").exists() else None, job)
        os.kill(job.process.pid, signal.SIGKILL)
        job.wait(10)
        self.assert_gone(15)

    def killed(self, run, settings, phrase, count, saved):
        """Kills a start that waits to print the second line after the one with `phrase`, once it has `count` rows."""
        read_end, write_end = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)  # a line is a packet …
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)  # … and one fits in
        process = subprocess.Popen([PROGRAM, "train", *options(settings)], stdin=subprocess.DEVNULL, stderr=write_end,
                                   stdout=subprocess.DEVNULL, env=environment(), start_new_session=True)
        os.close(write_end)
        try:
            while phrase not in (text := os.read(read_end, 65536).decode(errors="replace")):
                self.assertTrue(text, f"the run has ended before {phrase!r}")
            until = time.monotonic() + scaled(60)
            while count_rows(run) < count or saved_step(run) < saved:
                self.assertLessEqual(saved_step(run), last_step(run), "saved before its row was written")
                self.assertLess(time.monotonic(), until, f"no progress after {phrase!r}")
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait()
            os.close(read_end)

    def test_between_a_step_and_its_row(self):
        """The line about a step follows its row, which is written when the next step has been computed."""
        def settings(run):
            return self.settings(run, train__steps=8, checkpoint__every=5, checkpoint__keep=9, evaluation__every=3,
                                 evaluation__sequences=2, data__validation=self.folder / "data" / "validation")
        whole, run = self.folder / "rows-whole", self.folder / "rows"
        self.expect(0, self.train(1, settings(whole)))
        expected = rows(whole)
        self.assertEqual([row["step"] for row in expected], [1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 8])
        for phrase, count, saved in (("steps read the data", 1, 0),  # step 2 has no row yet
                                     ("steps read the data", 2, 0),  # step 3, to be evaluated
                                     ("step 3/8", 5, 0),  # step 5, to be saved
                                     ("step 3: ", 6, 0),  # step 5 is about to be saved
                                     ("step 4/8", 6, 5),  # it has just been
                                     ("step 6/8", 9, 5),  # step 8, the last, has no row yet
                                     ("step 8/8", 11, 8)):  # it has just been saved
            self.killed(run, settings(run), phrase, count, saved)
            self.assertEqual(rows(run), expected[:count])
            self.assertEqual(saved_step(run), saved)
        self.expect(0, self.train(1, settings(run)))
        self.assertEqual(rows(run), expected)
        self.assert_same_step(step(whole, 8), step(run, 8))


if __name__ == "__main__":
    unittest.main(verbosity=2)
