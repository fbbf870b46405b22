#!/usr/bin/env python3
"""The phases of launch/quickstart after the build; call launch/quickstart."""
import argparse
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # the folder may belong to another user
import quick_text  # pylint: disable=wrong-import-position
from foreign_text import say  # pylint: disable=wrong-import-position
from quick_text import ROOT, SHIFTRON, read_config  # pylint: disable=wrong-import-position

CONFIGS = {name: ["configs/quickstart.conf", f"configs/{name}.conf"] for name in ("vanilla", "kv-shift")}
RANKS = 4
OTHER_RANKS, OTHER_LAYOUT = 2, ["--parallel.tp", "1", "--parallel.pp", "2"]
MORE_STEPS = 20
# Nats per token. Another layout sums the same fp32 numbers in another order, which rounds differently (1e-7 of a sum). Updates
# propagate the difference, so the curves diverge slowly. The error of a wrong gradient is visible at once and far larger.
TOLERANCE = 1e-3
PROMPTS = ["It was a", "And the king said unto"]
PHASES, FIRST_PHASE = 11, 3
MARKER = "made-by-quickstart.txt"
MARKER_HEAD = ("# launch/quickstart created the files named below and may remove them, and no others in this directory. "
               "Keep your own files elsewhere.\n")


class Fault(Exception):
    def __init__(self, what, command, code=1):
        super().__init__(what)
        self.command, self.code = command, code


