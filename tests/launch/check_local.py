#!/usr/bin/env python3
"""launch/local: signals, exit codes and kills, with the program signal_job.cpp, built here. Arguments: a folder to build in, MPI's compiler [mpicxx]."""
import contextlib
import fcntl
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import pty
import pwd
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import types
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from time_scale import scaled  # noqa: E402
LOCAL = ROOT / "launch" / "local"
FAULTS = []


def check(name, condition, *facts):
    print("passed" if condition else "FAILED", name, *facts, flush=True)
    if not condition:
        FAULTS.append(name)


def wait_until(condition, seconds=60):
    until = time.monotonic() + scaled(seconds)
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def catches(process, number):
    caught = re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{process}/status").read_text())
    return bool(int(caught[1], 16) >> (number - 1) & 1)


def processes(saved):
    """Of the jobs whose $SAVED begins with `saved`."""
    mark, found = f"\0SAVED={saved}".encode(), []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in b"\0" + (path / "environ").read_bytes() and (path / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(path.name))
        except OSError:
            pass
    return found


def send(number, targets):
    for process in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


class Job:
    """launch/local with signal_job; `terminal`: it leads a session on a terminal of its own, else its output is a pipe."""

    def __init__(self, folder, ranks, *arguments, terminal=False, ignored=(), **variables):
        self.folder, self.ranks = folder, ranks
        self.saved = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.reader, end = pty.openpty() if terminal else os.pipe()

        def prepare():
            if terminal:
                fcntl.ioctl(end, termios.TIOCSCTTY, 0)
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        environment = {**os.environ, "SHIFTRON": str(folder / "signal_job"), "SAVED": str(self.saved), **variables}
        self.process = subprocess.Popen(
            [LOCAL, str(ranks), *arguments], stdin=end if terminal else subprocess.DEVNULL, stdout=end, stderr=end, preexec_fn=prepare,
            start_new_session=terminal, env={name: value for name, value in environment.items() if value is not None})
        os.close(end)
        self.output = b""

    def read(self):
        """One more piece of the output; nothing at its end, or when none comes."""
        if not select.select([self.reader], [], [], scaled(60))[0]:
            return b""
        try:
            piece = os.read(self.reader, 1 << 16)
        except OSError:  # a terminal without processes
            piece = b""
        self.output += piece
        return piece

    def reads(self, words):
        while words not in self.output and self.read():
            pass
        return self

    def running(self):
        return self.reads(b"running")

    def deafen(self):
        """Nobody reads the output any longer, and the ranks have noticed it."""
        os.close(self.reader)
        self.reader = None
        time.sleep(1)
        return self

    def send(self, number):
        self.process.send_signal(number)
        return self

    def end(self):
        """Exit code."""
        until = time.monotonic() + scaled(60)
        while self.reader is not None and time.monotonic() < until and self.read():
            pass
        try:
            return self.process.wait(scaled(60))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return f"still there: {self.output[-1000:]!r}"
        finally:
            if self.reader is not None:
                os.close(self.reader)

    def all_saved(self):
        return {path.name for path in self.saved.iterdir()} == {str(rank) for rank in range(self.ranks)}

    def mpirun(self):
        return next(process for process in self.left() if pathlib.Path(f"/proc/{process}/comm").read_text() in ("mpirun\n", "mpiexec.hydra\n"))

    def left(self):
        return processes(self.saved)

    def gone(self):
        return wait_until(lambda: not self.left(), 30)


def check_saves(name, job):
    code = job.end()
    check(name, code == 75 and job.all_saved() and job.gone(), code, job.left())


def check_launchers(folder):
    """The launcher is that of the MPI whose library the program needs."""
    launcher = load_local().mpi_launcher
    program = folder / "needs"
    for library, wanted in (("libmpich.so.12", True), ("libmpi.so.12", True), ("libmpi.so.40", False)):
        program.write_bytes(b"\x7fELF\0libc.so.6\0" + library.encode() + b"\0")
        program.chmod(0o755)
        check(f"the MPI of {library}", launcher.is_mpich(program) == wanted and ("hydra" in launcher.launcher(program)) == wanted)
    program.write_bytes(b"#!/bin/sh\n: \0libmpich.so.12\0")
    check("a script needs no library", not launcher.is_mpich(program) and not launcher.is_mpich(folder / "absent"))
    with unittest.mock.patch.dict(os.environ, SHIFTRON_MPI="mpich"):
        check("unless the environment says so", launcher.is_mpich(program))
    program.write_bytes(b"\x7fELF\0libmpich.so.12\0")
    answer = subprocess.run([LOCAL.parent / "slurm", "a.conf", "--nodes", "1", "--tasks-per-node", "1", "--time", "1"], capture_output=True, text=True,
                            env=dict(os.environ, SHIFTRON=str(program)), check=False)
    check("launch/slurm refuses MPICH", answer.returncode == 76 and "built with MPICH" in answer.stderr, answer.stderr)


