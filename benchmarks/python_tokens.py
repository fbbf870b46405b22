#!/usr/bin/env python3
"""Writes the tokens of JSONL documents as programs in Python do: read, tokenized by a package's own threads, two bytes per token, one file.

    python_tokens.py (sentencepiece FILE.model | tokenizers TOKENIZER.json) THREADS OUT INPUT…

Prints JSON: tokens and bytes of text. TOKENIZER.json is what `shiftron checkpoint export --format hf` writes.
"""
import importlib.metadata
import json
import os
import sys

import numpy

AT_ONCE = 1000  # documents


def encoder(package, file, threads):
    if package == "sentencepiece":
        import sentencepiece
        processor = sentencepiece.SentencePieceProcessor(model_file=file)
        return lambda texts: processor.encode(texts, num_threads=threads)
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(file)
    return lambda texts: [encoded.ids for encoded in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def batches(paths):
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                texts.append(json.loads(line)["text"])
                if len(texts) == AT_ONCE:
                    yield texts
                    texts = []
    if texts:
        yield texts


def main():
    package, file, threads, out, *inputs = sys.argv[1:]
    encode = encoder(package, file, int(threads))
    tokens = text_bytes = 0
    with open(out, "wb") as output:
        for texts in batches(inputs):
            text_bytes += sum(len(text.encode()) for text in texts)
            for ids in encode(texts):
                tokens += len(ids)
                output.write(numpy.asarray(ids, dtype=numpy.uint16).tobytes())
        output.flush()
        os.fsync(output.fileno())
    print(json.dumps({"tokens": tokens, "text_bytes": text_bytes, "versions": {package: importlib.metadata.version(package)}}))


if __name__ == "__main__":
    main()
