"""Hosts that are network namespaces of this machine, with names, addresses and shared memory of their own. Needs root."""
import os
import pathlib
import shutil
import subprocess


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
    """`with Hosts(folder, 2) as hosts:` h1 and h2, joined by a switch; hosts.mpirun are the words that start ranks on them from h1."""

    def __init__(self, folder, count=2):
        self.folder = pathlib.Path(folder)
        self.mark = f"sh{os.getpid() % 10000}"
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
            for number, name in enumerate(self.names, 1):
                self.add_host(name, f"10.77.0.{number}")
        except BaseException:
            self.__exit__()
            raise
        (self.folder / "hosts").write_text("".join(f"10.77.0.{i} {name}\n" for i, name in enumerate(self.names, 1)) + "127.0.0.1 localhost\n")
        agent = self.folder / "agent"  # takes ssh's place: agent [options] HOST command…
        cases = "".join(f"    {name} | 10.77.0.{i}) pid={self.holders[name].pid} ;;\n" for i, name in enumerate(self.names, 1))
        agent.write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\ncase $host in\n' + cases +
                         '  *) echo "no host $host" >&2; exit 1 ;;\nesac\nexec nsenter -t "$pid" -n -u -m --wd="$PWD" bash -c "$*"\n')
        agent.chmod(0o755)
        (self.folder / "hostfile").write_text("".join(f"{name} slots=2\n" for name in self.names))
        return self

    def add_host(self, name, address):
        space = self.space(name)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", f"{self.mark}{name}", "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", f"{self.mark}{name}", "netns", self.space("switch"))
        run("ip", "-n", self.space("switch"), "link", "set", f"{self.mark}{name}", "master", "bridge", "up")
        run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        script = (f"hostname {name} && mount -t tmpfs none /dev/shm && mount --bind {self.folder}/hosts /etc/hosts && echo ready && exec sleep infinity")
        (self.folder / "hosts").touch()
        # pylint: disable-next=consider-using-with
        holder = subprocess.Popen(["nsenter", f"--net=/run/netns/{space}", "unshare", "-u", "-m", "--propagation", "private", "sh", "-c", script],
                                  stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.holders[name] = holder
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"host {name} has not come up")

    @property
    def mpirun(self):
        first = self.holders[self.names[0]].pid
        keepalive = ["--mca", "oob_tcp_keepalive_time", "2", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca", "oob_tcp_keepalive_probes", "3"]
        return ["nsenter", "-t", first, "-n", "-u", "-m", f"--wd={os.getcwd()}", "mpirun", "--hostfile", self.folder / "hostfile",
                "--map-by", "ppr:2:node", "--bind-to", "none", "--mca", "plm_rsh_agent", self.folder / "agent", *keepalive,
                "--mca", "btl_tcp_if_include", "10.77.0.0/24", "--mca", "oob_tcp_if_include", "10.77.0.0/24"]

    def pull_cable(self, name):
        run("ip", "-n", self.space("switch"), "link", "set", f"{self.mark}{name}", "down")

    def plug_in(self, name):
        run("ip", "-n", self.space("switch"), "link", "set", f"{self.mark}{name}", "up")

    def __exit__(self, *_):
        for name in [*self.names, "switch"]:
            pids = subprocess.run(["ip", "netns", "pids", self.space(name)], capture_output=True, text=True, check=False).stdout.split()
            for pid in pids:
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", self.space(name)], capture_output=True, check=False)
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
            holder.stdout.close()
