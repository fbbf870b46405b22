#!/usr/bin/env python3
"""What lm-evaluation-harness 0.4.13 computes for the made-up items in tests/evaluate/data/hub: hashes, requests and metrics of every
task, for answers that depend only on the request. tests/evaluate/tasks_harness_test.cpp compares ours with the stored output.

lm_eval_tasks.py [OUTPUT]      needs `pip install "lm_eval[math]==0.4.13"` with torch; no model and no network
"""
import hashlib
import json
import math
import os
import pathlib
import struct
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import lm_eval  # noqa: E402
import lm_eval.api.model  # noqa: E402
import lm_eval.tasks  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HUB = ROOT / "tests/evaluate/data/hub"
BUILT_IN = pathlib.Path(lm_eval.tasks.__file__).parent
GENERATED = ["The answer is $\\frac12$.", "0.5", "$[-2,2]$", "7", "so $9\\text{ cm}$", "$x \\in [-2,7]$", "90", "1,000",
             "Final Answer: The final answer is $\\frac{1}{2}$. I hope it is correct.",
             "Final Answer: The final answer is $90^\\circ$. I hope it is correct."]
# For the questions that begin so: asked without examples, and after some.
GENERATED_TO = {"Who wrote the first program": ["  countess ADA", " Adam"], "Which cape": [" The 'Cape!'", "\tBACK\\SLASH "],
                "Which city": [" İstanbul", " konÉ\u3000polis"], "Which number": [" forty two", " 42\0"],
                "Ana has": [" It is 12.\n#### 12", " so 3 * 4 = $12. Thus 12"], "A barn costs": [" #### 1,250.", " $1250"],
                "It was 4": ["#### -5\n#### 5", " minus five: -5"], "What is half": [" The answer is 2.50", " #### 2.5."],
                "How many sides": [" six", " 6 sides"]}
MMLU = ["abstract_algebra", "business_ethics", "sociology", "philosophy"]
CMMLU = ["agronomy", "logical"]
MATH = {"algebra": "algebra", "geometry": "geometry"}
GROUPS = {"mmlu_here": ([f"mmlu_{subject}" for subject in MMLU], ["acc"]),
          "cmmlu_here": ([f"cmmlu_{subject}" for subject in CMMLU], ["acc", "acc_norm"]),
          "hendrycks_math_here": ([f"hendrycks_math_{name}" for name in MATH], ["exact_match"])}
BOOTSTRAP = 2000


def number(*parts) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:4], "big")


class Answers(lm_eval.api.model.LM):
    """Log-likelihoods and texts drawn by a hash of the request, as fp32."""

    def loglikelihood(self, requests):
        answers = []
        for request in requests:
            drawn = number(*request.args)
            answers.append((struct.unpack("f", struct.pack("f", -(drawn % 100003) / 5000))[0], drawn % 3 == 0))
        return answers

    def loglikelihood_rolling(self, requests):
        return [-float(number(request.args[0]) % 9973) / 7 for request in requests]

    def generate_until(self, requests):
        return [self.generated(request.args[0]) for request in requests]

    @staticmethod
    def generated(context):
        questions = context.split("Question: ")
        for begin, texts in GENERATED_TO.items():
            if questions[-1].startswith(begin):
                return texts[min(len(questions) - 2, 1)]
        return GENERATED[number(context) % len(GENERATED)]


