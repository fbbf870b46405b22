"""The words that start ranks on this machine with the program's MPI: Open MPI's mpirun, or Hydra, which MPICH and its relatives have."""
import os
import re
import shutil
import sys

MPICH_LIBRARY = re.compile(rb"\0lib(mpich\.so|mpi\.so\.12)")  # in a program's table of names; Open MPI's library is libmpi.so.40
# Variables for the launcher and its ranks, whichever MPI it is.
# Inside an allocation the launcher would use the batch system: ranks on other hosts, or started by daemons that are not its children.
HERE_ALONE = {"OMPI_MCA_plm": "^slurm,tm,lsf", "OMPI_MCA_ras": "^slurm,tm,lsf,gridengine", "HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}
# UCX, which MPICH uses, would handle HUP even where it is ignored, and report crashes itself.
OF_RANKS = {"UCX_HANDLE_ERRORS": "none", "UCX_DEBUG_SIGNO": "0"}
# Hydra's ranks inherit its blocked signals (Open MPI unblocks them), and a descriptor to it, whose number a shell may need.
RANK_OF_HYDRA = """import fcntl, os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, [])
if "PMI_FD" in os.environ:
    os.environ["PMI_FD"] = str(fcntl.fcntl(int(os.environ["PMI_FD"]), fcntl.F_DUPFD, 100))
os.execvp(sys.argv[1], sys.argv[1:])"""


def is_mpich(program):
    """Whether the program needs MPICH's library. $SHIFTRON_MPI, mpich or openmpi, says it for a program that is a script or an image."""
    if given := os.environ.get("SHIFTRON_MPI"):
        return given == "mpich"
    try:
        with open(shutil.which(program) or program, "rb") as file:
            return file.read(4) == b"\x7fELF" and MPICH_LIBRARY.search(file.read()) is not None
    except OSError:
        return False


def launcher(program):
    """The name of the command that starts the ranks of this program."""
    return "mpiexec.hydra" if is_mpich(program) else "mpirun"


def start(program, ranks=None, patient=False):
    """Words to put before those of the ranks, which are not bound to cores; without a number of ranks: before -n N PROGRAM … : -n N PROGRAM ….
    `patient`: a rank that exits with another code than 0 does not end the others."""
    if is_mpich(program):
        words = ["mpiexec.hydra", "-bind-to", "none", *(["-disable-auto-cleanup"] if patient else [])]
    else:
        words = ["mpirun", "--oversubscribe", "--bind-to", "none", *(["--mca", "orte_abort_on_non_zero_status", "0"] if patient else [])]
    return words if ranks is None else [*words, "-n", str(ranks)]


def start_for_shells(program, ranks):
    """As start(), patient and without words of its own: for ranks that are shells, and a launcher that blocks signals, which its ranks do not."""
    words = start(program, ranks, patient=True)
    if is_mpich(program):
        return [*words, sys.executable, "-c", RANK_OF_HYDRA]
    return [words[0], "--quiet", "--mca", "mpi_yield_when_idle", "1", *words[1:]]


if __name__ == "__main__":  # python3 mpi_launcher.py RANKS PROGRAM WORD…
    os.environ.update(OF_RANKS)
    given = start(sys.argv[2], sys.argv[1]) + sys.argv[2:]
    os.execvp(given[0], given)
