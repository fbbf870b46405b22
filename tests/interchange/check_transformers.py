#!/usr/bin/env python3
"""Models that the program trained, loaded by transformers: logits against float64, generation against recomputation and against
`shiftron generate`, gradients, and training that continues there as here.

    tests/interchange/run check_transformers.py torch transformers h5py -- [--module FILE] [--exporter COMMAND] [unittest's words]

--module FILE      uses another file as the model's code; tests/interchange/mutants passes broken ones
--exporter COMMAND creates the directories instead of write_transformers.py; {step} and {output} are filled in, as in
                   "build/release/shiftron checkpoint export {step} --format hf --output {output}"
"""
import argparse
import copy
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", HF_HUB_DISABLE_TELEMETRY="1")
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-interchange-"))
os.environ["HF_HOME"] = os.environ["HF_MODULES_CACHE"] = str(FOLDER / "hub")  # where transformers keeps copies of a model's code

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from packaging.version import Version  # noqa: E402
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
import reference  # noqa: E402
from harness import MODEL, ROOT, options, shiftron, step  # noqa: E402
from read_checkpoint import Step, read_step  # noqa: E402
from write_transformers import MODULE, their_tensors, write_directory  # noqa: E402

VOCAB = MODEL["model.vocab"]
STEPS = 12
CASES = {
    "shift": {},
    "gate": {"shift.form": "gate", "model.kv_heads": 4},
    "clamp": {"shift.form": "clamp", "shift.value": 0, "model.tie_embeddings": "true"},
    "wide": {"shift.query": 1, "shift.key": 3, "shift.value": 2, "model.head_dim": 12, "model.ffn": 40},
    "query": {"shift.query": 2, "shift.key": 0, "shift.value": 0, "model.kv_heads": 1},
    "vanilla": {"shift.key": 0, "shift.value": 0},
    # Its heads do not divide its width: transformers loads no such Llama, the module computes it with shifts of 0.
    "odd": {"shift.key": 0, "shift.value": 0, "model.hidden": 30, "model.head_dim": 8},
}
SHIFTED = [case for case in CASES if case not in ("vanilla", "odd")]
PROMPT = "The taps of a"
CACHE = "cache" if Version(transformers.__version__) >= Version("5.24.0.dev0") else "past_key_values"  # as transformers itself names it
choice = argparse.Namespace(module=MODULE, exporter="")


def must(*words):
    result = shiftron(*words)
    if result.returncode != 0:
        raise AssertionError(f"{words}: {result.stdout}{result.stderr}")
    return result.stdout


class Models:
    """Trained once each, when they are first asked for."""

    def __init__(self):
        self.made = {}
        draw = numpy.random.default_rng(5)
        paragraphs = [part for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
                      for part in path.read_text().split("\n\n") if len(part) > 80]
        text = FOLDER / "text.jsonl"
        text.write_text("".join(json.dumps({"text": paragraphs[draw.integers(len(paragraphs))][:400]}) + "\n" for _ in range(300)))
        must("tokenizer", "train", "--input", text, "--vocab", VOCAB, "--output", FOLDER / "tokenizer.model")
        must("data", "build", "--input", text, "--tokenizer", FOLDER / "tokenizer.model", "--output", FOLDER / "data")

    def settings(self, case, steps, more=None):
        return {**MODEL, "train.steps": steps, "data.train": FOLDER / "data", "checkpoint.keep": 9, **CASES[case], **(more or {})}

    def trained(self, case):
        if case not in self.made:
            run = FOLDER / f"run-{case}"
            # Wide initial matrices: all rows of a small model otherwise look the same, and mistakes would not show.
            must("train", *options({**self.settings(case, STEPS), "model.init_std": 0.2, "output.directory": run}))
            self.made[case] = (step(run, STEPS), self.export(step(run, STEPS), FOLDER / f"model-{case}"))
        return self.made[case]

    @staticmethod
    def export(directory, output):
        if choice.exporter:
            words = [word.format(step=directory, output=output) for word in shlex.split(choice.exporter)]
            result = subprocess.run(words, capture_output=True, text=True, check=False)
            assert result.returncode == 0, (words, result.stdout, result.stderr)
            if choice.module != MODULE and (output / MODULE.name).exists():
                shutil.copyfile(choice.module, output / MODULE.name)
            return output
        return write_directory(read_step(directory), output, choice.module)

    def load(self, case, dtype=torch.float32):
        model, reported = AutoModelForCausalLM.from_pretrained(self.trained(case)[1], trust_remote_code=True, dtype=dtype,
                                                           output_loading_info=True)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            assert not reported.get(kind), (case, kind, reported[kind])
        model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
        return (model.double() if dtype == torch.float64 else model).eval()  # transformers leaves the taps in fp32


