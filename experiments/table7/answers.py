#!/usr/bin/env python3
"""Solves new problems of `shiftron data generate math` with a trained model, and counts the right answers.

    experiments/table7/answers.py SHIFTRON STEP_DIR --operations N

Prints JSON: {"in_range": {"some_line", "whole", "n"}, "one_more": {…}}. Training has problems of 2 to N statements. Those of in_range have
N - 1 or N: of shorter ones many occur in training. Those of one_more have N + 1. some_line: the share of problems where some line of the
model's solution gives the asked name its right value, whatever the other lines say (the paper's Appendix I). whole: the share where the
solution is that of the document, line by line, and ends after it.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

PROBLEMS = 1000
SEED = 1          # of the problems; training has 0
END = 0           # tokens, see docs/generated-data.md
EQUALS, STOP, QUESTION, COLON = 4, 5, 6, 7
LINE = 8          # tokens of a line at most
MORE_LINES = 2    # that a solution may have more than the problem has statements


def parts(document):
    """Prompt and solution of a document with masked targets: the prompt ends where the first target counts."""
    first = next(place for place, target in enumerate(document["targets"]) if target is not None)
    return document["ids"][:first + 1], document["ids"][first + 1:]


def lines(ids):
    """Lists of tokens, each without the stop that ends it. What comes after the last stop is no line."""
    result = [[]]
    for token in ids:
        if token == STOP:
            result.append([])
        else:
            result[-1].append(token)
    return result[:-1]


def value(line, name):
    """The token that a line `NAME = VALUE` or `NAME = … = VALUE` ends with; None of any other line."""
    is_about = len(line) >= 3 and line[0] == name and line[1] == EQUALS and line[-2] == EQUALS
    return line[-1] if is_about else None


def asked(prompt):
    """The name that `? NAME :` asks for."""
    *_, question, name, colon = prompt
    assert (question, colon) == (QUESTION, COLON), f"the prompt {prompt} does not end with a question"
    return name


def right_value(prompt, solution):
    """The document's own answer: its last line is about the name that is asked for."""
    answer = value(lines(solution)[-1], asked(prompt))
    assert answer is not None, f"the solution {solution} of {prompt} does not end with the answer"
    return answer


def has_right_line(prompt, solution, made):
    """Whether some line of `made` gives the asked name its right value. Other lines may contradict it: the paper counts the answer "as long as
    some step calculates the question asked and answers the correct answer"."""
    answer, name = right_value(prompt, solution), asked(prompt)
    return any(value(line, name) == answer for line in lines(made))


def is_whole(solution, continuation):
    return continuation["ended"] and continuation["ids"] == solution


def shares(documents, continuations):
    assert len(documents) == len(continuations), f"{len(continuations)} continuations of {len(documents)} prompts"
    pairs = [(*parts(document), continuation) for document, continuation in zip(documents, continuations)]
    some = sum(has_right_line(prompt, solution, made["ids"]) for prompt, solution, made in pairs)
    whole = sum(is_whole(solution, made) for _, solution, made in pairs)
    return {"some_line": some / len(pairs), "whole": whole / len(pairs), "n": len(pairs)}


def json_lines(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # stderr stays the user's
    if done.returncode:
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers(shiftron, step, least, most):
    documents = json_lines(shiftron, "data", "generate", "math", "--documents", str(PROBLEMS), "--seed", str(SEED), "--least-operations", str(least),
                           "--operations", str(most), "--jsonl")
    with tempfile.TemporaryDirectory() as folder:
        prompts = pathlib.Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"ids": parts(document)[0]}) + "\n" for document in documents), encoding="utf-8")
        return shares(documents, json_lines(shiftron, "generate", "--checkpoint", step, "--ids", str(prompts), "--end-of-document", str(END),
                                            "--tokens", str((most + MORE_LINES) * LINE)))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("shiftron")
    parser.add_argument("step")
    parser.add_argument("--operations", type=int, required=True)
    given = parser.parse_args()
    most = given.operations
    print(json.dumps({"in_range": answers(given.shiftron, given.step, most - 1, most),
                      "one_more": answers(given.shiftron, given.step, most + 1, most + 1)}))


if __name__ == "__main__":
    main()
