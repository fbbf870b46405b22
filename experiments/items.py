"""The items of a call: their data, their jobs and the results."""
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import sys
import time

import measures
import picture
import quick_text
from definition import QUICK_TEXT
from judge import DEFAULT_METRIC, judge, judge_value, values_of, verdict_of
from run_values import Fault
from side_by_side import Job
from whole_file import write_whole

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHIFTRON = str((ROOT / quick_text.SHIFTRON).resolve())
SMOKE_STEPS, SMOKE_VOCAB = 3, 512
SMOKE_KEYS = {"train.steps": SMOKE_STEPS, "evaluation.every": SMOKE_STEPS, "evaluation.sequences": 8, "optimizer.warmup": 1}
SECONDS_OF_A_MEASURE = 2


def words_of(command, **fill):
    """The words of a command, which is a text or a list, with its {words} filled in."""
    return [word.format(**fill) for word in (shlex.split(command) if isinstance(command, str) else command)]


def keep_result(folder, result):
    """Writes result.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "result.json", json.dumps(result, indent=1))
    return result


def result_of(definition, checks, **more):
    """The content of result.json."""
    return {"item": definition.name, "paper": definition.paper, "claim": definition.claim, "expected": definition.expected,
            "measured": "; ".join(check["text"] for check in checks), "verdict": verdict_of(checks) if checks else "not judged", "checks": checks, **more}


class Data:
    """Datasets under FOLDER/NAME, built once by commands. With `is_smoke`, this repository's documents replace the quick start's text."""

    def __init__(self, folder, stated, is_smoke):
        self.stated, self.is_smoke = stated, is_smoke
        self.is_text = stated == QUICK_TEXT
        name = QUICK_TEXT if self.is_text else "data-" + hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:8]
        self.path = folder / name
        train, validation = (f"data/{split}" for split in quick_text.SPLITS) if self.is_text else (stated["train"], stated["validation"])
        self.options = ["--data.train", self.path / train]
        for source in [validation] if isinstance(validation, str) else validation:
            self.options += ["--data.validation", self.path / source]
        if self.is_text and is_smoke:
            self.options += ["--model.vocab", str(SMOKE_VOCAB)]

    def commands(self, folder):
        """Functions that return commands when they are called, as later commands name files that earlier ones create."""
        if not self.is_text:
            documents = self.stated.get("smoke_documents" if self.is_smoke else "documents", "")
            fill = {"shiftron": SHIFTRON, "data": str(folder), "documents": str(documents)}
            return [lambda command=command: words_of(command, **fill) for command in self.stated["commands"]]
        if self.is_smoke:
            texts = [str(ROOT / "README.md"), str(ROOT / "ARCHITECTURE.md")]
            return [lambda: [SHIFTRON, "tokenizer", "train", "--input", *texts, "--vocab", str(SMOKE_VOCAB), "--output", folder / "tokenizer.model"],
                    *(lambda split=split, text=text: [SHIFTRON, "data", "build", "--input", text, "--tokenizer", folder / "tokenizer.model",
                                                      "--output", folder / "data" / split] for split, text in zip(quick_text.SPLITS, texts))]
        return [lambda: quick_text.corpus(folder), lambda: quick_text.tokenizer(folder),
                *(lambda split=split: quick_text.data(folder, split) for split in quick_text.SPLITS)]

    def make(self, scheduler, logs, deadline):
        if self.path.is_dir():
            return
        unfinished = self.path.with_name(self.path.name + ".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for number, command in enumerate(self.commands(unfinished), 1):
            name = f"{self.path.name}, part {number}"
            scheduler.finished.pop(name, None)  # the data may have been removed since
            scheduler.run([Job(name, command(), logs / f"{self.path.name}-{number}.log")], deadline)
            if scheduler.failed:
                raise Fault("the data could not be built", scheduler.again, scheduler.report_failures())
            if scheduler.is_out_of_time:
                raise Fault("the budget ended while data were being built", scheduler.again, 75)
        unfinished.rename(self.path)


class Item:
    """A definition's runs in a folder. Items share runs with equal commands: these are under runs/, and each item has links."""

    def __init__(self, definition, out, is_smoke):
        self.definition, self.folder, self.is_smoke = definition, out / definition.name, is_smoke
        self.data = Data(out / "data", definition.data, is_smoke)
        self.arms = {}  # (variant, point): {seed: Job}
        self.measures = {}  # name of a run's job: [Job]
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in definition.configs]
        configs = [part for path in definition.configs for part in ("--config", path)]
        for point in definition.points:
            for variant in definition.variants:
                options = [*configs, "--device.threads", "1", *definition.options(variant, point), *self.data.options]
                if is_smoke:
                    options += [word for key, value in SMOKE_KEYS.items() for word in (f"--{key}", value)]
                options = self.without_repeats([str(word) for word in options])
                key = hashlib.sha256(json.dumps([texts, options[2 * len(texts):]]).encode()).hexdigest()[:8]
                self.arms[variant, point] = {seed: self.job(out, f"{key}-seed-{seed}", options, seed, variant, point)
                                             for seed in range(1, 1 + (1 if is_smoke else definition.seeds))}

    @staticmethod
    def without_repeats(options):
        """Configurations, then keys sorted by name, so that equal runs have equal commands. If a key is given twice, the last value
        counts, except for data.validation, which is a list."""
        pairs = list(zip(options[::2], options[1::2]))
        configs = [pair for pair in pairs if pair[0] == "--config"]
        sources = [pair for pair in pairs if pair[0] == "--data.validation"]
        keys = [pair for pair in dict(pairs).items() if pair[0] not in ("--config", "--data.validation")]
        return [word for pair in configs + sorted(keys + sources) for word in pair]

    def make_data(self, scheduler, logs, deadline):
        self.data.make(scheduler, logs, deadline)

    def job(self, out, name, options, seed, variant, point):
        run = out / "runs" / name
        command = [SHIFTRON, "train", *options, "--train.seed", seed, "--output.directory", run]
        job = Job(name, command, out / "logs" / f"{name}.log", self.definition.seconds(variant, point), run, self.steps(options),
                  label=" ".join(filter(None, (self.definition.name, variant, point, f"seed {seed}"))), key=name)
        self.measures[name] = [self.measure(out, job, measure, command) for measure, command in self.definition.measures.items()]
        return job

    def measure(self, out, run, name, command):
        """The job that measures a run once it is finished. It runs again if its command changes, or a file of the item that the command names."""
        words = words_of(command, shiftron=SHIFTRON, run=str(run.run), step=measures.STEP, data=str(self.data.path), item=str(self.definition.folder),
                         python=sys.executable)
        texts = [pathlib.Path(word).read_text(encoding="utf-8") for word in words
                 if self.definition.folder in pathlib.Path(word).parents and pathlib.Path(word).is_file()]
        output = measures.path_of(run.run, name)
        return Job(f"{run.name} {name}", measures.command(output, words, run=run.run), out / "logs" / f"{run.name}-{name}.log", SECONDS_OF_A_MEASURE,
                   inputs=texts, label=f"{run.label}, {name}", after=run, output=output)

    def steps(self, options):
        if "--train.steps" in options:
            return int(options[options.index("--train.steps") + 1])
        steps = [quick_text.read_config(path).get("train", "steps", fallback=None) for path in self.definition.configs]
        return int(next(filter(None, reversed(steps)), 0))

    def jobs(self):
        """Returns [(seed, job)]. All items' runs of a seed come before the next seed, so that a budget leaves complete pairs for every item."""
        return [(seed, job) for arm in self.arms.values() for seed in arm for job in (arm[seed], *self.measures[arm[seed].name])]

    def link(self, variant, point, seed, run):
        folder = self.folder / " ".join(filter(None, (variant, point)))
        folder.mkdir(parents=True, exist_ok=True)
        link, target = folder / f"seed-{seed}", os.path.relpath(run, folder)
        if link.is_symlink() and os.readlink(link) != target:
            link.unlink()
        if not link.is_symlink():
            link.symlink_to(target)
        return link

    def finished_runs(self, scheduler):
        """Returns {(variant, point): {seed: run}} of the finished runs, with their finished measures."""
        def run_of(variant, point, seed, job):
            finished = [name for name, one in zip(self.definition.measures, self.measures[job.name]) if scheduler.is_finished(one)]
            return measures.MeasuredRun(self.link(variant, point, seed, job.run), self.definition.measures, finished)
        return {(variant, point): {seed: run_of(variant, point, seed, job) for seed, job in arm.items() if scheduler.is_finished(job)}
                for (variant, point), arm in self.arms.items()}

    def curves(self, runs):
        """Curves for the metric of the first check: ({variant: its curves}, names of x = 0, 1, …, or None if x is the step)."""
        check = self.definition.checks[0]
        metric, last = check.get("metric", DEFAULT_METRIC), check.get("last")
        points, variants = list(self.definition.points), self.definition.variants
        if self.definition.is_measured(metric):
            return {"mean, a circle for each seed": self.columns(runs)}, [title for title, _, _ in self.measured()]
        if len(points) == 1:
            return {variant: [run.curve(metric) for run in runs[variant, points[0]].values()] for variant in variants}, None
        # The value at the end of training, over the points.
        return {variant: [{float(at): runs[variant, point][seed].value(metric, last=last) for at, point in enumerate(points)}
                          for seed in runs[variant, points[0]] if all(seed in runs[variant, point] for point in points)] for variant in variants}, points

    def measured(self):
        """Returns [(title, variant and point, metric)] for the checks of measured values."""
        found = {}
        for check in self.definition.checks:
            if self.definition.is_measured(check.get("metric", DEFAULT_METRIC)):
                for variant in self.definition.variants_of(check):
                    title = " ".join(filter(None, (variant, check["point"], check["metric"])))
                    found[title] = (variant, check["point"]), check["metric"]
        return [(title, *found[title]) for title in found]

    def columns(self, runs):
        """Returns {place: value} for each seed that has all measured values."""
        columns = [values_of(runs[arm], {"metric": metric}) for _, arm, metric in self.measured()]
        return [{float(at): column[seed] for at, column in enumerate(columns)} for seed in sorted(set.intersection(*map(set, columns)))]

    def draw(self, runs):
        """Draws the picture; returns its path, or None if there is nothing to draw."""
        curves, ticks = self.curves(runs)
        arms = [picture.Arm(name, some) for name, some in curves.items() if some and all(some)]
        if not arms or not shutil.which("gnuplot"):
            return None
        output = self.folder / "picture.svg"
        metric = self.definition.checks[0].get("metric", DEFAULT_METRIC)
        picture.draw(output, arms, metric, "" if ticks else "step", is_compared=ticks is None, ticks=ticks)
        return str(output)

    def judge(self, scheduler):
        """Writes result.json and the picture; returns the content of result.json."""
        runs = self.finished_runs(scheduler)
        checks = [] if self.is_smoke else [judge(check, {variant: some for (variant, point), some in runs.items() if point == check["point"]},
                                                          self.definition.seeds) for check in self.definition.checks]
        result = result_of(self.definition, checks, seeds=self.definition.seeds, notes=self.notes(scheduler, runs, checks), picture=self.draw(runs),
                           runs={" ".join(filter(None, arm)): [str(run.directory) for run in some.values()] for arm, some in runs.items()})
        return keep_result(self.folder, result)

    def notes(self, scheduler, runs, checks):
        """Notes on what is missing."""
        jobs = [job for _, job in self.jobs()]
        found = []
        for what, some in (("runs are finished", [job for job in jobs if not job.after]), ("measures of runs are finished", [job for job in jobs if job.after])):
            done = sum(map(scheduler.is_finished, some))
            if done < len(some):
                found.append(f"{done} of {len(some)} {what}")
        if any(check.get("n") == 1 for check in checks):
            found.append("one seed has no interval: its claims cannot be judged")
        return found + [text for some in runs.values() for run in some.values() for text in self.missing_values(run)]

    def missing_values(self, run):
        """A message for each number that a check names and the run's measures lack."""
        for name in sorted({check.get("metric", DEFAULT_METRIC) for check in self.definition.checks}):
            if run.is_measured(name):
                try:
                    run.value(name)
                except Fault as fault:
                    yield str(fault)


