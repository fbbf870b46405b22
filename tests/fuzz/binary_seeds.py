"""Seeds of the targets safetensors and tokenizer, for seeds.py."""
import struct

# A safetensors file: the length of the header, the header, the elements.
EIGHT = b"x" * 8


def framed(header, elements=b"", length=None):
    header = header if isinstance(header, bytes) else header.encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + elements


def entry(name="a", dtype="F32", shape="[2]", offsets="[0,8]"):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def tensor(elements=EIGHT, **fields):
    return framed("{" + entry(**fields) + "}", elements)


def tensors(first, second, elements):
    return framed("{" + first + "," + second + "}", elements)


def metadata(value):
    return framed(b'{"__metadata__":' + (value if isinstance(value, bytes) else value.encode()) + b"}")


SAFETENSORS_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4,
                     "U16": 2, "U8": 1, "BOOL": 1}


def safetensors():
    seeds = {
        "empty": b"",
        "seven_bytes": bytes(7),
        "no_header": framed(""),
        "header_beyond_file": framed("{}  ", length=5),
        "header_beyond_limit": framed("{}", length=2**32 + 2),
        "good_nothing": framed("{}"),
        "good_spaces": framed("{}" + 6 * " "),
        "good_newline_after": framed("{}\n\t "),
        "good_two": tensors(entry(), entry(name="b", shape="[1]", offsets="[8,12]"), b"x" * 12),
        "good_reversed": tensors(entry(name="b", dtype="BF16", shape="[1]", offsets="[8,10]"), entry(), EIGHT + b"yz"),
        "good_empty_tensors": tensors(entry(name="b", shape="[0]", offsets="[0,0]"), entry(shape="[3,0]", offsets="[0,0]") + "," +
                                      entry(name="c", dtype="U8", shape="[1]", offsets="[0,1]"), b"1"),
        "good_metadata": metadata(r'{"format":"pt","k":"\u00e9"}'),
        "good_no_character": metadata(r'{"k":"\uffff"}'),
        # JSON
        "space_before": framed(" {}"),
        "space_before_and_elements": framed(" {}", EIGHT),
        "good_spaces_inside": framed('{ "a" : { "shape" : [ 2 ] , "data_offsets" : [ 0 , 8 ], "dtype" : "F32" } }', EIGHT),
        "byte_order_mark": framed(b"\xef\xbb\xbf{}", EIGHT),
        "comment": framed("{/**/}"),
        "no_end": framed("{", EIGHT),
        "deep": framed('{"a":' + "[" * 2000, EIGHT),
        "list": framed("[]      ", EIGHT),
        "text_after": framed("{}{}", EIGHT),
        "zero_byte_after": framed("{}\0", EIGHT),
        "zero_byte_hides": framed("{}\0junk", EIGHT),
        "no_utf8": framed(b'{"\xff":1}', EIGHT),
        "lone_surrogate": framed(r'{"\ud800":1}', EIGHT),
        "trailing_comma": framed('{"__metadata__":{},}'),
        "control_character": metadata('{"k":"\x01"}'),
        "good_escaped_zero": metadata(r'{"k":"\u0000"}'),
        "half_surrogate": metadata(r'{"k":"\ud83d"}'),
        "raw_surrogate": metadata(b'{"k":"\xed\xa0\x80"}'),
        "overlong": metadata(b'{"k":"\xc0\x80"}'),
        # metadata
        "metadata_key_twice": metadata('{"k":"1","k":"2"}'),
        "metadata_null": metadata("null"),
        "metadata_number": metadata('{"k":1}'),
        "metadata_object": metadata('{"k":{}}'),
        "metadata_text": metadata('"k"'),
        "metadata_twice": framed('{"__metadata__":{},"__metadata__":{}}'),
        "metadata_shape": tensor(name="__metadata__"),
        # the object of a tensor
        "list_for_tensor": framed('{"a":[]}', EIGHT),
        "null_for_tensor": framed('{"a":null}', EIGHT),
        "number_for_tensor": framed('{"a":1}', EIGHT),
        "text_for_tensor": framed('{"a":"F32"}', EIGHT),
        "list_of_fields": framed('{"a":["F32",[2],[0,8]]}', EIGHT),
        "no_dtype": framed('{"a":{"shape":[2],"data_offsets":[0,8]}}', EIGHT),
        "no_shape": framed('{"a":{"dtype":"F32","data_offsets":[0,8]}}', EIGHT),
        "no_offsets": framed('{"a":{"dtype":"F32","shape":[2]}}', EIGHT),
        "unknown_key": framed("{" + entry()[:-1] + ',"stride":[1]}}', EIGHT),
        "dtype_twice": tensor(dtype='F64","dtype":"F32'),
        "shape_twice": tensor(shape='[4],"shape":[2]'),
        "tensor_twice": tensors(entry(), entry(), EIGHT),
        "tensor_twice_escaped": tensors(entry(), entry(name=r"\u0061", shape="[0]", offsets="[8,8]"), EIGHT),
        "nameless": tensor(name=""),
        "name_513": tensor(name="n" * 513),
        "good_name_zero": tensor(name=r"\u0000"),
        "good_surrogates": tensor(name=r"\ud83d\ude00"),
        "dtype_lower": tensor(dtype="f32"),
        "unknown_dtype": tensor(dtype="F4", shape="[16]"),
        # shapes
        "good_scalar": tensor(dtype="F64", shape="[]"),
        "scalar_of_8": tensor(shape="[]"),
        "good_dims_8": tensor(shape="[1,1,1,1,1,1,1,2]"),
        "dims_9": tensor(shape="[1,1,1,1,1,1,1,1,2]"),
        "nested_shape": tensor(shape="[[2]]"),
        "extent_text": tensor(shape='["2"]'),
        "extent_fraction": tensor(shape="[2.0]"),
        "extent_exponent": tensor(shape="[2e0]"),
        "extent_leading_zero": tensor(shape="[02]"),
        "extent_negative": tensor(shape="[-2]"),
        "extent_minus_zero": tensor(b"", shape="[-0]", offsets="[0,0]"),
        "extent_2_64": tensor(shape=f"[{2**64}]"),
        "overflow": tensor(shape=f"[{2**62 + 1},4]", offsets="[0,16]"),
        "overflow_bytes": tensor(dtype="F64", shape=f"[{2**61 + 1}]"),
        "overflow_before_zero": tensor(b"", shape=f"[{2**62},4,0]", offsets="[0,0]"),
        "good_large_before_zero": tensor(b"", shape=f"[{2**62},0]", offsets="[0,0]"),
        # places in the file
        "one_offset": tensor(offsets="[0]"),
        "three_offsets": tensor(offsets="[0,8,8]"),
        "offsets_beyond_64": tensor(offsets=f"[{2**64 - 4},4]"),
        "end_before_begin": tensor(offsets="[8,0]"),
        "too_few": tensor(shape="[3]"),
        "too_many": tensor(b"x" * 12, offsets="[0,12]"),
        "cut": tensor(b"1234567"),
        "bytes_before": tensor(b"x" * 12, offsets="[4,12]"),
        "bytes_after": tensor(b"x" * 12),
        "elements_of_no_tensor": framed("{}", EIGHT),
        "gap": tensors(entry(), entry(name="b", shape="[1]", offsets="[12,16]"), b"x" * 12 + b"1234"),
        "overlap": tensors(entry(), entry(name="b", shape="[1]", offsets="[4,8]"), EIGHT),
        "one_place": tensors(entry(), entry(name="b", shape="[1]", offsets="[0,4]"), EIGHT),
    }
    for dtype, size in SAFETENSORS_BYTES.items():
        seeds[f"good_{dtype.lower()}"] = tensor(bytes(range(2 * size)), dtype=dtype, shape="[2,1]", offsets=f"[0,{2 * size}]")
    return seeds


