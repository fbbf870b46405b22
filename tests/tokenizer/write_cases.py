#!/usr/bin/env python3
"""Writes tests/tokenizer/cases/: small tokenizers of each family, and the ids that the package `tokenizers` gives the hard texts.

    write_cases.py        with a Python that has tokenizers 0.23.3; run it after a change of families.py or hard_texts.py

texts.json: the texts. FAMILY.json: "tokenizer": the content of tokenizer.json; "plain": a list of ids per text, null where the
package finds a special token although it shall not; by a text's number, where it
differs: "special": the ids if names of special tokens become these tokens; "decoded": the text of the plain ids.
"""
import json
import pathlib

from families import FAMILIES, trained
from hard_texts import HARD, random_texts
from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).resolve().parent / "cases"
LINES = (FOLDER.parent.parent.parent / "README.md").read_text().splitlines(keepends=True)


def ids_of(tokenizer, texts, special):
    tokenizer.encode_special_tokens = not special
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def others(values, usual):
    return {str(number): value for number, (value, other) in enumerate(zip(values, usual)) if value != other}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    texts = HARD + list(random_texts(40, seed=5))

    def write(name, content):
        (FOLDER / f"{name}.json").write_text(json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n")

    write("texts", texts)
    for family in FAMILIES:
        content = trained(family, LINES + HARD * 3, smaller=True)
        tokenizer = Tokenizer.from_str(json.dumps(content))
        plain = ids_of(tokenizer, texts, False)
        special = ids_of(tokenizer, texts, True)
        decoded = [tokenizer.decode(ids) for ids in plain]
        if content["model"]["type"] == "Unigram":
            names = [token["content"] for token in content["added_tokens"] if token["special"]]
            plain = [None if any(name in text for name in names) else ids for text, ids in zip(texts, plain)]
        write(family.__name__, {"tokenizer": content, "plain": plain, "special": others(special, plain), "decoded": others(decoded, texts)})


if __name__ == "__main__":
    main()