def check_signals(folder, is_mpich):
    def saving(ranks=2, **options):
        return Job(folder, ranks, "train", "save", **options)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1):
        check_saves(f"{number.name} lets all ranks save, then 75", saving(4).running().send(number))
    for name, numbers in (("TERM and HUP", (signal.SIGTERM, signal.SIGHUP)), ("INT and XCPU", (signal.SIGINT, signal.SIGXCPU))):
        job = saving().running()
        send(numbers[0], job.left())
        while job.process.poll() is None:  # again and again until all have left; a second INT to the launcher would kill
            send(numbers[1], job.left())
            time.sleep(0.05)
        check_saves(f"{name} to every process of the job", job)
    check_saves("one rank too", saving(1).running().send(signal.SIGINT))
    check_saves("forty ranks, which threads of mpirun start", saving(40).running().send(signal.SIGTERM))
    job = Job(folder, 3, "train", "late")
    wait_until(lambda: catches(job.process.pid, signal.SIGTERM))
    check_saves("a signal before the ranks listen waits for them", job.send(signal.SIGTERM))

    check_saves("a signal whose words nobody reads", saving().running().deafen().send(signal.SIGINT))
    job = saving(terminal=True).running()
    os.write(job.reader, b"\x03")
    check_saves("Ctrl-C on a terminal", job)
    check_saves("a closed terminal", saving(terminal=True).running().deafen())
    for number in (signal.SIGHUP, signal.SIGINT):
        job = saving(ignored=[number]).running()
        send(number, job.left())
        time.sleep(0.5)
        check(f"{number.name} stays ignored", job.process.poll() is None and not any(job.saved.iterdir()))
        check_saves("and the others count", job.send(signal.SIGTERM))

    for number in (signal.SIGKILL, signal.SIGQUIT):
        job = saving().running()
        job.process.send_signal(number)
        code = job.process.wait(scaled(60))
        check(f"ranks whose launcher dies of {number.name} save and end", code == -number and job.gone() and job.all_saved(), code, job.left())
    job = Job(folder, 2, "evaluate", "deaf").running().send(signal.SIGKILL)
    check("so do those that cannot save", job.gone(), job.left())
    for number in (signal.SIGTERM, signal.SIGUSR1):
        job = saving().running()
        os.kill(job.mpirun(), number)
        check_saves(f"{number.name} to mpirun", job)
    job = saving().running()
    os.kill(job.mpirun(), signal.SIGKILL)
    code = job.end()
    check("the death of mpirun ends the ranks", code == 137 and job.gone(), code, job.left())

    if not is_mpich:  # Hydra ends the other ranks
        check_killed_shell(saving().running())
    job = Job(folder, 2, "train", "stubborn").running().send(signal.SIGINT)
    code = job.reads(b"asking all ranks").send(signal.SIGINT).end()
    check("a second Ctrl-C kills", code == 137 and job.gone(), code)
    check_other_commands(folder)


def check_killed_shell(job):
    shell = next(process for process in job.left() if pathlib.Path(f"/proc/{process}/comm").read_text() == "sh\n")
    os.kill(shell, signal.SIGKILL)
    wait_until(lambda: shell not in job.left())
    check_saves("a rank whose shell was killed", job.send(signal.SIGTERM))


def check_other_commands(folder):
    for number, everywhere in ((signal.SIGINT, False), (signal.SIGTERM, True)):
        job = Job(folder, 2, "evaluate", "deaf").running()
        began = time.monotonic()
        send(number, job.left() if everywhere else [job.process.pid])
        code = job.end()
        took = time.monotonic() - began
        check(f"{number.name} ends what does not save", code == 128 + number and took < scaled(8) and job.gone(), code, f"{took:.1f} s")


