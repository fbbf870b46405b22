#!/usr/bin/env python3
"""The inputs that fuzzing starts from, by target. A reader must accept those whose names begin with `good`, and refuse the others.

    seeds.py NAME FOLDER [PROGRAM ARGUMENT…]     replaces FOLDER/NAME by the seeds of target NAME; then runs PROGRAM FOLDER/NAME ARGUMENT…
"""
import json
import os
import pathlib
import shutil
import sys

from binary_seeds import safetensors, tokenizer
from token_seeds import token_files, tokenizer_json

ITEMS = pathlib.Path(__file__).resolve().parents[1] / "evaluate" / "data"  # invented items of benchmarks, in both formats of each


def changed(text, old, new):
    """`text` with `new` for the first `old`."""
    assert old in text, (old, text)
    return text.replace(old, new, 1)


def nested(depth):
    return "[" * depth + "]" * depth


def items(path):
    return (ITEMS / path).read_bytes()


def box(tensor, offset, extent, file, dataset, byte_offset, blocks):
    """blocks: a digit for each, of which its hash consists."""
    return {"tensor": tensor, "offset": offset, "extent": extent, "file": file, "dataset": dataset, "byte_offset": byte_offset,
            "blocks": [16 * digit for digit in blocks]}


# A manifest without its first line, which has the hash: three tensors, of which the first is in two files.
MANIFEST = {
    "format": "shiftron-checkpoint", "version": 1, "step": 20, "block_bytes": 512, "code_version": "0.1.0", "data_fingerprint": "",
    "writer_layout": {"tp": 1, "cp": 1, "dp": 2, "pp": 1},
    "state": {"configuration": {"model": {"layers": 1}}, "trainer": {"applied_updates": 20, "skipped_updates": 0, "skipped_in_row": 0}},
    "configuration": "[model]\nlayers = 1\n",
    "tensors": [{"group": "parameters", "name": "a.weight", "shape": [4, 6], "dtype": "float32"},
                {"group": "parameters", "name": "b", "shape": [300], "dtype": "bfloat16"},
                {"group": "first_moment", "name": "a.weight", "shape": [4, 6], "dtype": "float64"}],
    "files": [{"name": "rank-00000.h5", "bytes": 9000, "xxh3_128": "0" * 32},
              {"name": "rank-00001.h5", "bytes": 5000, "xxh3_128": "0123456789abcdef" * 2},
              {"name": "tokenizer.model", "bytes": 0, "xxh3_128": "f" * 32}],
    "boxes": [box(0, [0, 0], [2, 6], 0, "parameters/a.weight@0,0", 4096, "0"), box(0, [2, 0], [2, 6], 1, "parameters/a.weight@2,0", 2048, "1"),
              box(1, [0], [300], 0, "parameters/b", 8192, "2a"), box(2, [0, 0], [4, 6], 1, "first_moment/a.weight", 0, "3")],
}


def manifest_text(**fields):
    return json.dumps({**MANIFEST, **fields}, separators=(",", ":"))[1:] + "\n"


def manifest():
    good = manifest_text()
    return {
        "good": good,
        "good_state_of_floats": changed(good, '"model":{"layers":1}', r'"x":[1e+308,-0.0,5e-324,0.1,"\u00e9\u0000"]'),
        "good_largest_step": changed(good, '"step":20', f'"step":{2**50}'),
        "hash_twice": '{"xxh3_128":"' + "0" * 32 + '",\n' + good,
        "no_trainer": manifest_text(state={"configuration": {}}),
        "good_nothing": manifest_text(tensors=[], files=[], boxes=[]),
        "no_boxes": manifest_text(boxes=[]),
        "deep": '"state":' + nested(40) + "}",
        "no_utf8": changed(good.encode(), b"0.1.0", b"\xff\xfe"),
        "key_twice": changed(good, "}]}\n", '}],"step":3}\n'),
        "unknown_key": changed(good, "}]}\n", '}],"more":1}\n'),
        "version_2": changed(good, '"version":1', '"version":2'),
        "step_fraction": changed(good, '"step":20', '"step":2.0'),
        "step_negative": changed(good, '"step":20', '"step":-1'),
        "block_0": changed(good, '"block_bytes":512', '"block_bytes":0'),
        "dims_5": changed(good, '"shape":[4,6]', '"shape":[1,1,1,1,1]'),
        "huge_shape": changed(good, '"shape":[4,6]', f'"shape":[{2**62},6]'),
        "tensor_twice": changed(good, '"first_moment"', '"parameters"'),
        "file_above": changed(good, "rank-00000.h5", "../x"),
        "file_dots": changed(good, "rank-00000.h5", ".."),
        "hole": changed(good, '[2,0],"extent":[2,6]', '[2,0],"extent":[1,6]'),
        "overlap": changed(changed(good, '"offset":[2,0]', '"offset":[1,0]'), "a.weight@2,0", "a.weight@1,0"),
        "outside": changed(good, '"offset":[2,0]', '"offset":[3,0]'),
        "huge_extent": changed(good, '"extent":[2,6]', f'"extent":[{2**62},6]'),
        "huge_byte_offset": changed(good, '"byte_offset":4096', f'"byte_offset":{2**62}'),
        "beyond_file": changed(good, '"byte_offset":8192', '"byte_offset":8900'),
        "shared_bytes": changed(good, '"byte_offset":0', '"byte_offset":2000'),
        "blocks_missing": changed(good, ',"' + "a" * 16 + '"', ""),
    }


