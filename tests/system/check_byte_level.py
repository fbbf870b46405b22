#!/usr/bin/env python3
"""A byte-level tokenizer that the program trained, in every command that takes one, and a choice of the token that ends documents in each import."""
import array
import json
import unittest

from harness import MODEL, SystemTest, options, shiftron, step

TURNS = ["user", "assistant", "user", "assistant"]
END = "<|im_end|>"


class ByteLevel(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = cls.folder / "tokenizer.json"
        words = ["--vocab", 400, "--kind", "byte-bpe", "--special-tokens", "<|im_start|>", END]
        cls.must(shiftron("tokenizer", "train", "--input", cls.folder / "text.jsonl", "--output", cls.tokenizer, *words))
        said = json.loads(cls.must(shiftron("tokenizer", "inspect", cls.tokenizer, "--json")))
        cls.ids = {token["piece"]: token["token"] for token in said["special_tokens"]}
        assert cls.ids == {"<|endoftext|>": 0, "<|im_start|>": 1, END: 2} and said["end_of_document"] == 0, said

    def told(self, *words):
        return json.loads(self.must(shiftron(*words, "--json")))

    def test_chats_of_several_turns(self):
        chats, data = self.folder / "chats.jsonl", self.folder / "chats"
        messages = [{"role": role, "content": f"turn {number}"} for number, role in enumerate(TURNS)]
        chats.write_text((json.dumps({"messages": messages}) + "\n") * 20)
        words = ["data", "build", "--input", chats, "--chat-template", "chatml", "--tokenizer", self.tokenizer, "--output"]
        built = self.told(*words, data)["datasets"][0]
        answer = self.must(shiftron("tokenizer", "encode", self.tokenizer, "--text", "turn 1"))
        self.assertEqual(built["counted_targets"], 20 * 2 * (len(json.loads(answer)) + 1))  # each turn with the token that ends it
        refused = shiftron(*words, self.folder / "cut", "--end-of-document", END)
        self.assertEqual(refused.returncode, 76)
        self.assertIn("end documents with another special token of the tokenizer: --end-of-document TOKEN", refused.stderr)

    def test_from_text_to_exports_and_back(self):
        data, run, exported, gguf, imported = (self.folder / name for name in ("text-data", "run", "exported", "model.gguf", "imported"))
        self.must(shiftron("data", "build", "--input", self.folder / "text.jsonl", "--tokenizer", self.tokenizer, "--output", data))
        self.must(shiftron("train", *options({**MODEL, "train.steps": 1, "model.vocab": 400, "shift.key": 0, "shift.value": 0, "data.train": data,
                                              "output.directory": run})))
        trained = step(run, 1)
        self.must(shiftron("generate", "--checkpoint", trained, "--prompt", "A shift", "--tokens", 4))
        self.assertIn("bits_per_byte", self.must(shiftron("evaluate", "--checkpoint", trained, "--data", data, "--limit", 4, "--json")))
        self.assertNotIn("note", self.told("checkpoint", "export", trained, "--format", "gguf", "--output", gguf))
        content = gguf.read_bytes()
        self.assertIn(b"tokenizer.ggml.pre\x08\0\0\0\x09\0\0\0\0\0\0\0llama-bpe", content)
        self.assertIn(b"tokenizer.ggml.merges", content)
        self.told("checkpoint", "export", trained, "--format", "hf", "--output", exported)
        self.assertEqual((exported / "tokenizer.json").read_bytes(), self.tokenizer.read_bytes())
        for chosen, said in ((["--end-of-document", END, "--beginning-of-document", "<|im_start|>"], (2, 1)), ([], (0, None))):
            made = imported.with_suffix(f".{len(chosen)}")
            words = ["checkpoint", "import", exported, "--format", "hf", "--output", made, *chosen]
            self.told(*words)
            manifest = self.told("tokenizer", "inspect", step(made, 0))
            self.assertEqual(manifest["kind"], "Hugging Face")
            built = self.folder / f"of-{made.name}"
            self.must(shiftron("data", "build", "--input", self.folder / "text.jsonl", "--tokenizer", step(made, 0), "--output", built))
            description = json.loads((built / "dataset.json").read_text())
            self.assertEqual((description["end_of_document"], description.get("beginning_of_document")), said)
        refused = shiftron("checkpoint", "import", exported, "--format", "hf", "--output", self.folder / "none", "--end-of-document", "</s>")
        self.assertEqual(refused.returncode, 76)
        self.assertIn('--end-of-document is "</s>"', refused.stderr)

    def test_imported_tokens_end_as_chosen(self):
        tokens, data = self.folder / "tokens.bin", self.folder / "tokens"
        tokens.write_bytes(array.array("H", [5, 6, 2, 7, 8, 9, 2]).tobytes())
        words = ["data", "import", tokens, "--format", "raw", "--dtype", "u16", "--output"]
        built = self.told(*words, data, "--tokenizer", self.tokenizer, "--end-of-document", END, "--beginning-of-document", "<|im_start|>")
        self.assertEqual((built["datasets"][0]["documents"], built["added_ends"]), (2, 0))
        description = json.loads((data / "dataset.json").read_text())
        self.assertEqual((description["end_of_document"], description["beginning_of_document"]), (2, 1))
        for more, message in ((["--vocab", 400, "--end-of-document", END], "must be an id, because there is no --tokenizer"),
                              (["--vocab", 400, "--end-of-document", 2, "--beginning-of-document", "a"], "only applies with --tokenizer")):
            refused = shiftron(*words, self.folder / "refused", *more)
            self.assertEqual(refused.returncode, 76)
            self.assertIn(message, refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
