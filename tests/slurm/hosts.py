"""Hosts that are network namespaces of this machine, with their own names, addresses and shared memory. Needs root."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

# Succeeds if a host answers at all: nothing listens on port 9, so it refuses the connection.
REFUSED = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 1)
except ConnectionRefusedError:
    pass
"""


def missing():
    """Why there can be none here; None if there can."""
    lacking = [name for name in ("ip", "nsenter", "unshare", "mpirun") if not shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    if lacking:
        return f"{', '.join(lacking)} not installed (launch/install-deps --slurm)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"shiftron-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespaces here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


def run(*words):
    subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)


class Hosts:
    """`with Hosts(folder, 2) as hosts:` h1 and h2, joined by a switch; hosts.mpirun are the words that start ranks on them from h1,
    hosts.inside(name) those that start a program on one. A host calls itself NAME.lab, as at many sites. This machine is joined to them at
    hosts.outside."""

    def __init__(self, folder, count=2):
        self.folder = pathlib.Path(folder)
        self.mark = f"sh{os.getpid() % 10000}"
        self.network = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.outside = f"{self.network}.254"
        self.names = [f"h{i + 1}" for i in range(count)]
        self.holders = {}  # host: a process that lives there

    def space(self, name):
        return f"{self.mark}-{name}"

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            run("ip", "netns", "add", self.space("switch"))
            run("ip", "-n", self.space("switch"), "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", self.space("switch"), "link", "set", "bridge", "up")
            self.join_this_machine()
            for name in self.names:
                self.add_host(name)
        except BaseException:
            self.__exit__()
            raise
        addresses = "".join(f"{self.address(name)} {name} {name}.lab\n" for name in self.names)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{addresses}{self.outside} {os.uname().nodename}\n")
        agent = self.folder / "agent"  # takes ssh's place: agent [options] HOST command…
        cases = "".join(f"    {name} | {self.address(name)}) pid={self.holders[name].pid} ;;\n" for name in self.names)
        agent.write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\ncase $host in\n' + cases +
                         '  *) echo "no host $host" >&2; exit 1 ;;\nesac\nexec nsenter -t "$pid" -n -u -m --wd="$PWD" bash -c "$*"\n')
        agent.chmod(0o755)
        (self.folder / "hostfile").write_text("".join(f"{name} slots=2\n" for name in self.names))
        return self

    def address(self, name):
        return f"{self.network}.{self.names.index(name) + 1}"

    def plug(self, link):
        run("ip", "link", "set", link, "netns", self.space("switch"))
        run("ip", "-n", self.space("switch"), "link", "set", link, "master", "bridge", "up")

    def join_this_machine(self):
        """The pair goes with the switch."""
        run("ip", "link", "add", f"{self.mark}out", "type", "veth", "peer", "name", f"{self.mark}in")
        self.plug(f"{self.mark}in")
        run("ip", "addr", "add", f"{self.outside}/24", "dev", f"{self.mark}out")
        run("ip", "link", "set", f"{self.mark}out", "up")

    def add_host(self, name):
        space = self.space(name)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", f"{self.mark}{name}", "type", "veth", "peer", "name", "eth0", "netns", space)
        self.plug(f"{self.mark}{name}")
        run("ip", "-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        script = (f"hostname {name}.lab && mount -t tmpfs none /dev/shm && mount --bind {self.folder}/hosts /etc/hosts && echo ready && "
                  "exec sleep infinity")
        (self.folder / "hosts").touch()
        # pylint: disable-next=consider-using-with
        holder = subprocess.Popen(["nsenter", f"--net=/run/netns/{space}", "unshare", "-u", "-m", "--propagation", "private", "sh", "-c", script],
                                  stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.holders[name] = holder
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"host {name} has not come up")

    def inside(self, name):
        return ["nsenter", "-t", self.holders[name].pid, "-n", "-u", "-m", f"--wd={os.getcwd()}"]

    def processes(self, name):
        """What runs on the host, except the process that holds it."""
        pids = subprocess.run(["ip", "netns", "pids", self.space(name)], capture_output=True, text=True, check=False).stdout.split()
        return [int(pid) for pid in pids if name not in self.holders or int(pid) != self.holders[name].pid]

    @property
    def mpirun(self):
        keepalive = ["--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca", "oob_tcp_keepalive_probes", "3"]
        return [*self.inside(self.names[0]), "mpirun", "--hostfile", self.folder / "hostfile",
                "--map-by", "ppr:2:node", "--bind-to", "none", "--mca", "plm_rsh_agent", self.folder / "agent", *keepalive,
                "--mca", "btl_tcp_if_include", f"{self.network}.0/24", "--mca", "oob_tcp_if_include", f"{self.network}.0/24"]

    def pull_cable(self, name):
        run("ip", "-n", self.space("switch"), "link", "set", f"{self.mark}{name}", "down")

    def plug_in(self, name):
        """Returns when the host reaches the others: right after the link comes up, its first connections can still fail."""
        run("ip", "-n", self.space("switch"), "link", "set", f"{self.mark}{name}", "up")
        for other in self.names:
            if other != name:
                self.wait_until_reachable(name, other)

    def wait_until_reachable(self, source, target, seconds=30):
        words = [*self.inside(source), sys.executable, "-c", REFUSED, self.address(target)]
        deadline = time.monotonic() + seconds
        while subprocess.run(list(map(str, words)), capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"host {source} does not reach {target} {seconds} s after its cable was plugged in")
            time.sleep(0.2)

    def __exit__(self, *_):
        for name in [*self.names, "switch"]:
            for process in self.processes(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.space(name)], capture_output=True, check=False)
        # With its space it would go later, and be in the way of the next ones of this process.
        subprocess.run(["ip", "link", "del", f"{self.mark}out"], capture_output=True, check=False)
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
            holder.stdout.close()
