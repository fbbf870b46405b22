#!/usr/bin/env python3
"""launch/slurm on a private Slurm: jobs that end at their limit, are cancelled, crash, lose a node, wait for each other.

    tests/slurm/check_slurm.py [-v] [Class.test …]      skipped, with the reason, if Slurm is not installed
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]
import hosts as network  # noqa: E402
from cluster import Cluster, missing, which  # noqa: E402
from harness import PROGRAM, ROOT, SystemTest, environment, events, last_step, losses, options, processes, scaled, shiftron, step  # noqa: E402

FOUR = {"parallel.tp": 2, "train.deterministic": "repeat"}  # of 4 ranks
ENDLESS = 100_000_000  # steps
DEADLINE = 8  # seconds of a step, and of a save, in which a host may be lost too


@unittest.skipIf(missing(), missing())
class Slurm(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hosts = None
        if network.missing():
            print(f"all nodes are one host: {network.missing()}", file=sys.stderr)
        else:
            cls.hosts = network.Hosts(cls.folder / "hosts", 4).__enter__()
            cls.addClassCleanup(cls.hosts.__exit__)
        cls.cluster = Cluster(cls.folder / "cluster", nodes=4, hosts=cls.hosts)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.environment |= environment() | {name: cls.cluster.environment[name] for name in ("PATH", "SLURM_CONF")}

    def tearDown(self):
        self.cluster.say("scancel", "--full", "-u", os.environ.get("USER") or "root", check=False)
        self.cluster.wait_for(lambda: not self.cluster.say("squeue", "-h"), 60, "an empty queue")
        super().tearDown()

    def assert_gone(self, seconds=5):
        """Of the ranks; daemons of the cluster carry the mark too."""
        until = time.monotonic() + scaled(seconds)
        while (left := [one for one, rank in processes().items() if self.is_program(one)]) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(left, [], "orphans")

    @staticmethod
    def is_program(process):
        try:
            return os.path.realpath(f"/proc/{process}/exe") == os.path.realpath(PROGRAM)
        except OSError:
            return False

    def launch(self, run, *words, nodes=2, tasks=2, minutes=5, **more):
        """(exit code, stdout, stderr) of launch/slurm."""
        config = self.folder / f"{run.name}.conf"
        config.write_text(self.config_text({**self.settings(run), **FOUR, "checkpoint.every": 0}))
        keys = [word for key, value in more.items() for word in (f"--{key.replace('__', '.')}", str(value))]
        command = [ROOT / "launch" / "slurm", config, "--nodes", nodes, "--tasks-per-node", tasks, "--time", minutes, *words, *keys]
        answer = subprocess.run(list(map(str, command)), env=self.cluster.environment, capture_output=True, text=True, check=False,
                                timeout=scaled(60))
        return answer.returncode, answer.stdout, answer.stderr

    @staticmethod
    def config_text(settings):
        sections = {}
        for key, value in settings.items():
            sections.setdefault(key.split(".")[0], []).append(f"{key.split('.')[1]} = {value}")
        return "".join(f"[{name}]\n" + "\n".join(rows) + "\n" for name, rows in sections.items())

    def submit(self, run, *words, nodes=2, tasks=2, **more):
        """Numbers of the jobs. Where all nodes are one host a job has one: ranks on several nodes of one host name lose each other in Open
        MPI's TCP now and then."""
        if not self.hosts:
            nodes, tasks = 1, nodes * tasks
        code, out, err = self.launch(run, *words, nodes=nodes, tasks=tasks, **more)
        self.assertEqual(code, 0, out + err)
        return re.match(r"job ([\d, ]+):", out)[1].split(", ")

    @contextlib.contextmanager
    def program(self, lines):
        """What is submitted meanwhile runs these lines of shell before the program."""
        wrapper = self.folder / f"program-{self._testMethodName}"
        wrapper.write_text(f'#!/bin/sh\n{lines}\nexec {PROGRAM} "$@"\n')
        wrapper.chmod(0o755)
        before = self.cluster.environment["SHIFTRON"]
        self.cluster.environment["SHIFTRON"] = str(wrapper)
        try:
            yield
        finally:
            self.cluster.environment["SHIFTRON"] = before

    @contextlib.contextmanager
    def shell(self, **variables):
        """What is submitted meanwhile is so from a shell with these."""
        before = dict(self.cluster.environment)
        self.cluster.environment |= variables
        try:
            yield
        finally:
            for name in variables:
                self.cluster.environment.pop(name)
            self.cluster.environment |= {name: before[name] for name in variables if name in before}

    def log(self, run):
        return "".join(path.read_text(errors="replace") for path in sorted((run / "slurm").glob("log-*")))

    def ended(self, run, job, seconds=60):
        try:
            return self.cluster.ended(job, seconds)
        except TimeoutError as error:
            self.fail(f"{error}\n{self.log(run)[-12000:]}")
            return None

    def trains(self, run, after=2, seconds=60):
        try:
            self.cluster.wait_for(lambda: last_step(run) > after, seconds, f"a step after {after} of {run.name}")
        except TimeoutError as error:
            self.fail(f"{error}\n{self.log(run)[-12000:]}")

    def restarts(self, job):
        return int(self.cluster.job(job).get("Restarts", "0"))

    def comes_back(self, run, job, seconds=60, restarts=0):
        """Waits until the job, which had come back `restarts` times, waits in the queue again."""
        try:
            self.cluster.wait_for(lambda: self.restarts(job) > restarts, seconds, f"requeue of job {job}")
        except TimeoutError as error:
            self.fail(f"{error}\n{self.log(run)[-12000:]}")

    def set_steps(self, run, steps):
        """Of the starts that follow: they may end soon."""
        path = run / "slurm" / "config.conf"
        path.write_text(re.sub(r"(?m)^steps ?=.*$", f"steps = {steps}", path.read_text(), count=1))

    def assert_as_uninterrupted(self, run):
        """The last step of the run is, bit by bit, that of one that was never stopped."""
        last = last_step(run)
        whole = run.with_name(run.name + "-whole")
        self.expect(0, self.train(4, {**self.settings(whole, train__steps=last), **FOUR}))
        self.assert_same_step(step(run, last), step(whole, last))
        self.assertEqual(losses(run), losses(whole))

    def tell(self, run, job):
        """Sends what Slurm sends before a job's time is up. scancel was once seen not to know a job that was training, and once to fail
        though the signal had come."""
        for _ in range(3):
            try:
                return self.cluster.say("scancel", "--batch", "--signal=USR1", job)
            except RuntimeError as error:
                if self.cluster.job(job).get("JobState") != "RUNNING":
                    return None
                reported = error
                time.sleep(1)
        return self.fail(f"{reported}\n{self.cluster.job(job)}\n{self.log(run)[-12000:]}")

    def status(self, run):
        return self.must(shiftron("status", run))

    @staticmethod
    def at_once(*tests):
        """What each returns, in order: jobs mostly wait."""
        with concurrent.futures.ThreadPoolExecutor(len(tests)) as threads:
            return [one.result() for one in [threads.submit(test) for test in tests]]

    def stops_at_its_limit(self, run, *words):
        job, = self.submit(run, *words, minutes=1, train__steps=ENDLESS, checkpoint__every=10**9)  # step 0 is saved: a save's time is known
        self.trains(run)
        self.comes_back(run, job, 90, self.restarts(job))  # a signal that comes before the first step brings it back too
        stopped = last_step(run)
        self.assertEqual([event["code"] for event in events(run, "exit")], [75])
        self.set_steps(run, stopped + 3)
        self.assertRegex(self.status(run), "queued|starting")
        self.assertEqual(self.ended(run, job, 120), "COMPLETED", self.log(run)[-12000:])
        self.assertEqual(last_step(run), stopped + 3)
        self.assertIn("done", self.status(run))
        return self.log(run)

    def test_limits(self):
        """Under srun Slurm's signal comes first; under mpirun it is lost, and the run knows when the allocation ends."""
        signalled, knowing = self.folder / "limit-srun", self.folder / "limit-mpirun"
        log_of_signalled, log_of_knowing = self.at_once(lambda: self.stops_at_its_limit(signalled, "--lead", "20"),
                                                        lambda: self.stops_at_its_limit(knowing, "--launcher", "mpirun", "--lead", "0"))
        self.assertIn("srun, this Slurm has PMIx", log_of_signalled)
        self.assertFalse("of the allocation are left" in log_of_signalled)
        self.assertIn("preflight: 4 ranks fit", log_of_signalled)
        self.assertIn("mpirun, as asked", log_of_knowing)
        self.assertIn("of the allocation are left", log_of_knowing)
        for run in (signalled, knowing):
            self.assert_as_uninterrupted(run)

    def is_cancelled(self, launcher, **more):
        run = self.folder / "-".join(["cancelled", launcher, *more])
        job, = self.submit(run, "--launcher", launcher, train__steps=ENDLESS, **more)
        self.trains(run)
        self.cluster.say("scancel", job)
        self.assertEqual(self.ended(run, job), "CANCELLED")
        self.assertEqual(events(run, "exit")[-1]["code"], 75, self.log(run)[-3000:])
        self.assertTrue((step(run, last_step(run)) / "manifest.json").exists())
        self.assertEqual(self.cluster.job(job).get("Restarts"), "0")

    def test_cancelled(self):
        self.at_once(lambda: self.is_cancelled("srun"), lambda: self.is_cancelled("mpirun"))
        self.is_cancelled("srun", nodes=1, tasks=1, parallel__tp=1)  # a single rank, which knows nothing of its step
        self.assert_gone(20)

    def test_array_of_seeds(self):
        run = self.folder / "array"
        job, = self.submit(run, "--array", "3-4,7", nodes=1, tasks=2, train__steps=4)
        for seed in (3, 4, 7):
            self.assertEqual(self.ended(run, f"{job}_{seed}"), "COMPLETED", self.log(run)[-3000:])
            self.assertEqual(sorted(losses(run / f"seed-{seed}")), [1, 2, 3, 4])
        self.assertEqual(len({str(losses(run / f"seed-{seed}")) for seed in (3, 4, 7)}), 3)

    def test_experiments_as_an_array(self):
        """Two tasks train two runs, which the command that judges does not repeat."""
        item, out = self.folder / "item", self.folder / "experiments"
        item.mkdir()
        data = {split: str(self.folder / "data" / split) for split in ("train", "validation")}
        (item / "base.conf").write_text(self.config_text({**self.settings(out), "train.steps": 4}))
        (item / "experiment.json").write_text(json.dumps({"claim": "c", "configs": ["base.conf"], "data": {"commands": ["true"], **data}, "variants": {"a": {}},
                                                          "seeds": 2, "checks": [{"at_most": "a", "value": 100, "metric": "loss", "of_seeds": 2}]}))
        command = [ROOT / "experiments" / "run", item, "--out", out]
        reported = subprocess.run([*command, "--slurm", "--", "--time", "5"], env=self.cluster.environment, capture_output=True, text=True, check=False)
        self.assertEqual(reported.returncode, 0, reported.stderr)
        job = re.match(r"(?s).*^job (\d+): 2 runs", reported.stdout, re.M)[1]
        for task in (0, 1):
            self.assertEqual(self.ended(out, f"{job}_{task}"), "COMPLETED", reported.stdout)
        runs = sorted((out / "runs").iterdir())
        trained = [(run / "metrics.jsonl").read_text() for run in runs]
        self.assertEqual([sorted(losses(run)) for run in runs], [[1, 2, 3, 4]] * 2)
        done = subprocess.run(command, env=self.cluster.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("item: holds", done.stdout)
        self.assertEqual([(run / "metrics.jsonl").read_text() for run in runs], trained)

    def test_the_last_seed_of_an_array_comes_back(self):
        """Its SLURM_JOB_ID is the number of the whole array. The user's squeue shows another partition alone."""
        run = self.folder / "last-seed"
        with self.shell(SQUEUE_PARTITION="nowhere"):
            job, = self.submit(run, "--array", "0-1", nodes=1, tasks=2, train__steps=ENDLESS)
        seeds = [f"{job}_{seed}" for seed in (0, 1)]
        for seed in (0, 1):
            self.trains(run / f"seed-{seed}")
        last = next(one for one in seeds if self.cluster.job(one)["JobId"] == job)
        other = next(one for one in seeds if one != last)
        self.tell(run, last)
        self.comes_back(run, last)
        self.assertEqual((self.cluster.job(other)["JobState"], self.restarts(other)), ("RUNNING", 0), self.log(run)[-3000:])
        self.cluster.say("scancel", job)

    def test_what_a_shell_says_changes_nothing(self):
        """Variables that sbatch prefers to a script's options, and those of an allocation; a setup that changes shell options, in a job that
        begins with an empty environment."""
        run, setup, loaded = self.folder / "shell", self.folder / "strict-setup", self.folder / "loaded"
        setup.write_text("set -efuo pipefail\nexport LOADED=yes\n")
        with (self.program(f'echo "${{LOADED:-no}}" >> "{loaded}"'),
              self.shell(SBATCH_TIMELIMIT="3", SBATCH_NO_REQUEUE="1", SBATCH_EXPORT="NONE", SLURM_RESTART_COUNT="4", SLURM_MEM_PER_NODE="1")):
            job, = self.submit(run, "--setup", setup, nodes=1, tasks=2, train__steps=ENDLESS)
            loaded.write_text("")
        reported = self.cluster.job(job)
        self.assertEqual((reported["TimeLimit"], reported["Requeue"]), ("00:05:00", "1"))
        self.trains(run)
        self.tell(run, job)
        self.comes_back(run, job)
        self.assertIn("start 1 on", self.log(run))
        self.assertEqual(set(loaded.read_text().split()), {"yes"})
        self.cluster.say("scancel", job)

    def test_chain(self):
        """Of four jobs, the second is cancelled before it starts: the third does not start while the first runs."""
        run = self.folder / "chain"
        jobs = self.submit(run, "--chain", "4", train__steps=ENDLESS)
        self.assertEqual(len(jobs), 4)
        self.cluster.say("scancel", jobs.pop(1))
        for place, job in enumerate(jobs[:2]):
            self.trains(run, last_step(run) + 2)
            self.tell(run, job)
            self.assertEqual(self.ended(run, job), "FAILED", place)  # with 75: there is more to do
        self.set_steps(run, last_step(run) + 3)
        # The third one may have begun to read the old configuration.
        if self.ended(run, jobs[2], 5 if self.cluster.job(jobs[2])["JobState"] == "COMPLETED" else 60) != "COMPLETED":
            self.fail(self.log(run)[-12000:])
        self.assertEqual(len(events(run, "start")), 3)
        self.assertEqual(events(run, "queued")[1:], [])  # of the first alone: others would follow its start
        self.assert_as_uninterrupted(run)

    def test_ctrl_c_between_jobs_of_a_chain(self):
        """While sbatch has the second one: that one is reported, and there is no third."""
        run = self.folder / "interrupted"
        with self.tool("sbatch", 'if [[ $* == *" 2" ]]; then kill -INT $PPID; sleep 1; fi'):
            code, out, err = self.launch(run, "--chain", "4", nodes=1, tasks=2, train__steps=ENDLESS)
        jobs = self.cluster.say("squeue", "-h", "-o", "%A %o").splitlines()
        jobs = sorted((line.split()[0] for line in jobs if str(run) in line), key=int)
        self.cluster.say("scancel", *jobs)
        self.assertEqual((code, out, len(jobs)), (130, "", 2), err)
        self.assertIn(f"job {', '.join(jobs)} of 4 had been submitted\n  next: scancel {' '.join(jobs)}", err)

    def test_last_of_a_chain(self):
        run = self.folder / "last"
        job, = self.submit(run, "--chain", "1", nodes=1, tasks=2, train__steps=ENDLESS)
        self.trains(run)
        self.tell(run, job)
        self.assertEqual(self.ended(run, job), "FAILED")
        self.assertIn("no job of the chain is left", self.log(run))
        self.assertNotRegex(self.status(run), r"\bqueued")

    def test_requeued_by_hand(self):
        run = self.folder / "hand"
        job, = self.submit(run, nodes=1, tasks=2, train__steps=ENDLESS)
        self.trains(run)
        self.cluster.say("scontrol", "requeue", job)
        self.comes_back(run, job)
        self.cluster.wait_for(lambda: self.cluster.job(job)["JobState"] == "PENDING", 60, "end of the first start")
        self.assertRegex(self.status(run), r"\bqueued", self.log(run)[-3000:])
        self.trains(run, last_step(run) + 2)
        self.tell(run, job)
        self.comes_back(run, job, restarts=1)
        began = time.monotonic()
        self.cluster.wait_for(lambda: self.cluster.job(job)["JobState"] == "PENDING", 60, "end of the second start")
        self.assertLess(time.monotonic() - began, 12)  # not the 15 s of KillWait, which it would hold its nodes for nothing

    def test_requeues_are_forbidden(self):
        run = self.folder / "forbidden"
        setup = self.folder / "forbidden.sh"
        setup.write_text('scontrol() { if [[ $1 == requeue ]]; then echo "Requested operation is presently disabled"; return 1; fi; '
                         'command scontrol "$@"; }\n')
        job, = self.submit(run, "--setup", setup, nodes=1, tasks=2, train__steps=ENDLESS)
        self.trains(run)
        self.tell(run, job)
        self.assertEqual(self.ended(run, job), "FAILED")
        self.assertIn("Slurm refuses to requeue", self.log(run))
        self.assertNotRegex(self.status(run), r"\bqueued")

    def test_odd_names(self):
        """What the shell, sbatch and Slurm's names of files would take apart, in a locale without ü; and a variable that nproc looks at."""
        run = self.folder / "50 %j, \"a\" it's ü"
        for name, value in {"OMP_NUM_THREADS": "1", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}.items():
            self.cluster.environment[name] = value
            self.addCleanup(self.cluster.environment.pop, name)
        data = f"{self.folder / 'data' / 'train'}:0.5"
        job, = self.submit(run, nodes=1, tasks=2, train__steps=4, data__train=data)
        self.assertEqual(self.ended(run, job), "COMPLETED", self.log(run)[-3000:])
        self.assertIn("done", self.log(run))
        cores = subprocess.run(["lscpu", "-p=CORE,SOCKET"], capture_output=True, text=True, check=True).stdout.splitlines()
        cores = min(len({line for line in cores if not line.startswith("#")}), len(os.sched_getaffinity(0)))
        self.assertIn(f"{cores // 2} cores per rank", self.log(run))

    def test_a_node_dies(self):
        run = self.folder / "node"
        job, = self.submit(run, train__steps=ENDLESS, checkpoint__every=20, fault__step_deadline=DEADLINE, fault__checkpoint_deadline=DEADLINE)
        self.trains(run, 25)
        node = self.other_node(job) if self.hosts else self.cluster.job(job)["NodeList"]
        restarts = self.restarts(job)
        self.cluster.kill_node(node)
        try:
            self.comes_back(run, job, 120, restarts)
            if self.hosts:  # who is left says so and leaves; else the job dies with its only node
                self.assertEqual([one["code"] for one in events(run, "exit")][:1], [71], self.log(run)[-12000:])
            self.set_steps(run, last_step(run) + 3)
            self.assertEqual(self.ended(run, job, 120), "COMPLETED", self.log(run)[-12000:])
            self.assertNotIn(node, self.nodes_of(job))
            self.assert_as_uninterrupted(run)
        finally:
            self.cluster.restart_node(node)

    def nodes_of(self, job):
        return self.cluster.say("scontrol", "show", "hostnames", self.cluster.job(job)["NodeList"]).split()

    def other_node(self, job):
        """One that does not run the job's script."""
        return next(node for node in self.nodes_of(job) if node != self.cluster.job(job)["BatchHost"])

    def test_a_bad_configuration(self):
        run = self.folder / "bad"
        code, out, err = self.launch(run, parallel__tp=3)
        self.assertEqual(code, 76, out)
        self.assertIn("not divisible", err)
        self.assertFalse(run.exists())
        job, = self.submit(run, "--lead", "30", train__steps=5)
        self.assertEqual(self.ended(run, job), "COMPLETED")
        path = run / "slurm" / "config.conf"
        path.write_text(path.read_text().replace("layers = 2", "layers = 3"))
        job = self.cluster.say("sbatch", "--parsable", str(run / "slurm" / "job.sh"))
        self.assertEqual(self.ended(run, job), "FAILED")
        self.assertEqual(self.cluster.job(job)["ExitCode"], "76:0", self.log(run)[-3000:])
        self.assertEqual(self.cluster.job(job)["Restarts"], "0", self.log(run)[-5000:])
        self.assertRegex(self.status(run), "^done ")
        self.assertIn("a later start failed at", self.status(run))

    def test_two_jobs_of_one_run(self):
        run = self.folder / "two"
        first, = self.submit(run, nodes=1, tasks=2, train__steps=ENDLESS)
        self.trains(run)
        second = self.cluster.say("sbatch", "--parsable", str(run / "slurm" / "job.sh"))
        self.assertEqual(self.ended(run, second), "FAILED")
        self.assertEqual(self.cluster.job(second)["ExitCode"], "76:0", self.log(run)[-3000:])
        self.assertIn("is in use", self.log(run))
        self.assertEqual(self.cluster.job(first)["JobState"], "RUNNING")
        self.assertRegex(self.status(run), f"^running for .*job {first} on ")
        config = (run / "slurm" / "config.conf").read_text()
        code, out, err = self.launch(run, nodes=1, tasks=2, train__steps=5)
        self.assertEqual(code, 76, out)
        self.assertIn(f"job {first} of {run} is already in the queue", err)
        link = self.folder / "link"
        link.symlink_to(self.folder)
        with self.shell(SQUEUE_STATES="PENDING"):
            code, out, err = self.launch(link / run.name, nodes=1, tasks=2, train__steps=5)
        self.assertEqual(code, 76, out)
        self.assertIn(f"job {first} of ", err)
        self.assertEqual((run / "slurm" / "config.conf").read_text(), config)  # with which the first one comes back

    def is_cancelled_before_it_trains(self, name, begins, *words):
        """When what `begins(folder)` submits has made a folder in that one."""
        run, begun = self.folder / name, self.folder / f"{name}-has-begun"
        begun.mkdir()
        with begins(begun):
            job, = self.submit(run, *words, nodes=1, tasks=2, train__steps=ENDLESS)
        self.cluster.wait_for(lambda: list(begun.iterdir()), 60, f"begin of {name}")
        self.cluster.say("scancel", job)
        self.assertEqual(self.ended(run, job), "CANCELLED", self.log(run)[-3000:])
        self.assertEqual(self.cluster.job(job)["Restarts"], "0", self.log(run)[-3000:])
        self.assertRegex(self.status(run), "(?s)^saved for .*stopped and not requeued")
        self.assertNotIn("crash", self.log(run))
        self.assertFalse((run / "slurm" / "crashes").exists())

    @contextlib.contextmanager
    def tool(self, name, lines):
        """What is submitted meanwhile runs these lines of bash before one of Slurm's commands."""
        tools = self.folder / f"tools-{self._testMethodName}"
        tools.mkdir()
        (tools / name).write_text(f'#!/bin/bash\n{lines}\nexec {which(name)} "$@"\n')
        (tools / name).chmod(0o755)
        path = self.cluster.environment["PATH"]
        self.cluster.environment["PATH"] = f"{tools}:{path}"
        try:
            yield
        finally:
            self.cluster.environment["PATH"] = path

    def test_cancelled_while_it_is_set_up(self):
        setup = self.folder / "slow-setup"
        setup.write_text(f'mkdir "{self.folder}/setting-up-has-begun/x"; sleep 20\n')
        self.is_cancelled_before_it_trains("setting-up", lambda _: contextlib.nullcontext(), "--setup", setup)

    def test_cancelled_while_it_asks_for_its_end(self):
        """Slurm then says that the job ends now: that is no time limit, after which it would be requeued."""
        self.is_cancelled_before_it_trains("asking", lambda begun: self.tool("squeue", (
            f'if [[ $* == *%e* ]]; then trap "" TERM; mkdir "{begun}/x" && '
            f'while [[ $({which("squeue")} -h -j "$SLURM_JOB_ID" -o %T) == RUNNING ]]; do sleep 0.1; done; fi')))

    def test_programs_in_a_shell_of_srun_are_alone(self):
        """As in srun --pty bash, whose shell has the variables of a step of one task: of PMIx too, which serves a rank once."""
        for mpi in ("none", "pmix"):
            run = self.folder / f"shell-{mpi}"
            generate = ["generate", "--checkpoint", step(run, 2), "--prompt", "The", "--tokens", "2", "--json"]  # an untrained model may write any bytes
            lines = [["train", *options(self.settings(run, train__steps=2))], generate]
            programs = " && ".join(shlex.join(map(str, [PROGRAM, *line])) for line in lines)
            self.cluster.say("srun", "--ntasks=1", f"--mpi={mpi}", "bash", "-c", programs)
            self.assertEqual(last_step(run), 2)

    def test_cancelled_while_srun_is_started(self):
        """It loses the first signals; and 15 s after them Slurm would kill the job's script, which could then report nothing."""
        self.is_cancelled_before_it_trains("starting", lambda begun: self.tool("srun", (
            'if [[ " $* " == *" preflight "* ]]; then trap "" TERM; trap "((++met > 1)) && exit 138" USR1; '
            f'mkdir "{begun}/x"; for ((i = 0; i < 300; i++)); do sleep 0.1; done; fi')))

    def test_cancelled_while_it_looks_at_its_hosts(self):
        self.is_cancelled_before_it_trains("looking", lambda begun: self.program(f'[ "$1" = preflight ] && mkdir "{begun}/$SLURM_PROCID" && sleep 20'))

    def test_cancelled_while_ranks_are_started(self):
        self.is_cancelled_before_it_trains("beginning", lambda begun: self.program(
            f'[ "$1" = train ] && [ -n "$SLURM_PROCID" ] && mkdir "{begun}/$SLURM_PROCID" && sleep 20'))

    def test_launch_local_in_an_allocation(self):
        """Its ranks are of this host and its own, whatever the allocation says."""
        run = self.folder / "allocation"
        keys = [f"--{key}={value}" for key, value in {**self.settings(run, train__steps=ENDLESS), **FOUR}.items()]
        command = ["salloc", "--quiet", "-N2", "-n2", "-t5", ROOT / "launch" / "local", "4", "train", *keys]
        with subprocess.Popen(list(map(str, command)), env=self.cluster.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
            self.trains(run)
            hosts, = [event["hosts"] for event in events(run, "start")]
            subprocess.run(["pkill", "-TERM", "-P", str(job.pid)], check=True)
            try:
                err = job.communicate(timeout=scaled(60))[1]
            finally:
                subprocess.run(["pkill", "-KILL", "-P", str(job.pid)], check=False)
        self.assertEqual(hosts, {os.uname().nodename: 4})
        self.assertIn("asking all ranks to save", err)
        self.assertEqual(events(run, "exit")[-1]["code"], 75, err)
        self.assert_gone()

    def test_crashes_without_a_newer_step(self):
        run = self.folder / "crash-loop"
        with self.program('[ "$1" = train ] && case " $* " in *--dry-run*) ;; *) kill -9 $$ ;; esac'):
            job, = self.submit(run, "--most-crashes", "2", nodes=1, tasks=2, train__steps=5)
        self.comes_back(run, job)
        self.assertEqual(self.ended(run, job, 60), "FAILED")
        self.assertEqual(self.cluster.job(job)["ExitCode"], "93:0", self.log(run)[-3000:])
        self.assertEqual(self.cluster.job(job)["Restarts"], "1")
        self.assertIn("crashed 2 times", self.status(run))

    def test_a_crash_before_any_rank_has_begun(self):
        """It is started once more on the hosts that it has, and does not wait in the queue again."""
        run = self.folder / "no-begin"
        met = self.folder / "met"
        met.mkdir()
        with self.program(f'[ -n "$SLURM_PROCID" ] && mkdir "{met}/$1-$SLURM_PROCID" 2> /dev/null && kill -SEGV $$'):
            job, = self.submit(run, nodes=1, tasks=2, train__steps=4)
        self.assertEqual(self.ended(run, job), "COMPLETED", self.log(run)[-12000:])
        self.assertEqual(self.cluster.job(job)["Restarts"], "0", self.log(run)[-12000:])
        self.assertEqual(self.log(run).count("once more"), 2)
        self.assertEqual(sorted(losses(run)), [1, 2, 3, 4])

    def test_an_unfit_host(self):
        """One of three has another program: the check of the hosts names it, and a job without it continues."""
        if not self.hosts:
            self.skipTest("all nodes are one host")
        other = self.folder / "other"
        shutil.copy(PROGRAM, other)
        with open(other, "ab") as stream:
            stream.write(b"another build")
        run = self.folder / "unfit"
        with self.program(f'[ "$(hostname)" = h2.lab ] && exec {other} "$@"'):
            self.cluster.say("scontrol", "update", "nodename=h4", "state=drain", "reason=kept for later")
            job, = self.submit(run, nodes=3, tasks=1, parallel__tp=1, train__global_batch=6, train__steps=4)
        self.assertEqual(self.ended(run, job), "FAILED")
        self.cluster.say("scontrol", "update", "nodename=h4", "state=resume")
        self.assertEqual(self.cluster.job(job)["ExitCode"], "70:0", self.log(run)[-12000:])
        self.assertIn("unfit: h2", self.log(run))
        following = events(run, "queued")[-1]["job"]
        self.assertNotEqual(following, job)
        self.assertEqual(self.cluster.job(following)["ExcNodeList"], "h2")
        self.assertEqual(self.ended(run, following), "COMPLETED")
        self.assertEqual(sorted(losses(run)), [1, 2, 3, 4])
        self.assertIn("done", self.status(run))
        self.assertIn(following, self.status(run))

    def test_a_controller_that_is_away(self):
        """squeue never answers and scontrol does at the second call: the run trains without knowing its end, and comes back."""
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "squeue").write_text("#!/bin/sh\nexit 1\n")
        (tools / "scontrol").write_text(f'#!/bin/sh\nmkdir {tools}/asked 2> /dev/null && exit 1\nexec {which("scontrol")} "$@"\n')
        for tool in tools.iterdir():
            tool.chmod(0o755)
        run = self.folder / "away"
        path = self.cluster.environment["PATH"]
        self.cluster.environment["PATH"] = f"{tools}:{path}"
        try:
            job, = self.submit(run, train__steps=ENDLESS)
        finally:
            self.cluster.environment["PATH"] = path
        self.trains(run)
        self.tell(run, job)
        self.comes_back(run, job)
        self.assertTrue((tools / "asked").exists())
        self.set_steps(run, last_step(run) + 3)
        self.assertEqual(self.ended(run, job), "COMPLETED", self.log(run)[-12000:])

    def test_stopped_again_and_again_before_it_begins(self):
        """As if the time to save were longer than what is left after its setup."""
        run = self.folder / "stopped-early"
        setup = self.folder / "stopping-setup"
        setup.write_text("kill -USR1 $$\n")
        job, = self.submit(run, "--setup", setup, "--most-crashes", "2", nodes=1, tasks=2, train__steps=5)
        self.comes_back(run, job)
        self.assertEqual(self.ended(run, job, 60), "FAILED")
        self.assertEqual(self.cluster.job(job)["ExitCode"], "93:0", self.log(run)[-3000:])
        self.assertIn("the last one stopped before it began", self.status(run))

    def test_all_hosts_are_unfit(self):
        """None can write where the run lives: no other hosts are tried."""
        if not self.hosts:
            self.skipTest("all nodes are one host")
        run = self.folder / "unwritable"
        for host in self.hosts.names:
            for rank in (0, 1):
                (run / f".preflight-{host}.lab-{rank}" / "in the way").mkdir(parents=True)
        job, = self.submit(run, nodes=2, tasks=1, parallel__tp=1, train__steps=4)
        self.assertEqual(self.ended(run, job), "FAILED")
        self.assertEqual(self.cluster.job(job)["ExitCode"], "76:0", self.log(run)[-3000:])
        self.assertIn("failed", self.status(run))

    def test_words_that_are_refused(self):
        run = self.folder / "words"
        for words, phrase in ((["--nodes", "a"], "invalid int value: 'a'"), (["--nodes", "0"], "--nodes is 0"), (["--chain", "-1"], "--chain is -1"),
                              (["--lead", "-1"], "--lead is -1, must be at least 0"),
                              (["--time", "1h"], "--time is '1h'"), (["--array", "a-b"], "--array is 'a-b'"), (["--bogus", "3"], "--bogus 3"),
                              (["--array", "1", "--chain", "2"], "together"), (["--setup", "nowhere"], "nowhere is not a file"),
                              (["--array", "3-1"], "--array is '3-1'"), (["--array", "\u0663"], "--array is"), (["--array", "0-99999999"], "1000 at most"),
                              (["--array", ""], "--array is ''"), (["--setup", ""], "--setup  is not a file"),
                              (["--lead", "200"], "more than half"), (["--data.train", "nowhere"], "which has no dataset.json"),
                              (["--data.train", "nowhere", "--data.train", str(self.folder / "data" / "train")], "data.train is nowhere"),
                              (["--data.validation", "nowhere"], "data.validation is nowhere"),
                              (["--evaluation.every", "10"], "data.validation is required"),
                              (["--output.directory", "/proc/none"], "/proc/none"),
                              (["--output.directory", str(self.folder / "a\\b")], "a\\b has a \\ in its name"),
                              (["--train.stpes", "3"], "did you mean --train.steps?"), (["--partition", "none"], "invalid partition")):
            with self.subTest(words):
                code, out, err = self.launch(run, *words)
                self.assertEqual(code, 76, out + err)
                self.assertIn(phrase, err)
                self.assertIn("next: ", err)
                self.assertNotIn("Traceback", err)

    def test_a_full_disk(self):
        run = self.folder / "full"
        (run / "slurm").mkdir(parents=True)
        (run / "slurm" / "config.conf.new").symlink_to("/dev/full")
        code, out, err = self.launch(run)
        self.assertEqual(code, 76, out + err)
        self.assertIn("cannot write to output.directory: No space left on device", err)

    def test_a_folder_that_is_gone(self):
        """In which the command is given."""
        gone = self.folder / "gone"
        gone.mkdir()
        answer = subprocess.run(["bash", "-c", f'cd "{gone}" && rmdir "{gone}" && "{ROOT}/launch/slurm" a.conf --nodes 1 --tasks-per-node 2 --time 5'],
                                env=self.cluster.environment, capture_output=True, text=True, check=False)
        self.assertEqual(answer.returncode, 76, answer.stderr)
        self.assertIn("the current directory no longer exists", answer.stderr)

    def test_a_dry_run_writes_nothing(self):
        run = self.folder / "dry"
        code, out, err = self.launch(run, "--dry-run", "--partition", "main", "--account", "us", "--cpus-per-task", "2")
        self.assertEqual(code, 0, err)
        for line in ("--partition=main", "--account=us", "--cpus-per-task=2", "--nodes=2", "--ntasks-per-node=2", "--signal=B:USR1@150"):
            self.assertIn(f"#SBATCH {line}\n", out)
        self.assertEqual(subprocess.run(["bash", "-n"], input=out, text=True, check=False).returncode, 0)
        self.assertFalse(run.exists())

    def test_a_reader_that_has_left_is_no_fault(self):
        self.launch(self.folder / "left", "--dry-run")  # writes left.conf
        command = f'"{ROOT}/launch/slurm" "{self.folder}/left.conf" --nodes 1 --tasks-per-node 4 --time 5 --dry-run | true; exit "${{PIPESTATUS[0]}}"'
        answer = subprocess.run(["bash", "-c", command], env=self.cluster.environment, capture_output=True, text=True, check=False)
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))

    def test_gpus_that_a_run_leaves_idle_are_reported(self):
        run = self.folder / "idle"
        any_build = 'for word; do shift; [ "$word" = --to-start ] || set -- "$@" "$word"; done'  # plans for GPUs
        for words, more, reported in ((["--partition", "gpus"], {}, True), ([], {}, False), (["--partition", "gpus"], {"device__kind": "cuda"}, False)):
            with self.subTest(words=words, more=more), self.program(any_build):
                code, out, err = self.launch(run, "--dry-run", *words, **more)
                self.assertEqual(code, 0, err)
                self.assertEqual("partition gpus has GPUs (gpu:8), which this run leaves idle" in err, reported, err)
                self.assertEqual("#SBATCH --gpus-per-node=2\n" in out, bool(more))

    def test_times_and_lines_of_others(self):
        run = self.folder / "lines"
        run.mkdir()
        (run / "events.jsonl").write_text('{"event":"checkpoint"}\n{"event":"checkpoint","seconds":"x"}\n[1]\n'
                                          '{"event":"checkpoint","seconds":30}\nhalf{"')
        passed = '{"step_seconds":1000}\n' * 100 + " " * (5 << 20) + "\n"  # long ago
        (run / "metrics.jsonl").write_text(passed + '{"step_seconds":null}\n{"step_seconds":NaN}\n{"step_seconds":10}\n')
        for minutes in ("UNLIMITED", "0", "1-0", "2:00:00"):
            code, out, err = self.launch(run, "--dry-run", minutes=minutes)
            self.assertEqual(code, 0, err)
            self.assertIn("#SBATCH --signal=B:USR1@180\n", out)  # a minute, three saves and three steps


if __name__ == "__main__":
    unittest.main(verbosity=2)