class Directory:
    """The output directory. Only files that the marker names are ever removed, and only while this process has locked the marker."""

    def __init__(self, path):
        self.path, marker = path, path / MARKER
        text = os.fsencode(path)
        if re.search(rb"[#\n\r]|\s$", text) or text.decode(errors="replace") != str(path):
            raise Fault(f"{str(path)!a} cannot be a run's directory: '#', line breaks, trailing blanks and invalid UTF-8 are refused",
                        "launch/quickstart --out DIR", 76)
        try:
            path.mkdir(parents=True, exist_ok=True)
            names = sorted(entry.name for entry in path.iterdir())
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise Fault(f"{path} cannot be used ({error.strerror})", "launch/quickstart --out DIR", 76) from None
        if names and MARKER not in names:
            earlier = "phases.json" in names and "logs" in names
            raise Fault(f"{path} contains files ({', '.join(names[:3])}{', …' if len(names) > 3 else ''}) but no {MARKER}, which lists what "
                        "the quick start may remove" + ("; it looks like the output of an earlier version, which wrote no such list" if earlier else ""),
                        f"launch/quickstart --out DIR, with a new DIR; or move {shlex.quote(str(path))} away", 76)
        self.marker = open(marker, "a+")
        try:
            fcntl.flock(self.marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Fault(f"another quick start is running in {path}", "wait for it, or launch/quickstart --out DIR", 76) from None
        except OSError:  # a file system without locks
            pass
        self.marker.seek(0)
        lines = self.marker.read().splitlines()
        self.names = {name for name in lines if name and name == pathlib.PurePath(name).name and not name.startswith(("#", "."))}
        if not lines:
            self.write(MARKER_HEAD)

    def write(self, text):
        self.marker.write(text)
        self.marker.flush()

    def own(self, *names):
        """Adds names to the marker before the files are created."""
        for name in names:
            if name in self.names:
                continue
            if os.path.lexists(self.path / name):
                raise Fault(f"the quick start did not create {self.path / name} and would overwrite it",
                            f"mv {shlex.quote(str(self.path / name))} ELSEWHERE", 76)
            self.write(f"{name}\n")
            self.names.add(name)

    def remove(self, *names):
        for name in self.names.intersection(names):
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def read_metrics(run):
    """Returns {step: values} of the run's steps, without an incomplete last line and skipped steps. If a step was written twice, the last row counts."""
    steps = {}
    path = run / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if values.get("loss") is not None:
            steps[values["step"]] = values
    return steps


def fenced(text):
    """A code block in Markdown, so that a model's text is not read as Markdown or HTML."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text.rstrip()}\n{fence}\n"


def step_directory(run, step):
    return run / "checkpoints" / f"step-{step:08d}"


def parameters_of(conf):
    """Number of parameters (all, outside embedding and head) of the model in a resolved configuration; shapes as in docs/ and ARCHITECTURE.md."""
    model = {key: int(conf["model"][key]) for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")}
    query, key_value = model["heads"] * model["head_dim"], model["kv_heads"] * model["head_dim"]
    shift = sum(count * (taps + 1) for count, taps in ((model["heads"], int(conf["shift"]["query"])),
                                                       (model["kv_heads"], int(conf["shift"]["key"])),
                                                       (model["kv_heads"], int(conf["shift"]["value"]))) if taps)
    layer = model["hidden"] * (2 * query + 2 * key_value + 3 * model["ffn"] + 2) + shift
    inside = model["layers"] * layer + model["hidden"]
    tables = 1 if conf["model"].get("tie_embeddings", "false") == "true" else 2
    return inside + tables * model["vocab"] * model["hidden"], inside


def read_state(path):
    """The recorded state of the phases; empty if a crash left the file incomplete: then they run again."""
    try:
        state = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


class QuickStart:
    def __init__(self, directory, again):
        self.directory, self.out, self.again = directory, directory.path, again
        self.number, self.child = FIRST_PHASE - 1, None
        out = self.out
        directory.own("phases.json", "phases.new", "logs")
        (out / "logs").mkdir(exist_ok=True)
        self.state_path = out / "phases.json"
        self.state = read_state(self.state_path)
        self.rerun = False  # a phase was run, so the later ones run too
        self.stopped = self.starting = False
        self.pending_signal = None  # a signal that arrived while a command was being started
        plan = read_config(ROOT / "configs" / "quickstart.conf")
        self.steps, self.middle = int(plan["train"]["steps"]), int(plan["checkpoint"]["every"])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.on_signal)

    def on_signal(self, number, _frame):
        self.stopped = True
        if self.child is not None:
            self.child.send_signal(number)  # training saves, other commands end
        elif self.starting:
            self.pending_signal = number
        else:
            raise Fault("stopped", self.again, 75)

    # ---- phases

    def phase(self, name, title, inputs, work, outputs, fresh=None):
        """Runs `work`, which writes the names `outputs`, unless it has finished with the same inputs. Removes the name `fresh`
        first, unless work on the same inputs was interrupted: then it continues."""
        self.number += 1
        label = f"[{self.number:2d}/{PHASES}] {title}"
        key = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
        known = self.state.get(name, {})
        if not self.rerun and known.get("key") == key and known.get("done"):
            say(f"{label}: already done, {known['seconds']:.0f} s")
            return
        resumes = not self.rerun and known.get("key") == key
        self.directory.own(*outputs)
        if fresh and not resumes:
            self.directory.remove(fresh)
        for later in list(self.state)[list(self.state).index(name):] if name in self.state else []:
            del self.state[later]
        spent = known.get("seconds", 0) if resumes else 0
        self.rerun = self.rerun or not resumes
        self.state[name] = {"key": key, "done": False, "seconds": spent}
        self.save_state()
        say(f"{label} …")
        start = time.monotonic()
        try:
            work()
        finally:
            self.state[name]["seconds"] = spent + time.monotonic() - start
            self.save_state()
        self.state[name]["done"] = True
        self.save_state()
        say(f"{label}: {self.state[name]['seconds']:.0f} s")

    def save_state(self):
        new = self.state_path.with_suffix(".new")
        new.write_text(json.dumps(self.state, indent=1))
        new.replace(self.state_path)

    def call(self, name, *command, run=None, steps=0, accept=(0,)):
        """Runs a command, output to logs/NAME.log; returns its standard output. With `run`, shows its progress to `steps`."""
        command = [str(part) for part in command]
        log, answer = self.out / "logs" / f"{name}.log", self.out / "logs" / f"{name}.out"
        with open(log, "w") as errors, open(answer, "w") as output:
            errors.write(f"$ {' '.join(command)}\n")
            errors.flush()
            self.starting = True
            self.child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                          preexec_fn=os.setpgrp)  # a separate group, so that the terminal's Ctrl-C reaches only this script
            self.starting = False
            if self.pending_signal:
                self.child.send_signal(self.pending_signal)
            shown = time.monotonic()
            while self.child.poll() is None:
                time.sleep(0.2)
                if run and time.monotonic() > shown + 15:
                    shown = time.monotonic()
                    self.show_progress(run, steps)
            code, self.child = self.child.returncode, None
        saved = code == 75
        if self.stopped and (saved or code in accept or not 0 < code < 128):  # otherwise it failed, such as a save on a full disk
            raise Fault("stopped" + ("; the run is saved" if saved else ""), self.again, 75)
        if code not in accept:
            tail = "\n".join((log.read_text(errors="replace") + answer.read_text(errors="replace")).splitlines()[-20:])
            raise Fault(f"`{' '.join(command)}` failed with exit code {code}:\n{tail}\n  full log: {log}", self.again, code if code > 0 else 1)
        return answer.read_text(encoding="utf-8", errors="replace")

    @staticmethod
    def show_progress(run, steps):
        done = read_metrics(run)
        if done:
            last = done[max(done)]
            say(f"        step {last['step']} of {steps}, loss {last['loss']:.3f}, {last.get('tokens_per_second', 0):,.0f} tokens/s")

    # ---- what the phases do

    def corpus(self):
        self.call("corpus", *quick_text.corpus(self.out))

    def tokenizer(self):
        self.call("tokenizer", *quick_text.tokenizer(self.out))

    def data(self):
        self.directory.remove("data")  # a stop may have left one of the two datasets, which a build does not replace
        for split in quick_text.SPLITS:
            self.call(f"data-{split}", *quick_text.data(self.out, split))

    def train_arguments(self, name, run):
        configs = [part for path in CONFIGS[name] for part in ("--config", path)]
        # Keeps the middle step for a later phase, however many steps a stop adds after it.
        return ["train", *configs, "--data.train", self.out / "data" / "train", "--output.directory", run, "--checkpoint.keep_every", self.middle]

    def train(self, name):
        run = self.out / name
        self.call(f"train-{name}", "launch/local", RANKS, *self.train_arguments(name, run), run=run, steps=self.steps)

    def evaluate(self):
        for name in CONFIGS:
            text = self.call(f"evaluate-{name}", SHIFTRON, "evaluate", "--checkpoint", step_directory(self.out / name, self.steps),
                             "--data", self.out / "data" / "held-out", "--json")
            (self.out / f"evaluation-{name}.json").write_text(text)

    def generate(self):
        lines = []
        for name in CONFIGS:
            for number, prompt in enumerate(PROMPTS, 1):
                text = self.call(f"generate-{name}-{number}", SHIFTRON, "generate", "--checkpoint", step_directory(self.out / name, self.steps),
                                 "--prompt", prompt, "--tokens", 64, "--temperature", 0.8, "--seed", 1)
                lines += [f"{name}: {text.strip()}", ""]
        (self.out / "samples.txt").write_text("\n".join(lines), encoding="utf-8")

    def other_layout(self):
        """Continues the KV-shift run's middle checkpoint on other ranks, in a separate directory."""
        run = self.out / "other-layout"
        self.directory.remove("other-layout")
        saved = step_directory(self.out / "kv-shift", self.middle)
        if not saved.is_dir():
            raise Fault(f"{saved} no longer exists", self.again + " --fresh")
        shutil.copytree(saved, step_directory(run, self.middle))
        self.call("other-layout", "launch/local", OTHER_RANKS, *self.train_arguments("kv-shift", run), *OTHER_LAYOUT,
                  "--train.stop_at", self.middle + MORE_STEPS, run=run, steps=self.middle + MORE_STEPS, accept=(75,))

    # ---- the report

    def layouts_text(self):
        first, second = read_metrics(self.out / "kv-shift"), read_metrics(self.out / "other-layout")
        steps = range(self.middle + 1, self.middle + MORE_STEPS + 1)
        missing = [step for step in steps if step not in first or step not in second]
        if missing:
            raise Fault(f"no loss for steps {missing} in {self.out}/kv-shift or {self.out}/other-layout", self.again + " --fresh")
        difference = max(abs(first[step]["loss"] - second[step]["loss"]) for step in steps)
        change = statistics.mean(abs(first[step]["loss"] - first[step - 1]["loss"]) for step in steps)
        same = "the same curve" if difference <= TOLERANCE else "NOT THE SAME CURVE"
        return (f"Steps {steps[0]} to {steps[-1]}, repeated from the saved step {self.middle} on {OTHER_RANKS} ranks ({' '.join(OTHER_LAYOUT)}) "
                f"instead of {RANKS}: {same}. The losses differ by at most {difference:.1e} (allowed: {TOLERANCE:.0e}; from step to step they "
                f"change by {change:.1e} on average). They are not bit-identical, because fp32 sums in another order round differently.")

    def report(self):
        figures = json.loads((self.out / "corpus" / "figures.json").read_text())
        rows = [("model", "parameters", "outside embedding and head", "training loss", "held-out loss", "bits per byte", "tokens/s", "training time")]
        scores = {}
        for name in CONFIGS:
            steps = read_metrics(self.out / name)
            every, inside = parameters_of(read_config(self.out / name / "config.conf"))
            scores[name] = json.loads((self.out / f"evaluation-{name}.json").read_text())
            rows.append((name, f"{every:,}", f"{inside:,}", f"{statistics.mean(steps[step]['loss'] for step in sorted(steps)[-20:]):.4f}",
                         f"{scores[name]['loss']:.4f}", f"{scores[name]['bits_per_byte']:.4f}",
                         f"{statistics.median(values['tokens_per_second'] for values in steps.values()):,.0f}",
                         f"{self.state['train-' + name]['seconds']:.0f} s"))
        rows.append(("`xz -9e`", "", "", "", "", f"{figures['xz_bits_per_byte']:.4f}", "", ""))
        rows.append(("`xz -9e` after the training text", "", "", "", "", f"{figures['xz_bits_per_byte_after_train']:.4f}", "", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
        table.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        tokens = max(values.get("tokens", 0) for values in read_metrics(self.out / "kv-shift").values())
        text = "\n".join([
            f"Losses are nats per token; the training loss is the mean of the last 20 steps. Trained on {tokens:,} tokens with {RANKS} ranks on {os.cpu_count()} cores. "
            f"Held-out text: whole chapters, {figures['total']['held_out_bytes']:,} bytes.", "", *table, "",
            f"Held-out loss, kv-shift minus vanilla: {scores['kv-shift']['loss'] - scores['vanilla']['loss']:+.4f}. "
            "This is one seed at one learning rate, the one of three with the lowest sum of both losses (`benchmarks/quickstart-rates`). It shows that all parts "
            "work, and what such a difference looks like. It cannot show that KV shift is better: other seeds and other learning rates give other "
            "differences. `experiments/run fig5a fig5bc` compares five seeds, and four learning rates.", "",
            self.layouts_text(), "", fenced((self.out / "samples.txt").read_text(encoding="utf-8"))])
        (self.out / "report.md").write_text("# Quick start\n\n" + text + "\n![loss](loss.svg)\n", encoding="utf-8")
        self.call("draw-loss", "launch/draw-loss", self.out / "loss", *(self.out / name for name in CONFIGS))

    def run(self):
        out = self.out
        texts = {name: [(ROOT / path).read_text() for path in paths] for name, paths in CONFIGS.items()}
        self.phase("corpus", "text from Debian packages", [], self.corpus, ["corpus"])
        self.phase("tokenizer", "tokenizer", texts, self.tokenizer, ["tokenizer.model"])
        self.phase("data", "token shards", [], self.data, ["data"])
        for name in CONFIGS:
            self.phase(f"train-{name}", f"training {name}, {RANKS} ranks", texts[name], lambda name=name: self.train(name), [name], fresh=name)
        self.phase("evaluate", "scores on held-out text", [], self.evaluate, [f"evaluation-{name}.json" for name in CONFIGS])
        self.phase("generate", "generated text", PROMPTS, self.generate, ["samples.txt"])
        self.phase("other-layout", f"{MORE_STEPS} steps repeated on {OTHER_RANKS} ranks", OTHER_LAYOUT, self.other_layout, ["other-layout"])
        self.phase("report", "table and picture", [], self.report, ["report.md", "loss.svg", "loss.png"])
        say(f"\n{(out / 'report.md').read_text(encoding='utf-8')}")
        say(f"Everything is in {out}/: the table in {out}/report.md, the picture in {out}/loss.svg and {out}/loss.png.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--caller", type=pathlib.Path, default=ROOT, help="the folder that --out is relative to")
    parser.add_argument("--check", action="store_true", help="only check whether the directory can be used")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    out = arguments.caller / arguments.out if arguments.out else pathlib.Path("quickstart")
    out = out.relative_to(ROOT) if ROOT in (out, *out.parents) else out
    again = "launch/quickstart" + ("" if str(out) == "quickstart" else f" --out {shlex.quote(str(out))}")
    try:
        directory = Directory(out)
        with directory.marker:
            if arguments.check:
                return 0
            if arguments.fresh:  # keep the packages' files
                directory.remove(*directory.names - {"corpus"})
            QuickStart(directory, again).run()
    except Fault as fault:
        say(f"quickstart: {fault}\n  next: {fault.command}", stream=2)
        return fault.code
    except OSError as fault:
        say(f"quickstart: {fault}\n  next: df -h {shlex.quote(str(out))}; {again}", stream=2)
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main())
