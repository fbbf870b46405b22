"""Which tap is larger, in keys and in values: the paper's Table 4 of one step, and what has changed since the start.

    diagonal.py SHIFTRON STEP_DIR

Prints, as shares of all KV heads: `diagonal`, those with the same larger tap in keys and values, `initial_diagonal`, the difference `gain`, and
`changed`, those that have moved to another cell of the table. `coupling` is the mean of (α1 - α2)(β1 - β2), which is above 0 on the diagonal, and
`coupling_gain` is its change.
"""
import json
import statistics
import subprocess
import sys


def is_diagonal(cell):
    """Of a cell's name, such as "key current, value previous"."""
    key, value = (part.split()[1] for part in cell.split(", "))
    return key == value


def coupling(pair):
    (alpha1, alpha2), (beta1, beta2) = pair["key"][:2], pair["value"][:2]
    return (alpha1 - alpha2) * (beta1 - beta2)


def main():
    shiftron, step = sys.argv[1:]
    answer = subprocess.run([shiftron, "inspect", "heads", step, "--json", "--sequences", "1"], stdout=subprocess.PIPE, check=False)
    if answer.returncode:
        sys.exit(answer.returncode)
    taps = json.loads(answer.stdout)["taps"]
    pairs = taps["pairs"]
    initial = [pair["initial"] for pair in pairs]
    found = {"diagonal": statistics.fmean(is_diagonal(pair["quadrant"]) for pair in pairs),
             "initial_diagonal": statistics.fmean(is_diagonal(pair["quadrant"]) for pair in initial),
             "changed": taps["changed_quadrant"] / len(pairs),
             "coupling": statistics.fmean(map(coupling, pairs)), "initial_coupling": statistics.fmean(map(coupling, initial))}
    print(json.dumps({**found, "gain": found["diagonal"] - found["initial_diagonal"], "coupling_gain": found["coupling"] - found["initial_coupling"]}))


if __name__ == "__main__":
    main()