# The target turns these numbers into shapes and boxes: tilings in the first two, overlaps and holes in the others.
def tiling():
    seeds = {"good_empty": b""}
    for i in range(8):
        seeds[f"{'good_' if i < 2 else ''}{8 + 4 * i}_numbers"] = bytes((37 * i + 13 * j) % 256 for j in range(8 + 4 * i))
    return seeds


CONFIG = {"model_type": "llama", "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 101, "head_dim": 6, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False,
          "max_position_embeddings": 64, "initializer_range": 0.02, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
REQUIRED = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size", "head_dim")


def config(only=tuple(CONFIG), **fields):
    return json.dumps({key: CONFIG[key] for key in only} | fields, indent=1)


def hugging_face_config():
    no_theta = [key for key in CONFIG if key != "rope_theta"]
    rope = {"rope_theta": 500000.0, "rope_type": "default", "partial_rotary_factor": 1.0}
    return {
        "good_llama": config(),
        "good_llama_required": config(REQUIRED),
        "good_llama_of_transformers_5": config(no_theta, rope_parameters=rope),
        "good_kv_shift": config(model_type="kv_shift_llama", shift_q=0, shift_k=1, shift_v=1, conv_window=2, shift_residual=False,
                                shift_activation=None, norm_head=False),
        "good_kv_shift_3": config(model_type="kv_shift_llama", shift_q=3, shift_k=0, shift_v=2),
        "good_canon": config(model_type="LlamaCanon", canon_set="B", canon_kernel=4, canon_bias=False, canon_activation=False, canon_residual=True,
                             qk_norm=False, rope_version="huggingface"),
        "good_baichuan": config(model_type="baichuan_m1", sliding_window_layers=[], conv_window=2),
        "good_null_heads": config(num_key_value_heads=None),
        "empty": "",
        "list": "[]",
        "no_utf8": b'{"model_type":"\xff"}',
        "deep": '{"model_type":' + nested(100) + "}",
        "good_size_twice": config()[:-1] + ',"hidden_size":48}',
        "size_text": config(hidden_size="24"),
        "size_negative": config(hidden_size=-1),
        "good_largest_size": changed(config(hidden_size=2**31, rms_norm_eps=5e-324), "10000.0", "1e308"),  # json writes it with a sign
        "good_largest_sizes": config(**dict.fromkeys(SIZES, 2**31)),
        "good_heads_beyond_files": config(num_attention_heads=2**28, num_key_value_heads=2**28),
        "heads_not_divisible": config(num_key_value_heads=3),
        "theta_0": config(rope_theta=0),
        "theta_beyond_doubles": changed(config(), "10000.0", "1e400"),
        "gpt2": config(model_type="gpt2"),
        "bias": config(attention_bias=True),
        "quantised": config(quantization_config={"bits": 4}),
        "rope_scaled": config(rope_scaling={"type": "linear", "factor": 2}),
        "sliding_window": config(sliding_window=4096, use_sliding_window=True),
    }


def records():
    return {
        "empty": "",
        "items.jsonl": items("hub/arc/ARC-Easy/test.jsonl"),
        "good_numbers.jsonl": f'{{"a":[-0,1E5,{2**64 - 1},{-2**63},0.1]}}\n',
        "key_twice.jsonl": '{"a":1,"a":2}\n{"b":1e400}\n',
        "half_surrogate.jsonl": '{"a":"\\ud800"}\n',
        "no_utf8.jsonl": b'{"a":"\xc3"}',
        "deep.jsonl": '{"a":' + nested(4000) + "}\n",
        "object.json": items("original/math/MATH/test/algebra/10.json"),
        "columns.csv": items("original/cmmlu/test/agronomy.csv"),
        "quoted.csv": items("original/mmlu/data/test/philosophy_test.csv"),
        "byte_order_mark.csv": b'\xef\xbb\xbfa,"b"""\r\n\r\n1,"2\n3"x\r',
        "unequal_rows.csv": "a,b\n1\n",
        "open_quote.csv": 'a,"b\n',
        "gzip": b"\x1f\x8b\x08",
        "parquet": b"PAR1\0",
    }


FORMS = {  # of the items of a benchmark, by the letter that task_items_fuzz.cpp gives each
    "A": "hub/lambada_openai/test.jsonl", "B": "original/lambada_openai/lambada_test.jsonl", "C": "hub/lambada_standard/test.jsonl",
    "D": "original/lambada_standard/lambada_test_plain_text.txt", "E": "hub/winogrande/validation.jsonl",
    "F": "original/winogrande/winogrande_1.1/dev.jsonl", "H": "hub/hellaswag/validation.jsonl", "I": "original/hellaswag/hellaswag_val.jsonl",
    "J": "hub/arc/ARC-Easy/test.jsonl", "K": "original/arc/ARC-V1-Feb2018-2/ARC-Easy/ARC-Easy-Test.jsonl", "M": "hub/mmlu/philosophy/test.jsonl",
    "O": "original/mmlu/data/test/philosophy_test.csv", "Q": "hub/cmmlu/agronomy/test.jsonl", "R": "original/cmmlu/test/agronomy.csv",
    "T": "hub/math/algebra/test.jsonl", "U": "original/math/MATH/test/algebra/10.json", "W": "hub/math500/test.jsonl", "X": "hub/wikitext/test.jsonl",
    "Y": "hub/boolq/validation.jsonl", "Z": "original/boolq/val.jsonl", "[": "hub/openbookqa/test.jsonl",
    "\\": "original/openbookqa/OpenBookQA-V1-Sep2018/Data/Main/test.jsonl", "]": "hub/triviaqa/validation.jsonl",
}


def task_items():
    first = items(FORMS["H"]).splitlines()[0]
    return {f"good_{letter}_{pathlib.Path(path).parts[1]}": letter.encode() + items(path) for letter, path in FORMS.items()} | {
        "good_N_mmlu": b"N" + items(FORMS["M"]).replace(b"philosophy", b"anatomy"),
        "good_number_of_64_bits": b"H" + changed(first, b'"ind": 3', b'"ind": %d' % (2**64 - 1)),
        "empty": "",
        "no_item": "A\n",
        "no_utf8": b'A{"text": "a \xff"}',
        "deep": 'A{"text": "a b", "deep": ' + nested(3000) + "}\n",
    }


def task(name, kind, file="c.jsonl", **fields):
    return json.dumps({"name": name, "kind": kind, "files": {"test": file}} | fields)


def task_file():
    choice = "multiple_choice"
    contexts = {"contexts": ["{question|before_blank}{a}", "{question|before_blank}{b}"], "target": "{question|after_blank|strip}",
                "gold": "{right}", "version": 2.5, "alias": "x"}
    return {
        "empty": "",
        "list": "[]",
        "deep": '{"name":' + nested(4000) + "}",
        "good_options": task("cities", choice, files={"test": "c.jsonl", "examples": "d.jsonl"}, shots_from="examples", description="Questions.\n\n",
                        context="Question: {question|strip}\nAnswer:", choices="options", gold="{right}", metrics=["acc", "acc_norm"]),
        "good_contexts": task("f", choice, "c.csv", **contexts),
        "first_shots": task("f", choice, "c.csv", shots_from="test", shots=1, draw="first", **contexts),
        "good_drawn_shots": task("s", choice, shots_from="test", shots=2, draw="apart", context="{options|lettered}", choices="options|letters",
                            gold="{right}"),
        "most_shots": task("s", choice, shots_from="test", shots=2**63 - 1, draw="apart", context="{question}", choices="options",
                           gold="{right}"),
        "good_labels": task("l", choice, context="{question}{{{a}}}", choices=["{a}", "{b}"], gold="{letter}", labels=["A", "B"],
                       metrics=["acc_bytes"], shots=0),
        "good_words": task("w", "log_likelihood", "c.txt", context="{text|strip|words_but_last}", target=" {text|strip|last_word}",
                      metrics=["perplexity", "acc"]),
        "good_rolling": task("r", "rolling", "c.md", target="{text|detokenized}", measured="{text}"),
        "good_generate": task("g", "generate", context="{question}", target="{options.0}", until=["\n"], most_tokens=5,
                         metrics=["math_match", "minerva_match", "exact_match"]),
        "good_filters": task("f", "generate", context="{question|strip_left} {letter|one_of:A=a,B=b}", targets="options",
                             ignored=["\\$", "(?s).*#### "], ignore_case=True,
                             filters={"x": {"extract": "#### (-?[0-9]+)", "match": "last", "strip": "both"}}),
        "dataset": json.dumps({"name": "d", "kind": "generate", "dataset": "math500", "context": "{problem}", "target": "{answer}"}),
        "many_faults": json.dumps({"name": "a b", "kind": "multiple", "files": {"train": 1}, "contextt": "", "shots": -1, "draw": "any",
                                   "metrics": ["accuracy"], "gold": "{x|foo}"}),
    }


TARGETS = {made.__name__: made for made in (safetensors, manifest, tiling, hugging_face_config, tokenizer, records, task_items, task_file,
                                         token_files, tokenizer_json)}


def write(name, folder):
    """Returns the folder of the seeds."""
    folder = pathlib.Path(folder) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for seed, content in TARGETS[name]().items():
        (folder / seed).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in TARGETS:
        print(f"seeds: {' '.join(sys.argv[1:])!r} names no target and folder\n  next: tests/fuzz/seeds.py {next(iter(TARGETS))} build/fuzz/seeds "
              f"(others: {', '.join(TARGETS)})", file=sys.stderr)
        return 76
    folder = write(*sys.argv[1:3])
    if len(sys.argv) > 3:
        os.execv(sys.argv[3], [sys.argv[3], str(folder), *sys.argv[4:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