def check_codes(folder):
    for wanted in (0, 1, 72, 75, 76):
        code = Job(folder, 3, "train", "code", str(wanted)).end()
        check(f"exit code {wanted}", code == wanted, code)
    code = Job(folder, 3, "train", "killed").end()
    check("the death of a rank ends its peers", code == 137, code)
    code = Job(folder, 3, "train", "abort").end()
    check("MPI_Abort's code", code == 72, code)
    for ranks in ("0", "²", "-1", "100000", "9" * 5000):
        answer = subprocess.run([LOCAL, ranks, "train"], env=dict(os.environ, SHIFTRON="true"), capture_output=True, text=True, check=False)
        check(f"{ranks[:9]} ranks", answer.returncode == 76 and answer.stderr.startswith("local: ") and "next:" in answer.stderr, answer.stderr)


def check_room(folder):
    for place in (folder / "none", pathlib.Path("/proc")):
        answer = subprocess.run([LOCAL, "1", "-c", "exit 0"], env=dict(os.environ, SHIFTRON="/bin/sh", TMPDIR=str(place)), capture_output=True,
                                text=True, check=False)
        check(f"no room for files in {place}", answer.returncode == 76 and "next: df" in answer.stderr, answer.stderr)


def check_streams(folder):
    """Every byte of the output arrives, in order; stdin stays the caller's."""
    content = random.Random(1).getrandbits(8 * 300000).to_bytes(300000, "big")
    (folder / "content").write_bytes(content)
    for stream, command in (("stdout", "cat {}"), ("stderr", "cat {} >&2")):
        answer = subprocess.run([LOCAL, "1", "-c", command.format(folder / "content")], env=dict(os.environ, SHIFTRON="/bin/sh"),
                                capture_output=True, check=False)
        check(f"the bytes of {stream}", answer.returncode == 0 and getattr(answer, stream) == content, answer.returncode)
    loop = subprocess.run(["sh", "-c", f"while read -r line; do '{LOCAL}' 1 -c \"cat; echo $line\"; done"], input="one\ntwo\n",
                          env=dict(os.environ, SHIFTRON="/bin/sh"), capture_output=True, text=True, check=False)
    check("a loop that reads the lines of its stdin", loop.stdout == "one\ntwo\n", loop.stdout, loop.stderr)
    closed = subprocess.run(["sh", "-c", f"exec '{LOCAL}' 1 -c 'echo words; exit 72' 0<&- 1>&- 2>&-"],
                            env=dict(os.environ, SHIFTRON="/bin/sh"), check=False)
    check("closed streams", closed.returncode == 72, closed.returncode)


def load_local():
    sys.path.insert(0, str(LOCAL.parent))
    loader = importlib.machinery.SourceFileLoader("local", str(LOCAL))
    local = importlib.util.module_from_spec(importlib.util.spec_from_loader("local", loader))
    loader.exec_module(local)
    return local


def variable(process, name):
    """Of the environment of a process."""
    found = re.search(rf"(?:^|\0){name}=([^\0]*)\0", pathlib.Path(f"/proc/{process}/environ").read_text())
    return found and found[1]


