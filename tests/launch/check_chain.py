#!/usr/bin/env python3
"""Ctrl-C while launch/slurm submits a chain: it always names the jobs that Slurm has accepted. Names that would add commands to the
batch script are refused.

    tests/launch/check_chain.py SHIFTRON
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAITING = "slurm: Ctrl-C: waiting for sbatch's answer; Ctrl-C again stops waiting\n"
SBATCH = """#!/bin/sh
echo >> "$FOLDER/asked"
number=$((100 + $(wc -l < "$FOLDER/asked")))
if [ $number = 103 ]; then
  echo > "$FOLDER/third"
  until [ -e "$FOLDER/answer" ]; do sleep 0.05; done
fi
echo $number
"""


class Submission:
    """launch/slurm --chain 4, whose third sbatch waits for answer()."""

    def __init__(self, folder, program, ignored=False):
        self.folder = folder
        for name, text in (("sbatch", SBATCH), ("squeue", "#!/bin/sh\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "dataset.json").write_text("{}")  # a plan only needs it to exist
        os.mkfifo(folder / "third")
        environment = {**os.environ, "FOLDER": str(folder), "SHIFTRON": program, "PATH": f"{folder}:{os.environ['PATH']}"}
        self.process = subprocess.Popen(
            [ROOT / "launch" / "slurm", ROOT / "configs" / "toy.conf", "--nodes", "1", "--tasks-per-node", "1", "--time", "10", "--chain", "4",
             "--data.train", folder, "--output.directory", folder / "run"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL))
        (folder / "third").read_text()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def answer(self):
        (self.folder / "answer").touch()

    def ended(self):
        out, err = self.process.communicate()
        return self.process.returncode, out, err


def check(what, condition, found):
    assert condition, f"{what}: {found}"


def check_hostile_names(scratch, program):
    """The text after a line break in a folder's name or in an option would become a command."""
    (scratch / "dataset.json").write_text("{}")
    name = "it's $(touch ran) `touch ran`; \"touch ran\" \x1b[2J\ntouch ran\n#"
    for folder, options in ((name, []), ("plain", ["--partition", name]), (name.split(" \x1b")[0], [])):
        (scratch / folder).mkdir(exist_ok=True)
        command = [ROOT / "launch" / "slurm", ROOT / "configs" / "toy.conf", "--nodes", "1", "--tasks-per-node", "1", "--time", "10", "--dry-run",
                   "--data.train", scratch, "--output.directory", scratch / "run", *options]
        answer = subprocess.run(command, cwd=scratch / folder, env={**os.environ, "SHIFTRON": program}, capture_output=True, text=True, check=False)
        check("nothing steers the terminal", "\x1b" not in answer.stderr, answer.stderr)
        if "\n" in folder + "".join(options):
            check("a line break is refused", answer.returncode == 76 and r"\x1B[2J" in answer.stderr and answer.stdout == "", answer)
        else:
            check("quotes are harmless", answer.returncode == 0, answer)
            (scratch / "job.sh").write_text(answer.stdout.split("\nchain=")[0])
            subprocess.run(["bash", "job.sh"], cwd=scratch, check=True)
            check("no part of a name is run as a command", not list(scratch.rglob("ran")), answer.stdout)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        check_hostile_names(pathlib.Path(scratch), sys.argv[1])
        folders = [pathlib.Path(scratch, name) for name in ("once", "twice", "ignored")]
        for folder in folders:
            folder.mkdir()
        once = Submission(folders[0], sys.argv[1])
        once.interrupt()
        said = once.process.stderr.readline()
        once.answer()
        found = once.ended()
        check("a waiting command says so", said == WAITING, said)
        check("it waits for the third job", found == (130, "", "slurm: Ctrl-C: job 101, 102, 103 of 4 had been submitted\n"
                                                            "  next: scancel 101 102 103, or let them run\n"), found)

        twice = Submission(folders[1], sys.argv[1])
        twice.interrupt()
        twice.process.stderr.readline()
        twice.interrupt()
        found = twice.ended()
        check("the second Ctrl-C stops waiting", found == (130, "", "slurm: Ctrl-C: job 101, 102 of 4 had been submitted, and another may have been\n"
                                                             "  next: scancel 101 102, or let them run; squeue --me shows it\n"), found)

        ignored = Submission(folders[2], sys.argv[1], ignored=True)
        ignored.interrupt()
        ignored.answer()
        code, out, err = ignored.ended()
        check("an ignored Ctrl-C changes nothing", (code, err) == (0, "") and out.startswith("job 101, 102, 103, 104: "), (code, out, err))


main()
