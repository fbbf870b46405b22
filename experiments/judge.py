"""Judges a claim by the values of its runs, or of its program."""
import measures
import paired
from run_values import Fault

DEFAULT_METRIC = "validation_loss"


def values_of(runs, check):
    """Returns {seed: value} of the runs {seed: Run} that have the check's value."""
    found = {}
    for seed, run in runs.items():
        try:
            found[seed] = run.value(check.get("metric", DEFAULT_METRIC), check.get("step"), check.get("last"))
        except Fault:
            continue
    return found


def contrast(check, runs):
    """Returns (what is measured, {seed: value}, low, high): the claim is that the values are between low and high. `runs`: {variant: {seed: Run}}."""
    metric = check.get("metric", DEFAULT_METRIC)
    for kind, partner in (("lower", "than"), ("higher", "than"), ("no_gain", "over"), ("alike", "to")):
        if kind not in check:
            continue
        first, second, factor = values_of(runs[check[kind]], check), values_of(runs[check[partner]], check), check.get("factor", 1)
        margin = check.get("margin", 0)
        low, high = {"lower": (None, -margin), "higher": (margin, None), "no_gain": (-margin, None), "alike": (-margin, margin)}[kind]
        title = f"{metric}: {check[kind]} - {'' if factor == 1 else f'{factor:g} × '}{check[partner]}"
        return title, {seed: first[seed] - factor * second[seed] for seed in sorted(set(first) & set(second))}, low, high
    kind = "at_least" if "at_least" in check else "at_most"
    values = {seed: value - check["value"] for seed, value in values_of(runs[check[kind]], check).items()}
    return f"{metric}: {check[kind]} - {check['value']:g}", values, *((0, None) if kind == "at_least" else (None, 0))


def of_each_seed(check, what, values, claimed):
    """The value of each seed, and what is claimed of them: "accuracy: vanilla is 0.133, 0.11 (at most 0.2)"."""
    limit = check.get("value", 0)
    shown = ", ".join(f"{value + limit:.3g}" for value in values.values())
    for kind in ("at_least", "at_most"):
        if kind in check:
            return f"{what.replace(f' - {limit:g}', '', 1)} is {shown} ({kind.replace('_', ' ')} {limit:g})"
    return f"{what} is {shown} ({claimed})"


def judge(check, runs, seeds):
    """Judges one check by the finished `runs`, of `seeds` planned ones. Returns {"what", "claim", "n", "mean", "standard_error", "interval", "lower", "verdict", "text"}."""
    what, values, low, high = contrast(check, runs)
    if check["point"]:
        what = f"{check['point']}: {what}"
    if "step" in check:
        what += f" at step {check['step']}"
    if "last" in check:
        what += f", mean of the last {check['last']}"
    claimed = f"above {low:g}" if high is None else f"below {high:g}" if low is None else f"between {low:g} and {high:g}"
    result = {"what": what, "claim": claimed, "differences": {str(seed): value for seed, value in values.items()}}
    if not values:
        return {**result, "n": 0, "verdict": "too small", "text": f"{what}: no finished runs"}
    result.update(paired.summary(list(values.values())), lower=sum(value < 0 for value in values.values()))
    if "of_seeds" in check:  # the claim is that so many seeds are on its side
        good = sum((low is None or value > low) and (high is None or value < high) for value in values.values())
        wanted = check["of_seeds"]
        result["verdict"] = "holds" if good >= wanted else "fails" if good + max(0, seeds - len(values)) < wanted else "too small"
        return {**result, "text": f"{of_each_seed(check, what, values, claimed)}, {good} of {len(values)} seeds; claimed for {wanted}"}
    result["verdict"] = paired.verdict(result["interval"], low, high)
    text = f"{what} = {result['mean']:+.4f}"
    if result["interval"]:
        text += f" ± {result['standard_error']:.4f}, 90 % interval {result['interval'][0]:+.4f} … {result['interval'][1]:+.4f}"
    else:
        text += " (one seed: no interval)"
    return {**result, "text": f"{text}, {result['lower']} of {result['n']} below 0; claimed {claimed}"}


def judge_value(check, path):
    """Judges a number without seeds in the file that a program wrote: it holds or fails."""
    kind = "at_least" if "at_least" in check else "at_most"
    value, limit = measures.value_of(path, check[kind]), check["value"]
    holds = value >= limit if kind == "at_least" else value <= limit
    claim = f"at {kind[3:]} {limit:g}"
    return {"what": check[kind], "claim": claim, "value": value, "verdict": "holds" if holds else "fails", "text": f"{check[kind]} = {value:.4g}; claimed {claim}"}


def verdict_of(checks):
    """The verdict of a claim with several checks: `holds` if all hold, `fails` if one fails."""
    verdicts = [check["verdict"] for check in checks]
    return "fails" if "fails" in verdicts else "too small" if "too small" in verdicts else "holds"
