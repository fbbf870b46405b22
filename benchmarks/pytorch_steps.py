#!/usr/bin/env python3
"""Training steps in PyTorch on command: the other side of train_steps, started by benchmarks/vs_pytorch.py.

Reads "run K" lines, answers {"seconds": of one, "losses": [K of them]}. The model is idiomatic PyTorch:
fused query-key-value and gate-up products, scaled_dot_product_attention, fused AdamW; the KV shift is a pad and a
multiply-add. Variants: fp32, autocast (fp32 weights, products in bf16) and bf16 (bf16 weights and gradients, fp32 masters
and moments), each eager, compiled as a whole, or compiled layer by layer, which takes as long for many layers as for one;
bf16 on a GPU also compiled as a whole and replayed as CUDA graphs ("reduce-overhead"), so that no launch waits for the host.
The device is the description's; on a GPU, cuDNN's attention is preferred. Inputs: the .h5 file and the description
(train_steps --describe) that vs_pytorch.py wrote.
"""
import argparse
import json
import pathlib
import re
import sys
import time

import h5py
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

STREAMS = ("query", "key", "value")
ATTENTION = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # in order of preference


class Model:
    def __init__(self, description, initial, dtype, device):
        self.model = description["configuration"]["model"]
        self.parameters, self.masters, self.decays = {}, {}, {}  # a master is the parameter itself where that is fp32
        decays = {parameter["name"]: parameter["weight_decay"] for parameter in description["parameters"]}

        def add(name, *parts):
            value = torch.cat([torch.from_numpy(initial[part][()]) for part in parts]).to(device)
            precise = name.endswith("norm.weight") or ".shift_" in name
            self.parameters[name] = value.flatten(1) if "out.weight" in name else value
            if not precise:
                rows = value.shape[0] if "out.weight" in name else value.numel() // value.shape[-1]
                self.parameters[name] = value.reshape(rows, -1).to(dtype)
            self.parameters[name] = self.parameters[name].contiguous().requires_grad_()
            self.masters[name] = self.parameters[name]
            if self.parameters[name].dtype != torch.float32:
                self.masters[name] = value.reshape(self.parameters[name].shape).clone()
            self.decays[name] = decays[parts[0]]

        fused = {"attention.qkv.weight": [f"attention.{stream}.weight" for stream in STREAMS],
                 "mlp.gate_up.weight": ["mlp.gate.weight", "mlp.up.weight"]}
        inside = {part for parts in fused.values() for part in parts}
        for name in decays:
            if not any(name.endswith(part) for part in inside):
                add(name, name)
        for layer in range(self.model["layers"]):
            for name, parts in fused.items():
                add(f"layers.{layer}.{name}", *(f"layers.{layer}.{part}" for part in parts))
        self.layers = [{name.removeprefix(f"layers.{number}."): value for name, value in self.parameters.items()
                        if name.startswith(f"layers.{number}.")} for number in range(self.model["layers"])]
        length, half = description["configuration"]["train"]["sequence_length"], self.model["head_dim"] // 2
        frequency = self.model["rope_base"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        self.cosine, self.sine = (table.float()[:, None].to(device, dtype) for table in (angle.cos(), angle.sin()))

    def groups(self):
        for decay in sorted(set(self.decays.values())):
            yield {"params": [p for name, p in self.masters.items() if self.decays[name] == decay], "weight_decay": decay}

    def norm(self, weight, x):
        return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), self.model["norm_epsilon"])

    def mix(self, taps, x):
        """x [batch, time, heads, head_dim]: the row before, and the row itself, each by its tap."""
        if taps is None:
            return x
        taps = taps.to(x.dtype)
        return taps[:, :1] * F.pad(x[:, :-1], (0, 0, 0, 0, 1, 0)) + taps[:, 1:] * x

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cosine - b * self.sine, b * self.cosine + a * self.sine], -1)

    def attention(self, weights, x):
        heads, kv_heads = self.model["heads"], self.model["kv_heads"]
        batch, time_, _ = x.shape
        fused = F.linear(x, weights["attention.qkv.weight"]).view(batch, time_, heads + 2 * kv_heads, -1)
        q, k, v = (self.mix(weights.get(f"attention.shift_{stream}"), y)
                   for stream, y in zip(STREAMS, fused.split([heads, kv_heads, kv_heads], 2)))
        y = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (self.rotate(q), self.rotate(k), v)),
                                           is_causal=True, enable_gqa=heads != kv_heads)
        return F.linear(y.transpose(1, 2).flatten(2), weights["attention.out.weight"])

    def layer(self, x, weights):
        x = x + self.attention(weights, self.norm(weights["attention_norm.weight"], x))
        gate, up = F.linear(self.norm(weights["mlp_norm.weight"], x), weights["mlp.gate_up.weight"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, weights["mlp.down.weight"])

    def head_loss(self, x, weight, table, targets):
        logits = F.linear(self.norm(weight, x), table)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-1)

    def loss(self, ids, targets):
        x = F.embedding(ids, self.parameters["embedding.weight"])
        for weights in self.layers:
            x = self.layer(x, weights)
        table = "embedding.weight" if self.model["tie_embeddings"] else "head.weight"
        return self.head_loss(x, self.parameters["final_norm.weight"], self.parameters[table], targets)


