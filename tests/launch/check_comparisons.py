#!/usr/bin/env python3
"""Statistics, pairing and pictures of `shiftron compare`, the scheduler of launch/seeds, and the framework of experiments.

    check_comparisons.py PROGRAM
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "launch"), str(ROOT / "experiments"), str(ROOT / "tests")]
# pylint: disable=wrong-import-position
import definition
import judge
import paired
import picture
from compare_runs import arm_names
from run_values import Fault, Run
from side_by_side import Job, Scheduler
from time_scale import scaled

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
# Two-sided 90 % quantiles (t of 0.95) of the table in the NIST/SEMATECH handbook of statistical methods, section 1.3.6.7.2.
QUANTILES = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 7: 1.895, 10: 1.812, 20: 1.725, 30: 1.697, 100: 1.660}
# A shiftron that notes each start, saves (75) on TERM, fails with seed 2, and else is done after some time.
FAKE = """#!/usr/bin/env python3
import os, signal, sys, time
seed = sys.argv[sys.argv.index("--train.seed") + 1]
folder = os.environ["FAKE_FOLDER"]
def note(text):
    with open(os.path.join(folder, text), "a") as stream:
        stream.write("x")
def save(*_):
    note("saved-" + seed)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
note("started-" + seed)
os.makedirs(sys.argv[sys.argv.index("--output.directory") + 1], exist_ok=True)
assert sys.argv[sys.argv.index("--device.threads") + 1] == "1"
if seed == "2":
    while not os.path.exists(os.path.join(folder, "out", "finished.json")):  # else seed 3 might start before seed 1 is recorded
        time.sleep(0.01)
    print("first line\\nthe disk of seed 2 is full")
    sys.exit(70)
if seed == "1" or os.path.exists(os.path.join(folder, "go")):
    sys.exit(0)
