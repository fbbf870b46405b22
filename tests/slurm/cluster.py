"""A private Slurm, in one folder, as any user: slurmctld and some slurmds, without munge or systemd."""
import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")
CORES_OF_NODE = 4  # stated; more than there are


def which(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing():
    """Why no cluster can be started here; None if one can."""
    lacking = [name for name in PROGRAMS if not which(name)]
    return f"{', '.join(lacking)} not installed (launch/install-deps --slurm)" if lacking else None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """`with Cluster(folder, nodes=2) as cluster:` nodes n1, n2, … are idle; the environment below reaches them. `hosts` (hosts.Hosts):
    its hosts are the nodes; else all nodes are this machine, and a job should stay on one."""

    def __init__(self, folder, nodes=2, hosts=None):
        self.folder = pathlib.Path(folder).absolute()
        self.hosts = hosts
        self.nodes = hosts.names if hosts else [f"n{i + 1}" for i in range(nodes)]
        self.processes = {}
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"),
                                PATH=os.environ["PATH"] + ":/usr/sbin:/sbin",
                                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        if not hosts:
            self.environment["OMPI_MCA_oob_tcp_if_include"] = "lo"
        for name in list(self.environment):
            if name.startswith("SLURM_") and name != "SLURM_CONF":
                del self.environment[name]

    def __enter__(self):
        for name in ("state", "spool", "log", "run", *(f"tmp/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "slurm.conf").write_text(self.configuration())
        try:
            self.start("slurmctld", [which("slurmctld"), "-D", "-i"])
            for node in self.nodes:
                self.start_node(node)
            self.wait_for(lambda: self.say("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split() == ["idle"] * len(self.nodes), 30, "idle nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.say("scancel", "--full", "-u", getpass.getuser())
            self.wait_for(lambda: not self.say("squeue", "-h"), 20, "an empty queue")
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        for process in self.left_over():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def left_over(self):
        """Processes of this cluster that are still there: their environment names its configuration."""
        mark = str(self.folder / "slurm.conf").encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if mark in (entry / "environ").read_bytes() and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
                    found.append(int(entry.name))
            except OSError:
                pass
        return [process for process in found if process != os.getppid()]

    def configuration(self):
        user, d = getpass.getuser(), self.folder
        control, *ports = free_ports(1 + len(self.nodes))
        lines = f"""ClusterName=lab
SlurmctldHost=localhost({self.hosts.outside if self.hosts else '127.0.0.1'})
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool/%n
TmpFS={d}/tmp/%n
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/slurmd.%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={d}/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmix
ReturnToService=2
SlurmdTimeout=20
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=100000,bf_interval=1,batch_sched_delay=0
KillWait=15
MinJobAge=600
"""
        for node, port in zip(self.nodes, ports):
            place = f"NodeAddr={self.hosts.address(node)}" if self.hosts else "NodeHostname=localhost NodeAddr=127.0.0.1"
            lines += f"NodeName={node} {place} Port={port} CPUs={CORES_OF_NODE} RealMemory=4000\n"
        (self.folder / "gres.conf").write_text("NodeName=gpu1 Name=gpu Count=8\n")
        # A node of GPUs that is never there.
        lines += f"GresTypes=gpu\nNodeName=gpu1 NodeHostname=nowhere NodeAddr=127.0.0.1 Port={ports[0]} CPUs={CORES_OF_NODE}"
        lines += " RealMemory=4000 Gres=gpu:8 State=DOWN\n"
        lines += "PartitionName=gpus Nodes=gpu1 State=UP\n"
        return lines + f"PartitionName=main Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP\n"

    def start(self, name, command):
        output = open(self.folder / "log" / f"{name}.out", "ab")  # pylint: disable=consider-using-with
        # Without the mark of a test's processes, which end with it: a node that is restarted during a test keeps running.
        unmarked = {name: value for name, value in self.environment.items() if not name.startswith("SHIFTRON_")}
        self.processes[name] = subprocess.Popen(list(map(str, command)), env=unmarked, stdout=output, stderr=output,
                                                stdin=subprocess.DEVNULL, start_new_session=True)
        output.close()

    def start_node(self, node):
        self.start(node, [*(self.hosts.inside(node) if self.hosts else []), which("slurmd"), "-D", "-N", node])

    def kill_node(self, node):
        """Its slurmd and all that runs there, at once: first who could still tell the controller of the others' death."""
        if self.hosts:
            self.hosts.pull_cable(node)
            for process in self.hosts.processes(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return
        log = str(self.folder / "log" / f"slurmd.{node}.log")
        mark = f"SLURMD_NODENAME={node}".encode()

        def has_its_log(process):
            return any(os.readlink(one) == log for one in (process / "fd").iterdir())

        def works(process):
            text = (process / "environ").read_bytes()
            return mark in text.split(b"\0") and str(self.folder).encode() in text

        os.kill(self.processes[node].pid, signal.SIGKILL)
        for chosen in (has_its_log, works, works):  # what was being started meanwhile too
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if chosen(process):
                        os.kill(int(process.name), signal.SIGKILL)

    def restart_node(self, node):
        """After the death of its slurmd."""
        self.processes[node].wait(10)
        if self.hosts:
            self.hosts.plug_in(node)
        self.start_node(node)
        self.wait_for(lambda: self.say("sinfo", "-h", "-N", "-n", node, "-o", "%T") in ("idle", "mixed", "allocated"), 60,
                      f"return of {node}: {(self.folder / 'log' / f'slurmd.{node}.log').read_text()[-1500:]}")

    def say(self, *command, check=True):
        """Stdout of one of Slurm's commands."""
        answer = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        if check and answer.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {answer.stderr.strip()}")
        return answer.stdout.strip()

    def job(self, number):
        """Fields of a job, as `scontrol show job` names them; {} when it is forgotten."""
        text = self.say("scontrol", "show", "job", "-o", str(number), check=False)
        return dict(field.split("=", 1) for field in text.split(" ") if "=" in field)

    def wait_for(self, holds, seconds, what):
        scale = float(os.environ.get("SHIFTRON_TEST_TIME_SCALE", "1"))
        end = time.monotonic() + seconds * scale
        while not (answer := holds()):
            if time.monotonic() > end:
                raise TimeoutError(f"no {what} within {seconds * scale:.0f} s\n{self.say('squeue', check=False)}\n{self.say('sinfo', '-N', check=False)}")
            time.sleep(0.2)
        return answer

    def ended(self, number, seconds):
        """The job's final state: COMPLETED, FAILED, CANCELLED, TIMEOUT, …"""
        final = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")
        self.wait_for(lambda: self.job(number).get("JobState") in final, seconds, f"end of job {number}")
        return self.job(number)["JobState"]
