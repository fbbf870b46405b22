"""Tokenizers of tokenizer.json that GGUF can express, made from tests/tokenizer/cases/."""
import json
import pathlib

CASES = pathlib.Path(__file__).resolve().parent.parent / "tokenizer" / "cases"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
MARKS = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
TEKKEN = LOWER + "|" + UPPER + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def stored(family):
    content = json.loads((CASES / f"{family}.json").read_text())["tokenizer"]
    content["added_tokens"] = [token for token in content["added_tokens"] if not (token["lstrip"] or token["rstrip"] or token["single_word"])]
    return content


def changed(family, *patterns, digits=False, ignore_merges=False):
    content = stored(family)
    steps = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} for pattern in patterns]
    steps += [{"type": "Digits", "individual_digits": True}] if digits else []
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    content["model"]["ignore_merges"] = ignore_merges
    return content


def merged(family):
    content = stored(family)
    content["model"]["ignore_merges"] = False
    return content


def fallback(family):
    content = stored(family)
    content["added_tokens"] = [token for token in content["added_tokens"] if token["special"] or not token["normalized"]]
    return content


# By name of llama.cpp's pre-tokenizer: a tokenizer.json, and whether llama.cpp's own expression is only similar.
BYTE_LEVEL = {
    "gpt-2": (stored("gpt_2"), False),
    "gpt-2 and NFC": (stored("neo_x"), True),
    "smollm": (stored("smollm_2"), False),
    "llama-bpe": (stored("llama_3"), False),
    "dbrx": (merged("llama_3"), False),
    "qwen2": (stored("qwen_2"), True),  # NFC
    "qwen35": (changed("gpt_2", MARKS), False),
    "deepseek-v3": (stored("deepseek_3"), False),
    "deepseek-coder": (changed("gpt_2", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", digits=True), False),
    "gpt-4o": (stored("gpt_4o"), True),
    "tekken": (changed("gpt_2", TEKKEN, ignore_merges=True), True),
    "bloom": (stored("bloom"), False),
}
# By family: a tokenizer.json that writes characters without a piece as bytes, and whether llama.cpp treats some texts differently.
BYTE_FALLBACK = {
    "llama_2": (fallback("llama_2"), False),
    "mistral": (fallback("mistral"), True),  # texts that begin with a space
    "gemma": (fallback("gemma"), True),  # the name of a byte
    "metaspace": (fallback("metaspace"), True),  # as mistral
}
