#!/usr/bin/env python3
"""Makes golden/<case>-<seed>.h5: short training runs of a small model, in float64 PyTorch, for the trainer's tests.

Written from formulas alone, sharing no code with the trainer. Matrices are (out, in), y = x W^T, no biases.

  RMSNorm    y = x / sqrt(mean(x^2) + eps) * w                                   Zhang and Sennrich, arXiv 1910.07467
  Shift      y_t = sum_j C[h,j] x_{t-(n-j)}, j = 0..n, before RoPE; rows before the document (or the sample) are zero.
             free: C is the parameter; gate: C = (1-s, s), s = sigmoid(p); clamp: C = min(max(p, 0), 1), with the
             gradient passing where 0 <= p <= 1; project: as free, and AdamW ends with p = min(max(p, 0), 1)
                                                           Xu et al., "KV Shifting Attention Enhances Language Modeling"
  RoPE       (a, b) -> (a cos - b sin, b cos + a sin) with a, b the halves of a head, angle_i = position base^(-2i/d);
             positions restart where attention is cut     Su et al., arXiv 2104.09864, halves as in Hugging Face's Llama
  Attention  softmax(q k^T / sqrt(d)) v, causal, inside one document; query head i uses KV head i / (heads / kv_heads)
  MLP        down(silu(gate x) * up x)                                                     Shazeer, arXiv 2002.05202
  Block      x += out(attention(norm x)); x += mlp(norm x); at the end final norm and head
  Loss       sum of -log softmax(logits)[target] over targets != -1 of the global batch / number of such targets
  Clipping   g *= min(1, clip / (|g| + 1e-6)), |g| over all parameters, a tied weight once
  AdamW      p -= r decay p; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
             p -= r (m / (1-b1^s)) / (sqrt(v / (1-b2^s)) + eps), r = learning_rate min(1, s / warmup), s = 1, 2, ...;
             decay on matrices, embedding and head, shift_weight_decay on shift parameters, none on norms; r of shift
             parameters is multiplied by shift_learning_rate_scale           Loshchilov and Hutter, arXiv 1711.05101
"""
import argparse
import math
from pathlib import Path
from zlib import crc32

import h5py
import numpy as np
import torch
import torch.nn.functional as F

from loop_model import loop_loss

COMMON = dict(layers=2, hidden=24, heads=4, kv_heads=2, head_dim=8, ffn=32, vocab=61, rope_base=100000.0,
              norm_epsilon=1e-5, tie_embeddings=0, query=0, key=1, value=1, form="free", document_reset=1,
              sequence_length=19, global_batch=4, steps=10, learning_rate=5e-3, warmup=4, beta1=0.9, beta2=0.95,
              epsilon=1e-8, weight_decay=0.1, shift_weight_decay=0.0, shift_learning_rate_scale=1.0, clip=1.0)
CASES = {
    "vanilla": dict(key=0, value=0, ffn=40),
    "shift": {},
    "gate": dict(form="gate", clip=2.0),          # above the norm in some steps, below it in others
    "clamp": dict(form="clamp", ffn=29),
    "project": dict(form="project", ffn=36, shift_weight_decay=0.05, shift_learning_rate_scale=20.0),
    "taps": dict(query=1, key=3, value=2, head_dim=10, shift_weight_decay=0.05, shift_learning_rate_scale=0.5),
    "tied": dict(tie_embeddings=1, ffn=40),
    "mha_no_reset": dict(kv_heads=4, document_reset=0, ffn=28),
}
# master weights and optimizer, activations, and what is accumulated (norm statistics, softmax, loss, RoPE, shift)
PRECISIONS = {
    "fp64": (torch.float64, torch.float64, torch.float64),
    "fp32": (torch.float32, torch.float32, torch.float32),
    "bf16": (torch.float32, torch.bfloat16, torch.float32),
}


# ---- inputs ----

def parameter_shapes(c):
    shapes = {"embedding.weight": (c["vocab"], c["hidden"])}
    heads = {"query": c["heads"], "key": c["kv_heads"], "value": c["kv_heads"]}
    for n in range(c["layers"]):
        layer = f"layers.{n}."
        shapes[layer + "attention_norm.weight"] = (c["hidden"],)
        for stream, count in heads.items():
            shapes[layer + f"attention.{stream}.weight"] = (count, c["head_dim"], c["hidden"])
            if c[stream]:
                shapes[layer + f"attention.shift_{stream}"] = (count, 1 if c["form"] == "gate" else c[stream] + 1)
        shapes[layer + "attention.out.weight"] = (c["hidden"], c["heads"], c["head_dim"])
        shapes[layer + "mlp_norm.weight"] = (c["hidden"],)
        shapes[layer + "mlp.gate.weight"] = shapes[layer + "mlp.up.weight"] = (c["ffn"], c["hidden"])
        shapes[layer + "mlp.down.weight"] = (c["hidden"], c["ffn"])
    shapes["final_norm.weight"] = (c["hidden"],)
    if not c["tie_embeddings"]:
        shapes["head.weight"] = (c["vocab"], c["hidden"])
    return shapes


