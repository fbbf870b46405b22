"""Submits runs as one array job of Slurm: each task trains one run on one CPU."""
import pathlib
import shlex
import shutil
import subprocess

from run_values import Fault
from side_by_side import say

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS_TO_SAVE = 60  # how long before its time limit a task is asked to save


def script(folder, count):
    """The job script: task I runs line I + 1 of FOLDER/commands. A run that is asked to stop saves, and the next array resumes it."""
    return f"""#!/bin/bash
#SBATCH --job-name=shiftron-experiments
#SBATCH --array=0-{count - 1}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --signal=B:TERM@{SECONDS_TO_SAVE}
#SBATCH --chdir={shlex.quote(str(ROOT))}
#SBATCH --output={shlex.quote(str(folder).replace("%", "%%"))}/log-%A_%a.txt
eval "exec $(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {shlex.quote(str(folder / "commands"))})"
"""


def submit(folder, jobs, options, judge):
    """Submits the runs of `jobs`, with more options for sbatch. `judge`: the command that judges them. Returns the exit code; raises Fault."""
    if not jobs:
        say(f"all runs are finished\n  next: {judge}")
        return 0
    if not shutil.which("sbatch"):
        raise Fault("sbatch is missing", "repeat the command without --slurm, or on a host of a cluster")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands").write_text("".join(shlex.join(job.command) + "\n" for job in jobs), encoding="utf-8")
    (folder / "job.sh").write_text(script(folder, len(jobs)), encoding="utf-8")
    done = subprocess.run(["sbatch", "--parsable", *options, str(folder / "job.sh")], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Fault(f"sbatch refused {folder / 'job.sh'}: {done.stderr.strip()}", "look at sinfo, and add options for sbatch after --")
    number = done.stdout.strip().split(";")[0]
    say(f"job {number}: {len(jobs)} runs, one per task\n  follow: squeue -j {number}; tail {folder}/log-{number}_*.txt\n  next, when it has ended: {judge}")
    return 0