# A SentencePiece model is a protocol buffer (sentencepiece_model.proto): pieces, trainer_spec, normalizer_spec.
UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(2, 7)
MODEL_TYPES = {"unigram": 1, "bpe": 2, "word": 3, "char": 4}


def varint(number):
    number %= 2**64
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number // 128)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value if isinstance(value, bytes) else value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text, score=0.0, kind=None):
    return field(1, field(1, text) + field(2, score) + (b"" if kind is None else field(3, kind)))


ENDS = piece("<unk>", kind=UNKNOWN) + piece("</s>", kind=CONTROL)
PIECES = (ENDS + b"".join(piece(f"<0x{byte:02X}>", kind=BYTE) for byte in range(256)) +
          b"".join(piece(text, 0.0 - rank) for rank, text in enumerate(("\n", "▁", "a", "b", "ab", "aba", "é"))))


def sentencepiece(*more, model="bpe", dummy_prefix=0, charsmap=None):
    """more: pieces after PIECES. charsmap: of a normalizer that has one."""
    byte_fallback, unknown, begin, end, padding = field(35, 1), field(40, 0), field(41, -1), field(42, 1), field(43, -1)
    trainer = field(3, MODEL_TYPES[model]) + byte_fallback + unknown + begin + end + padding
    rule = field(1, "identity") if charsmap is None else field(1, "x") + field(2, charsmap)
    remove_extra_whitespaces, escape_whitespaces = field(4, 0), field(5, 1)
    normalizer = rule + field(3, dummy_prefix) + remove_extra_whitespaces + escape_whitespaces
    return PIECES + b"".join(more) + field(2, trainer) + field(3, normalizer)


def tokenizer():
    infinity = float("inf")
    return {
        "empty": b"",
        "cut": sentencepiece()[:2000],
        "cut_piece": PIECES[:-5] + piece(b"\xff\xfe", -3.0),
        "good_no_bytes": ENDS + piece("a"),
        "no_utf8": sentencepiece(piece(b"\xff\xfe", -3.0)),
        "good_bpe": sentencepiece(),
        "good_unigram": sentencepiece(model="unigram"),
        "word": sentencepiece(model="word"),
        "char": sentencepiece(model="char"),
        "good_dummy_prefix": sentencepiece(dummy_prefix=1),
        "nan_dummy_prefix": sentencepiece(piece("c", float("nan")), dummy_prefix=1),
        "unused_dummy_prefix": sentencepiece(piece("zz", kind=UNUSED), dummy_prefix=1),
        "twice": sentencepiece(piece("a", -9.0)),
        "good_user_defined": sentencepiece(piece("<code>", kind=USER_DEFINED), piece("x y", kind=USER_DEFINED)),
        "good_unused": sentencepiece(piece("zz", kind=UNUSED)),
        "good_nan": sentencepiece(piece("c", float("nan")), piece("d", infinity)),
        "good_nan_unigram": sentencepiece(piece("c", float("nan")), piece("d", -infinity), model="unigram"),
        "charsmap": sentencepiece(charsmap=struct.pack("<3I", 8, 1, 2) + b"abc\0"),
        "charsmap_beyond": sentencepiece(charsmap=struct.pack("<2I", 4, 2**31 - 1) + b"abc\0"),
    }