def draw_parameters(c, random):
    initial = {}
    for name, shape in parameter_shapes(c).items():
        if name.endswith("norm.weight"):
            value = 1 + 0.1 * random.standard_normal(shape)
        elif ".shift_" not in name:
            value = 0.15 * random.standard_normal(shape)
        elif c["form"] == "clamp":
            value = random.uniform(-0.3, 1.3, shape)
            value[0] = (0.0, 0.4) if name.endswith("key") else (0.6, 1.0)  # the first head starts on a border
        else:
            value = random.uniform(0.02, 0.98, shape)
            if c["form"] == "gate":
                value = np.log(value / (1 - value))
        initial[name] = value.astype(np.float32)
    return initial


def draw_batches(c, random):
    """Next-token targets; -1 where the next row starts a document. One row past the sample gives its last target."""
    steps, batch, length = c["steps"], c["global_batch"], c["sequence_length"]
    tokens = random.integers(0, c["vocab"], (steps, batch, length + 1))
    starts = random.random((steps, batch, length + 1)) < 0.2
    for step in range(steps):
        bare, dense = random.permutation(batch)[:2]
        starts[step, bare] = False                                 # a sample in which no document starts
        row = random.integers(0, length - 2)
        starts[step, dense, row:row + 3] = True                    # two documents of length 1, one after the other
    targets = np.where(starts[:, :, 1:], -1, tokens[:, :, 1:])
    targets[2, random.integers(0, batch)] = -1                     # a sample without anything to count
    return tokens[:, :, :-1].astype("<i4"), targets.astype("<i4"), starts[:, :, :-1].astype("u1")


def draw_inputs(c, case, seed):
    random = np.random.default_rng([seed, crc32(case.encode())])
    return draw_parameters(c, random), draw_batches(c, random)


# ---- model ----

def rms_norm(c, x, weight, accumulate):
    y = x.to(accumulate)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + c["norm_epsilon"]) * weight.to(accumulate)
    return y.to(x.dtype)


def taps(c, raw):
    if c["form"] == "gate":
        share = torch.sigmoid(raw)
        return torch.cat([1 - share, share], dim=-1)
    if c["form"] == "clamp":      # not raw.clamp(0, 1) alone: torch 2.15 passes no gradient on the borders
        return torch.where((raw >= 0) & (raw <= 1), raw, raw.detach().clamp(0, 1))
    return raw


def shift(coefficients, x, document):
    """x: (batch, time, heads, head_dim); coefficients: (heads, n + 1), oldest row first; document: (batch, time)."""
    y = torch.zeros_like(x)
    for back in range(coefficients.shape[1]):
        rows = x.shape[1] - back
        same = (document[:, back:] == document[:, :rows]).to(x.dtype)[:, :, None, None]
        y = y + F.pad(x[:, :rows] * same, (0, 0, 0, 0, back, 0)) * coefficients[:, -1 - back, None]
    return y


def rope(c, x, position):
    half = c["head_dim"] // 2
    frequency = c["rope_base"] ** (-2 * torch.arange(half, dtype=torch.float64) / c["head_dim"])
    angle = (position[:, :, None] * frequency)[:, :, None]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attention(c, weights, layer, x, document, position, accumulate):
    batch, time, _ = x.shape
    streams = {}
    for stream in ("query", "key", "value"):
        w = weights[f"{layer}attention.{stream}.weight"]
        y = F.linear(x, w.flatten(0, 1)).view(batch, time, w.shape[0], w.shape[1]).to(accumulate)
        if c[stream]:
            y = shift(taps(c, weights[f"{layer}attention.shift_{stream}"]), y, document)
        streams[stream] = (y if stream == "value" else rope(c, y, position)).to(x.dtype)   # rounded once
    query = streams["query"].unflatten(2, (c["kv_heads"], -1))
    scores = torch.einsum("btkgd,bskd->bkgts", query.to(accumulate), streams["key"].to(accumulate))
    causal = torch.ones(time, time, dtype=torch.bool).tril()
    visible = causal & (document[:, :, None] == document[:, None, :])
    scores = (scores / math.sqrt(c["head_dim"])).masked_fill(~visible[:, None, None], -math.inf)
    y = torch.einsum("bkgts,bskd->btkgd", scores.softmax(-1).to(x.dtype), streams["value"])
    return F.linear(y.flatten(2), weights[layer + "attention.out.weight"].flatten(1))


