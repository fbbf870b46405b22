#!/usr/bin/env python3
"""What a run writes and uses: metrics, events, TensorBoard files, memory; help, version, and the plan without a run."""
import json
import math
import pathlib
import re
import resource
import struct
import subprocess
import time
import unittest
import xml.etree.ElementTree

from harness import LAYOUTS, MODEL, PROGRAM, ROOT, SystemTest, environment, events, last_step, lines, options, scaled, shiftron

FIELDS = {"step", "tokens", "loss", "accuracy", "gradient_norm", "learning_rate", "tokens_per_second", "step_seconds",
          "model_flops_utilization", "memory_bytes", "time_seconds", "layer_gradient_norms", "shift", "skipped"}
PAPER_BILLIONS = {"1.5b": 1.564, "2.9b": 2.888, "6.7b": 6.771, "13b": 13.06, "19b": 19.01}


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """[(number, value)] of a protocol buffer."""
    found, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = data[at:at + size]
            at += size
        found.append((key >> 3, value))
    return found


def read_tensorboard(path):
    """(events as {number: value}, {tag: {step: value}})"""
    data, at, all_events, scalars = path.read_bytes(), 0, [], {}
    while at < len(data):
        head = data[at:at + 8]
        (length,), (check,) = struct.unpack("<Q", head), struct.unpack("<I", data[at + 8:at + 12])
        assert masked_crc32c(head) == check, "checksum of a length"
        body = data[at + 12:at + 12 + length]
        assert masked_crc32c(body) == struct.unpack("<I", data[at + 12 + length:at + 16 + length])[0], "checksum of a record"
        at += 16 + length
        event = dict(fields(body))
        all_events.append(event)
        for number, value in fields(event.get(5, b"")):
            assert number == 1
            scalar = dict(fields(value))
            scalars.setdefault(scalar[1].decode(), {})[event[2]] = struct.unpack("<f", scalar[2])[0]
    return all_events, scalars


def numbers(value, tag=""):
    """(path, number) of what is nested in JSON"""
    if isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(inner, f"{tag}/{name}" if tag else str(name))
    else:
        yield tag, value


def resident(process):
    """Bytes."""
    try:
        return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{process}/status").read_text())[1]) * 1024
    except (OSError, TypeError):
        return None


