"""Reads the files of runs: values of their metrics, configuration, seed."""
import configparser
import difflib
import json
import math
import pathlib

LAST_STEPS = 20  # number of steps to average for values that every step has
NOT_COMPARED = {"output.directory", "train.seed", "device.threads"}  # keys that do not change what a run trains


class Fault(Exception):
    """What is wrong, the command to try next, the exit code."""

    def __init__(self, what, command, code=76):
        super().__init__(what)
        self.command, self.code = command, code


def number(value):
    """The value as a finite float. Raises ValueError for everything else, as gnuplot would run commands in a text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    try:
        value = float(value)
    except OverflowError:
        raise ValueError from None
    if not math.isfinite(value):
        raise ValueError
    return value


def find(row, name):
    """The value called `name`: `loss`, or in a nested object `benchmarks.TASK.acc`. None if the row has none."""
    if name in row:
        return row[name]
    for key, inner in row.items():
        if isinstance(inner, dict) and name.startswith(key + "."):
            return find(inner, name[len(key) + 1:])
    return None


def read_curve(path, name):
    """Returns ({step: (tokens, value, whether it is in the row of a training step)} in the order of steps, number of rows that were skipped because a number is not finite).
    If a step was repeated, its last row counts. Rows of evaluations have no tokens and get those of their step's row."""
    points, tokens_of, skipped = {}, {}, 0
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for place, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError
            value = find(row, name)
            if value is None and "tokens" not in row:
                continue
            step = number(row.get("step")) if value is not None or "loss" in row else None
            if value is not None:
                points[step] = number(row.get("tokens", tokens_of.get(step, step))), number(value), "loss" in row
            if step is not None and "tokens" in row:
                tokens_of[step] = number(row["tokens"])
        except (ValueError, RecursionError):
            skipped += place < len(lines) and line != ""  # the last line of a live run may be incomplete
    return dict(sorted(points.items())), skipped


def read_config(directory):
    """{section.key: value} of the run's config.conf. Raises Fault if it cannot be read."""
    path = pathlib.Path(directory) / "config.conf"
    parser = configparser.ConfigParser(strict=False, inline_comment_prefixes=("#",), interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}", f"shiftron status {directory}") from None
    except configparser.Error as error:
        raise Fault(f"{path} cannot be read: {error}", f"shiftron status {directory}") from None
    return {f"{section}.{key}": value for section in parser.sections() for key, value in parser[section].items()}


class Run:
    """A run's directory. Raises Fault if it is not one."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.metrics = self.directory / "metrics.jsonl"
        if not self.directory.is_dir():
            raise Fault(f"no run: {directory} is not a directory", "shiftron status RUN, with the output.directory of a run")
        if not self.metrics.is_file():  # a pipe would wait for a writer
            raise Fault(f"no run: {directory} has no file metrics.jsonl", f"shiftron status {directory}")
        self.config = read_config(self.directory)
        self._curves = {}

    @property
    def seed(self):
        try:
            return int(self.config["train.seed"])
        except (KeyError, ValueError):
            raise Fault(f"{self.directory}/config.conf has no train.seed, by which runs are paired", f"shiftron status {self.directory}") from None

    def curve(self, name):
        """{step: value} in the order of steps."""
        return {step: value for step, (_, value, _) in self._points(name).items()}

    def _points(self, name):
        if name not in self._curves:
            self._curves[name] = read_curve(self.metrics, name)[0]
        return self._curves[name]

    def last_step(self):
        steps = [step for name in ("loss", "validation_loss") for step in self.curve(name)]
        return int(max(steps, default=0))

    def value(self, name, step=None, last=None):
        """The value at `step` or at the end. A value in the rows of training steps is the mean over the LAST_STEPS steps up to there.
        `last`: the mean over so many of the last rows that have it, or over all if there are fewer. Raises Fault if there is none."""
        curve = {at: value for at, value in self.curve(name).items() if step is None or at <= step}
        if not curve:
            if self.curve(name):
                raise Fault(f"{self.directory} has no value {name} up to step {step:g}", f"--step {min(self.curve(name)):g} or a later one")
            known = self.names()
            near = difflib.get_close_matches(name, known, 1)
            raise Fault(f"{self.directory} has no value {name} in its metrics.jsonl" + (f"; did you mean {near[0]}?" if near else ""),
                        "one of " + ", ".join(one for one in known if "." not in one) if known else f"shiftron status {self.directory}")
        end = max(curve)
        rows = last or (LAST_STEPS if self._points(name)[end][2] else 1)
        if rows == 1 and step is not None and end != step:
            raise Fault(f"{self.directory} has {name} at step {end:g} and none at step {step:g}", "use a --step that has it")
        values = list(curve.values())[-rows:]
        return math.fsum(values) / len(values)

    def best(self, name, step=None):
        """The lowest value, up to `step`."""
        return min(value for at, value in self.curve(name).items() if step is None or at <= step)

    def names(self):
        """Names of all values in its rows."""
        found = {}

        def collect(row, prefix):
            for key, value in row.items():
                if isinstance(value, dict):
                    collect(value, f"{prefix}{key}.")
                elif isinstance(value, (int, float)) and not isinstance(value, bool):
                    found[prefix + key] = None
        for line in self.metrics.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                collect(row, "")
        return [name for name in found if name != "step"]


def differing_keys(arms):
    """For a list of lists of runs, returns (keys that are constant within each arm and differ between arms, keys that differ within an arm),
    each as {key: [values per arm]}."""
    between, within = {}, {}
    for key in sorted({key for arm in arms for run in arm for key in run.config} - NOT_COMPARED):
        values = [sorted({run.config.get(key, "") for run in arm}) for arm in arms]
        if any(len(some) > 1 for some in values):
            within[key] = values
        elif any(some != values[0] for some in values):
            between[key] = values
    return between, within