MODELS = None


def ids_of(tokens, rows=1, seed=3):
    return torch.from_numpy(numpy.random.default_rng(seed).integers(3, VOCAB, (rows, tokens)))


@torch.no_grad()
def recomputed(model, ids, new):
    """Greedy continuation without a cache: every token from a forward pass over all of the text."""
    for _ in range(new):
        ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids


def cross_entropy(model, ids, targets):
    logits = model(ids, use_cache=False).logits
    counted = targets >= 0
    chosen = logits.log_softmax(-1).gather(2, targets.clamp(min=0)[..., None])[..., 0]
    return -(chosen * counted).sum() / counted.sum()


def moments_of(found, kind):
    """The moments of a step, first_moment or second_moment, under the names of the module's parameters."""
    tensors = {path.replace(kind, "parameters"): array for path, array in found.tensors.items() if path.startswith(kind)}
    return {name: torch.from_numpy(array) for name, array in their_tensors(Step(found.manifest, tensors)).items()}


def text_of(ids, pieces):
    """The text of tokens, from the names that `tokenizer inspect` gives them."""
    parts = []
    for token in ids:
        name = pieces[token]["piece"]
        is_byte = len(name) == 6 and name.startswith("<0x")
        parts.append(bytes([int(name[3:5], 16)]) if is_byte else name.replace("\u2581", " ").encode())
    return b"".join(parts).decode(errors="replace")