def check_folders(folder, is_mpich):
    """The next job on this host removes what a killed job leaves, and nothing of a living job."""
    local = load_local()
    job_folders = local.job_folders
    temporary = folder / "temporary"
    temporary.mkdir()

    def started():
        job = Job(folder, 2, "train", "save", TMPDIR=str(temporary), HOME=None).running()
        process = next(filter(lambda process: variable(process, "JOB_FOLDER"), job.left()))
        places = [pathlib.Path(variable(process, name)) for name in ("JOB_FOLDER", "SHARED_FOLDER")]
        return job, places, variable(process, "HOME")

    killed, old, _ = started()
    processes = killed.left()
    send(signal.SIGSTOP, processes)  # or launch/local may see a rank's death, and clean up, before its own
    send(signal.SIGKILL, processes)
    killed.end()
    used = not is_mpich  # MPICH keeps no files there
    check("a killed job leaves its files", killed.gone() and all(any(place.iterdir()) == used for place in old), old)
    check("all of them in its folders", list(temporary.iterdir()) == old[:1] and old[1].parent == pathlib.Path("/dev/shm"), list(temporary.iterdir()))
    job, places, home = started()
    check("the next job removes them", not any(place.exists() for place in old), old)
    for parent in (temporary, job_folders.SHARED_MEMORY):
        job_folders.sweep(parent)
    check("a living job keeps its own", all(any(place.iterdir()) == used for place in places), places)
    check_saves("a job without HOME saves", job.send(signal.SIGTERM))
    check("and its ranks have the user's", home == os.path.expanduser(f"~{pwd.getpwuid(os.getuid()).pw_name}"), home)
    with unittest.mock.patch.dict(os.environ), unittest.mock.patch.object(os, "getuid", lambda: 987654321):
        os.environ.pop("HOME", None)
        check("those of a user without a name have another", local.home() == "/", local.home())
    check("a job that ends leaves nothing", not any(place.exists() for place in places) and not any(temporary.iterdir()), places)

    path, number = job_folders.make(temporary)
    rank = subprocess.Popen(["sh", "-c", local.RANK_SHELL, "rank", "sh", "-c", "echo running; read line"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, env=dict(os.environ, JOB_FOLDER=path, SHARED_FOLDER=path, STOP_SIGNALS="TERM",
                                                             IGNORED_SIGNALS="HUP", OMPI_COMM_WORLD_RANK="0"))
    rank.stdout.readline()
    os.close(number)  # as if every process but the ranks had been killed
    job_folders.sweep(temporary)
    check("a rank that lives keeps the job's folder", pathlib.Path(path).exists())
    rank.communicate(b"line\n")
    check("its shell notes its code", pathlib.Path(path, "code-0").read_text() == "0\n")
    (temporary / "shiftron-other-boot").mkdir()
    job_folders.sweep(temporary)
    check("without processes it is removed, and nothing else", [entry.name for entry in temporary.iterdir()] == ["shiftron-other-boot"])
    with unittest.mock.patch.object(job_folders, "SHARED_MEMORY", str(folder / "absent")):
        folders = job_folders.JobFolders(temporary)
        check("without /dev/shm Open MPI uses the temporary folder", folders.environment() == {"OMPI_MCA_orte_tmpdir_base": folders.temporary})
        folders.remove()


def check_events(folder):
    """The code is taken from the run's events where no rank left one."""
    local = load_local()
    run = folder / "run"
    run.mkdir(exist_ok=True)
    events = [{"event": "exit", "code": 75}, {"event": "start"}, {"event": "exit", "code": 72}, {"event": "exit", "code": 71}]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + "{torn")
    check("the first exit line of the last start", local.code_of_run(run, None) == 72)
    before = local.events_end(run)
    check("events older than the job do not count", local.code_of_run(run, before) is None)
    with (run / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"event": "queued"}\n')
    check("nor do they after a newer line", local.code_of_run(run, before) is None)
    with (run / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"event": "start"}\n{"event": "exit", "code": 73}\n')
    check("the job's own exit line", local.code_of_run(run, before) == 73)
    check("all of a file that took the other's place counts", local.code_of_run(run, (before[0] + 1, before[1])) == 73)
    check("no events", local.code_of_run(folder / "absent", None) is None and local.events_end(None) is None)
    done = types.SimpleNamespace(ranks=2, ended={0: (1.0, 0), 1: (2.0, 0)}, stopped_by=signal.SIGTERM, saves=False, killed_at=None)
    for launcher_code in (1, -signal.SIGTERM, -signal.SIGUSR1):
        check(f"a signal after the last rank's end, mpirun's code {launcher_code}", local.exit_code(done, launcher_code, lambda: None) == 0)
    check("the run's directory among the arguments", local.run_directory(["train", "--output.directory", "a"]) == "a")


def main(folder, compiler="mpicxx"):
    for number in (signal.SIGINT, signal.SIGHUP):  # the caller of the tests may ignore them
        signal.signal(number, signal.default_int_handler)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-std=c++20", "-o", folder / "signal_job", pathlib.Path(__file__).parent / "signal_job.cpp"], check=True)
    with tempfile.TemporaryDirectory(dir=folder) as runs:
        runs = pathlib.Path(runs)
        (runs / "signal_job").symlink_to(folder / "signal_job")
        try:
            is_mpich = load_local().mpi_launcher.is_mpich(folder / "signal_job")
            check_launchers(runs)
            check_signals(runs, is_mpich)
            check_codes(runs)
            check_room(runs)
            check_streams(runs)
            check_folders(runs, is_mpich)
            check_events(runs)
        finally:
            for process in processes(runs):
                os.kill(process, signal.SIGKILL)
    print(f"{len(FAULTS)} failed")
    return bool(FAULTS)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
