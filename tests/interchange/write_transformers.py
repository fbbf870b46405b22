"""Writes a step as the directory that transformers loads, in Python: `shiftron checkpoint export` is compared with it."""
import json
import pathlib
import shutil

import numpy
from safetensors.numpy import save_file

import reference

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODULE = ROOT / "src" / "checkpoint" / "modeling_kv_shift_llama.py"
NAMES = {"attention_norm.weight": "input_layernorm.weight", "mlp_norm.weight": "post_attention_layernorm.weight",
         "attention.query.weight": "self_attn.q_proj.weight", "attention.key.weight": "self_attn.k_proj.weight",
         "attention.value.weight": "self_attn.v_proj.weight", "attention.out.weight": "self_attn.o_proj.weight",
         "mlp.gate.weight": "mlp.gate_proj.weight", "mlp.up.weight": "mlp.up_proj.weight", "mlp.down.weight": "mlp.down_proj.weight",
         "attention.shift_query": "self_attn.conv_q", "attention.shift_key": "self_attn.conv_k",
         "attention.shift_value": "self_attn.conv_v"}


def their_tensors(step):
    """Name in Llama's manner -> array of float32."""
    tensors = {}
    for name, array in step.parameters.items():
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            if ".shift_" in name:
                mixed = reference.taps(array, step.configuration["shift"]["form"]).astype(numpy.float32)
                array = mixed.reshape(1, 1, mixed.shape[0], 1, mixed.shape[1])
            elif rest == "attention.out.weight":
                array = array.reshape(array.shape[0], -1)
            elif rest.startswith("attention.") and array.ndim == 3:
                array = array.reshape(-1, array.shape[-1])
            name = f"model.layers.{number}.{NAMES[rest]}"
        else:
            name = {"embedding.weight": "model.embed_tokens.weight", "final_norm.weight": "model.norm.weight",
                    "head.weight": "lm_head.weight"}[name]
        tensors[name] = numpy.ascontiguousarray(array)
    return tensors


def their_config(configuration):
    model, shift = configuration["model"], configuration["shift"]
    config = {"vocab_size": model["vocab"], "hidden_size": model["hidden"], "intermediate_size": model["ffn"],
              "num_hidden_layers": model["layers"], "num_attention_heads": model["heads"], "num_key_value_heads": model["kv_heads"],
              "head_dim": model["head_dim"], "rope_theta": float(model["rope_base"]), "rms_norm_eps": model["norm_epsilon"],
              "tie_word_embeddings": model["tie_embeddings"], "initializer_range": model["init_std"], "hidden_act": "silu",
              "max_position_embeddings": configuration["train"]["sequence_length"], "attention_bias": False, "mlp_bias": False,
              "dtype": "float32", "bos_token_id": None, "eos_token_id": 1, "pad_token_id": None}
    previous = [shift["query"], shift["key"], shift["value"]]
    if not any(previous) and model["hidden"] % model["heads"] == 0:  # transformers loads no other plain Llama
        return config | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    return config | {
        "model_type": "kv_shift_llama", "architectures": ["KVShiftLlamaForCausalLM"],
        "auto_map": {"AutoConfig": "modeling_kv_shift_llama.KVShiftLlamaConfig",
                     "AutoModelForCausalLM": "modeling_kv_shift_llama.KVShiftLlamaForCausalLM"},
        "conv_window": 1 + max(previous), "shift_q": previous[0], "shift_k": previous[1], "shift_v": previous[2],
        "shift_residual": False, "shift_activation": None, "norm_head": False}


def write_directory(step, directory, module=MODULE):
    """`module`: the file with the model's code; ignored for a model without shift."""
    directory.mkdir(parents=True)
    save_file(their_tensors(step), directory / "model.safetensors", metadata={"format": "pt"})
    config = their_config(step.configuration)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    if "auto_map" in config:
        shutil.copyfile(module, directory / MODULE.name)
    return directory
