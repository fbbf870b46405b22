"""Seeds of the targets token_files and tokenizer_json, for seeds.py."""
import json
import struct

U8, U16 = 1, 8  # Megatron-LM's codes of types


def megatron(code, lengths, pointers, documents):
    """An .idx: sequences of these lengths at these bytes of the .bin; `documents`: the sequences before each document, and all."""
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents)) + struct.pack(f"<{len(lengths)}i", *lengths) +
            struct.pack(f"<{len(pointers)}q", *pointers) + struct.pack(f"<{len(documents)}q", *documents))


def llm_c(magic, version, tokens, form):
    return struct.pack("<256i", magic, version, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}{form}", *tokens)


def npy(kind, shape, elements, version=1):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    length = "<H" if version == 1 else "<I"
    header = header.ljust(127 - 8 - struct.calcsize(length)) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(length, len(header)) + header.encode() + elements


def token_files():
    """Each is refused: no file is right in all formats."""
    return {
        "empty": b"",
        "datatrove": struct.pack("<3Q", 4, 4, 12),
        "datatrove_u32": struct.pack("<2Q", 4, 6),
        "llm_c": llm_c(20240520, 1, range(4), "H"),
        "llm_c_llama": llm_c(20240801, 7, range(2), "I"),
        "megatron": megatron(U16, [5, 3, 4], [0, 10, 16], [0, 2, 3]),
        "megatron_gap": megatron(U16, [5, 3, 3], [0, 10, 16], [0, 2, 3]),
        "megatron_u8": megatron(U8, [20, 4], [0, 20], [0, 1, 2]),
        "npy": npy("<u2", (9,), struct.pack("<9H", *range(9))),
        "npy_2d": npy("<u2", (2, 2), bytes(8)),
        "npy_i64": npy("<i8", (3,), struct.pack("<3q", *range(3))),
        "npy_version_2": npy("<u4", (9,), struct.pack("<9I", *range(9)), version=2),
    }


END = {"id": 0, "content": "</s>", "special": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": True}
PAIRS = {"type": "BPE", "vocab": {"</s>": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4, "Ġa": 5, "aa": 6, "Ċ": 7, "1": 8}, "merges": ["a b", ["Ġ", "a"], "a a"]}


def of(model, *added, **parts):
    return json.dumps({"version": "1.0", "added_tokens": [END, *added], **parts, "model": model})


def byte_level(model=PAIRS, **parts):
    added = ({"id": 9, "content": "  ", "normalized": True}, {"id": 3, "content": "ab", "single_word": True, "lstrip": True, "rstrip": True})
    return of(model, *added, **{"normalizer": {"type": "NFC"}, "pre_tokenizer": BYTES, "post_processor": None, "decoder": {"type": "ByteLevel"}} | parts)


def sequence(key, *members):
    return {"type": "Sequence", key: list(members)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def tokenizer_json():
    words = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|[a[^b&&\w]]|\s+(?!\S)|\s"
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "</s>"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"</s>": {"ids": [0]}}}
    pieces = {"▁": 1, "a": 2, "b": 3, "ab": 4, "▁a": 5, "<unk>": 6, "<0x41>": 7, "</s>": 0}
    return {
        "empty": "",
        "good_byte_level": byte_level(),
        "cut": byte_level()[:300],
        "large_id": byte_level({"type": "BPE", "vocab": {"a": 2**24 - 1, "</s>": 0}, "merges": []}),
        "word_piece": byte_level({"type": "WordPiece", "vocab": {"a": 0}}),
        "good_split": byte_level(
            normalizer=sequence("normalizers", replace({"Regex": "b+"}, "ab"), {"type": "Lowercase"},
                                {"type": "Strip", "strip_left": True, "strip_right": False}),
            pre_tokenizer=sequence("pretokenizers", {"type": "Split", "pattern": {"Regex": words}, "behavior": "MergedWithNext", "invert": True},
                                   {"type": "Digits", "individual_digits": True}, {"type": "Punctuation"},
                                   {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False})),
        "good_metaspace": of(
            {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "ignore_merges": True, "vocab": pieces,
             "merges": ["a b", "▁ a"]},
            normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")), pre_tokenizer=None,
            post_processor=template,
            decoder=sequence("decoders", replace({"String": "▁"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                             {"type": "Strip", "content": " ", "start": 1, "stop": 0})),
        "good_unigram": of(
            {"type": "Unigram", "unk_id": 1, "byte_fallback": True,
             "vocab": [["</s>", 0], ["<unk>", 0], ["▁", -2], ["a", -3], ["ab", -2.5], ["▁ab", -1], ["<0x41>", -9]]},
            pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
            decoder={"type": "Metaspace", "replacement": "▁"}),
        "good_whitespace": of(
            {"type": "BPE", "unk_token": "</s>", "vocab": {"</s>": 0, "a": 1}, "merges": []}, normalizer={"type": "NFKD"},
            pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Whitespace"},
                                   {"type": "CharDelimiterSplit", "delimiter": "x"}), decoder=None),
    }
