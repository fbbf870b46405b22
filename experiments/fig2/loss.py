"""Theorem 3's loss over a grid of taps that sum to 1: prints where it is least for each T, and draws Figure 2.

    loss.py PICTURE.svg     no picture without gnuplot
"""
import json
import math
import pathlib
import shutil
import sys

sys.dont_write_bytecode = True  # the folder may belong to another user
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "launch"))
# pylint: disable=wrong-import-position
import picture

TOKENS = (8, 32, 256)
STEPS = 100  # of the grid, in each direction
ARROWS = 10  # in each direction
TERMINAL = "svg size 1200,440 font 'sans,13' background '#ffffff'"


def loss(tokens, alpha1, beta1):
    """Of one head that predicts the token after the repeated one, among `tokens` different ones with orthonormal embeddings: the paper's
    Table 5, with O(T) counted as the T - 2 keys that score 0. Its rows i - 1 and T say a2 where the sums before it make a1."""
    alpha2, beta2 = 1 - alpha1, 1 - beta1
    total = 2 * math.exp(alpha1) + math.exp(alpha2) + tokens - 2
    a1, a2 = math.exp(alpha1) / total, math.exp(alpha2) / total
    following = beta1 * a2 + beta2 / total
    repeated = 2 * beta1 * a1 + beta2 * a2
    neighbour = beta1 / total + beta2 * a1  # the token before it, and the last one
    other = (beta1 + beta2) / total
    return math.log(math.exp(following) + math.exp(repeated) + 2 * math.exp(neighbour) + (tokens - 4) * math.exp(other)) - following


def grid(tokens):
    """{(alpha1, beta1): loss}."""
    places = [step / STEPS for step in range(STEPS + 1)]
    return {(alpha1, beta1): loss(tokens, alpha1, beta1) for alpha1 in places for beta1 in places}


def descent(tokens, alpha1, beta1, width=1e-4, length=0.5 / ARROWS):
    """An arrow (x, y, dx, dy) of this length down the loss."""
    dx, dy = (loss(tokens, alpha1 - x, beta1 - y) - loss(tokens, alpha1 + x, beta1 + y) for x, y in ((width, 0), (0, width)))
    size = math.hypot(dx, dy) or 1
    return alpha1, beta1, length * dx / size, length * dy / size


def draw(output, grids):
    lines = [f"set terminal {TERMINAL}", "set multiplot layout 1,3", "set xrange [0:1]", "set yrange [0:1]", "set size square", "unset key",
             "set xlabel 'α_1'", "set ylabel 'β_1'", "set contour base", "set cntrparam levels 15", "set view map", "unset surface"]
    for tokens, values in grids.items():
        lines += [f"$losses{tokens} << END"]
        for at, ((alpha1, beta1), value) in enumerate(values.items()):
            lines += [""] * (at > 0 and at % (STEPS + 1) == 0) + [f"{alpha1:g} {beta1:g} {value:.12g}"]
        middles = [(step + 0.5) / ARROWS for step in range(ARROWS)]
        arrows = [descent(tokens, alpha1, beta1) for alpha1 in middles for beta1 in middles]
        lines += ["END", f"$arrows{tokens} << END", *(" ".join(f"{number:.6g}" for number in arrow) for arrow in arrows), "END",
                  f"set table $contours{tokens}", f"splot $losses{tokens} using 1:2:3 with lines", "unset table"]
    for tokens in grids:
        lines += [f"set title 'T = {tokens}'",
                  f"plot $losses{tokens} using 1:2:3 with image, $contours{tokens} using 1:2 with lines lc rgb '#333333', "
                  f"$arrows{tokens} using 1:2:3:4 with vectors lc rgb '#ffffff'"]
    picture.render(output, "\n".join([*lines, "unset multiplot", ""]))


def main():
    grids = {tokens: grid(tokens) for tokens in TOKENS}
    answer = {}
    for tokens, values in grids.items():
        least, second = sorted(values, key=values.get)[:2]
        answer[f"T{tokens}"] = {"alpha1": least[0], "beta1": least[1], "loss": values[least], "margin": values[second] - values[least]}
    print(json.dumps(answer))
    if shutil.which("gnuplot"):
        draw(sys.argv[1], grids)


if __name__ == "__main__":
    main()