def model_loss(c, weights, ids, targets, starts, accumulate):
    start = starts.long() if c["document_reset"] else torch.zeros_like(starts, dtype=torch.long)
    document = start.cumsum(1)
    row = torch.arange(ids.shape[1]).expand_as(ids)
    position = row - (row * start).cummax(1).values
    x = F.embedding(ids, weights["embedding.weight"])
    for n in range(c["layers"]):
        layer = f"layers.{n}."
        y = rms_norm(c, x, weights[layer + "attention_norm.weight"], accumulate)
        x = x + attention(c, weights, layer, y, document, position, accumulate)
        y = rms_norm(c, x, weights[layer + "mlp_norm.weight"], accumulate)
        y = F.silu(F.linear(y, weights[layer + "mlp.gate.weight"])) * F.linear(y, weights[layer + "mlp.up.weight"])
        x = x + F.linear(y, weights[layer + "mlp.down.weight"])
    x = rms_norm(c, x, weights["final_norm.weight"], accumulate)
    head = weights["embedding.weight" if c["tie_embeddings"] else "head.weight"]
    logits = F.linear(x, head).to(accumulate)
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")
    return total / (targets != -1).sum()


# ---- training ----

def loss_and_gradient(c, master, batch, precision):
    _, compute, accumulate = PRECISIONS[precision]
    weights = {name: p.to(accumulate if ".shift_" in name else compute).detach().requires_grad_()
               for name, p in master.items()}
    ids, targets, starts = (torch.from_numpy(a.astype(np.int64)) for a in batch)
    loss = model_loss(c, weights, ids, targets, starts, accumulate)
    loss.backward()
    return loss.item(), {name: w.grad.to(master[name].dtype) for name, w in weights.items()}


def decay_and_scale(c, name):
    if ".shift_" in name:
        return c["shift_weight_decay"], c["shift_learning_rate_scale"]
    return (0.0 if name.endswith("norm.weight") else c["weight_decay"]), 1.0


def adamw(c, step, master, gradient, first, second):
    for name, p in master.items():
        decay, scale = decay_and_scale(c, name)
        rate = scale * c["learning_rate"] * min(1, step / c["warmup"])
        g = gradient[name]
        first[name] = c["beta1"] * first[name] + (1 - c["beta1"]) * g
        second[name] = c["beta2"] * second[name] + (1 - c["beta2"]) * g * g
        mean = first[name] / (1 - c["beta1"] ** step)
        variance = second[name] / (1 - c["beta2"] ** step)
        p = p - rate * decay * p - rate * mean / (variance.sqrt() + c["epsilon"])
        master[name] = p.clamp(0, 1) if c["form"] == "project" and ".shift_" in name else p


def train(c, initial, batches, precision):
    """Returns the losses, the gradient norms, the gradient of the first step and the last weights."""
    master = {name: torch.from_numpy(p).to(PRECISIONS[precision][0]) for name, p in initial.items()}
    first = {name: torch.zeros_like(p) for name, p in master.items()}
    second = {name: torch.zeros_like(p) for name, p in master.items()}
    losses, norms, gradient_of_first_step = [], [], None
    for step, batch in enumerate(zip(*batches), start=1):
        loss, gradient = loss_and_gradient(c, master, batch, precision)
        gradient_of_first_step = gradient_of_first_step or gradient
        norm = torch.stack([g.square().sum() for g in gradient.values()]).sum().sqrt()
        factor = min(1.0, c["clip"] / (norm.item() + 1e-6)) if c["clip"] else 1.0
        adamw(c, step, master, {name: g * factor for name, g in gradient.items()}, first, second)
        losses.append(loss)
        norms.append(norm.item())
    as_double = lambda tensors: {name: t.double().numpy() for name, t in tensors.items()}
    return np.array(losses), np.array(norms), as_double(gradient_of_first_step), as_double(master)


# ---- files ----

def relative_error(value, exact):
    return np.float64(np.linalg.norm(value - exact) / np.linalg.norm(exact))


