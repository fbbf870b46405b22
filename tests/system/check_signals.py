#!/usr/bin/env python3
"""Signals save and stop with 75, a rank that hangs ends the job with 71."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from harness import LAYOUTS, LOCAL, Job, SystemTest, events, last_step, lines, losses, options, processes, scaled, step

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1)


def send_again_and_again(job, targets, *numbers):
    """Until the job ends. A second INT to the process without a launcher, or to the launcher, would end it."""
    until = time.monotonic() + scaled(60)
    while job.running() and time.monotonic() < until:
        for number in numbers:
            for process in targets():
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    pass
            time.sleep(0.005)


class Signals(SystemTest):
    def check_masks(self, job, number):
        """No handler may run on the threads that compute: see src/train/stop_signal.h."""
        for rank, process in job.ranks().items():
            status = pathlib.Path(f"/proc/{process}/task/{process}/status").read_text()
            masks = {name: int(value, 16) for name, value in re.findall(r"Sig(Blk|Cgt):\s+(\w+)", status)}
            for name, mask in masks.items():
                self.assertTrue(mask >> (number - 1) & 1, f"rank {rank}: Sig{name} lacks {number.name}")

    def stopped_and_resumed(self, name, layout, number, launcher="mpirun", send=lambda job, number: job.process.send_signal(number)):
        ranks, parallel = LAYOUTS[layout]
        run = self.folder / name
        settings = {**self.settings(run, train__steps=100000), **parallel}
        job = self.train(ranks, settings, launcher)
        self.wait_for(lambda: last_step(run) >= 2, job)
        before = last_step(run)
        for one in STOP_SIGNALS:
            self.check_masks(job, one)
        send(job, number)
        sent = time.monotonic()
        text = self.expect(75, job)
        took = time.monotonic() - sent
        self.assertLess(took, scaled(10))
        stopped = last_step(run)
        self.assertGreaterEqual(stopped, before)
        self.assertIn(f"stopped after step {stopped}", text)
        self.assertEqual(events(run, "exit")[-1]["code"], 75)
        self.assertEqual(events(run, "stop")[-1]["step"], stopped)
        self.assertTrue((step(run, stopped) / "manifest.json").exists())
        self.assertEqual(len(list((run / "checkpoints").iterdir())), 1)
        self.assert_gone()
        self.expect(0, self.train(ranks, {**settings, "train.steps": stopped + 2}, launcher))
        self.assertEqual(sorted(losses(run)), list(range(1, stopped + 3)))
        self.assertEqual(events(run, "resume")[-1]["step"], stopped)

    def test_usr1_to_mpirun(self):
        self.stopped_and_resumed("usr1", "tp2pp2", signal.SIGUSR1)

    def test_ranks_get_all_signals(self):
        """Under mpirun, which passes on no INT: any number of any of them saves."""
        self.stopped_and_resumed("ranks", "dp2", signal.SIGINT,
                                 send=lambda job, number: send_again_and_again(job, job.ranks().values, number, *STOP_SIGNALS))

    def test_every_process_gets_a_signal(self):
        """A closing control group: TERM, then HUP, to the launcher, mpirun, shells, ranks and helpers."""
        self.stopped_and_resumed("everyone", "dp2", signal.SIGTERM, "local",
                                 lambda job, number: send_again_and_again(job, processes, number, signal.SIGHUP))

    def test_interrupt_of_local(self):
        self.stopped_and_resumed("local-int", "tp2pp2", signal.SIGINT, "local")

    def test_terminate_of_local(self):
        self.stopped_and_resumed("local-term", "dp2", signal.SIGTERM, "local")

    def stops_by_itself(self, name, end, command=lambda words: words):
        """`end` of the launcher's job: its ranks save, no process stays, and the run resumes from there."""
        ranks, parallel = LAYOUTS["dp2"]
        run = self.folder / name
        settings = {**self.settings(run, train__steps=100000), **parallel}
        job = Job(command([LOCAL, ranks, "train", *options(settings)]), self.folder / f"output-{name}")
        self.wait_for(lambda: last_step(run) >= 2, job)
        end(job.process.pid)
        job.wait()
        self.assert_gone(30)
        stopped = last_step(run)
        self.assertEqual(events(run, "exit")[-1]["code"], 75)
        self.assertTrue((step(run, stopped) / "manifest.json").exists())
        self.expect(0, self.train(ranks, {**settings, "train.steps": stopped + 2}, "local"))
        self.assertEqual(sorted(losses(run)), list(range(1, stopped + 3)))

    def test_the_launcher_is_killed(self):
        self.stops_by_itself("local-kill", lambda process: os.kill(process, signal.SIGKILL))

    def test_interrupt_of_a_pipeline(self):
        """Ctrl-C in `launch/local … 2>&1 | tee log` reaches the reader too."""
        self.stops_by_itself("pipeline", lambda process: os.killpg(process, signal.SIGINT),
                             lambda words: ["sh", "-c", '"$@" 2>&1 | cat', "sh", *words])

    def test_one_process(self):
        """USR1 is test_before_it_listens."""
        def send(job, number):
            if number == signal.SIGINT:
                job.process.send_signal(number)
            else:
                send_again_and_again(job, lambda: [job.process.pid], number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):
            with self.subTest(signal=number.name):
                self.stopped_and_resumed(f"one-{number.name}", "single", number, send=send)

    def test_a_second_interrupt_ends_one_process(self):
        """In the middle of a step that takes long."""
        job = self.train(1, self.settings(self.folder / "twice", train__global_batch=1 << 15, checkpoint__every=1000))
        self.wait_for(lambda: last_step(self.folder / "twice") == 0 and (step(self.folder / "twice", 0) / "manifest.json").exists(), job)
        for _ in range(2):
            job.process.send_signal(signal.SIGINT)
            time.sleep(scaled(0.2))  # a signal that still waits absorbs the next one
        self.expect(-signal.SIGINT, job, 5)

    def test_before_it_listens(self):
        """Schedulers and launchers may send it while MPI starts: it stays pending until training asks for it."""
        def have(processes_of_ranks, name):
            texts = [pathlib.Path(f"/proc/{process}/status").read_text() for process in processes_of_ranks]
            return [int(re.search(rf"{name}:\s+(\w+)", text)[1], 16) >> (signal.SIGUSR1 - 1) & 1 for text in texts]

        for attempt in range(5):  # MPI may have started before its ranks were found
            run = self.folder / f"early-{attempt}"
            job = self.train(2, self.settings(run, train__steps=100000))
            self.wait_for(lambda: len(job.ranks()) == 2, job)
            ranks = job.ranks().values()
            while not all(have(ranks, "SigBlk")):
                time.sleep(0.0005)
            early = not any(have(ranks, "SigCgt"))
            job.process.send_signal(signal.SIGUSR1)
            self.expect(75, job)
            self.assertLessEqual(last_step(run), 2)  # the step after the one whose start saw it is under way
            if early:
                return
        self.fail("the ranks listened before they were found, five times")


