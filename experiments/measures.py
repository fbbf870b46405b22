"""Records values that a command prints as JSON: of a finished run (RUN/measures/NAME.json), or of an item without training.

    measures.py OUTPUT [--run RUN] [--value NAME]… -- COMMAND…

Runs the command, in which {step} is the newest step of RUN, and writes its output to OUTPUT. Fails, and leaves OUTPUT unchanged, if the
command fails, or does not print a JSON object with a number for each NAME.
"""
import argparse
import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True  # the folder may belong to another user
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "launch"))
# pylint: disable=wrong-import-position
from run_values import Fault, Run, find, number
from side_by_side import die_with_parent, guarded
from whole_file import write_whole

STEP = "{step}"


def command(output, words, run=None, values=()):
    """The command that runs `words` and writes `output`."""
    options = [*(["--run", run] if run else []), *(word for name in values for word in ("--value", name))]
    return [sys.executable, "-B", __file__, output, *options, "--", *words]


def path_of(run, name):
    return pathlib.Path(run) / "measures" / f"{name}.json"


def number_of(content, name, source):
    """The number called `name` in an object from `source`. Raises Fault that lists the names that it has."""
    try:
        return number(find(content, name))
    except ValueError:
        raise Fault(f"{source} has no number {name}; it has {', '.join(names_of(content)) or 'none'}", "experiments/README.md describes the format") from None


def value_of(path, name):
    """The same for a file that this module wrote."""
    return number_of(json.loads(path.read_text(encoding="utf-8")), name, path)


def names_of(content, prefix=""):
    """Names of all numbers in an object and its nested objects."""
    found = []
    for key, value in content.items():
        if isinstance(value, dict):
            found += names_of(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(prefix + key)
    return found


class MeasuredRun(Run):
    """A run whose values NAME.… are those of its measure NAME. `finished`: the measures that can be read."""

    def __init__(self, directory, names, finished):
        super().__init__(directory)
        self.measures, self.finished = set(names), set(finished)

    def is_measured(self, name):
        return name.partition(".")[0] in self.finished

    def value(self, name, step=None, last=None):
        measure, _, inner = name.partition(".")
        if measure not in self.measures:
            return super().value(name, step, last)
        if measure not in self.finished:
            raise Fault(f"{self.directory} has not been measured: {measure}", "experiments/run ITEM")
        return value_of(path_of(self.directory, measure), inner)


def newest_step(run):
    steps = sorted(path.parent for path in pathlib.Path(run).glob("checkpoints/step-*/manifest.json"))
    if not steps:
        raise Fault(f"{run} has no step under checkpoints/", f"shiftron status {run}")
    return str(steps[-1])


def main():
    place = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--run")
    parser.add_argument("--value", action="append", default=[])
    asked, words = parser.parse_args(sys.argv[1:place]), sys.argv[place + 1:]
    if asked.run:
        step = newest_step(asked.run)
        words = [word.replace(STEP, step) for word in words]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent, check=False)
    if done.returncode:
        return done.returncode if done.returncode > 0 else 128 - done.returncode
    try:
        content = json.loads(done.stdout)
        if not isinstance(content, dict):
            raise ValueError
    except ValueError:
        raise Fault(f"{words[0]} did not print a JSON object but {done.stdout[:80]!r}", "experiments/README.md describes the format") from None
    for name in asked.value:
        number_of(content, name, words[0])
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(asked.output, done.stdout)
    return 0


if __name__ == "__main__":
    guarded("measure", main)