def write_case(path, c, case, seed):
    initial, batches = draw_inputs(c, case, seed)
    loss, norm, gradient, final = train(c, initial, batches, "fp64")
    contents = dict(zip(("ids", "targets", "document_starts"), batches)) | {"loss": loss, "gradient_norm": norm}
    for group, tensors in (("initial", initial), ("gradient", gradient), ("final", final)):
        contents |= {f"{group}/{name}": tensor for name, tensor in tensors.items()}
    for precision in ("fp32", "bf16"):
        p_loss, p_norm, p_gradient, p_final = train(c, initial, batches, precision)
        error = f"error/{precision}/"
        contents[error + "loss"] = np.abs(p_loss - loss) / loss
        contents[error + "gradient_norm"] = np.abs(p_norm - norm) / norm
        for name, start in initial.items():
            contents[f"{error}gradient/{name}"] = relative_error(p_gradient[name], gradient[name])
            contents[f"{error}final_update/{name}"] = relative_error(p_final[name] - start, final[name] - start)
    with h5py.File(path, "w", libver=("v108", "v108")) as file:
        for key, value in (c | {"case": case, "seed": seed}).items():
            file.attrs[key] = (np.bytes_(value) if isinstance(value, str) else
                               np.array(value, dtype="<i8" if isinstance(value, int) else "<f8"))
        for name, value in contents.items():
            assert np.isfinite(value).all(), name
            file.create_dataset(name, data=value, track_times=False)


# ---- checks ----

def check_gradient(c, case, seed, count=6):
    """The loss against loop_model.py, and the gradient against finite differences of fourth order."""
    initial, batches = draw_inputs(c, case, seed)
    batch = [a[0] for a in batches]
    master = {name: torch.from_numpy(p).double() for name, p in initial.items()}
    loss, gradient = loss_and_gradient(c, master, batch, "fp64")
    loop = abs(loop_loss(c, {name: p.numpy() for name, p in master.items()}, *batch) / loss - 1)
    assert loop < 1e-13, (case, loop)

    ids, targets, starts = (torch.from_numpy(a.astype(np.int64)) for a in batch)
    worst, step = 0.0, 1e-3
    for name, p in master.items():
        flat, exact = p.view(-1), gradient[name].view(-1)
        borders = (flat == 0) | (flat == 1) if c["form"] == "clamp" and ".shift_" in name else flat != flat
        candidates = np.flatnonzero((exact.abs() > 1e-2 * exact.abs().max()) & ~borders)
        for i in [*np.flatnonzero(borders), *np.random.default_rng(seed).permutation(candidates)[:count]]:
            raw = flat[i].item()
            if borders[i]:    # the derivative from inside, at offsets in units of h
                h = step if raw == 0 else -step
                stencil = {0: -25, 1: 48, 2: -36, 3: 16, 4: -3}
            else:
                h, stencil = step, {-2: 1, -1: -8, 1: 8, 2: -1}
            difference = 0.0
            for offset, factor in stencil.items():
                flat[i] = raw + offset * h
                with torch.no_grad():
                    difference += factor * model_loss(c, master, ids, targets, starts, torch.float64).item()
            flat[i] = raw
            error = abs(exact[i].item() / (difference / (12 * h)) - 1)
            assert error < 1e-6, (case, name, i, error)
            worst = max(worst, error)
    print(f"{case}-{seed}: loss against loops {loop:.1e}, worst gradient against finite differences {worst:.1e}")


def check_optimizer(c, case, seed):
    """The explicit clipping and AdamW against torch's own over a whole run."""
    initial, batches = draw_inputs(c, case, seed)
    _, norms, _, final = train(c, initial, batches, "fp64")
    master = {name: torch.from_numpy(p).double().requires_grad_() for name, p in initial.items()}
    groups = [dict(params=[p], weight_decay=decay_and_scale(c, name)[0]) for name, p in master.items()]
    optimizer = torch.optim.AdamW(groups, betas=(c["beta1"], c["beta2"]), eps=c["epsilon"], foreach=False)
    for step, batch in enumerate(zip(*batches), start=1):
        _, gradient = loss_and_gradient(c, {name: p.detach() for name, p in master.items()}, batch, "fp64")
        for group, (name, p) in zip(optimizer.param_groups, master.items()):
            p.grad = gradient[name]
            group["lr"] = decay_and_scale(c, name)[1] * c["learning_rate"] * min(1, step / c["warmup"])
        norm = torch.nn.utils.clip_grad_norm_(master.values(), c["clip"])
        assert abs(norm.item() / norms[step - 1] - 1) < 1e-12
        optimizer.step()
    worst = max(relative_error(p.detach().numpy() - initial[name], final[name] - initial[name])
                for name, p in master.items())
    assert worst < 1e-10, worst
    print(f"{case}-{seed}: clipping and AdamW agree with torch.optim.AdamW to {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description="Makes the golden files; see README.md.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "golden", help="folder (golden/)")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--check", action="store_true", help="check the formulas instead of writing files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    check_optimizer(COMMON | CASES["taps"], "taps", 1)
    for case in arguments.cases:
        for seed in arguments.seeds:
            if arguments.check:
                check_gradient(COMMON | CASES[case], case, seed)
            else:
                write_case(arguments.output / f"{case}-{seed}.h5", COMMON | CASES[case], case, seed)


if __name__ == "__main__":
    main()
