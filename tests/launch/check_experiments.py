#!/usr/bin/env python3
"""experiments/run: measures of finished runs, items that a program judges, runs as an array job of Slurm.

    check_experiments.py PROGRAM
"""
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
# pylint: disable=wrong-import-position
from check_comparisons import ROOT, InFolder, PROGRAM, make_run
import array_job
import definition
import test_values
from items import item_of
from run_values import Fault, Run
from side_by_side import Job, Scheduler
from time_scale import scaled

# A shiftron whose runs are there at once: their held-out loss is their seed, their last step 100.
FAKE = """#!/usr/bin/env python3
import os, pathlib, sys
words = sys.argv[1:]
if words[0] == "train":
    seed, run = words[words.index("--train.seed") + 1], pathlib.Path(words[words.index("--output.directory") + 1])
    with open(os.environ["FAKE_FOLDER"] + "/trained", "a") as stream:
        stream.write(seed)
    for step in (50, 100):
        (run / "checkpoints" / f"step-{step:08}").mkdir(parents=True)
        (run / "checkpoints" / f"step-{step:08}" / "manifest.json").touch()
    (run / "config.conf").write_text(f"[train]\\nseed = {seed}\\n")
    (run / "metrics.jsonl").write_text('{"step": 100, "loss": 1, "tokens": 1, "validation_loss": %s}\\n' % seed)
"""
# Prints {"at": {"step": …, "seed": …}} of a step's directory, and notes each call.
MEASURE = """import json, os, pathlib, sys
step = pathlib.Path(sys.argv[1])
with open(os.environ["FAKE_FOLDER"] + "/measured", "a") as stream:
    stream.write("x")
seed = (step.parents[1] / "config.conf").read_text().split("= ")[1]
print(json.dumps({"at": {"step": int(step.name[5:]), "seed": int(seed)}, "name": "no number"}))
"""