class RunFiles(SystemTest):
    def of(self, run, **more):
        return {**self.settings(run, **more), **LAYOUTS["tp2pp2"][1]}

    def assert_start_is_short(self, text, run):
        """What differs from the defaults, parameters, tokens, ranks and files; no key that has its default."""
        begin = text.index(f"run {run}\n")
        start = text[begin:text.index("\n\n", begin)]  # a picture of the layout follows
        for phrase in ("config.conf has every key (hash ", "\n  optimizer   learning_rate=", " warmup=7\n", " parameters", " without embedding and head)",
                       "\n  budget      6 steps x 128 tokens = 768 tokens\n", "\n  devices     4 ranks on ", "\n  layout      tp 2 · pp 2 · dp 1; 4 microbatches per step"):
            self.assertIn(phrase, start)
        self.assertNotIn("rope_base", text)
        without_paths = [line for line in start.splitlines() if str(self.folder) not in line]
        self.assertLessEqual(max(map(len, without_paths)), 100, start)
        self.assertLess(len(start.splitlines()), 25, start)

    def test_files_of_a_run(self):
        run = self.folder / "run"
        more = {"train__steps": 6, "checkpoint__every": 3, "evaluation__every": 3, "evaluation__sequences": 4, "optimizer__warmup": 7,
                "data__validation": self.folder / "data" / "validation"}
        again = ["--data.validation", self.folder / "data" / "validation"]  # a second source
        text = self.expect(0, self.start(4, ["train", *options(self.of(run, **more)), *again]))
        for number in range(1, 7):
            self.assertRegex(text, rf"(?m)^step {number}/6  loss [\d.]+  norm [\d.]+  lr {1e-2 * number / 7:.2e}  [\d,]+ tokens/s .* left$")
        self.assertNotRegex(text, r"\x1b|\r")  # plain in a pipe
        self.assert_start_is_short(text, run)
        metrics = lines(run / "metrics.jsonl")
        steps = [line for line in metrics if "loss" in line]
        self.assertEqual([line["step"] for line in steps], list(range(1, 7)))
        for line in steps:
            self.assertEqual(set(line), FIELDS)
            self.assertEqual(line["tokens"], line["step"] * 4 * 32)
            self.assertTrue(0 <= line["accuracy"] <= 1, line)
            self.assertEqual(set(line["time_seconds"]), {"compute", "communication", "wait", "data"})
            self.assertEqual(set(line["layer_gradient_norms"]), {"embedding", "layers.0", "layers.1", "final_norm", "head"})
            self.assertEqual({layer: set(streams) for layer, streams in line["shift"].items()},
                             {"0": {"key", "value"}, "1": {"key", "value"}})
            self.assertAlmostEqual(line["learning_rate"], 1e-2 * line["step"] / 7, delta=1e-15)
            self.assertLess(sum(line["time_seconds"].values()), line["step_seconds"] * 1.001 + 1e-6)
        validation = [line for line in metrics if "validation_loss" in line]
        self.assertEqual([line["step"] for line in validation], [3, 6])
        for line in validation:
            self.assertEqual(set(line), {"step", "validation_loss", "validation_accuracy", "validation_sources"})
            self.assertEqual(list(line["validation_sources"]), ["validation", "validation:2"])
        raw = (run / "metrics.jsonl").read_text()
        for field in ("loss", "gradient_norm", "validation_loss", "learning_rate"):
            digits = [len(value.replace(".", "").lstrip("0").split("e")[0]) for value in re.findall(rf'"{field}":([\d.e-]+)', raw)]
            self.assertGreaterEqual(sorted(digits)[len(digits) // 2], 9, field)
        self.check_events(run)
        self.check_config(run)
        self.check_tensorboard(run, steps, validation)
        self.assertEqual(sorted(path.name for path in (run / "logs").iterdir()), [f"rank-{rank:05d}.log" for rank in range(4)])

    def check_events(self, run):
        for event in lines(run / "events.jsonl"):
            self.assertEqual(list(event)[:4], ["time", "rank", "host", "event"])
            self.assertRegex(event["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual([event["event"] for event in lines(run / "events.jsonl")], ["start"] + ["checkpoint"] * 3 + ["exit"])
        start = events(run, "start")[0]
        self.assertEqual((start["ranks"], start["layout"], sum(start["hosts"].values()), start["threads"]),
                         (4, {"tp": 2, "cp": 1, "dp": 1, "pp": 2}, 4, 1))
        self.assertEqual(start["rank_order"], "tp,cp,dp,pp")
        log = (run / "logs/rank-00000.log").read_text()
        self.assertIn(f"stage 0  embedding, layer 0  0-1\nstage 1  layer 1, head       2-3\nall on host {next(iter(start['hosts']))}\n", log)
        self.assertNotIn("tensor-parallel groups span", log)

    def check_config(self, run):
        before = (run / "config.conf").read_text()
        text = self.expect(0, self.start(4, ["train", "--config", run / "config.conf"]))
        self.assertIn("step 6, the last one, is already done; nothing to do", text)
        self.assertNotIn("resume: ", text)  # no key has changed
        self.assertEqual((run / "config.conf").read_text(), before)
        self.must(shiftron("train", "--config", run / "config.conf", "--dry-run"))

    def check_tensorboard(self, run, steps, validation):
        path = min((run / "tensorboard").iterdir())
        self.assertRegex(path.name, r"^events\.out\.tfevents\.\d{10}\.")
        all_events, scalars = read_tensorboard(path)
        self.assertEqual(all_events[0][3], b"brain.Event:2")
        self.assertEqual(dict(fields(all_events[1][7])), {1: 1})  # a session starts, at step 1
        self.assertEqual(all_events[1][2], 1)
        wall = struct.unpack("<d", all_events[-1][1])[0]
        self.assertLess(abs(wall - time.time()), scaled(120))
        wanted = {}  # every number of metrics.jsonl
        for line in steps + validation:
            for tag, value in numbers(line):
                if tag != "step" and value is not None:  # the GEMM peak may not be credible here
                    wanted.setdefault(tag, {})[line["step"]] = value
        for tag in ("tokens", "skipped", "layer_gradient_norms/layers.1", "shift/1/value/0", "time_seconds/wait", "memory_bytes/activations",
                    "accuracy", "validation_accuracy", "validation_sources/validation/loss", "validation_sources/validation:2/accuracy"):
            self.assertIn(tag, wanted)
        narrow = {tag: {number: struct.unpack("<f", struct.pack("<f", value))[0] for number, value in of.items()} for tag, of in wanted.items()}
        shares = scalars.pop("model_flops_utilization")
        known = {step: share for step, share in shares.items() if not math.isnan(share)}  # the others are null in the rows
        self.assertEqual(known, narrow.pop("model_flops_utilization", {}))
        self.assertEqual(scalars, narrow)

    def test_checksum(self):
        self.assertEqual(masked_crc32c(b"123456789"), (0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8 & 0xFFFFFFFF)

    def test_lines_of_a_run_that_died_before_its_first_save(self):
        run = self.folder / "died"
        job = self.train(1, self.settings(run, train__steps=100000))
        self.wait_for(lambda: last_step(run) >= 2, job)
        job.process.kill()
        job.wait()
        died_at = last_step(run)
        text = self.expect(0, self.train(1, self.settings(run, train__steps=3)))
        self.assert_printed_once(text, f"metrics.jsonl has lines of earlier steps, but {run}/checkpoints contains no checkpoint: training starts at step 1")
        self.assertEqual([line["step"] for line in lines(run / "metrics.jsonl")], [1, 2, 3])
        self.assertEqual(last_step(run), 3)
        moved = (run / "metrics.superseded.jsonl").read_text().splitlines()
        self.assertGreaterEqual(len(moved), died_at)

    def test_memory(self):
        run, ranks = self.folder / "memory", 4
        settings = self.of(run, train__steps=64, evaluation__every=16, evaluation__sequences=4, checkpoint__every=20,
                           data__validation=self.folder / "data" / "validation")
        plan = json.loads(self.must(shiftron("train", "--dry-run", "--json", *[f"--{key}={value}" for key, value in settings.items()])))
        job = self.train(ranks, settings)
        self.wait_for(lambda: last_step(run) >= 3, job)
        ids = job.ranks()
        self.assertEqual(len(ids), ranks)
        first, last, reached = {}, {}, 0
        while job.running():
            reached = max(reached, last_step(run))
            for rank, process in ids.items():
                if (bytes_now := resident(process)) is not None:
                    first.setdefault(rank, bytes_now)
                    last[rank] = max(last.get(rank, 0), bytes_now)
            time.sleep(0.01)
        self.expect(0, job)
        self.assertGreater(reached, 40)
        grown = {rank: (last[rank] - first[rank]) / 2**20 for rank in ids}
        print("resident memory grew by", {rank: f"{value:.1f} MiB" for rank, value in grown.items()}, flush=True)
        self.assertLessEqual(max(grown.values()), 16)
        memory = [line["memory_bytes"] for line in lines(run / "metrics.jsonl") if "loss" in line]
        planned = next(row["memory_bytes"] for row in plan["plan"] if row["rank"] == 0)
        self.assertEqual(memory[0], planned)
        self.assertEqual(len(memory), 64)
        for line in memory:
            self.assertEqual(line, planned)


class Words(SystemTest):
    def test_help_and_version(self):
        version = self.must(shiftron("--version"))
        self.assertRegex(version, r"^shiftron \d+\.\d+\.\d+\ncommit \S+( and changes)?\nbackends .*cpu")
        top = self.must(shiftron("--help"))
        commands = re.findall(r"(?m)^  ([a-z-]+(?: [a-z-]+)?)  +\S", top)
        self.assertGreaterEqual(len(commands), 13)
        for command in commands:
            words = command.split()
            text = self.must(shiftron(*words, "--help"))
            self.assertIn(command, text)
            self.assertGreater(len(text), 100)
            if len(words) == 2:
                self.assertIn(command, self.must(shiftron(words[0], "--help")))
        self.assertIn("--shift.form free|gate|clamp|project", self.must(shiftron("train", "--help", "all")))
        wrong = shiftron("trian")
        self.assertEqual(wrong.returncode, 76)
        self.assertIn("did you mean train?", wrong.stderr)

    def test_parameters_of_the_paper(self):
        for name, billions in PAPER_BILLIONS.items():
            arguments = ["train", "--dry-run", "--config", ROOT / "configs" / f"{name}.conf"]
            text = self.must(shiftron(*arguments))
            plan = json.loads(self.must(shiftron(*arguments, "--json")))
            self.assertEqual(f"{plan['parameters'] / 1e9:.4g}", f"{billions:.4g}")
            self.assertIn(f"{plan['parameters']:,} parameters ({billions:.4g} B), {plan['parameters_outside_embedding']:,} outside", text)
            config = dict(re.findall(r"(?m)^(hidden|vocab) = (\d+)", arguments[3].read_text()))
            outer = 2 * int(config["hidden"]) * int(config["vocab"])
            self.assertEqual(plan["parameters"] - plan["parameters_outside_embedding"], outer)
        plan = json.loads(self.must(shiftron(*arguments, "--json", "--model.tie_embeddings", "true", "--parallel.tp", "4", "--parallel.pp", "4")))
        self.assertEqual(plan["parameters"] - plan["parameters_outside_embedding"], outer // 2)

    def test_plan_of_started_ranks(self):
        settings = {key: value for key, value in MODEL.items() if key != "device.threads"}
        alone = self.must(shiftron("train", "--dry-run", *options(settings)))
        self.assertIn("\n1 ranks: tp 1 · pp 1 · dp 1; 4 microbatches", alone)
        for more, text in (([], "2 ranks: tp 1 · pp 1 · dp 2; 2 microbatches"), (["--ranks", "4"], "4 ranks: tp 1 · pp 1 · dp 4; 1 microbatches")):
            printed = self.expect(0, self.start(2, ["train", "--dry-run", *options(settings), *more]))
            self.assertEqual(printed.count(" parameters ("), 1, printed)
            self.assertIn(text, printed)
            self.assertIn("\nstage 0  embedding, layers 0-1, head  0     1", printed)
            self.assertEqual(printed.count("all on host "), int(not more), printed)  # only for existing ranks
        refused = self.expect(76, self.start(2, ["train", "--dry-run", *options({**settings, "parallel.tp": 4})]))
        self.assertEqual(refused.count("ranks 2 not divisible by tp 4"), 1, refused)

    def test_drawing_of_a_planned_schedule(self):
        drawing = self.folder / "schedule.svg"
        settings = {**MODEL, "parallel.pp": 2, "parallel.recompute": "full,none"}
        plan = json.loads(self.must(shiftron("train", "--dry-run", "--json", "--draw", drawing, *options(settings))))
        self.assertEqual(plan["ranks"], 2)
        picture = xml.etree.ElementTree.parse(drawing).getroot()
        texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual(texts[0], "2 ranks: tp 1 · pp 2 · dp 1; 2 layers; time in forward passes of a layer")
        self.assertTrue(texts[1].startswith("1f1b, 2 stages, 4 microbatches: bubble "), texts[1])
        boxes = [box for box in picture.iter("{http://www.w3.org/2000/svg}rect") if box.get("class") == "action"]
        self.assertEqual(len(boxes), 2 * 2 * 4)
        self.must(shiftron("train", "--dry-run", "--draw", drawing, *options(settings)))  # replaced
        notes = self.folder / "notes.md"
        notes.write_text("svg\n")
        for command, message in ((["--dry-run", "--draw", notes], "exists and is not a drawing, so it is not replaced"),
                                 (["--dry-run", "--draw", self.folder / "none" / "a.svg"], "the drawing cannot be written, choose another --draw: "),
                                 (["--dry-run", "--draw", self.folder], "the drawing cannot be written"),
                                 (["--draw", drawing], "add --dry-run"), (["--json"], "add --dry-run"),
                                 (["--ranks", "8"], "add --dry-run"), (["--to-start"], "add --dry-run")):
            refused = shiftron("train", *command, *options(settings))
            self.assertEqual(refused.returncode, 76, refused.stderr)
            self.assertIn(message, refused.stderr)
        self.assertEqual(notes.read_text(), "svg\n")

    def test_plans_of_what_no_machine_holds(self):
        large = {"model.layers": 128, "model.hidden": 16384, "model.heads": 128, "model.kv_heads": 8, "model.ffn": 53248, "model.vocab": 128257,
                 "train.steps": 1, "train.global_batch": 4096, "train.sequence_length": 8192, "optimizer.learning_rate": 1, "train.precision": "bf16",
                 "parallel.tp": 8, "parallel.pp": 64, "evaluation.every": 1}
        result = self.planned(large, "--ranks", 16384)
        rows = re.findall(r"(?m)^rank \d+ .*$", result.stdout)
        self.assertLessEqual(len(rows), 24)
        self.assertEqual(sum(int((re.search(r"for ([\d,]+) ranks", row) or [0, "1"])[1].replace(",", "")) for row in rows), 16384)
        plan = json.loads(self.planned(large, "--ranks", 16384, "--json").stdout)["plan"]
        self.assertEqual(sum(row["ranks"] for row in plan), 16384)
        small = {**MODEL, "evaluation.every": 1}
        for more in ({"model.layers": 4096}, {"model.vocab": 2000000000}, {"model.hidden": 2000000000, "model.head_dim": 2, "train.sequence_length": 1},
                     {"train.global_batch": 2000000000, "train.micro_batch": 2000}, {"train.global_batch": 1048576, "parallel.pipeline": "gpipe"},
                     {"train.sequence_length": 10000000, "train.global_batch": 1}):
            self.assertEqual(self.planned({**small, **more}).returncode, 0, more)
        for more, keys in (({"model.layers": 100000}, ["model.layers"]), ({"parallel.pp": 65536}, ["layers 2 below pp 65536"]),
                           ({"model.hidden": 2000000000, "model.vocab": 2000000000}, ["model.hidden", "model.vocab"]),
                           ({"train.global_batch": 2000000000}, ["global_batch", "micro_batch"]),
                           ({"train.sequence_length": 2000000000}, ["train.sequence_length", "train.global_batch"]),
                           ({"train.sequence_length": 2000000000, "train.micro_batch": 4}, ["sequence_length", "micro_batch"])):
            result = self.planned({**small, **more})
            self.assertEqual(result.returncode, 76, more)
            for key in keys:
                self.assertIn(key, result.stderr)

    def planned(self, settings, *more):
        """The plan, which has few seconds of processor time and little memory."""
        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (8, 8))
            resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        return subprocess.run([PROGRAM, "train", "--dry-run", *options(settings), *map(str, more)], capture_output=True, text=True,
                              env=environment(), timeout=300, check=False, preexec_fn=limit)

    def test_the_rank_that_needs_most_is_named(self):
        zb_v = {**MODEL, "model.layers": 16, "model.hidden": 4096, "train.global_batch": 8, "train.sequence_length": 4096, "parallel.pp": 8}
        for pipeline in ("zb-v", "1f1b"):  # in whose later stages more is in flight, and less
            with self.subTest(pipeline):
                settings = {**zb_v, "parallel.pipeline": pipeline}
                text = self.planned(settings).stdout
                plan = {row["rank"]: row["total_bytes"] for row in json.loads(self.planned(settings, "--json").stdout)["plan"]}
                rows = re.findall(r"(?m)^rank (\d+) .*: ([\d.]+) GB(?:, others down to ([\d.]+) GB)?$", text)
                self.assertEqual(max(float(most) for _, most, _ in rows), round(max(plan.values()) / 1e9, 3), text)
                self.assertTrue(any(least for _, _, least in rows), text)
                for rank, most, least in rows:
                    self.assertEqual(float(most), round(plan[int(rank)] / 1e9, 3))
                    self.assertLess(float(least or 0), float(most))

    def test_a_plan_to_start_refuses_what_a_start_would(self):
        run, nowhere = self.folder / "never", self.folder / "nowhere"
        config = self.folder / "empty.conf"
        config.write_text("")
        slurm = [ROOT / "launch" / "slurm", config, "--nodes", 1, "--tasks-per-node", 2, "--time", 60, "--dry-run"]

        def slurm_of(settings):
            return subprocess.run(list(map(str, [*slurm, *options(settings)])), capture_output=True, text=True, env=environment(),
                                  timeout=scaled(60), check=False)
        self.must(slurm_of(self.settings(run)))
        tasks = {"evaluation.every": 2, "evaluation.tasks": "hellaswag"}
        rows = [({"data.train": None}, "data.train is required"), ({"output.directory": None}, "output.directory is required"),
                ({"evaluation.every": 2}, "data.validation is required"), (tasks, "evaluation.data is required"),
                ({**tasks, "evaluation.data": nowhere}, f"'{nowhere}' is not a directory")]
        if "cuda" not in self.must(shiftron("--version")):
            rows.append(({"device.kind": "cuda"}, "device.kind cuda is not implemented"))
        for more, message in rows:
            with self.subTest(message):
                settings = {key: value for key, value in {**self.settings(run), **more}.items() if value is not None}
                self.must(shiftron("train", "--dry-run", *options(settings)))
                for refused in (shiftron("train", *options(settings)), shiftron("train", "--dry-run", "--to-start", *options(settings)),
                                slurm_of(settings)):
                    self.assertEqual(refused.returncode, 76, refused.stdout + refused.stderr)
                    self.assertIn(message, refused.stderr)
        self.assertFalse(run.exists())

    def test_every_command_on_a_run_refuses_unknown_tasks(self):
        settings = {**self.settings(self.folder / "never"), "evaluation.every": 2, "evaluation.data": self.folder, "evaluation.tasks": "nosuchtask"}
        for command in (["train"], ["train", "--dry-run"], ["preflight"]):
            refused = shiftron(*command, *options(settings))
            self.assertEqual(refused.returncode, 76, refused.stdout + refused.stderr)
            self.assertIn("evaluation.tasks: no such task", refused.stderr)

    def test_a_short_run_within_a_long_warmup(self):
        run = self.folder / "short"
        self.expect(0, self.train(1, self.settings(run, train__steps=2, optimizer__warmup=1000)))
        self.assertEqual([line["learning_rate"] for line in lines(run / "metrics.jsonl")], [1e-5, 2e-5])
        result = shiftron("train", *[f"--{key}={value}" for key, value in self.settings(
            run, train__steps=2, optimizer__warmup=1000, optimizer__schedule="linear").items()])
        self.assertEqual(result.returncode, 76)
        self.assertIn("warmup 1000 + decay_steps 0 exceed steps 2", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
