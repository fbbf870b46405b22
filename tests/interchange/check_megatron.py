#!/usr/bin/env python3
"""A checkpoint as torch.distributed writes it, converted with the commands of docs/interchange.md and imported: its tensors are
unchanged.

    tests/interchange/run check_megatron.py torch safetensors
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import torch
import torch.distributed.checkpoint as dcp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from harness import ROOT, shiftron  # noqa: E402

LAYERS, HIDDEN, HEADS, GROUPS, DIM, FFN, VOCAB = 3, 32, 4, 2, 8, 48, 61


def lines_of_the_document():
    """The block of Python in docs/interchange.md that reads a directory of torch.distributed's."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "interchange.md").read_text(), re.S)
    found = [block for block in blocks if "FileSystemReader" in block]
    assert len(found) == 1, blocks
    return found[0]


def weights():
    """Under Megatron-LM's names, all layers in one tensor, as its torch_dist format stores them."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return 0.2 * torch.randn(*shape, generator=generator)

    layers = "decoder.layers."
    return {
        "embedding.word_embeddings.weight": draw(64, HIDDEN),
        layers + "self_attention.linear_qkv.weight": draw(LAYERS, (HEADS + 2 * GROUPS) * DIM, HIDDEN),
        layers + "self_attention.linear_qkv.layer_norm_weight": 1 + draw(LAYERS, HIDDEN),
        layers + "self_attention.linear_proj.weight": draw(LAYERS, HIDDEN, HEADS * DIM),
        layers + "mlp.linear_fc1.weight": draw(LAYERS, 2 * FFN, HIDDEN),
        layers + "mlp.linear_fc1.layer_norm_weight": 1 + draw(LAYERS, HIDDEN),
        layers + "mlp.linear_fc2.weight": draw(LAYERS, HIDDEN, FFN),
        "decoder.final_layernorm.weight": 1 + draw(HIDDEN),
        "output_layer.weight": draw(64, HIDDEN),
    }


class Megatron(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-interchange-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def stored(self, tensors):
        directory = self.folder / "iter_0000100"
        more = {"optimizer.state.exp_avg.decoder.final_layernorm.weight": torch.zeros(HIDDEN), "iteration": 100}
        dcp.save(tensors | more, storage_writer=dcp.FileSystemWriter(directory), no_dist=True)
        return directory

    def config(self, directory):
        (directory / "config.json").write_text(json.dumps({"num_attention_heads": HEADS, "vocab_size": VOCAB, "rotary_base": 10000,
                                                           "layernorm_epsilon": 1e-5}))

    def imported(self, directory):
        return shiftron("checkpoint", "import", directory, "--format", "megatron", "--output", self.folder / "run", "--json")

    def test_pickles_are_refused_and_the_way_out_works(self):
        tensors = weights()
        directory = self.stored(tensors)
        self.assertEqual(sorted({path.name[-9:] for path in directory.iterdir()}), [".metadata", "_0.distcp"])
        self.config(directory)
        result = self.imported(directory)
        self.assertEqual(result.returncode, 76)
        self.assertIn("docs/interchange.md", result.stderr)
        self.assertFalse((self.folder / "run").exists())

        converted = self.folder / "converted"
        converted.mkdir()
        exec(lines_of_the_document(), {"FROM": str(directory), "TO": str(converted)})  # noqa: S102
        self.config(converted)
        result = self.imported(converted)
        self.assertEqual(result.returncode, 0, result.stderr)
        step = json.loads(result.stdout)["directory"]
        exported = self.folder / "exported"
        result = shiftron("checkpoint", "export", step, "--format", "hf", "--output", exported, "--precision", "fp32")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check_rows(exported, tensors)

    # Megatron-LM's own reading of linear_qkv: [groups, queries of a group + 2, head_dim, hidden].
    def check_rows(self, exported, tensors):
        from safetensors.torch import load_file
        theirs = load_file(exported / "model.safetensors")

        def same(name, expected):
            self.assertTrue(torch.equal(theirs[name], expected), name)

        same("model.embed_tokens.weight", tensors["embedding.word_embeddings.weight"][:VOCAB])
        same("lm_head.weight", tensors["output_layer.weight"][:VOCAB])
        for layer in range(LAYERS):
            mixed = tensors["decoder.layers.self_attention.linear_qkv.weight"][layer].view(GROUPS, HEADS // GROUPS + 2, DIM, HIDDEN)
            query, key, value = mixed.split([HEADS // GROUPS, 1, 1], dim=1)
            gate, up = tensors["decoder.layers.mlp.linear_fc1.weight"][layer].chunk(2)
            own = f"model.layers.{layer}."
            same(own + "self_attn.q_proj.weight", query.reshape(HEADS * DIM, HIDDEN))
            same(own + "self_attn.k_proj.weight", key.reshape(GROUPS * DIM, HIDDEN))
            same(own + "self_attn.v_proj.weight", value.reshape(GROUPS * DIM, HIDDEN))
            same(own + "self_attn.o_proj.weight", tensors["decoder.layers.self_attention.linear_proj.weight"][layer])
            same(own + "mlp.gate_proj.weight", gate)
            same(own + "mlp.up_proj.weight", up)
            same(own + "mlp.down_proj.weight", tensors["decoder.layers.mlp.linear_fc2.weight"][layer])
            same(own + "input_layernorm.weight", tensors["decoder.layers.self_attention.linear_qkv.layer_norm_weight"][layer])
            same(own + "post_attention_layernorm.weight", tensors["decoder.layers.mlp.linear_fc1.layer_norm_weight"][layer])


if __name__ == "__main__":
    unittest.main(verbosity=2)