time.sleep(600)
"""


def make_run(folder, seed, held_out, **keys):
    """A run of 100 steps whose held-out loss ends with `held_out`."""
    folder.mkdir(parents=True)
    rows = []
    for step in range(1, 101):
        rows.append({"step": step, "tokens": 10 * step, "loss": 5 - step / 100, "benchmarks": {"copa": {"acc": step / 200}}})
        if step % 10 == 0:
            rows.append({"step": step, "validation_loss": held_out + (100 - step) / 100})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.conf").write_text("\n".join(["[train]", f"seed = {seed}", "[output]", f"directory = {folder}", "[model]",
                                                   *(f"{key} = {value}" for key, value in keys.items()), ""]))
    return folder


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-compare-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def wait_for(self, path):
        end = time.monotonic() + scaled(30)
        while not path.exists():
            self.assertLess(time.monotonic(), end, f"{path} does not come")
            time.sleep(0.02)


class Statistics(unittest.TestCase):
    def test_quantiles_of_a_published_table(self):
        for freedom, value in QUANTILES.items():
            self.assertAlmostEqual(paired.t_quantile(freedom), value, delta=5.1e-4, msg=freedom)
        self.assertAlmostEqual(paired.t_quantile(4, 0.95), 2.776, delta=5.1e-4)

    def test_paired_by_seed(self):
        """Differences -.1, -.05, -.07: mean -.22/3, sd .025166, standard error .014530, t(2) 2.920."""
        result = paired.paired({1: 4.0, 2: 4.2, 3: 4.1, 8: 9.0}, {3: 4.03, 1: 3.9, 2: 4.15, 7: 1.0})
        self.assertEqual((result["seeds"], result["unpaired_seeds"], result["lower"], result["higher"]), ([1, 2, 3], [7, 8], 3, 0))
        for key, value in (("mean", -0.073333), ("sd", 0.025166), ("standard_error", 0.014530)):
            self.assertAlmostEqual(result[key], value, places=6)
        for got, value in zip(result["interval"], (-0.115760, -0.030907)):
            self.assertAlmostEqual(got, value, places=5)
        self.assertEqual(paired.paired({1: 1.0}, {2: 1.0}), {"seeds": [], "unpaired_seeds": [1, 2]})

    def test_verdicts_at_their_edges(self):
        for interval, low, high, expected in (
                ([-2, -1], None, 0, "holds"), ([-2, 0], None, 0, "too small"), ([0, 1], None, 0, "fails"), ([1, 2], None, 0, "fails"),
                ([-1, 1], None, 0, "too small"), ([1, 2], 0, None, "holds"), ([0, 2], 0, None, "too small"), ([-2, 0], 0, None, "fails"),
                ([-0.5, 0.5], -1, 1, "holds"), ([-1, 0.5], -1, 1, "too small"), ([1, 2], -1, 1, "fails"), ([-3, -1], -1, 1, "fails"),
                ([0, 0], None, 0, "too small"), ([0, 0], 0, None, "too small"), ([0.1, 0.1], 0, None, "holds"), ([-0.1, -0.1], 0, None, "fails"),
                (None, None, 0, "too small")):
            self.assertEqual(paired.verdict(interval, low, high), expected, (interval, low, high))


class Comparison(InFolder):
    def compare(self, *words):
        return subprocess.run([PROGRAM, "compare", *words], capture_output=True, text=True, check=False)

    def arms(self):
        """Seed 7 has no partner; model.hidden differs within an arm."""
        vanilla = [make_run(self.folder / "vanilla" / f"seed-{seed}", seed, loss, shift=0, hidden=8) for seed, loss in ((1, 4.0), (2, 4.2), (3, 4.1))]
        kv = [make_run(self.folder / "kv" / f"seed-{seed}", seed, loss, shift=1, hidden=8 + (seed == 3))
              for seed, loss in ((1, 3.9), (2, 4.15), (3, 4.03), (7, 1))]
        return [*vanilla, "--", *kv]

    def test_table_values_and_keys(self):
        result = self.compare(*self.arms(), "--metric", "benchmarks.copa.acc", "--metric=loss")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for text in ("kv - vanilla: -0.0733 ± 0.0145 (standard error), 90 % t interval -0.1158 … -0.0309, 3 of 3 lower",
                     "left out of kv - vanilla: seeds 7", "arms differ in model.shift: vanilla 0, kv 1",
                     "runs of one arm differ in model.hidden: vanilla 8, kv 8/9", "vanilla  3 runs  mean 4.1000  sd 0.1000"):
            self.assertIn(text, result.stdout)
        answer = json.loads(self.compare(*self.arms_of_before(), "--metric", "benchmarks.copa.acc", "--metric=loss", "--json").stdout)
        by_metric = {value["metric"]: value["arms"][0]["mean"] for value in answer["values"]}
        self.assertAlmostEqual(by_metric["benchmarks.copa.acc"], 0.4525)  # the mean over the last 20 of 100 steps
        self.assertAlmostEqual(by_metric["loss"], 5 - 0.905)
        self.assertEqual(answer["values"][0]["arms"][1]["values"]["7"], 1)

    def arms_of_before(self):
        return [*sorted((self.folder / "vanilla").iterdir()), "--", *sorted((self.folder / "kv").iterdir())]

    def test_a_picture_begins_where_the_curves_separate(self):
        self.assertEqual(self.compare(*self.arms(), "--picture", self.folder / "p.svg").returncode, 0)
        self.assertIn("<svg", (self.folder / "p.svg").read_text())
        early = {step: 10.0 - step for step in range(5)}
        arms = [picture.Arm("a", [{**early, **{step: 2.0 for step in range(5, 40)}}]), picture.Arm("b", [{**early, **{step: 1.0 for step in range(5, 40)}}])]
        low, high = picture.separation(arms)
        self.assertTrue(0.9 < low < 1 and 2 < high < 2.1, (low, high))
        drawn = picture.script("svg", [picture.Arm("a", [{1: 1.0, 2: 2.0}, {1: 3.0, 2: 4.0}])], "loss", "step")
        self.assertIn("1 2 0.58578643762690", drawn)  # mean 2, less one sd of 1 and 3
        self.assertIn("filledcurves", drawn)

    def test_what_cannot_be_compared_is_refused(self):
        first, bare, short = make_run(self.folder / "a", 1, 4.0), make_run(self.folder / "b", 1, 4.0), make_run(self.folder / "c", 1, 4.0)
        (bare / "metrics.jsonl").write_text('{"step": 100, "loss": 3, "tokens": 1}\n')
        (short / "metrics.jsonl").write_text("".join((short / "metrics.jsonl").read_text().splitlines(True)[:55]))
        same = make_run(self.folder / "d", 1, 4.0)
        for words, text in (([first], "separate the runs of two arms by --"), ([first, "--"], "an arm has no run"),
                            ([first, "--", self.folder / "none"], "none is not a directory"), ([first, "--", bare], "has no held-out loss"),
                            ([first, "--", short], f"numbers of steps: {first} 100, {short} 50"), ([first, same, "--", first], "have seed 1"),
                            ([first, "--", same, "--metric", "los"], "has no value los in its metrics.jsonl; did you mean loss?"),
                            ([first, "--", same, "--picture", "x.gif"], "neither in .svg nor in .png")):
            result = self.compare(*words)
            self.assertEqual(result.returncode, 76, result)
            self.assertIn(text, result.stderr)
            self.assertIn("\n  next: ", result.stderr)
        result = self.compare(first, "--", short, "--step", "50")
        self.assertIn("one seed has no standard error", result.stdout)

    def test_names_of_arms(self):
        self.assertEqual(arm_names([["x/kv-seed-1", "x/kv-seed-2"], ["y/1", "y/2"], ["z/kv"]]), ["kv (arm 1)", "y", "kv (arm 3)"])


class Seeds(InFolder):
    def start(self, *words):
        environment = {**os.environ, "SHIFTRON": str(self.folder / "fake"), "FAKE_FOLDER": str(self.folder)}
        return subprocess.Popen([ROOT / "launch" / "seeds", *map(str, words)], env=environment, cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def wait_for_starts(self, seed, count):
        end = time.monotonic() + scaled(30)
        while self.starts(seed) < count:
            self.assertLess(time.monotonic(), end, f"seed {seed} was not started {count} times")
            time.sleep(0.02)

    def starts(self, seed):
        return len((self.folder / f"started-{seed}").read_text())

    def test_a_kill_a_failure_and_a_resume(self):
        (self.folder / "fake").write_text(FAKE)
        (self.folder / "fake").chmod(0o755)
        (self.folder / "some.conf").write_text("")
        with self.start(3, "some.conf", "--out", "out") as killed:
            self.wait_for(self.folder / "started-3")
            killed.kill()
        self.wait_for(self.folder / "saved-3")  # the run does not outlive its scheduler
        with self.start(3, "some.conf", "--out", "out") as stopped:
            self.wait_for_starts(3, 2)
            stopped.send_signal(signal.SIGINT)
            self.assertIn("the runs are saved", stopped.communicate()[1])
        self.assertEqual(stopped.returncode, 75)
        (self.folder / "go").touch()
        with self.start(3, "some.conf", "--out", "out") as last:
            out, err = last.communicate()
        self.assertEqual(last.returncode, 70)
        self.assertIn("seed-2 failed with 70: the disk of seed 2 is full", err)
        self.assertIn("shiftron compare out/seed-1 out/seed-3 --", out)
        self.assertEqual((self.starts(1), self.starts(3)), (1, 3))  # what is finished is not repeated
        (self.folder / "some.conf").write_text("# another configuration")
        with self.start(1, "some.conf", "--out", "out") as other:
            other.communicate()
        self.assertEqual(self.starts(1), 2)

    def test_a_budget_ends_runs_that_are_no_failures(self):
        scheduler = Scheduler(self.folder / "out", "again", at_once=1)
        jobs = [Job("short", ["true"], self.folder / "logs" / "short"), Job("long", ["sleep", "600"], self.folder / "logs" / "long"),
                Job("late", ["true"], self.folder / "logs" / "late")]
        scheduler.run(jobs, deadline=time.monotonic() + scaled(1))
        self.assertTrue(scheduler.is_out_of_time)
        self.assertEqual(([scheduler.is_finished(job) for job in jobs], scheduler.report_failures()), ([True, False, False], 0))


class Experiments(InFolder):
    def test_every_item_can_be_read(self):
        items = definition.find(["all"])
        self.assertGreaterEqual(len(items), 8)
        for item in items:
            self.assertTrue((item.folder / "README.md").is_file(), item.name)

    def test_faults_of_a_definition_are_named(self):
        good = {"claim": "c", "configs": ["a.conf"], "data": "quick-text", "variants": {"a": {}, "b": {}}, "checks": [{"lower": "a", "than": "b"}]}
        (self.folder / "a.conf").write_text("")
        for change, text in (({}, None), ({"seed": 3}, "unknown key seed"), ({"configs": ["none.conf"]}, "none.conf, which does not exist"),
                             ({"checks": [{"lower": "a", "than": "x"}]}, "unknown variant x; variants: a, b"), ({"data": "txt"}, "the data 'txt'"),
                             ({"checks": [{"alike": "a", "to": "b"}]}, "needs a margin above 0"), ({"seeds": 0}, "has 0 seeds"),
                             ({"data": {"commands": [], "train": "t", "validation": []}}, "the data.validation []"),
                             ({"variants": {"../a": {}}}, "has '../a'")):
            (self.folder / "experiment.json").write_text(json.dumps({**good, **change}))
            if text is None:
                definition.Definition(self.folder)
                continue
            with self.assertRaises(Fault) as caught:
                definition.Definition(self.folder)
            self.assertIn(text, str(caught.exception))

    def test_checks_are_judged(self):
        runs = {name: {seed: Run(make_run(self.folder / name / str(seed), seed, base + 0.1 * seed + spread * seed ** 2)) for seed in (1, 2, 3)}
                for name, base, spread in (("low", 1, 0.001), ("high", 2, 0))}
        for check, expected in (({"lower": "low", "than": "high"}, "holds"), ({"higher": "low", "than": "high"}, "fails"),
                                ({"lower": "high", "than": "low"}, "fails"), ({"alike": "low", "to": "high", "margin": 1.1}, "holds"),
                                ({"alike": "low", "to": "high", "margin": 0.5}, "fails"), ({"no_gain": "high", "over": "low", "margin": 0.1}, "holds"),
                                ({"no_gain": "low", "over": "high", "margin": 0.1}, "fails"), ({"lower": "low", "than": "high", "factor": 0.5}, "fails"), ({"lower": "low", "than": "high", "factor": 0.55}, "too small"),
                                ({"higher": "high", "than": "low", "margin": 0.9}, "holds"), ({"higher": "high", "than": "low", "margin": 1.1}, "fails"),
                                ({"lower": "low", "than": "high", "margin": 0.9}, "holds"), ({"lower": "low", "than": "high", "margin": 1.1}, "fails"),
                                ({"at_most": "low", "value": 1.5}, "holds"), ({"at_least": "low", "value": 1.2}, "too small"),
                                ({"at_least": "low", "value": 1.2, "of_seeds": 2}, "holds"), ({"at_least": "low", "value": 1.2, "of_seeds": 3}, "fails"),
                                ({"lower": "low", "than": "high", "step": 50}, "holds"), ({"lower": "low", "than": "high", "metric": "none"}, "too small")):
            result = judge.judge({**check, "point": ""}, runs, 3)
            self.assertEqual(result["verdict"], expected, result)
        for value, planned, expected in ((1.05, 5, "too small"), (1.05, 4, "too small"), (1.15, 4, "fails"), (1.05, 3, "fails")):  # 4 seeds are claimed, 3 are finished
            result = judge.judge({"at_least": "low", "value": value, "of_seeds": 4, "point": ""}, runs, planned)
            self.assertEqual(result["verdict"], expected, (value, planned, result))
        self.assertEqual([judge.verdict_of([{"verdict": one} for one in some]) for some in
                          (["holds", "holds"], ["holds", "too small"], ["too small", "fails"])], ["holds", "too small", "fails"])

    def test_smoke_of_items_that_share_a_run_or_have_several_held_out_datasets(self):
        """Or a measure, or a program instead of runs."""
        command = [ROOT / "experiments" / "run", "fig10", "fig8b", "fig9", "fig2", "table4", "--smoke", "--out", self.folder]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "SHIFTRON": str(PROGRAM)})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        reported = json.loads((self.folder / "smoke" / "fig8b" / "result.json").read_text())
        shared = json.loads((self.folder / "smoke" / "fig10" / "result.json").read_text())
        self.assertEqual(shared["notes"], [])
        self.assertEqual(os.path.realpath(shared["runs"]["kv-shift"][0]), os.path.realpath(reported["runs"]["both"][0]))
        self.assertEqual((reported["verdict"], sorted(reported["runs"]), reported["notes"]), ("not judged", ["both", "keys", "values"], []))
        shift = {name: Run(run[0]).config["shift.value"] for name, run in reported["runs"].items()}
        self.assertEqual(shift, {"both": "1", "keys": "0", "values": "1"})
        generated = json.loads((self.folder / "smoke" / "fig9" / "result.json").read_text())
        for source in ("3-hops", "4-hops"):
            self.assertTrue(Run(generated["runs"]["vanilla"][0]).curve(f"validation_sources.{source}.accuracy"), source)
        taps = json.loads((pathlib.Path(shared["runs"]["kv-shift"][0]) / "measures" / "taps.json").read_text())
        self.assertIn(taps["diagonal"], [heads / 6 for heads in range(7)])
        self.assertIn("<svg", (self.folder / "smoke" / "fig2" / "picture.svg").read_text())
        page = (self.folder / "smoke" / "index.html").read_text()
        self.assertIn("data:image/svg+xml;base64,", page)
        self.assertNotIn("<script", page)
        again = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "SHIFTRON": str(PROGRAM)})
        self.assertIn("6 of 7 runs were already finished", again.stdout)  # a program runs again
        self.assertNotIn("taps: done", again.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
