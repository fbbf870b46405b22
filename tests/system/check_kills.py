#!/usr/bin/env python3
"""kill -9 of a random rank at random times: the job ends, nothing stays behind, and what comes out at last is the same."""
import os
import signal
import time
import unittest

from harness import LAYOUTS, SystemTest, events, last_step, losses, scaled, step


class Kills(SystemTest):
    KILLS, STEPS = 10, 40

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
                if self.random.random() < 0.3:  # at its start, else behind some step of those that are left
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
                    code = job.wait(40)
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

    def test_the_launcher_is_killed(self):
        """Without mpirun the ranks end by themselves."""
        ranks, layout = LAYOUTS["tp2pp2"]
        run = self.folder / "launcher"
        job = self.train(ranks, {**self.settings(run, train__steps=100000), **layout})
        self.wait_for(lambda: losses(run) if (run / "metrics.jsonl").exists() else None, job)
        os.kill(job.process.pid, signal.SIGKILL)
        job.wait(10)
        self.assert_gone(15)


if __name__ == "__main__":
    unittest.main(verbosity=2)
