#!/usr/bin/env python3
"""Fails if a layout of configs/layouts/ does not fit its GPUs, or its plan differs from its file or docs/parallelism.md.

    tests/check_layouts.py PROGRAM [ROOT]            checks
    tests/check_layouts.py PROGRAM [ROOT] --write    updates the figures of both

MODEL-RANKS.conf is used after configs/MODEL.conf and configs/kv-shift.conf, on RANKS ranks.
"""
import configparser
import json
import pathlib
import re
import subprocess
import sys

BEGIN, END = "<!-- layouts: written by tests/check_layouts.py --write -->", "<!-- end of layouts -->"
PLAN = re.compile(r"^# Plan: .*$", re.M)
MOST = 80e9  # bytes of a rank
LESS = {"19b-240": 50e9}  # bounds of those that leave more of it free
CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "scratch", "reserve", "NCCL")


def gigabytes(count):
    return f"{count / 1e9:.2f}"


def planned(program, root, name):
    """(layout in words, {category: bytes}, {group: bytes of a step}) of the rank that needs most."""
    model, ranks = name.rsplit("-", 1)
    files = [root / "configs" / f"{model}.conf", root / "configs/kv-shift.conf", root / f"configs/layouts/{name}.conf"]
    words = [word for file in files for word in ("--config", str(file))]
    done = subprocess.run([program, "train", *words, "--dry-run", "--json", "--ranks", ranks, "--device.kind", "cuda"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} is not planned (exit code {done.returncode}): {done.stderr.strip()}")
    plan = json.loads(done.stdout)["plan"]
    most = max(plan, key=lambda kind: kind["total_bytes"])
    settings = configparser.ConfigParser(inline_comment_prefixes=("#",))
    settings.read(files)
    train, parallel = settings["train"], settings["parallel"]
    axes = {axis: int(parallel.get(axis, "1")) for axis in ("tp", "pp")}
    replicas = int(ranks) // (axes["tp"] * axes["pp"])
    microbatches = int(train["global_batch"]) // (int(train["micro_batch"]) * replicas)
    layout = (f"tp {axes['tp']} · pp {axes['pp']} · dp {replicas}, zero {parallel['zero']}, recompute {parallel.get('recompute', 'none')}, "
              f"{microbatches} × {train['micro_batch']} × {int(train['sequence_length']):,} tokens")
    memory = {"all": most["total_bytes"], **most["memory_bytes"]}
    traffic = {}
    for operation, cost in most["traffic"].items():
        group = operation.split()[0]
        traffic[group] = traffic.get(group, 0) + cost["bytes"]
    return layout, memory, traffic


def line_of(plan):
    layout, memory, _ = plan
    parts = ", ".join(f"{category} {gigabytes(memory[category])}" for category in CATEGORIES)
    return f"# Plan: {layout};\n#   {gigabytes(memory['all'])} GB per rank: {parts}"


def table(plans):
    rows = ["| file | layout; microbatches of a rank in a step | GB a rank | " + " | ".join(CATEGORIES) + " | tp, GB a step | dp, GB a step |",
            "|---|---|" + "---|" * (len(CATEGORIES) + 3)]
    for name, (layout, memory, traffic) in plans.items():
        figures = [memory["all"], *(memory[category] for category in CATEGORIES), traffic.get("tp", 0), traffic.get("dp", 0)]
        rows.append(f"| `configs/layouts/{name}.conf` | {layout} | " + " | ".join(map(gigabytes, figures)) + " |")
    return "\n".join(rows)


def halves(page):
    return page[:page.index(BEGIN) + len(BEGIN)], page[page.index(END):]


def write(root, plans):
    for name, plan in plans.items():
        path = root / f"configs/layouts/{name}.conf"
        path.write_text(re.sub(r"^# Plan: .*\n(?:#   .*\n)?", line_of(plan) + "\n", path.read_text(), flags=re.M))
    path = root / "docs/parallelism.md"
    before, after = halves(path.read_text())
    path.write_text(f"{before}\n{table(plans)}\n{after}")


def faults(root, plans):
    for name, plan in plans.items():
        bytes_of_rank, most = plan[1]["all"], LESS.get(name, MOST)
        if bytes_of_rank > most:
            yield f"{name} plans {gigabytes(bytes_of_rank)} GB a rank, more than {gigabytes(most)}"
        if line_of(plan) + "\n" not in (root / f"configs/layouts/{name}.conf").read_text():
            yield f"configs/layouts/{name}.conf states another plan: run tests/check_layouts.py PROGRAM . --write"
    page = (root / "docs/parallelism.md").read_text()
    if f"{BEGIN}\n{table(plans)}\n{END}" not in page:
        yield "docs/parallelism.md states other plans: run tests/check_layouts.py PROGRAM . --write"
    for name in LESS:
        if name not in plans:
            yield f"configs/layouts/{name}.conf does not exist"


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--write"]
    where = pathlib.Path(given[1] if len(given) > 1 else ".").resolve()
    order = sorted((path.stem for path in (where / "configs/layouts").glob("*.conf")),
                   key=lambda name: [float(part) for part in name.replace("b-", " ").split()])
    all_plans = {name: planned(given[0], where, name) for name in order}
    if "--write" in sys.argv:
        write(where, all_plans)
    found = list(faults(where, all_plans))
    print("\n".join(found) or "layouts: no fault")
    sys.exit(bool(found))