class ProgramItem:
    """A definition whose values one program prints. It runs at each call: it takes seconds, and what it examines may have been rebuilt."""

    def __init__(self, definition, out, is_smoke):
        self.definition, self.folder, self.is_smoke = definition, out / definition.name, is_smoke
        self.values, self.picture = self.folder / "values.json", self.folder / "picture.svg"
        words = words_of(definition.program, shiftron=SHIFTRON, item=str(definition.folder), python=sys.executable, picture=str(self.picture))
        names = sorted({check[kind] for check in definition.checks for kind in ("at_least", "at_most") if kind in check})
        name = f"{definition.name}-program"
        self.job = Job(name, measures.command(self.values, words, values=names), out / "logs" / f"{name}.log", definition.seconds(),
                       label=definition.name, key=str(time.time_ns()), output=self.values)

    def make_data(self, _scheduler, _logs, _deadline):
        self.folder.mkdir(parents=True, exist_ok=True)  # for its picture

    def jobs(self):
        return [(0, self.job)]

    def judge(self, scheduler):
        """Writes result.json; returns its content."""
        is_done = scheduler.is_finished(self.job)
        checks = [judge_value(check, self.values) for check in self.definition.checks] if is_done and not self.is_smoke else []
        notes = [] if is_done else [f"its program has not finished: {self.job.log}"]
        drawn = str(self.picture) if is_done and self.picture.is_file() else None
        return keep_result(self.folder, result_of(self.definition, checks, notes=notes, picture=drawn, runs={}))


def item_of(definition, out, is_smoke):
    return (ProgramItem if definition.program else Item)(definition, out, is_smoke)