class Hangs(SystemTest):
    DEADLINE = round(scaled(3))  # no step, and no save, takes as long

    def hang(self, name, layout, rank, launcher, slack):
        ranks, parallel = LAYOUTS[layout]
        run = self.folder / name
        settings = {**self.settings(run, train__steps=100000, checkpoint__every=50, fault__step_deadline=self.DEADLINE,
                                  fault__checkpoint_deadline=self.DEADLINE), **parallel}
        job = self.train(ranks, settings, launcher)
        self.wait_for(lambda: last_step(run) >= 2, job)
        os.kill(job.ranks()[rank], signal.SIGSTOP)
        stopped = time.monotonic()
        text = self.expect(71, job)
        took = time.monotonic() - stopped
        print(f"{name}: ended after {took:.1f} s", flush=True)
        self.assertLess(took, self.DEADLINE + scaled(slack))
        self.assertGreater(took, self.DEADLINE - 1)
        self.assertRegex(text, r'rank \d on \S+ has been in "(step \d+|saving step \d+)" for \d+ s, past its deadline \(fault\.(step|checkpoint)_deadline\)')
        hung = events(run, "hang")
        self.assertTrue(hung)
        self.assertTrue({event["rank"] for event in hung} - {rank})  # the stopped one is woken at the end, and tells too
        for event in hung:
            self.assertRegex(event["section"], r"step \d+")
        self.assertEqual({event["code"] for event in events(run, "exit")}, {71})
        self.assertTrue(any("past its deadline" in log.read_text() for log in (run / "logs").iterdir()))
        self.assert_gone()

    @unittest.skipUnless(shutil.which("strace"), "strace is missing\n  next: launch/install-deps")
    def test_a_stalled_read(self):
        """A network file system that does not answer for a while ends no run, neither by the rank that reads nor by one that waits for it."""
        ranks, parallel = LAYOUTS["dp2"]
        run, shard = self.folder / "stalled", self.folder / "data" / "train" / "shard-00000.h5"
        step_deadline, stall, read_deadline = scaled(2), scaled(3), round(scaled(4.5), 1)
        job = self.train(ranks, {**self.settings(run, train__steps=100000, fault__step_deadline=step_deadline,
                                                 fault__read_deadline=read_deadline), **parallel})

        def stall_rank_1(seconds):
            tracer = subprocess.Popen(["strace", "-f", "-q", "-o", "/dev/null", "-p", str(job.ranks()[1]), "-P", str(shard), "-e", "trace=pread64",
                                       "-e", f"inject=pread64:delay_enter={round(seconds * 1e6)}:when=1"], stderr=subprocess.DEVNULL)
            self.addCleanup(tracer.wait)
            self.addCleanup(tracer.kill)
            return tracer

        def longest_step():
            return max(line["step_seconds"] for line in lines(run / "metrics.jsonl")[1:])
        self.wait_for(lambda: last_step(run) >= 3, job)
        tracer = stall_rank_1(stall)
        self.wait_for(lambda: longest_step() >= stall, job)
        tracer.terminate()
        tracer.wait()
        tracer = stall_rank_1(scaled(60))
        self.wait_for(lambda: events(run, "hang"), job)
        tracer.kill()  # a rank that strace holds cannot be killed, and MPICH's launcher waits for it
        text = self.expect(71, job)
        self.assertRegex(text, rf'rank 1 on \S+ has been in "reading {shard}" for \d+ s, past its deadline \(fault\.read_deadline\); '
                               "it waits for the file system")
        self.assertEqual([event["rank"] for event in events(run, "hang")], [1])

    def test_a_stopped_rank(self):
        self.hang("rank 1", "tp2pp2", 1, "mpirun", 10)

    def test_the_first_rank(self):
        self.hang("rank 0", "dp2", 0, "mpirun", 10)

    def test_under_local(self):
        self.hang("local", "dp2", 1, "local", 20)  # ten of them are those that local leaves to peers


if __name__ == "__main__":
    unittest.main(verbosity=2)