class Transformers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global MODELS
        MODELS = Models()

    def assert_close(self, found, expected, bound, what=""):
        found, expected = (torch.as_tensor(one).detach().double() for one in (found, expected))
        error = (found - expected).abs().max().item() / max(1.0, expected.abs().max().item())
        self.assertLess(error, bound, what)
        return error

    # Logits.
    def test_logits_are_those_of_the_reference(self):
        for case in CASES:
            with self.subTest(case):
                found = read_step(MODELS.trained(case)[0])
                ids = ids_of(48)
                expected = reference.logits(found.parameters, found.configuration, ids[0].numpy())
                self.assertGreater(numpy.abs(expected).max(), 0.5)
                with torch.no_grad():
                    error = self.assert_close(MODELS.load(case)(ids).logits[0], expected, 1e-5)
                    # fp32 is the RoPE table of plain Llama, and what a gate's taps are rounded to in the file.
                    bound = {"vanilla": 1e-5, "gate": 1e-6}.get(case, 1e-12)
                    wide = self.assert_close(MODELS.load(case, torch.float64)(ids).logits[0], expected, bound)
                print(f"logits of {case}: fp32 {error:.1e}, fp64 {wide:.1e}")

    def test_taps_stay_fp32_in_a_bf16_model(self):
        model = MODELS.load("wide", torch.bfloat16)
        attention = model.model.layers[0].self_attn
        self.assertEqual({taps.dtype for taps in (attention.conv_q, attention.conv_k, attention.conv_v)}, {torch.float32})
        self.assertEqual(attention.q_proj.weight.dtype, torch.bfloat16)
        ids = ids_of(48)
        with torch.no_grad():
            expected = MODELS.load("wide")(ids).logits
            rounded = (model(ids).logits.float() - expected).norm() / expected.norm()
        self.assertLess(rounded, 0.03)

    def test_embeddings_given_directly_and_logits_of_some_rows(self):
        model, ids = MODELS.load("shift"), ids_of(9)
        with torch.no_grad():
            whole = model(ids).logits
            self.assert_close(model(inputs_embeds=model.get_input_embeddings()(ids)).logits, whole, 1e-6)
            self.assert_close(model(ids, logits_to_keep=2).logits, whole[:, -2:], 1e-6)
            self.assert_close(model(ids, logits_to_keep=torch.tensor([1, 4])).logits, whole[:, [1, 4]], 1e-6)

    # The cache.
    def test_chunks_are_the_whole(self):
        for case in SHIFTED:
            model, ids = MODELS.load(case, torch.float64), ids_of(23, 2)
            with torch.no_grad():
                whole = model(ids, use_cache=False).logits
                for cache in (None, DynamicCache(), StaticCache(config=model.config, max_cache_len=32)):
                    parts = []
                    for part in ids.split([7, 1, 1, 2, 1, 8, 3], dim=1):
                        output = model(part, **{CACHE: cache}, use_cache=True)
                        cache = output[CACHE]
                        parts.append(output.logits)
                    self.assert_close(torch.cat(parts, dim=1), whole, 1e-12, case)

    def test_a_cache_can_be_cropped_and_selected(self):
        model, ids = MODELS.load("wide", torch.float64), ids_of(20, 2)
        with torch.no_grad():
            whole = model(ids, use_cache=False).logits
            cache = DynamicCache()
            model(ids[:, :6], **{CACHE: cache})
            cache.activate_past_recording()
            model(ids[:, 6:15], **{CACHE: cache})
            cache.crop(-5)
            cache.crop(0)
            self.assertEqual(cache.get_seq_length(), 10)
            self.assert_close(model(ids[:, 10:], **{CACHE: cache}).logits, whole[:, 10:], 1e-12)
            for change in ("reorder_cache", "batch_select_indices"):
                cache = DynamicCache()
                model(ids[:, :10], **{CACHE: cache})
                getattr(cache, change)(torch.tensor([1, 0]))
                self.assert_close(model(ids[[1, 0], 10:], **{CACHE: cache}).logits, whole[[1, 0], 10:], 1e-12)
            cache.batch_repeat_interleave(2)
            self.assertEqual(cache.layers[0].raw["k"].shape[0], 4)
            cache.reset()
            self.assert_close(model(ids, **{CACHE: cache}).logits, whole, 1e-12)
            cache = DynamicCache()
            model(ids[:, :10], **{CACHE: cache})
            with self.assertRaisesRegex(ValueError, "activate_past_recording"):
                cache.crop(-4)
            self.assertEqual(cache.get_seq_length(), 10)  # what is refused changes nothing
            self.assert_close(model(ids[:, 10:], **{CACHE: cache}).logits, whole[:, 10:], 1e-12)

    def test_a_cache_of_another_model_is_refused(self):
        model, plain, ids = MODELS.load("shift"), MODELS.load("vanilla"), ids_of(5)
        cache = DynamicCache()
        plain(ids, **{CACHE: cache})
        with self.assertRaisesRegex(ValueError, "filled by another model"):
            model(ids, **{CACHE: cache})
        quantized = type("QuantizedLayer", (transformers.cache_utils.DynamicLayer,), {})  # theirs needs a library of its own
        cache = DynamicCache()
        cache.layers.append(quantized())
        with self.assertRaisesRegex(TypeError, "QuantizedLayer"):
            model(ids, **{CACHE: cache})

    def test_both_names_of_the_cache_are_taken(self):
        model, ids = MODELS.load("wide", torch.float64), ids_of(9)
        expected = recomputed(model, ids, 6).tolist()
        with torch.no_grad():
            whole = model(ids, use_cache=False).logits
            for name in ("cache", "past_key_values"):
                for body in (model, model.model):
                    cache = DynamicCache()
                    body(ids[:, :5], **{name: cache})
                    self.assertEqual(cache.get_seq_length(), 5)
                    rest = body(ids[:, 5:], **{name: cache})
                    self.assertEqual(cache.get_seq_length(), 9)
                    self.assertIs(rest[CACHE], cache)
                    if body is model:
                        self.assert_close(rest.logits, whole[:, 5:], 1e-12, name)
                cache = DynamicCache()
                model(ids[:, :5], **{name: cache})
                self.assertEqual(model.generate(ids, max_new_tokens=6, do_sample=False, **{name: cache}).tolist(), expected, name)
                with self.assertRaisesRegex(ValueError, "use_cache"):
                    model.generate(ids, max_new_tokens=6, use_cache=False, **{name: cache})
            for body in (model, model.model):
                with self.assertRaisesRegex(TypeError, "two names"):
                    body(ids, cache=DynamicCache(), past_key_values=DynamicCache())

    def test_what_would_be_swallowed_is_refused(self):
        model, ids = MODELS.load("shift"), ids_of(9)
        with torch.no_grad():
            whole = model(ids).logits
            for body in (model, model.model):
                for name in ("caches", "layer_past", "cache_params", "is_causal", "head_mask", "token_type_ids", "shift_labels", "seq_idx"):
                    with self.assertRaisesRegex(TypeError, name):
                        body(ids, **{name: torch.zeros(1, 9)})
                    body(ids, **{name: None})
                with self.assertRaisesRegex(TypeError, "give a Cache"):
                    body(ids, **{CACHE: ((ids, ids),)})
                with self.assertRaisesRegex(ValueError, "begin at 0"):
                    body(ids, cu_seq_lens_q=torch.tensor([0, 4, 9]))
                with self.assertRaisesRegex(ValueError, "output_attentions"):
                    body(ids, output_attentions=True)
            self.assertEqual(len(model(ids, output_hidden_states=True).hidden_states), model.config.num_hidden_layers + 1)
            self.assertIs(type(model(ids, return_dict=False)), tuple)
            mean = model(ids, labels=ids).loss
            self.assert_close(model(ids, labels=ids, num_items_in_batch=torch.tensor(16)).loss, mean / 2, 1e-6)
            self.assert_close(mean, torch.nn.functional.cross_entropy(whole[0, :-1], ids[0, 1:]), 1e-6)
        with self.assertRaisesRegex(NotImplementedError, "continuous batching"):
            model.generate_batch([ids[0].tolist()])
        self.assertFalse(model.supports_context_parallel)

    def test_untested_releases_are_reported(self):
        module = sys.modules[type(MODELS.load("shift")).__module__]
        minors = [Version(release).release[:2] for release in module.TESTED]
        self.assertIn(Version(transformers.__version__).release[:2], minors, "when all else here passes, add this release to TESTED")
        self.assertEqual(minors, sorted(minors))
        for release in ("4.57.1", "5.0.0", "5.22.1"):
            with self.assertRaisesRegex(ImportError, release):
                module.check_release(release)
        with self.assertWarnsRegex(UserWarning, "not with 5.99.0"):
            module.check_release("5.99.0")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for release in module.TESTED:
                module.check_release(release)
        if choice.exporter:
            self.assertIn(", ".join(module.TESTED), (MODELS.trained("shift")[1] / "README.md").read_text())

    def test_padding_and_packing_change_nothing(self):
        for case in SHIFTED:
            model, one, other = MODELS.load(case, torch.float64), ids_of(11), ids_of(7, seed=4)
            with torch.no_grad():
                alone = [model(ids, use_cache=False).logits for ids in (one, other)]
                padded = torch.cat([one, torch.cat([torch.full((1, 4), 9), other], dim=1)])
                mask = torch.ones_like(padded)
                mask[1, :4] = 0
                logits = model(padded, attention_mask=mask).logits  # positions begin at the pads: only distances count
                self.assert_close(logits[:1], alone[0], 1e-12, case)
                self.assert_close(logits[1:, 4:], alone[1], 1e-9, case)
                right = model(torch.cat([other, torch.full((1, 4), 9)], dim=1), attention_mask=mask[[1]].flip(1)).logits
                self.assert_close(right[:, :7], alone[1], 1e-12, case)
                positions = (mask.cumsum(1) - 1).clamp(min=0)
                logits = model(padded, attention_mask=mask, position_ids=positions).logits
                self.assert_close(logits[1:, 4:], alone[1], 1e-12, case)
                packed = torch.cat([one, other], dim=1)
                positions = torch.cat([torch.arange(11), torch.arange(7)])[None]
                logits = model(packed, position_ids=positions, use_cache=False).logits
                self.assert_close(logits, torch.cat(alone, dim=1), 1e-12, case)

    # Generation.
    def test_generation_is_recomputation(self):
        for case in SHIFTED:
            model, ids = MODELS.load(case, torch.float64), ids_of(10)
            expected = recomputed(model, ids, 14)
            how = {"max_new_tokens": 14, "do_sample": False}
            ways = {
                "greedy": lambda: model.generate(ids, **how),
                "prefill in chunks": lambda: model.generate(ids, prefill_chunk_size=3, **how),
                "prompt lookup": lambda: model.generate(ids, prompt_lookup_num_tokens=4, **how),
                "static cache": lambda: model.generate(ids, cache_implementation="static", **how),
                "static cache again, prefill in chunks": lambda: model.generate(ids, cache_implementation="static",
                                                                                prefill_chunk_size=4, **how),
                "assistant": lambda: model.generate(ids, assistant_model=MODELS.load("wide", torch.float64), **how),
                "embeddings": lambda: torch.cat([ids, model.generate(inputs_embeds=model.get_input_embeddings()(ids), **how)], 1),
                "no cache": lambda: model.generate(ids, use_cache=False, **how),
            }
            for way, call in ways.items():
                with self.subTest(case, way=way):
                    self.assertEqual(call().tolist(), expected.tolist())

    def assert_steps_are_full_forwards(self, model, ids, mask, what, **how):
        """With a cache generate gives the tokens that it gives without, and each step the logits of a pass over all of the text."""
        how = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 2, "return_dict_in_generate": True, "output_logits": True,
               "attention_mask": mask, "no_repeat_ngram_size": 1, **how}  # so that small models say more than one token
        given = how.pop(CACHE, None)
        torch.manual_seed(7)
        found = model.generate(ids, **({} if given is None else {CACHE: given}), **how)
        torch.manual_seed(7)
        without = model.generate(ids, use_cache=False, **{key: value for key, value in how.items() if key != "cache_implementation"})
        self.assertEqual(found.sequences.tolist(), without.sequences.tolist(), what)
        with torch.no_grad():
            mask = torch.cat([mask, mask.new_ones(len(mask), len(found.logits))], dim=1)
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            whole = model(found.sequences, attention_mask=mask, position_ids=positions, use_cache=False).logits
        self.assertEqual(len(found.logits), 10)
        for number, logits in enumerate(found.logits):
            self.assert_close(logits, whole[:, ids.shape[1] - 1 + number], 1e-6, (what, number))
        return found

    def test_each_step_of_generation_is_the_full_forward(self):
        for case in SHIFTED:
            model, ids = MODELS.load(case, torch.float64), ids_of(9, 3)
            one, padded = torch.ones_like(ids), torch.ones_like(ids)
            padded[1, :5] = padded[2, :8] = 0
            for what, how in {"greedy": {}, "sampled": {"do_sample": True, "top_k": 30, "temperature": 1.5},
                              "static": {"cache_implementation": "static"}}.items():
                for mask in (one, padded):
                    with self.subTest(case, how=what, padded=mask is padded):
                        found = self.assert_steps_are_full_forwards(model, ids, mask, (case, what), **how)
                        self.assertGreater(len(set(found.sequences[:, 9:].flatten().tolist())), 9)

    def test_sampling_from_a_prefilled_cache(self):
        for case in SHIFTED:
            model, ids = MODELS.load(case, torch.float64), ids_of(12)
            prefix = DynamicCache()
            with torch.no_grad():
                model(ids[:, :7], **{CACHE: prefix})
            for rows in (1, 4):
                cache, texts = copy.deepcopy(prefix), ids.repeat_interleave(rows, dim=0)
                cache.batch_repeat_interleave(rows)
                found = self.assert_steps_are_full_forwards(model, texts, torch.ones_like(texts), (case, rows), do_sample=True,
                                                            temperature=1.5, **{CACHE: cache})
                self.assertEqual(len(set(map(tuple, found.sequences.tolist()))), rows)
            self.assertEqual(prefix.get_seq_length(), 7)

    def test_turns_of_a_conversation(self):
        for case in SHIFTED:
            for pads in (0, 4):
                model, ids = MODELS.load(case, torch.float64), ids_of(7, 2)
                mask, cache = torch.ones_like(ids), DynamicCache()
                mask[1, :pads] = 0
                for turn in range(3):  # each adds the answer and five tokens more
                    found = self.assert_steps_are_full_forwards(model, ids, mask, (case, pads, turn), **{CACHE: cache})
                    ids = torch.cat([found.sequences, ids_of(5, 2, seed=turn)], dim=1)
                    mask = torch.cat([mask, mask.new_ones(2, 15)], dim=1)
                    self.assertEqual(cache.get_seq_length(), ids.shape[1] - 6)

    def test_generation_in_training_mode_with_checkpointing(self):
        model, ids = MODELS.load("wide", torch.float64), ids_of(10)
        expected = recomputed(model, ids, 8).tolist()
        model.train().gradient_checkpointing_enable()
        self.assertEqual(model.generate(ids, max_new_tokens=8, do_sample=False).tolist(), expected)
        with self.assertRaisesRegex(ValueError, "computed twice"):
            model(ids, use_cache=True)

    def test_generation_continues_from_a_returned_cache(self):
        for case in SHIFTED:
            model, ids = MODELS.load(case, torch.float64), ids_of(10)
            expected = recomputed(model, ids, 12)
            first = model.generate(ids, max_new_tokens=5, do_sample=False, return_dict_in_generate=True)
            whole = model.generate(first.sequences, **{CACHE: first[CACHE]}, max_new_tokens=7, do_sample=False)
            self.assertEqual(whole.tolist(), expected.tolist(), case)

    def test_beams(self):
        for case in SHIFTED:
            model, ids = MODELS.load(case, torch.float64), ids_of(8, 2)
            how = {"max_new_tokens": 12, "do_sample": False, "num_beams": 3, "return_dict_in_generate": True, "output_scores": True}
            with_cache, without = model.generate(ids, **how), model.generate(ids, use_cache=False, **how)
            self.assertEqual(with_cache.sequences.tolist(), without.sequences.tolist(), case)
            self.assert_close(with_cache.sequences_scores, without.sequences_scores, 1e-10, case)
            with torch.no_grad():
                steps = model(with_cache.sequences, use_cache=False).logits[:, 7:-1].log_softmax(-1)
            shares = steps.gather(2, with_cache.sequences[:, 8:, None])[..., 0].mean(1)
            self.assert_close(with_cache.sequences_scores, shares, 1e-6, case)

    def test_left_padded_batches(self):
        for case in SHIFTED:
            model = MODELS.load(case, torch.float64)
            texts = [ids_of(9, seed=1), ids_of(4, seed=2), ids_of(1, seed=3)]
            batch = torch.cat([torch.nn.functional.pad(text, (9 - text.shape[1], 0), value=2) for text in texts])
            mask = torch.cat([torch.nn.functional.pad(torch.ones_like(text), (9 - text.shape[1], 0)) for text in texts])
            for beams in (1, 3):
                how = {"max_new_tokens": 10, "do_sample": False, "num_beams": beams, "pad_token_id": 2}
                together = model.generate(batch, attention_mask=mask, **how)
                for row, text in enumerate(texts):
                    alone = model.generate(text, use_cache=False, **how)
                    self.assertEqual(together[row, 9:].tolist(), alone[0, text.shape[1]:].tolist(), (case, beams, row))

    def test_greedy_is_that_of_the_program(self):
        inspected = json.loads(must("tokenizer", "inspect", FOLDER / "tokenizer.model", "--text", PROMPT, "--json"))
        prompt = torch.tensor([[token["token"] for token in inspected["text"]]])
        pieces = json.loads(must("tokenizer", "inspect", FOLDER / "tokenizer.model", "--pieces", VOCAB, "--json"))["pieces"]
        for case in CASES:
            with self.subTest(case):
                text = must("generate", "--checkpoint", MODELS.trained(case)[0], "--prompt", PROMPT, "--tokens", 24)
                model = MODELS.load(case)
                found = model.generate(prompt, max_new_tokens=24, do_sample=False, eos_token_id=1, pad_token_id=1)[0].tolist()
                found = found[:found.index(1)] if 1 in found else found
                self.assertGreater(len(set(found)), 3)
                ours = text_of(found, pieces)
                self.assertEqual(text.rstrip("\n"), ours.rstrip("\n"), case)

    # Derivatives and compilation.
    def test_gradients_of_the_taps(self):
        for case in SHIFTED:
            model = MODELS.load(case, torch.float64).train()
            ids = ids_of(14, 2)
            targets = ids.roll(-1, 1)
            cross_entropy(model, ids, targets).backward()
            checked = 0
            for name, taps in model.named_parameters():
                if ".conv_" not in name:
                    continue
                flat, gradient = taps.data.view(-1), taps.grad.view(-1)
                for index in range(0, flat.numel(), 2):
                    kept, difference = flat[index].item(), 0.0
                    for offset, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
                        flat[index] = kept + offset * 1e-3
                        with torch.no_grad():
                            difference += factor * cross_entropy(model, ids, targets).item() / 12e-3
                    flat[index] = kept
                    self.assertLess(abs(gradient[index].item() - difference), 1e-6 * max(1e-2, abs(difference)), (case, name, index))
                    checked += 1
            self.assertGreater(checked, 3)

    def test_checkpointed_gradients_are_the_same(self):
        ids = ids_of(14, 2)
        gradients = []
        for checkpointed in (False, True):
            model = MODELS.load("wide", torch.float64).train()
            if checkpointed:
                model.gradient_checkpointing_enable()
            cross_entropy(model, ids, ids.roll(-1, 1)).backward()
            gradients.append(model.model.layers[0].self_attn.conv_k.grad)
        self.assert_close(*gradients, 1e-13)

    def test_compiled(self):
        model, ids = MODELS.load("wide", torch.float64), ids_of(14, 2)
        compiled = torch.compile(model)
        with torch.no_grad():
            self.assert_close(compiled(ids, use_cache=False).logits, model(ids, use_cache=False).logits, 1e-12)

    # Training that continues elsewhere.
    def test_training_continues_as_here(self):
        for case in ("shift", "wide", "vanilla"):
            with self.subTest(case):
                run = FOLDER / f"train-{case}"
                words = options({**MODELS.settings(case, 5), "checkpoint.every": 2, "data.document_reset": "false",
                                 "optimizer.shift_weight_decay": 0.05, "output.directory": run})
                must("train", *words)
                losses = {row["step"]: row["loss"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())}
                found = read_step(step(run, 2))
                directory = MODELS.export(step(run, 2), FOLDER / f"going-on-{case}")
                model = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True, dtype=torch.float32).train()
                for number, loss in self.continue_training(model, found, run / "config.conf", range(3, 6)):
                    self.assertLess(abs(loss - losses[number]), 1e-4, f"step {number}")
                self.assertGreater(abs(losses[5] - losses[3]), 1e-2)

    def continue_training(self, model, found, config, numbers):
        """(step, loss) of AdamW with our moments, one group a parameter; losses before the update."""
        optimizer = found.configuration["optimizer"]
        beta1, beta2 = map(float, optimizer["betas"].split(","))
        parameters = dict(model.named_parameters())
        means, squares = moments_of(found, "first_moment"), moments_of(found, "second_moment")
        self.assertEqual((means.keys(), squares.keys()), (parameters.keys(), parameters.keys()))
        for number in numbers:
            batch = json.loads(must("data", "dump", "--config", config, "--step", number))
            ids, targets = (torch.tensor(batch[key]) for key in ("ids", "targets"))
            loss = cross_entropy(model, ids, targets)
            model.zero_grad()
            loss.backward()
            yield number, loss.item()
            norm = torch.stack([parameter.grad.norm() for parameter in parameters.values()]).norm().item()
            clip = min(1.0, optimizer["clip"] / (norm + 1e-6))
            with torch.no_grad():
                for name, parameter in parameters.items():
                    gradient = parameter.grad * clip
                    first, second = means[name], squares[name]
                    first.mul_(beta1).add_(gradient, alpha=1 - beta1)
                    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                    decay = 0.0 if "norm" in name else optimizer["shift_weight_decay" if ".conv_" in name else "weight_decay"]
                    rate = optimizer["learning_rate"]
                    parameter.mul_(1 - rate * decay)
                    parameter.sub_(rate * (first / (1 - beta1**number)) / ((second / (1 - beta2**number)).sqrt() + optimizer["epsilon"]))

    # The files.
    def test_saved_again_and_created_again(self):
        model, ids = MODELS.load("wide"), ids_of(9)
        model.save_pretrained(FOLDER / "again")
        again = AutoModelForCausalLM.from_pretrained(FOLDER / "again", trust_remote_code=True, dtype=torch.float32).eval()
        with torch.no_grad():
            self.assert_close(again(ids).logits, model(ids).logits, 1e-7)
        torch.manual_seed(1)
        fresh = AutoModelForCausalLM.from_config(model.config, trust_remote_code=True)
        taps = fresh.model.layers[1].self_attn.conv_k
        self.assertLess((taps.sum(-1) - 1).abs().max(), 1e-6)
        self.assertTrue(((taps[..., 1:] > 0) & (taps[..., 1:] < 1)).all())

    @staticmethod
    def changed(name, changes):
        """The directory of "shift" under `name`, with other keys in its config.json."""
        directory = FOLDER / name
        shutil.copytree(MODELS.trained("shift")[1], directory)
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | changes))
        return directory

    def test_a_configuration_of_other_arithmetic_is_refused(self):
        default, other = {"rope_type": "default"}, {"rope_type": "default", "rope_theta": 9e4}
        for number, (named, changes) in enumerate([
                ("norm_head", {"norm_head": True}), ("shift_activation", {"shift_activation": "silu"}),
                ("hidden_act", {"hidden_act": "gelu"}), ("num_key_value_heads", {"num_key_value_heads": 3}),
                ("rope_scaling has rope_type 'linear'", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
                ("rope_parameters has rope_type 'yarn'", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}),
                ("rope_parameters.partial_rotary_factor is 0.5", {"rope_parameters": default | {"partial_rotary_factor": 0.5}}),
                ("partial_rotary_factor is 0.5", {"partial_rotary_factor": 0.5}),
                ("keep the one that is meant", {"rope_scaling": default, "rope_parameters": other})]):
            directory = self.changed(f"refused-{number}", changes)
            with self.assertRaisesRegex(Exception, named):
                AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True)
            if any("rope" in key or "rotary" in key for key in changes):  # one directory is one model: the import refuses it too
                self.assertEqual(shiftron("checkpoint", "import", directory, "--format", "hf", "--output", FOLDER / f"run-{number}").returncode,
                                 76, named)

    def test_theta_of_rope_parameters(self):
        directory = self.changed("theta", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}})
        must("checkpoint", "import", directory, "--format", "hf", "--output", FOLDER / "run-theta")
        found, ids = read_step(step(FOLDER / "run-theta", 0)), ids_of(48)
        self.assertEqual(found.configuration["model"]["rope_base"], 500)
        model = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True, dtype=torch.float32).eval()
        expected = reference.logits(found.parameters, found.configuration, ids[0].numpy())
        with torch.no_grad():
            self.assert_close(model(ids).logits[0], expected, 1e-5)
            self.assertGreater((MODELS.load("shift")(ids).logits[0] - model(ids).logits[0]).abs().max(), 1e-3)
            model.save_pretrained(FOLDER / "theta-again")
            again = AutoModelForCausalLM.from_pretrained(FOLDER / "theta-again", trust_remote_code=True, dtype=torch.float32).eval()
            self.assert_close(again(ids).logits, model(ids).logits, 1e-7)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--module", type=pathlib.Path, default=MODULE)
    parser.add_argument("--exporter", default="")
    choice, rest = parser.parse_known_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    try:
        unittest.main(argv=[sys.argv[0], *rest])
    finally:
        shutil.rmtree(FOLDER, True)
