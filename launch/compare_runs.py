"""Compares arms of runs, paired by seed. `shiftron compare` calls this file with its own arguments."""
import argparse
import json
import os
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # the folder may belong to another user
import installed  # pylint: disable=wrong-import-position
import paired  # pylint: disable=wrong-import-position
import picture  # pylint: disable=wrong-import-position
from foreign_text import printable  # pylint: disable=wrong-import-position
from run_values import Fault, Run, differing_keys  # pylint: disable=wrong-import-position

HELD_OUT = "validation_loss"
USAGE = "shiftron compare RUN… -- RUN… [--metric NAME] [--step N] [--json] [--picture FILE.svg|png]"


def split_arms(words):
    """Splits the words at "--" into lists."""
    arms = [[]]
    for word in words:
        if word == "--":
            arms.append([])
        else:
            arms[-1].append(word)
    if not all(arms):
        raise Fault("an arm has no run: each side of -- needs one", USAGE)
    return arms


def arm_names(arms):
    """Names for the arms: the common beginning of their runs' names, or the folder of runs that are named after their seeds; otherwise "arm 2"."""
    names = []
    for place, arm in enumerate(arms, 1):
        paths = [pathlib.Path(os.path.abspath(run)) for run in arm]
        name = os.path.commonprefix([path.name for path in paths]) if len(paths) > 1 else paths[0].name
        name = re.sub(r"[-_.]*((seed)?[-_.]*\d*)?\Z", "", name)
        if not name and len({path.parent for path in paths}) == 1 and all(re.fullmatch(r"(seed)?[-_.]*\d+", path.name) for path in paths):
            name = paths[0].parent.name
        names.append(name or f"arm {place}")
    return [name if names.count(name) == 1 else f"{name} (arm {place})" for place, name in enumerate(names, 1)]


def by_seed(runs, name):
    """Returns {seed: run} for an arm."""
    found = {}
    for run in runs:
        if run.seed in found:
            raise Fault(f"two runs of {name} have seed {run.seed}: {found[run.seed].directory} and {run.directory}", "repeat the command with only one of them")
        found[run.seed] = run
    return found


def require_equal_ends(arms, step):
    """Raises Fault unless all runs have reached the same step, or at least `step`."""
    ends = {str(run.directory): run.last_step() for arm in arms for run in arm.values()}
    if step is None and len(set(ends.values())) > 1:
        raise Fault("the runs have trained for different numbers of steps: " + ", ".join(f"{run} {end}" for run, end in ends.items()),
                    f"resume the shorter ones, or compare at a step that all have: --step {min(ends.values())}")
    short = [f"{run} {end}" for run, end in ends.items() if step is not None and end < step]
    if short:
        raise Fault(f"no step {step} yet in {', '.join(short)}", f"resume training, or --step {min(ends.values())}")


def compared_values(arms, metrics, step):
    """Returns [(title, metric, [{seed: value} per arm])]."""
    runs = [run for arm in arms for run in arm.values()]
    have = [run for run in runs if run.curve(HELD_OUT)]
    values = []
    if have or not metrics:
        for run in runs:
            if not run.curve(HELD_OUT):
                raise Fault(f"{run.directory} has no held-out loss in its metrics.jsonl",
                            "train with data.validation and evaluation.every; or --metric with one of " + ", ".join(run.names()))
        values.append((f"held-out loss at {'the end' if step is None else f'step {step}'}", HELD_OUT,
                       [{seed: run.value(HELD_OUT, step) for seed, run in arm.items()} for arm in arms]))
        values.append(("best held-out loss", HELD_OUT, [{seed: run.best(HELD_OUT, step) for seed, run in arm.items()} for arm in arms]))
    for metric in metrics:
        values.append((metric, metric, [{seed: run.value(metric, step) for seed, run in arm.items()} for arm in arms]))
    return values


