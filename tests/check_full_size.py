#!/usr/bin/env python3
"""Fails if docs/full-size.md states another model or training than the configurations, or a run that cannot be planned.

    tests/check_full_size.py PROGRAM [ROOT]
"""
import itertools
import json
import pathlib
import re
import subprocess
import sys

MOST = 80e9  # bytes of a rank
ITEMS = {"Figure 4", "Tables 2 and 3", "Figure 5a", "Figure 5b", "Figure 5c", "Figure 6", "Figure 7a", "Figure 7b", "Figure 8a", "Figure 8b",
         "Figure 8c", "Figure 10"}


def rows(page, head):
    """Cells of the table whose first header is `head`."""
    table = re.search(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.M)[1]
    return [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in table.splitlines()]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def number(text):
    scale = {"B": 1e9}.get(text[-1], 1)
    return float(text.rstrip("B").replace(",", "")) * scale


def keys_of(cell):
    """[(key, value), …] of each run: "`train.seed` 1 2" gives two."""
    choices = [[(key, value) for value in values.split()] for key, values in re.findall(r"`([\w.]+)` ([^`,|]+)", cell)]
    return list(itertools.product(*choices))


def planned(program, root, files, keys, layout):
    """(configuration {section.key: value}, plan) of --dry-run."""
    words = [word for name in [*files, f"layouts/{layout}"] for word in ("--config", str(root / f"configs/{name}.conf"))]
    words += [word for key, value in keys for word in (f"--{key}", value)]
    done = subprocess.run([program, "train", *words, "--dry-run", "--json", "--ranks", layout.rsplit("-", 1)[1], "--device.kind", "cuda"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{files} {keys} is not planned (exit code {done.returncode}): {done.stderr.strip()}")
    plan = json.loads(done.stdout)
    config, section = {}, ""
    for line in plan["configuration"].splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif " = " in line and not line.startswith("#"):
            key, value = line.split(" = ", 1)
            config[f"{section}.{key}"] = value
    return config, plan


def faults_of_size(row, config, plan):
    size, parameters, tokens, gpus, length, rate, warmup, _ = row
    ranks, batch = map(number, gpus.split(" × "))
    stated = {"parameters": number(parameters), "tokens": number(tokens), "sequences": ranks * batch, "length": number(length),
              "learning rate": float(rate), "warm-up": number(warmup)}
    step = int(config["train.global_batch"]) * int(config["train.sequence_length"])
    there = {"parameters": plan["parameters"], "tokens": int(config["train.steps"]) * step, "sequences": int(config["train.global_batch"]),
             "length": int(config["train.sequence_length"]), "learning rate": float(config["optimizer.learning_rate"]),
             "warm-up": int(config["optimizer.warmup"])}
    slack = {"parameters": 0.05 * stated["parameters"], "tokens": step}  # as rounded there; whole steps
    for name, value in stated.items():
        if abs(there[name] - value) > slack.get(name, 0):
            yield f"{size}: docs/full-size.md states {name} {value:g}, the configuration has {there[name]:g}"


def faults(program, root):
    page = (root / "docs/full-size.md").read_text()
    layouts = {}
    for row in rows(page, "size"):
        size = quoted(row[0])[0]
        layouts[size] = quoted(row[7])[0]
        yield from faults_of_size(row, *planned(program, root, [size], [], layouts[size]))
    items, used = set(), {"vanilla", "kv-shift"}
    for item, sizes, variants, *keys in rows(page, "item"):
        items.update(item.split(", "))
        for size, choice in itertools.product(quoted(sizes), keys_of("".join(keys))):
            arms = {}
            for variant in quoted(variants):
                files = size.split(" + ") + variant.split(" + ")
                used.update(files)
                config, plan = planned(program, root, files, choice, layouts[files[0]])
                most = max(kind["total_bytes"] for kind in plan["plan"])
                if most > MOST:
                    yield f"{item}: {files} plans {most / 1e9:.1f} GB a rank"
                arms[variant] = config
            first = arms[quoted(variants)[0]]
            for variant, config in arms.items():
                other = [key for key in config if config[key] != first[key] and not key.startswith("shift.")]
                if other:
                    yield f"{item}: {variant} differs from {quoted(variants)[0]} in {other}"
            for one, another in itertools.combinations(arms, 2):
                if arms[one] == arms[another]:
                    yield f"{item}: {one} and {another} are the same"
    if items != ITEMS:
        yield f"docs/full-size.md has rows for {sorted(items ^ ITEMS)} too many or lacks them"
    for path in sorted([*(root / "configs/ablations").glob("*.conf"), *(root / "configs/full-size").glob("*.conf")]):
        if f"{path.parent.name}/{path.stem}" not in used:
            yield f"{path.relative_to(root)} is used by no run of docs/full-size.md"


if __name__ == "__main__":
    found = list(faults(sys.argv[1], pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".").resolve()))
    print("\n".join(found) or "full size: no fault")
    sys.exit(bool(found))