def write_tasks(folder: pathlib.Path) -> list:
    names = []

    def add(name, base, files, **more):
        data = {split: str(HUB / path) for split, path in files.items()}
        lines = [f"include: {BUILT_IN / base}", f"task: {name}", "dataset_path: json", "dataset_name: null",
                 f"dataset_kwargs: {json.dumps({'data_files': data})}"]
        lines += [f"{key}: {json.dumps(value)}" for key, value in more.items()]
        (folder / f"{name}.yaml").write_text("\n".join(lines) + "\n")
        names.append(name)

    add("lambada_openai", "lambada/lambada_openai.yaml", {"test": "lambada_openai/test.jsonl"})
    add("lambada_standard", "lambada/lambada_standard.yaml",
        {split: f"lambada_standard/{split}.jsonl" for split in ("test", "validation")})
    add("winogrande", "winogrande/default.yaml", {split: f"winogrande/{split}.jsonl" for split in ("train", "validation")})
    add("hellaswag", "hellaswag/hellaswag.yaml", {split: f"hellaswag/{split}.jsonl" for split in ("train", "validation")})
    for name, part in (("arc_easy", "ARC-Easy"), ("arc_challenge", "ARC-Challenge")):
        add(name, "arc/arc_easy.yaml", {split: f"arc/{part}/{split}.jsonl" for split in ("train", "test")}, validation_split=None)
    for name, base in (("piqa", "piqa/piqa.yaml"), ("boolq", "super_glue/boolq/default.yaml"), ("social_iqa", "siqa/siqa.yaml"),
                       ("copa", "super_glue/copa/default.yaml"), ("triviaqa", "triviaqa/default.yaml")):
        add(name, base, {split: f"{name}/{split}.jsonl" for split in ("train", "validation")})
    for name, base in (("openbookqa", "openbookqa/openbookqa.yaml"), ("sciq", "sciq/sciq.yaml")):
        add(name, base, {split: f"{name}/{split}.jsonl" for split in ("train", "test")}, validation_split=None)
    add("gsm8k", "gsm8k/gsm8k.yaml", {split: f"gsm8k/{split}.jsonl" for split in ("train", "test")})
    for subject in MMLU:
        files = {split: f"mmlu/{subject}/{split}.jsonl" for split in ("dev", "test")}
        add(f"mmlu_{subject}", f"mmlu/default/mmlu_{subject}.yaml", files)
        add(f"mmlu_{subject}_continuation", f"mmlu/continuation/mmlu_{subject}.yaml", files)
    for subject in CMMLU:
        add(f"cmmlu_{subject}", f"cmmlu/cmmlu_{subject}.yaml", {split: f"cmmlu/{subject}/{split}.jsonl" for split in ("dev", "test")})
    for name, part in MATH.items():
        files = {split: f"math/{part}/{split}.jsonl" for split in ("train", "test")}
        add(f"hendrycks_math_{name}", "hendrycks_math/hendrycks_math_algebra.yaml", files)
        add(f"minerva_math_{name}", "minerva_math/minerva_math_algebra.yaml", files)
    add("hendrycks_math500", "hendrycks_math/hendrycks_math500.yaml", {"test": "math500/test.jsonl"})
    add("wikitext", "wikitext/wikitext.yaml", {"test": "wikitext/test.jsonl"}, training_split=None, validation_split=None)
    for group, (members, metrics) in GROUPS.items():
        lines = [f"group: {group}", f"task: {json.dumps(members)}", "aggregate_metric_list:"]
        lines += [f"  - metric: {metric}\n    weight_by_size: true" for metric in metrics]
        (folder / f"{group}.yaml").write_text("\n".join(lines) + "\n")
    return names


def kept(sample: dict) -> dict:
    answers = [list(answer[0]) if isinstance(answer[0], (list, tuple)) else answer[0] for answer in sample["resps"]]
    values = {name: sample[name] for name in sample["metrics"]}
    requests = [[*request, None][:2] for request in sample["arguments"]]
    facts = {"doc_hash": sample["doc_hash"], "prompt_hash": sample["prompt_hash"], "target_hash": sample["target_hash"],
             "requests": [[context, more["until"] if isinstance(more, dict) else more] for context, more in requests],
             "answers": answers, "values": values}
    return facts if sample["filter"] == "none" else {**facts, "filter": sample["filter"], "filtered": sample["filtered_resps"]}


def run(manager, tasks, fewshot) -> dict:
    found = lm_eval.simple_evaluate(model=Answers(), tasks=tasks, num_fewshot=fewshot, task_manager=manager, log_samples=True,
                                    bootstrap_iters=BOOTSTRAP)
    samples = {}
    for name, all_of_task in found["samples"].items():
        hashes = "".join(s["doc_hash"] + s["prompt_hash"] + s["target_hash"] for s in all_of_task)
        samples[name] = {"task_hash": hashlib.sha256(hashes.encode()).hexdigest(), "samples": [kept(s) for s in all_of_task]}
    results = {name: {key: value for key, value in values.items() if isinstance(value, (int, float, str))}
               for name, values in found["results"].items()}
    versions = {name: found["versions"][name] for name in samples}
    return {"fewshot": fewshot, "samples": samples, "results": results, "versions": versions}


def main() -> int:
    output = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "tests/evaluate/data/harness.json")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tasks = write_tasks(folder)
        manager = lm_eval.tasks.TaskManager(include_path=name)
        drawn = [task for task in tasks if task not in ("lambada_openai", "wikitext", "hendrycks_math500")
                 and not task.startswith("minerva")]
        grouped = [member for members, _ in GROUPS.values() for member in members]
        zero = [task for task in tasks if task not in grouped] + list(GROUPS)
        runs = [run(manager, zero, 0), run(manager, drawn, 3)]
    output.write_text(json.dumps({"lm_eval": "0.4.13", "bootstrap": BOOTSTRAP, "runs": runs}, ensure_ascii=False, indent=1,
                                 allow_nan=False) + "\n")
    print(f"{output}: {sum(len(task['samples']) for each in runs for task in each['samples'].values())} items")
    return 0


if __name__ == "__main__":
    sys.exit(main())
