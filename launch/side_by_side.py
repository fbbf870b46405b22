"""Runs jobs in parallel on this machine, with progress and resume: the scheduler of launch/seeds and experiments/run."""
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from foreign_text import say
from run_values import Fault
from whole_file import write_whole

SAVED = 75  # the exit code of a run that saved and stopped
PARENT_DEATH_SIGNAL = 1  # of prctl
SECONDS_BETWEEN_LINES = 15
SECONDS_OF_A_SAVE = 60  # for runs of an earlier call to save after it was killed


def cores():
    return len(os.sched_getaffinity(0))


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Job:
    """A command. `name`: unique, for finished.json; `label`: for output. `weight`: its expected seconds, relative to other jobs'. `run`: the directory of a run of `steps` steps, for progress.
    `inputs`: texts that, like the command, make it another job if they change; or `key`, which replaces both.
    `after`: a job that must be finished first. `output`: a path that exists once it is finished; default: the run's directory."""

    def __init__(self, name, command, log, weight=1.0, run=None, steps=0, inputs=(), label=None, key=None, after=None, output=None):
        self.name, self.command, self.log, self.weight = name, [str(word) for word in command], pathlib.Path(log), weight
        self.run, self.steps, self.label, self.after, self.output = run, steps, label or name, after, output or run
        self.key = key or hashlib.sha256(json.dumps([self.command, *inputs]).encode()).hexdigest()

    def share(self):
        """The share of its work that is done, by the last row of its metrics."""
        if not self.run or not self.steps:
            return 0.0
        try:
            with open(pathlib.Path(self.run) / "metrics.jsonl", "rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - 4096))
                rows = stream.read().decode(errors="replace").split("\n")
        except OSError:
            return 0.0
        for row in reversed(rows):
            try:
                return min(1.0, json.loads(row)["step"] / self.steps)
            except (ValueError, KeyError, TypeError):
                continue
        return 0.0

    def last_lines(self):
        try:
            lines = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        except OSError:
            lines = []
        if not lines:
            return "(its log is empty)"
        last = lines[-2:] if lines[-1].strip().startswith("next: ") else lines[-1:]  # an error and the command to try
        return "; ".join(line.strip() for line in last)


def die_with_parent():
    """In the child: sets a separate process group, so that the terminal's Ctrl-C reaches only the scheduler, and asks for TERM, which saves, if that is killed."""
    os.setpgrp()
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)


