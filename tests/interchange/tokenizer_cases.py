"""Strings that are hard for tokenizers, and the ids that the program gives them."""
import json
import random
import re

import numpy
from harness import ROOT, shiftron

HARD = [
    "", " ", "  ", "   ", "a", " a", "a ", "  a  b  ", "a" + " " * 50 + "b", " " * 300, "\t", "\t\ta\r\n", "\r", "\n", "\n\n", "\n\n\n a\n",
    " \n \n", "a\nb", "a\n\nb ", "x\0y", "\0", "\x01\x7f", "\u2581", "a\u2581b", "\u2581\u2581 \u2581", " \u2581", "\u2585", "\u2585a\u2585",
    "</s>", "<s>", "<unk>", "<pad>", "a</s>b", "</s></s>", " </s> ", "<</s>>", "</s", "s>", "<unk><unk>", "<0x41>", "<0x0A>", "a<0xE2>b",
    "<0x", "<0x41", "0x41>", "<0x41><0x42>", "é", "e\u0301", "ﬁ", "Ａ", "ñandú", "日本語", "日本語 テスト", "العربية", "עברית", "हिन्दी", "😀",
    "👩‍👩‍👧‍👦", "🇩🇪", "\ufeff", "\ufefftext", "\u00a0", "\u3000", "\u200b", "\u2028", "a\u0000\u0000b", "\U0010ffff", "𝔘𝔫𝔦", "K\u212a", "ß", "İi", "Ǆ",
    "The quick brown fox", "the the the the", "aaaaaaaaaaaaaaaa", "ababababab", "----------", "==========", "1234567890", "3.14159e-10",
    "foo_bar(baz)[0] = {1: 2};", "if (x < 3) { y += 1; }\n\treturn;", "<html></s></html>", "http://a.b/c?d=e&f=g#h", "$$\\frac{a}{b}$$",
    "C:\\path\\to", "“quoted”", "a—b", "…", "don't", "tokenizer.model", "--shift.key 1", "\\u2581", "</ s>", "< unk >", "<|endoftext|>",
]
ALPHABETS = ["abcdefghij ", "theandofr  .,\n", "aab ", " \n\t", "<>/s0x41unkF ", "\u2581 a\u2585", "éüñß日本語😀 a", "-=`*#|_ ", "0123456789."]


def random_strings(count):
    draw = random.Random(11)
    words = [word + " " for path in sorted((ROOT / "docs").glob("*.md")) for word in path.read_text().split()]
    for _ in range(count):
        pieces = []
        for _ in range(draw.randrange(1, 5)):
            if draw.random() < 0.4:
                pieces.append("".join(draw.choice(words) for _ in range(draw.randrange(1, 6))))
            else:
                pieces.append("".join(draw.choice(draw.choice(ALPHABETS)) for _ in range(draw.randrange(1, 12))))
        yield "".join(pieces)


def must(*words):
    result = shiftron(*words)
    if result.returncode != 0:
        raise AssertionError(f"{words}: {result.stdout}{result.stderr}")
    return result


def numbers_of(model, names, strings, folder):
    """{string: its numbers} through a dataset in `folder`, which one call makes of all; `names`: the text of each number, or <0x41>."""
    source, data = folder / f"{model.stem}.jsonl", folder / f"{model.stem}-numbers"
    source.write_text("".join(json.dumps({"text": string}) + "\n" for string in strings))
    must("data", "build", "--input", source, "--tokenizer", model, "--output", data)
    described = json.loads((data / "dataset.json").read_text())
    assert described["token_type"] == "u16", described
    tokens = numpy.concatenate([numpy.fromfile(data / shard["file"], "<u2", shard["tokens"], offset=shard["tokens_offset"])
                                for shard in described["shards"]])
    ends = numpy.flatnonzero(tokens == described["end_of_document"])
    bytes_of = [bytes([int(name[3:5], 16)]) if re.fullmatch("<0x[0-9A-F]{2}>", name) else name.encode() for name in names]
    found = {}
    for begin, end in zip([0, *(ends + 1)], ends):
        ids = tokens[begin:end].tolist()
        found[b"".join(bytes_of[token] for token in ids).decode()] = ids
    assert set(found) == set(strings) - {""}, set(strings) ^ set(found)  # documents without text are left out
    return found
