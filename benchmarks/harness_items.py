"""The side of lm-evaluation-harness in evaluate_vs_harness.py: a live process that answers a line "TASK[,TASK] EXAMPLES BATCH" by one
of JSON, {"items", "seconds", "log_likelihoods"}. The seconds are those of loglikelihood(): from texts to log-likelihoods.

    harness_items.py --model DIR --dtype float32 --tasks DIR --limit N --max-length N --threads N
"""
import argparse
import json
import os
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import datasets  # noqa: E402
import lm_eval  # noqa: E402
import lm_eval.models.huggingface  # noqa: E402
import lm_eval.tasks  # noqa: E402
import torch  # noqa: E402


def instances_of(manager, names, fewshot, limit):
    """The requests of all tasks, in order, and their number of items."""
    instances, items = [], 0
    for name in names.split(","):
        task = lm_eval.tasks.get_task_dict([name], manager)[name]
        task.set_config(key="num_fewshot", value=int(fewshot))
        task.set_fewshot_seed(1234)
        task.build_all_requests(limit=limit, rank=0, world_size=1)
        instances += task.instances
        items += len({instance.doc_id for instance in task.instances})
    return instances, items


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--tasks", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-length", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries
    datasets.disable_progress_bars()
    torch.set_num_threads(arguments.threads)
    manager = lm_eval.tasks.TaskManager(include_path=arguments.tasks)
    model = lm_eval.models.huggingface.HFLM(pretrained=arguments.model, dtype=arguments.dtype, device="cpu", batch_size=1,
                                            trust_remote_code=True, max_length=arguments.max_length)
    tell = lambda facts: print(json.dumps(facts), file=answers, flush=True)  # noqa: E731
    tell({"threads": torch.get_num_threads(), "attention": model.model.config._attn_implementation,
          "versions": {"lm_eval": lm_eval.__version__, "PyTorch": torch.__version__}})
    for line in sys.stdin:
        names, fewshot, batch = line.split()
        instances, items = instances_of(manager, names, fewshot, arguments.limit)
        model.batch_size_per_gpu = int(batch)
        began = time.perf_counter()
        found = model.loglikelihood(instances, disable_tqdm=True)
        seconds = time.perf_counter() - began
        tell({"items": items, "seconds": seconds, "log_likelihoods": [one[0] for one in found]})


if __name__ == "__main__":
    main()
