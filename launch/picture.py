"""Draws curves with gnuplot: single runs, or arms of runs as mean and band."""
import errno
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess

from run_values import Fault
from whole_file import write_whole

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]  # distinguishable for colour-blind readers too
TERMINALS = {"svg": "svg size 800,500 font 'sans,13' background '#ffffff'", "png": "png size 1000,625"}
FEW_POINTS = 60  # curves with at most so many points are drawn as circles and not smoothed
LABELS = {"loss": "loss (nats per token)", "validation_loss": "held-out loss (nats per token)", "accuracy": "accuracy",
          "validation_accuracy": "held-out accuracy"}


def quoted(text):
    """A string literal for gnuplot."""
    return "'" + "".join(character if character.isprintable() else " " for character in text).replace("'", "''") + "'"


def smooth(values):
    """Mean of the 10 values around each."""
    windows = (values[max(0, place - 5):place + 5] for place in range(len(values)))
    return [sum(window) / len(window) for window in windows]


class Arm:
    """Curves [{x: value}] under one name, drawn at the x values that all of them have."""

    def __init__(self, name, curves):
        self.name, self.curves = name, curves
        shared = sorted(set.intersection(*(set(curve) for curve in curves)))
        columns = [[curve[x] for x in shared] for curve in curves]
        if not shared:
            raise Fault(f"the runs of {name} have no common step with the value to draw", "use runs with the same evaluation.every", 76)
        self.is_dense = len(shared) > FEW_POINTS
        if self.is_dense:
            columns = [smooth(column) for column in columns]
        self.rows = []  # (x, mean, sd over the curves)
        for x, values in zip(shared, zip(*columns)):
            self.rows.append((x, statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0))


def separation(arms):
    """Returns (low, high) of y from where the curves separate: the first x at which two means differ by more than a tenth of their largest
    difference in the second half. Values before that may be cut off. None with one arm, or without a difference."""
    means = [{x: mean for x, mean, _ in arm.rows} for arm in arms]
    shared = sorted(set.intersection(*map(set, means)))
    if len(arms) < 2 or not shared:
        return None
    gaps = {x: max(mean[x] for mean in means) - min(mean[x] for mean in means) for x in shared}
    largest = max(gaps[x] for x in shared[len(shared) // 2:])
    if largest <= 0:
        return None
    start = next(x for x in shared if gaps[x] > largest / 10)
    start = max(start, shared[len(shared) // 10])  # not in the steep beginning, where gaps are random
    rows = [row for arm in arms for row in arm.rows if row[0] >= start]
    low, high = min(mean - sd for _, mean, sd in rows), max(mean + sd for _, mean, sd in rows)
    edge = 0.05 * (high - low) or 0.05 * abs(high) or 1
    return low - edge, high + edge


def script(terminal, arms, value, x_label, is_compared=False, ticks=None):
    lines = [f"set terminal {terminal}", f"set xlabel {quoted(x_label)}", f"set ylabel {quoted(LABELS.get(value, value))} noenhanced",
             'set grid lc rgb "#dddddd"', "set key top right", "set autoscale xfix", f'set format x "{"%.1s%c" if x_label == "tokens" else "%g"}"']
    if ticks:
        lines += ["set xtics (" + ", ".join(f"{quoted(name)} {place}" for place, name in enumerate(ticks)) + ")", "set xrange [-0.2:*]"]
    limits = separation(arms) if is_compared else None
    if limits:
        lines.append(f"set yrange [{limits[0]:.17g}:{limits[1]:.17g}]")
    bands, plots = [], []
    for place, arm in enumerate(arms):
        colour = COLOURS[place % len(COLOURS)]
        lines += [f"$curve{place} << END", *(f"{x:.17g} {mean:.17g} {mean - sd:.17g} {mean + sd:.17g}" for x, mean, sd in arm.rows), "END"]
        points = [(x, y) for curve in arm.curves for x, y in curve.items()]
        lines += [f"$points{place} << END", *(f"{x:.17g} {y:.17g}" for x, y in points), "END"]
        if len(arm.curves) > 1:
            bands.append(f'$curve{place} using 1:3:4 with filledcurves fc rgb "{colour}" fs transparent solid 0.2 noborder notitle')
        if len(arm.curves) == 1 or not arm.is_dense:
            plots.append(f'$points{place} using 1:2 with {"dots" if arm.is_dense else "points pt 7 ps 0.7"} lc rgb "{colour}" notitle')
        plots.append(f'$curve{place} using 1:2 with lines lw 2 lc rgb "{colour}" title {quoted(arm.name)} noenhanced')
    return "\n".join([*lines, "plot " + ", ".join(bands + plots), ""])


def keep(output, picture):
    """Writes the picture. Raises Fault and leaves the older one if it cannot."""
    try:
        write_whole(output, picture)
    except OSError as error:
        place, is_full = shlex.quote(str(pathlib.Path(output).parent)), error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Fault(f"{output} cannot be written: {error.strerror}",
                    f"df -h {place}" if is_full else f"ls -ld {place} {shlex.quote(str(output))}", 1) from None


def check_output(output):
    """Raises Fault if no picture can be drawn there."""
    if not shutil.which("gnuplot"):
        raise Fault("gnuplot is missing", "launch/install-deps", 1)
    folder = pathlib.Path(output).parent
    if not folder.is_dir():
        raise Fault(f"{folder} is not a directory", f"mkdir -p {shlex.quote(str(folder))}", 1)


def draw(output, arms, value, x_label="tokens", is_compared=False, ticks=None):
    """Writes `output`, whose name ends in .svg or .png. `is_compared`: the y axis shows the range after the arms separate. `ticks`: names of x = 0, 1, ….
    Raises Fault."""
    terminal = TERMINALS[re.search(r"\.(svg|png)\Z", str(output))[1]]
    render(output, script(terminal, arms, value, x_label, is_compared, ticks))


def render(output, text):
    """Runs a gnuplot script and writes its output. Raises Fault."""
    # -d: do not read .gnuplot, which somebody else may have written.
    done = subprocess.run(["gnuplot", "-d"], input=text.encode(), capture_output=True, check=False)
    if done.returncode or not done.stdout:
        raise Fault(f"gnuplot could not draw {output}:\n{done.stderr.decode(errors='replace')}", "gnuplot --version", 1)
    keep(output, done.stdout)
