"""Tokenizers of the families that people use, each trained by the package `tokenizers` on a text: small, but with the pipeline of the real one."""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT_4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
DEEPSEEK_3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
SPACE = "▁"


def byte_level(pre_tokenizer, normalizer=None, vocab=700, specials=("<|endoftext|>",), post=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    return tokenizer, trainer, post


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def bytes_last(*parts):
    return pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(beginning):
    return lambda tokenizer: processors.TemplateProcessing(single=f"{beginning} $A", special_tokens=[(beginning, tokenizer.token_to_id(beginning))])


def gpt_2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def llama_3():
    return byte_level(bytes_last(split(LLAMA_3)), specials=("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"), ignore_merges=True,
                      post=template("<|begin_of_text|>"))


def qwen_2():
    return byte_level(bytes_last(split(QWEN_2)), normalizers.NFC(), specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))


def smollm_2():
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def neo_x():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())


def deepseek_3():
    return byte_level(bytes_last(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK_3)),
                      specials=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"), post=template("<｜begin▁of▁sentence｜>"))


def gpt_4o():
    return byte_level(bytes_last(split(GPT_4O)))


def cl100k():
    return byte_level(bytes_last(split(CL100K, "removed", True)))


def bloom():
    return byte_level(bytes_last(split(BLOOM)), specials=("<unk>", "<s>", "</s>", "<pad>"))


def falcon():
    return byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]))


def roberta():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), specials=("<s>", "</s>", "<mask>"))


def of_characters(normalizer=None, pre_tokenizer=None, decoder=None, vocab=900, fuse=True):
    """As converted from SentencePiece: bytes for characters that are not in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=fuse, unk_token="<unk>"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
                                  show_progress=False, limit_alphabet=80)
    return tokenizer, trainer, template("<s>")


def llama_2():
    normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    # The package cuts no words here, so that a short text makes pieces across spaces.
    return of_characters(normalizer, None, decoder)


def mistral():
    decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return of_characters(None, pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False), decoder)


def gemma():
    decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return of_characters(normalizers.Replace(" ", SPACE), pre_tokenizers.Split(" ", "merged_with_previous"), decoder)


def metaspace():
    return of_characters(None, pre_tokenizers.Metaspace(SPACE, prepend_scheme="always"), decoders.Sequence(
        [decoders.Metaspace(SPACE, prepend_scheme="always"), decoders.ByteFallback(), decoders.Fuse()]))


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(SPACE, prepend_scheme="always")])
    trainer = trainers.UnigramTrainer(vocab_size=700, unk_token="<unk>", show_progress=False,
                                      special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))])
    return tokenizer, trainer, None


def words():
    """Parts that no well-known family has."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(), normalizers.NFD(),
                                                 normalizers.Replace(Regex(r"\p{Mn}"), "")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(),
                                                       pre_tokenizers.Split(Regex("x+"), "merged_with_next")])
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["[UNK]", "[EOS]"], show_progress=False, limit_alphabet=100)
    return tokenizer, trainer, None


FAMILIES = [gpt_2, llama_3, qwen_2, smollm_2, neo_x, deepseek_3, gpt_4o, cl100k, bloom, falcon, roberta, llama_2, mistral, gemma, metaspace,
            unigram, words]


def added_tokens(family):
    """Not in the model's vocabulary, with every option."""
    if family is neo_x:
        return [AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)]
    if family in (qwen_2, llama_2, unigram):
        return [AddedToken("<tool>", normalized=False), AddedToken("[word]", single_word=True, normalized=False),
                AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False), AddedToken("Zürich")]
    return []


def trained(family, lines, smaller=False):
    """The content of a tokenizer.json."""
    tokenizer, trainer, post = family()
    if smaller:
        trainer.vocab_size -= 250
    tokenizer.train_from_iterator(lines, trainer)
    added = added_tokens(family)
    if added:
        tokenizer.add_tokens(added)
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    content = json.loads(tokenizer.to_str())
    if content["model"]["type"] == "Unigram":
        content["model"]["byte_fallback"] = True
    if any(token["content"] == "<0x00>" for token in content["added_tokens"]):  # bytes are pieces of the model alone
        content["added_tokens"] = [token for token in content["added_tokens"] if not token["content"].startswith("<0x")]
    return content
