"""Draws with gnuplot how many times as fast as the fastest PyTorch variant training steps are."""
import subprocess


def quoted(text):
    """A string literal for gnuplot, which would run a text in backticks. The script ends up in the picture's comment, which must not contain --."""
    plain = "".join(character for character in text if character.isprintable() and character not in '"`\\')
    return f'"{plain.replace("--", "- -")}"'


def script(bars):
    """bars: [(label, machine, times as fast, (least, most) with 95 % confidence)], drawn from top to bottom; a colour for each machine."""
    machines = list(dict.fromkeys(machine for _, machine, _, _ in bars))
    lines = [f"set terminal svg size 800,{126 + 20 * len(bars)} font 'sans,13' background '#ffffff'",
             'set xlabel "times as fast as the fastest PyTorch, with 95 % confidence"',
             f"set yrange [{len(bars) - 0.4}:-0.6]", "set xrange [0:*]", "set grid xtics lc rgb '#dddddd'",
             "set key at screen 0.5, screen 0.985 center top horizontal reverse Left samplen 1 maxrows 2", "set tmargin 4", "set style fill solid noborder", "set colorsequence podo", "set border 1", "set ytics scale 0 nomirror", "set xtics nomirror",
             "set arrow from 1, graph 0 to 1, graph 1 nohead lc rgb '#000000' lw 2 front"]
    for number, machine in enumerate(machines):
        lines.append(f"$machine{number} << END")
        for place, (label, of, ratio, (least, most)) in enumerate(bars):
            if of == machine:
                lines.append(f'{quoted(label)} {place} {float(ratio)} {float(least)} {float(most)} "{ratio:.2f}"')
        lines.append("END")
    lines.append("set ytics (" + ", ".join(f'{quoted(label)} {place}' for place, (label, _, _, _) in enumerate(bars)) + ")")
    plots = []
    for number, machine in enumerate(machines):
        plots.append(f"$machine{number} using (0):2:(0):3:($2-0.36):($2+0.36) with boxxyerror lc {number + 2} title {quoted(machine)} noenhanced")
        plots.append(f"$machine{number} using 3:2:4:5 with xerrorbars pt 0 lw 1.5 lc rgb '#444444' notitle")
        plots.append(f"$machine{number} using (0.04):2:6 with labels left font ',12' notitle")
    return "\n".join([*lines, "plot " + ", ".join(plots), ""])


def drawn(bars):
    """The picture as SVG, with its data in a comment at the end."""
    text = script(bars)
    done = subprocess.run(["gnuplot", "-d"], input=text, text=True, capture_output=True, check=False)
    if done.returncode or "</svg>" not in done.stdout:
        raise OSError(f"gnuplot could not draw: {done.stderr}")
    return done.stdout.replace("</svg>", f"<!--\n{text}-->\n</svg>")