class Scheduler:
    """`folder` has `finished.json`, and a lock that this process and all jobs keep. `again`: the command that continues."""

    def __init__(self, folder, again, at_once=None):
        self.folder, self.again = pathlib.Path(folder), again
        self.at_once = at_once or cores()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = self._take_lock()
        self.record = self.folder / "finished.json"
        try:
            self.finished = json.loads(self.record.read_text())
        except (FileNotFoundError, ValueError):
            self.finished = {}
        self.children, self.failed, self.started = {}, {}, {}
        self.stops, self.is_out_of_time = 0, False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _take_lock(self):
        lock = open(self.folder / "lock", "a")
        is_reported, end = False, time.monotonic() + SECONDS_OF_A_SAVE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Fault(f"another command is running in {self.folder}", "wait for it, or choose another --out") from None
                if not is_reported:
                    say(f"waiting for runs that an earlier command still has in {self.folder}", stream=2)
                    is_reported = True
                time.sleep(0.2)
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
                    return lock
                raise

    def _on_signal(self, _number, _frame):
        self.stops += 1
        self._signal_all(signal.SIGTERM if self.stops == 1 else signal.SIGKILL)

    def _signal_all(self, number):
        for child in list(self.children):
            child.send_signal(number)

    def is_finished(self, job):
        return self.finished.get(job.name) == job.key and (not job.output or pathlib.Path(job.output).exists())

    def _start(self, job):
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open(job.log, "ab") as log:
            child = subprocess.Popen(job.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
                                     pass_fds=(self.lock.fileno(),))
        self.children[child] = job
        self.started[job.name] = (time.monotonic(), job.share())
        if self.stops:  # the signal arrived while it was being started
            child.send_signal(signal.SIGTERM)

    def _end(self, child):
        job = self.children.pop(child)
        if child.returncode == 0:
            self.finished[job.name] = job.key
            write_whole(self.record, json.dumps(self.finished, indent=1))
            say(f"{job.label}: done, {duration(time.monotonic() - self.started[job.name][0])}")
        elif not (self.stops or self.is_out_of_time) or child.returncode not in (SAVED, -signal.SIGTERM, -signal.SIGKILL):
            code = child.returncode if child.returncode > 0 else 128 - child.returncode
            self.failed[job.name] = (code, f"{job.label} failed with {code}: {job.last_lines()}\n  full log: {job.log}")
            say(f"{job.label}: failed ({code}); the others continue")

    def _remaining(self, jobs, begin, done_before):
        """Seconds until all jobs are done, at the rate so far; None if there is none yet."""
        shares = {job.name: 1.0 if self.is_finished(job) or job.name in self.failed else job.share() for job in jobs}
        done = sum(job.weight * shares[job.name] for job in jobs)
        total = sum(job.weight for job in jobs)
        spent = time.monotonic() - begin
        return (total - done) * spent / (done - done_before) if done > done_before and spent > 5 else None

    def _take(self, waiting):
        """Removes and returns the first job that can start; None if each waits for another."""
        place = next((place for place, job in enumerate(waiting) if not job.after or self.is_finished(job.after)), None)
        return None if place is None else waiting.pop(place)

    def _start_some(self, waiting):
        while waiting and len(self.children) < self.at_once and not self.stops and not self.is_out_of_time:
            job = self._take(waiting)
            if job is None:
                if not self.children:
                    waiting.clear()  # the jobs that they wait for have failed
                return
            self._start(job)

    def run(self, jobs, deadline=None):
        """Runs the unfinished jobs in order, each after its `after`; keeps failures in `failed` {name: (code, text)}. At `deadline`
        (time.monotonic()) runs save and stop. Raises Fault(75) if a signal stopped it."""
        waiting = [job for job in jobs if not self.is_finished(job)]
        runs = [job for job in jobs if not job.after]
        before = sum(map(self.is_finished, runs))
        if before:
            say(f"{before} of {len(runs)} runs were already finished")
        begin = shown = time.monotonic()
        done_before = sum(job.weight * (1.0 if self.is_finished(job) else job.share()) for job in jobs)
        while (waiting and not self.stops and not self.is_out_of_time) or self.children:
            self._start_some(waiting)
            time.sleep(0.1)
            for child in [child for child in self.children if child.poll() is not None]:
                self._end(child)
            if deadline is not None and time.monotonic() > deadline and not self.is_out_of_time:
                self.is_out_of_time = True
                self._signal_all(signal.SIGTERM)
            if time.monotonic() > shown + SECONDS_BETWEEN_LINES and self.children:
                shown = time.monotonic()
                left = self._remaining(jobs, begin, done_before)
                running = ", ".join(f"{job.label} {100 * job.share():.0f} %" for job in self.children.values())
                say(f"{sum(map(self.is_finished, runs))} of {len(runs)} runs done; {running}"
                    + (f"; about {duration(left)} left" if left is not None else ""))
        if self.stops:
            raise Fault("stopped; the runs are saved", self.again, SAVED)

    def report_failures(self):
        """Prints each failed job with the last line of its log; returns the exit code, 0 without any."""
        for _, text in self.failed.values():
            say(text, stream=2)
        if self.failed:
            say(f"  next: fix the cause, then {self.again}: it repeats only unfinished runs", stream=2)
        return next((code for code, _ in self.failed.values()), 0)


def guarded(name, main):
    """Exits with main()'s code, or prints a Fault and exits with its code."""
    try:
        sys.exit(main())
    except Fault as fault:
        say(f"{name}: {fault}\n  next: {fault.command}", stream=2)
        sys.exit(fault.code)
    except OSError as error:
        say(f"{name}: {error.filename or ''}: {error.strerror}\n  next: df -h {error.filename or '.'}", stream=2)
        sys.exit(70)