def compare(arms, metrics=(), step=None):
    """What --json prints, for a list of lists of Run. The first arm is the baseline of the others."""
    names = arm_names([[str(run.directory) for run in arm] for arm in arms])
    seeded = [by_seed(arm, name) for arm, name in zip(arms, names)]
    require_equal_ends(seeded, step)
    between, within = differing_keys(arms)
    values = []
    for title, metric, per_arm in compared_values(seeded, metrics, step):
        differences = [{"arm": name, "less": names[0], **paired.paired(per_arm[0], other)} for name, other in zip(names[1:], per_arm[1:])]
        values.append({"title": title, "metric": metric, "differences": differences, "arms": [
            {"arm": name, **{key: value for key, value in paired.summary(list(some.values())).items() if key in ("n", "mean", "sd")},
             "values": {str(seed): some[seed] for seed in sorted(some)}} for name, some in zip(names, per_arm)]})
    return {"arms": [{"name": name, "runs": [str(run.directory) for run in arm], "seeds": sorted(some)} for name, arm, some in zip(names, arms, seeded)],
            "step": step if step is not None else seeded[0][min(seeded[0])].last_step(), "confidence": paired.CONFIDENCE,
            "keys_between_arms": between, "keys_within_an_arm": within, "values": values}


def difference_text(one):
    head = f"  {one['arm']} - {one['less']}: "
    if not one["seeds"]:
        return head + "no seed is in both arms: nothing is paired"
    counts = f"{one['lower']} of {one['n']} lower"
    if one["n"] == 1:
        return head + f"{one['mean']:+.4f}, {counts}; one seed has no standard error: train more seeds ({installed.named('launch/seeds')})"
    low, high = one["interval"]
    return head + f"{one['mean']:+.4f} ± {one['standard_error']:.4f} (standard error), 90 % t interval {low:+.4f} … {high:+.4f}, {counts}"


def to_text(result):
    lines = []
    for place, arm in enumerate(result["arms"]):
        lines.append(f"{arm['name']}{' (baseline)' if place == 0 else ''}: {', '.join(arm['runs'])}; seeds {', '.join(map(str, arm['seeds']))}")
    for one in result["values"][0]["differences"]:
        if one["unpaired_seeds"]:
            lines.append(f"warning: not paired, and left out of {one['arm']} - {one['less']}: seeds {', '.join(map(str, one['unpaired_seeds']))}")
    names = [arm["name"] for arm in result["arms"]]
    for key, values in result["keys_between_arms"].items():
        lines.append(f"arms differ in {key}: " + ", ".join(f"{name} {'/'.join(some) or '(unset)'}" for name, some in zip(names, values)))
    if not result["keys_between_arms"]:
        lines.append("warning: the arms' configurations do not differ")
    for key, values in result["keys_within_an_arm"].items():
        lines.append(f"warning: runs of one arm differ in {key}: " + ", ".join(f"{name} {'/'.join(some)}" for name, some in zip(names, values)))
    width = max(map(len, names))
    for value in result["values"]:
        lines += ["", value["title"] + (f" (step {result['step']})" if value["title"].endswith("the end") else "")]
        lines += [f"  {arm['arm']:{width}}  {arm['n']} runs  mean {arm['mean']:.4f}  sd " + ("-" if arm["sd"] is None else f"{arm['sd']:.4f}")
                  for arm in value["arms"]]
        lines += [difference_text(one) for one in value["differences"]]
    return "\n".join(lines)


def main(words):
    parser = argparse.ArgumentParser(usage=USAGE)
    parser.add_argument("--arms", nargs=argparse.REMAINDER, required=True)  # last: runs, divided by "--"
    parser.add_argument("--metric", action="append", default=[])
    parser.add_argument("--step", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--picture")
    place = words.index("--arms")
    options = parser.parse_args([*words[:place], "--arms"])
    divided = split_arms(words[place + 1:])
    if len(divided) < 2:
        raise Fault("only one arm is given: separate the runs of two arms by --", USAGE)
    if options.picture is not None:
        if not re.search(r"\.(svg|png)\Z", options.picture):
            raise Fault(f"--picture {options.picture} ends neither in .svg nor in .png", f"--picture {options.picture}.svg")
        picture.check_output(options.picture)
    arms = [[Run(directory) for directory in arm] for arm in divided]
    result = compare(arms, options.metric, options.step)
    if options.picture is not None:
        value = (options.metric or [HELD_OUT])[0]
        picture.draw(options.picture, [picture.Arm(one["name"], [run.curve(value) for run in arm]) for one, arm in zip(result["arms"], arms)],
                     value, "step", is_compared=True)
    print(printable(json.dumps(result, indent=1, ensure_ascii=True) if options.json else to_text(result)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Fault as fault:
        print(printable(f"shiftron: {fault}\n  next: {fault.command}"), file=sys.stderr)
        sys.exit(fault.code)
    except OSError as error:
        print(printable(f"shiftron: {error.filename}: {error.strerror}\n  next: ls -ld {error.filename}"), file=sys.stderr)
        sys.exit(70)
