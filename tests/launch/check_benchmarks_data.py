#!/usr/bin/env python3
"""launch/benchmarks-data converts made-up Parquet files to the JSONL of tests/evaluate/data/hub, and says what it cannot read.
Without pyarrow it is skipped (77), except for the errors that need none."""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/evaluate/data"
CASES = [("arc/ARC-Easy/test.jsonl", ["arc_easy_test"]), ("cmmlu/agronomy/test.jsonl", ["cmmlu_agronomy_test"]),
         ("hellaswag/validation.jsonl", ["hellaswag_validation-00000-of-00002", "hellaswag_validation-00001-of-00002"]),
         ("lambada_standard/test.jsonl", ["lambada_standard_test"])]


def convert(*arguments):
    done = subprocess.run([ROOT / "launch/benchmarks-data", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    faults = []

    def expect(is_so, what):
        if not is_so:
            faults.append(what)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for arguments, part in (((), "an output and at least one input"), ((folder / "a.jsonl", folder / "none.parquet"), "is not a file"),
                                ((folder / "same", __file__, folder / "same"), "is both the output and an input")):
            (folder / "same").write_text("a dataset")
            code, output = convert(*arguments)
            expect(code == 76 and part in output and "next: " in output, f"{arguments}: {code} {output}")
            expect((folder / "same").read_text() == "a dataset", "an input was replaced")
        os.mkfifo(folder / "pipe")
        code, output = convert(folder / "pipe", __file__)
        expect(code == 76 and "is not a regular file" in output and (folder / "pipe").is_fifo(), f"a pipe: {code} {output}")
        code, output = convert(folder / "x/a.jsonl", DATA / "parquet/arc_easy_test.parquet")
        if "has no pyarrow" in output and not faults:
            print(output)
            return 77
        for hub, parts in CASES:
            made = folder / hub
            code, output = convert(made, *(DATA / f"parquet/{part}.parquet" for part in parts))
            expect(code == 0 and made.exists() and made.read_bytes() == (DATA / "hub" / hub).read_bytes(), f"{hub}: {code} {output}")
        broken = folder / "broken.parquet"
        broken.write_bytes((DATA / "parquet/arc_easy_test.parquet").read_bytes()[:-9])
        mixed = [DATA / "parquet/arc_easy_test.parquet", DATA / "parquet/cmmlu_agronomy_test.parquet"]
        for inputs, part in (([broken], "check that this is a complete Parquet file"), (mixed, "name only the parts of one split")):
            made = folder / "refused.jsonl"
            code, output = convert(made, *inputs)
            expect(code == 76 and part in output and not list(folder.glob("refused*")), f"{inputs}: {code} {output}")
    print("\n".join(faults) or "benchmarks-data: no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