class WithItem(InFolder):
    def setUp(self):
        super().setUp()
        self.item = self.folder / "mine"
        self.item.mkdir()
        (self.item / "base.conf").write_text("[train]\nsteps = 100\n")
        (self.item / "measure.py").write_text(MEASURE)
        fake = self.folder / "fake"
        fake.write_text(FAKE)
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)

    def write(self, **keys):
        training = {"configs": ["base.conf"], "data": {"commands": ["true"], "train": "t", "validation": "v"}, "variants": {"a": {}}, "seeds": 2}
        stated = {"claim": "c", **({} if "program" in keys else training), **keys}
        (self.item / "experiment.json").write_text(json.dumps(stated))

    def measured(self, measure="{python} {item}/measure.py {step}", value=0.5, metric="heads.at.seed"):
        self.write(measures={"heads": measure}, checks=[{"at_least": "a", "value": value, "metric": metric, "of_seeds": 2}])

    def start_item(self, *words):
        environment = {**os.environ, "SHIFTRON": str(self.folder / "fake"), "FAKE_FOLDER": str(self.folder)}
        return subprocess.Popen([ROOT / "experiments" / "run", self.item, *words, "--out", self.folder / "out"], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_item(self, *words):
        with self.start_item(*words) as item:
            out, err = item.communicate()
        return subprocess.CompletedProcess(item.args, item.returncode, out, err)

    def result(self):
        return json.loads((self.folder / "out" / "mine" / "result.json").read_text())

    def count(self, name):
        return len((self.folder / name).read_text())


class Frame(WithItem):
    def test_a_run_is_measured_once(self):
        self.measured()
        first = self.run_item()
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        self.assertEqual((self.result()["verdict"], self.result()["checks"][0]["differences"]), ("holds", {"1": 0.5, "2": 1.5}))
        run = pathlib.Path(self.result()["runs"]["a"][0])
        self.assertEqual(json.loads((run / "measures" / "heads.json").read_text())["at"], {"step": 100, "seed": 1})
        self.assertIn("<svg", (self.folder / "out" / "mine" / "picture.svg").read_text())
        self.assertIn("2 of 2 runs were already finished", self.run_item().stdout)
        self.measured(value=1.5)  # another check is no other command
        self.run_item()
        self.assertEqual((self.result()["verdict"], self.count("measured")), ("fails", 2))
        self.measured("{python} -B {item}/measure.py {step}")
        self.run_item()
        self.assertEqual(self.count("measured"), 4)
        (self.item / "measure.py").write_text(MEASURE + "# another program\n")
        self.run_item()
        (run / "measures" / "heads.json").unlink()
        self.run_item()
        self.assertEqual((self.count("measured"), self.count("trained")), (7, 2))

    def test_a_measure_fails_and_its_run_stays_finished(self):
        for command, text in (("{python} {item}/none.py", "none.py"), ("echo word", "did not print a JSON object but b'word\\n'")):
            self.measured(command)
            failed = self.run_item()
            self.assertNotEqual(failed.returncode, 0)
            self.assertIn("mine a seed 1, heads failed with", failed.stderr)
            self.assertIn(text, failed.stderr)
            self.assertIn("-heads.log", failed.stderr)
            self.assertIn("next: fix the cause, then experiments/run", failed.stderr)
            self.assertEqual((self.result()["verdict"], self.result()["notes"]), ("too small", ["0 of 2 measures of runs are finished"]))
        self.measured(metric="heads.name")
        self.run_item()
        self.assertIn("heads.json has no number name; it has at.step, at.seed", self.result()["notes"][0])
        self.measured()
        self.assertEqual(self.run_item().returncode, 0)
        self.assertEqual((self.result()["verdict"], self.count("trained")), ("holds", 2))

    def test_a_measure_that_is_stopped_is_made_by_the_next_call(self):
        (self.item / "measure.py").write_text(MEASURE + """
import time
print(os.getpid(), file=open(os.environ["FAKE_FOLDER"] + "/process", "w"), flush=True)
while not os.path.exists(os.environ["FAKE_FOLDER"] + "/go"): time.sleep(0.05)
""")
        self.measured()
        with self.start_item() as stopped:
            self.wait_for(self.folder / "process")
            stopped.send_signal(signal.SIGINT)
            self.assertIn("the runs are saved", stopped.communicate()[1])
        self.assertEqual(stopped.returncode, 75)
        process = pathlib.Path("/proc") / (self.folder / "process").read_text().strip()
        end = time.monotonic() + scaled(30)
        while process.exists() and time.monotonic() < end:
            time.sleep(0.02)
        self.assertFalse(process.exists(), "the measure outlives its scheduler")
        (self.folder / "go").touch()
        self.assertEqual(self.run_item().returncode, 0)
        self.assertEqual((self.result()["verdict"], self.count("trained")), ("holds", 2))

    def test_a_program_is_judged_without_seeds(self):
        program = ["{python}", "-c", "import json; print(json.dumps(dict(t=dict(error=0.5))))"]
        for check, verdict in (({"at_most": "t.error", "value": 0.5}, "holds"), ({"at_most": "t.error", "value": 0.4}, "fails"),
                               ({"at_least": "t.error", "value": 0.5}, "holds"), ({"at_least": "t.error", "value": 0.6}, "fails")):
            self.write(program=program, checks=[check])
            answer = self.run_item()
            self.assertEqual((answer.returncode, self.result()["verdict"], self.result()["checks"][0]["value"]), (0, verdict, 0.5), answer.stderr)
        self.write(program=program, checks=[{"at_most": "t.eror", "value": 1}])
        answer = self.run_item()
        self.assertEqual((answer.returncode, self.result()["verdict"]), (76, "not judged"))
        self.assertIn("has no number t.eror; it has t.error", answer.stderr)
        self.write(program="{python} {item}/../test_values.py {shiftron} some_tests *", checks=[{"at_most": "failed", "value": 0}])
        (self.folder / "test_values.py").write_text((ROOT / "experiments" / "test_values.py").read_text())
        self.assertIn("next: cmake --build --preset release --target some_tests", self.run_item().stderr)

    def test_faults_of_measures_and_programs_are_named(self):
        check = {"at_least": "a", "value": 1}
        for keys, text in (({"measures": {"a b": "x"}, "checks": [check]}, "the measure 'a b'"), ({"measures": {"m": "x {stp}"}, "checks": [check]}, "has {stp} in the command m"),
                           ({"measures": {"m": "x"}, "checks": [{**check, "metric": "m.v", "last": 3}]}, "a measure is taken once"),
                           ({"checks": [{**check, "last": 0}]}, "last must be a number of rows"), ({"seconds": {"b": 3}, "checks": [check]}, "the seconds 3 of b"),
                           ({"program": "x", "seeds": 2, "checks": [{"at_most": "v", "value": 1}]}, "both program and seeds"),
                           ({"program": "x {step}", "checks": [{"at_most": "v", "value": 1}]}, "has {step} in the command program"),
                           ({"program": "x", "checks": [{"lower": "v", "than": "w"}]}, "needs at_least or at_most"),
                           ({"program": "x", "checks": [{"at_most": "v", "value": "1"}]}, "whose value is not a number")):
            self.write(**keys)
            with self.assertRaises(Fault) as caught:
                definition.Definition(self.item)
            self.assertIn(text, str(caught.exception))

    def test_two_measures_of_one_name(self):
        """Of a run that two items share."""
        self.measured()
        other = self.folder / "other"
        other.mkdir()
        for name in ("base.conf", "measure.py", "experiment.json"):
            (other / name).write_text((self.item / name).read_text())
        answer = self.run_item(other)
        self.assertIn("measure the same run with different commands", answer.stderr)

    def test_the_mean_of_the_last_rows(self):
        run = Run(make_run(self.folder / "run", 1, 4.0))  # loss 5 - step / 100, held-out loss every 10 steps down to 4
        self.assertAlmostEqual(run.value("loss"), 4.095)
        self.assertAlmostEqual(run.value("loss", last=4), 4.015)
        self.assertAlmostEqual(run.value("loss", step=50, last=2), 4.505)
        self.assertAlmostEqual(run.value("validation_loss", last=3), 4.1)
        self.assertAlmostEqual(run.value("loss", last=1000), 4.495)

    def test_jobs_wait_for_others(self):
        """`next` must not start before `first` has ended, and never after one that failed."""
        scheduler = Scheduler(self.folder / "out", "again", at_once=2)
        mark = self.folder / "mark"
        first = Job("first", ["sh", "-c", f"sleep 0.3; touch {mark}"], self.folder / "1")
        bad = Job("bad", ["false"], self.folder / "2")
        jobs = [first, Job("next", ["test", "-e", mark], self.folder / "3", after=first), bad, Job("never", ["true"], self.folder / "4", after=bad),
                Job("other", ["true"], self.folder / "5")]
        scheduler.run(jobs)
        self.assertEqual(([scheduler.is_finished(job) for job in jobs], list(scheduler.failed)), ([True, True, False, False, True], ["bad"]))

    def test_values_of_a_test_report(self):
        report = {"testsuites": [{"testsuite": [{"name": "A", "status": "RUN", "x.worst": "1e-3", "file": "a.cpp"},
                                                {"name": "B", "status": "RUN", "x.other": "2", "failures": [{"failure": "no"}]}, {"name": "C", "status": "NOTRUN"}]}]}
        self.assertEqual(test_values.values_of(report), {"run": 2, "failed": 1, "x": {"worst": 0.001, "other": 2.0}})

    def test_the_list_states_times(self):
        listed = subprocess.run([ROOT / "experiments" / "run", "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
        minutes = {line.split()[0]: int(line.split()[1]) for line in listed}
        self.assertEqual(minutes["fig7"], 21)  # 2 variants, 5 seeds, 10 + 21 + 54 + 43 s
        self.assertIn("on one core; runs that items share count once", listed[-1])

    def test_items_that_share_all_their_runs(self):
        names = {one.name: {job.name for _, job in item_of(one, self.folder, False).jobs() if job.run}
                 for one in definition.find(["fig4", "fig6", "fig7", "table4", "fig5a"])}
        for name, other in (("fig4", "fig7"), ("fig6", "fig7"), ("table4", "fig5a")):
            self.assertEqual(names[name] - names[other], set(), name)


class Slurm(WithItem):
    def test_runs_as_an_array(self):
        """sbatch is one that notes its words; what it is given is run here, task by task."""
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "sbatch").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {self.folder}/words\necho "7;lab"\n')
        (tools / "sbatch").chmod(0o755)
        self.measured()
        environment = {**os.environ, "SHIFTRON": str(self.folder / "fake"), "FAKE_FOLDER": str(self.folder), "PATH": f"{tools}:{os.environ['PATH']}"}
        command = [ROOT / "experiments" / "run", self.item, "--out", self.folder / "out folder"]
        answer = subprocess.run([*command, "--slurm", "--", "--time", "9"], env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn(f"next, when it has ended: experiments/run {self.item} --out '{self.folder}/out folder'\n", answer.stdout)
        words = (self.folder / "words").read_text().split("\n")
        self.assertEqual(words[:3], ["--parsable", "--time", "9"])
        script = pathlib.Path(words[3])
        self.assertIn("#SBATCH --array=0-1\n", script.read_text())
        for task in range(2):
            subprocess.run(["bash", script], env={**environment, "SLURM_ARRAY_TASK_ID": str(task)}, check=True)
        self.assertEqual((self.folder / "trained").read_text(), "12")
        self.assertIn("job 7: 2 runs", answer.stdout)

    def test_nothing_is_left_to_submit(self):
        self.assertEqual(array_job.submit(self.folder / "slurm", [], [], "experiments/run x"), 0)
        self.assertFalse((self.folder / "slurm").exists())


@unittest.skipUnless((PROGRAM.parent / "tests" / "kernels_tests").exists(), "kernels_tests is not built")
class Theorems(InFolder):
    def test_they_hold(self):
        command = [ROOT / "experiments" / "run", "theorems", "--out", self.folder]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "SHIFTRON": str(PROGRAM)})
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        result = json.loads((self.folder / "theorems" / "result.json").read_text())
        self.assertEqual(result["verdict"], "holds", result["measured"])
        values = {check["what"]: check["value"] for check in result["checks"]}
        self.assertTrue(0.001 < values["theorem1.error_over_bound"] < 0.1, values)  # measured, and not the bound itself
        self.assertGreater(values["theorem2.full_difference"], 0.1)
        # Of Figure 2 there are two formulas, in C++ next to the kernels and in Python for the picture.
        tests = json.loads((self.folder / "theorems" / "values.json").read_text())["figure2"]
        answer = subprocess.run([sys.executable, "-B", ROOT / "experiments" / "fig2" / "loss.py", self.folder / "picture.svg"], capture_output=True, check=True)
        for tokens, value in json.loads(answer.stdout).items():
            self.assertAlmostEqual(value["margin"], tests[f"margin_{tokens[1:]}"], delta=1e-12)
        self.assertIn("<svg", (self.folder / "picture.svg").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