class Trainer:
    def __init__(self, description, inputs, variant):
        precision, mode = variant.split("-")
        self.autocast = precision == "autocast"
        self.description, self.train = description, description["configuration"]["train"]
        self.device = description["configuration"]["device"]["kind"]
        self.model = Model(description, inputs["initial"], torch.bfloat16 if precision == "bf16" else torch.float32, self.device)
        pairs = ((weight, self.model.masters[name]) for name, weight in self.model.parameters.items())
        self.rounded = [(weight, master) for weight, master in pairs if weight is not master]
        if mode == "layers":
            self.model.layer, self.model.head_loss = torch.compile(self.model.layer), torch.compile(self.model.head_loss)
        self.loss = torch.compile(self.model.loss) if mode == "compile" else self.model.loss
        self.graphs = mode == "graphs"
        if self.graphs:
            self.loss = torch.compile(self.model.loss, mode="reduce-overhead")
            for weight in self.model.parameters.values():
                torch._dynamo.mark_static_address(weight)  # otherwise each replay would copy it
                weight.grad = torch.zeros_like(weight)  # a replay overwrites the gradients that it made before: they are summed elsewhere
        optimizer = description["configuration"]["optimizer"]
        self.clip = optimizer["clip"]
        betas = tuple(float(beta) for beta in str(optimizer["betas"]).split(","))
        self.optimizer = torch.optim.AdamW(list(self.model.groups()), betas=betas, eps=optimizer["epsilon"], fused=True)
        self.ids, self.targets = (torch.from_numpy(inputs[name][()]).long().to(self.device) for name in ("ids", "targets"))
        self.number = 0

    def steps(self, count):
        """Returns (seconds per step, losses). Losses are read when all steps are done, so that a GPU never waits for the host."""
        start = time.perf_counter()
        with sdpa_kernel(ATTENTION, set_priority=True):
            losses = torch.stack([self.step() for _ in range(count)]).tolist()
        return (time.perf_counter() - start) / count, losses

    def step(self):
        batch = self.number % len(self.ids)
        micro, total = self.train["micro_batch"], 0.0
        share = micro / self.train["global_batch"]
        for ids, targets in zip(self.ids[batch].split(micro), self.targets[batch].split(micro)):
            if self.graphs:
                torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
                loss = self.loss(ids, targets) * share
            loss.backward()
            total += loss.detach()
        for weight, master in self.rounded:
            master.grad = weight.grad.float()
            weight.grad = weight.grad.zero_() if self.graphs else None
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.masters.values(), self.clip, foreach=True)
        for group in self.optimizer.param_groups:
            group["lr"] = self.description["learning_rates"][self.number]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not self.graphs)
        if self.rounded:
            with torch.no_grad():
                torch._foreach_copy_([weight for weight, _ in self.rounded], [master for _, master in self.rounded])
        self.number += 1
        return total


def resident_bytes():
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1))


def main():
    start_bytes = resident_bytes()  # only the libraries
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--description", required=True)
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--variant", required=True, help="fp32-eager, fp32-compile, fp32-layers, autocast-…, bf16-…, bf16-graphs")
    arguments = parser.parse_args()
    with open(arguments.description, encoding="utf-8") as file:
        description = json.load(file)
    torch.set_num_threads(description["threads"])
    with h5py.File(arguments.inputs) as inputs:
        trainer = Trainer(description, inputs, arguments.variant)
    print(json.dumps({"ready": True, "version": torch.__version__, "start_bytes": start_bytes}), flush=True)
    for line in sys.stdin:
        seconds, losses = trainer.steps(int(line.split()[1]))
        memory = {"device_bytes": torch.cuda.max_memory_allocated()} if trainer.device == "cuda" else {}
        print(json.dumps({"seconds": seconds, "losses": losses} | memory), flush=True)


if __name__ == "__main__":
    main()
