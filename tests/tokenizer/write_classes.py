#!/usr/bin/env python3
"""Writes tests/tokenizer/cases/classes.json: what the package `tokenizers` takes all characters of Unicode for, and how it splits by patterns.

    write_classes.py      with a Python that has tokenizers 0.23.3

"sets": of each regular expression of one character,
the number of its characters and their FNV-1a hash; "classes": likewise of the characters that a
pre-tokenizer separates; "changes": likewise of the characters that a normalizer changes, each with what it becomes; "splits": the pieces of texts.
"""
import json
import pathlib

from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parent / "cases"
CODE_POINTS = [code_point for code_point in range(0x110000) if not 0xD800 <= code_point < 0xE000]
SETS = [r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\h", r".", r"\p{L}", r"\P{L}", r"\p{^L}", r"\p{N}", r"\p{P}", r"\p{S}", r"\p{M}", r"\p{Z}",
        r"\p{Lu}", r"\p{Ll}", r"\p{Lm}", r"\p{Lo}", r"\p{Lt}", r"\p{Nd}", r"\p{Han}", r"\p{Hiragana}", r"\p{Letter}", r"[[:space:]]", r"[[:digit:]]",
        r"[^\s\p{L}\p{N}]", r"[\p{L}&&[^a-z]]", r"[^\p{L}&&[a-z]]", r"[^[^ab]c]", r"[a[b-d]\]^-]", r"[]a]", r"[^]-a]", r"[^\s\w]", r"[[:word:]]", r"[\x{1F600}-\x{1F64F}]",
        r"(?i:s)", r"(?i:K)", r"[一-龥ࠀ-一가-퟿]", r"[!-/:-~！-／：-～‘-‟　-。]", r"(?m:.)"]
PATTERNS = [
    (r"\s+(?!\S)|\s+", ["a  b", "a \n b  ", "   "]),
    (r"\p{N}{1,3}+", ["1234567", "12 3456"]),  # a repetition of the repetition
    (r"\p{N}{1,3}", ["1234567"]),
    (r"a{2}?", ["aaaaa"]),
    (r"a{,2}b", ["aaab"]),
    (r"a{2", ["aa{2a{2"]),
    (r"x*", ["axxb", "日x"]),
    (r"\bfoo\b", ["foo food foo_foo foo² foo"]),
    (r"\Boo", ["foo oo"]),
    (r"^a$", ["a\na\nb\na", "a\n"]),
    (r"\s++$", ["a  \nb  ", "  "]),
    (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", ["It's IT'S we'RE x'ſ y'LL"]),
    (r"(?i)abc|DEF", ["ABC def aBc"]),
    (r"[\r\n]|\R", ["a\r\nb\x85c\u2028"]),
    (r"(?<=a)b|b(?=c)", ["ab bc b abc"]),
    (r"(a|b)+?c", ["ababc"]),
    (r"\v\f", ["a\x0b\x0cb"]),
    (r"(?>a+)b|a", ["aaab aa"]),
    (r" ?[^(\s|[.,!?…。，、।۔،])]+", ["Hello, world (a|b) …end"]),
    (r"\x41|\u0042|\x{43}", ["ABCD"]),
    (r"(?<word>\w+)!", ["ab! c"]),
    (r"", ["ab"]),
]


def summary(rows):
    """Of numbers: how many, and the FNV-1a hash of their bytes, four each."""
    value, count = 0xCBF29CE484222325, 0
    for row in rows:
        for byte in row.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
        count += 1
    return [count, f"{value:016x}"]


def set_of(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", True)
    kept = set()
    for begin in range(0, len(CODE_POINTS), 4096):
        kept.update(*(piece for piece, _ in split.pre_tokenize_str("".join(map(chr, CODE_POINTS[begin:begin + 4096])))))
    return sorted(map(ord, kept))


def class_of(pre_tokenizer):
    def pieces(text):
        return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]
    return [code_point for code_point in CODE_POINTS if pieces("a" + chr(code_point)) != ["a" + chr(code_point)]]


def changes_of(normalizer):
    for code_point in CODE_POINTS:
        changed = normalizer.normalize_str(chr(code_point))
        if changed != chr(code_point):
            yield from (code_point, *map(ord, changed))


def main() -> None:
    behaviors = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
    splits = [[pattern, "Isolated", False, text] for pattern, texts in PATTERNS for text in texts]
    splits += [["-|x", behavior.title().replace("_", ""), invert, text]
               for behavior in behaviors for invert in (False, True) for text in ("the-final--countdown", "-a--b-", "x-", "abc")]
    for row in splits:
        split = pre_tokenizers.Split(Regex(row[0]), {name.title().replace("_", ""): name for name in behaviors}[row[1]], row[2])
        row.append([piece for piece, _ in split.pre_tokenize_str(row[3])])
    classes = {"WhitespaceSplit": pre_tokenizers.WhitespaceSplit(), "Digits": pre_tokenizers.Digits(), "Punctuation": pre_tokenizers.Punctuation(),
               "Whitespace": pre_tokenizers.Whitespace()}
    changes = {"Lowercase": normalizers.Lowercase(), "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(),
               "NFKD": normalizers.NFKD()}
    content = {"sets": {pattern: summary(set_of(pattern)) for pattern in SETS},
               "classes": {name: summary(class_of(one)) for name, one in classes.items()},
               "changes": {name: summary(changes_of(one)) for name, one in changes.items()}, "splits": splits}
    (FOLDER / "classes.json").write_text(json.dumps(content, ensure_ascii=True, indent=0, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
