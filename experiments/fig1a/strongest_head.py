"""The strongest induction head of one step, on symbols of Figure 1a's documents.

    strongest_head.py SHIFTRON STEP_DIR

Prints its `induction` score (0 to 1; docs/inspect.md), `layer` and `head`, and the mean `loss` of the repeated symbols in nats.
"""
import json
import subprocess
import sys

SYMBOLS = ["--first-token", "1", "--last-token", "64"]  # 0 ends a document


def main():
    shiftron, step = sys.argv[1:]
    answer = subprocess.run([shiftron, "inspect", "heads", step, "--json", *SYMBOLS], stdout=subprocess.PIPE, check=False)
    if answer.returncode:
        sys.exit(answer.returncode)
    scores = json.loads(answer.stdout)["scores"]
    strongest = max(scores["heads"], key=lambda head: head["induction"])
    print(json.dumps({"loss": scores["second_copy_loss"], **{key: strongest[key] for key in ("induction", "layer", "head")}}))


if __name__ == "__main__":
    main()
