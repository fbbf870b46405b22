"""A second implementation of make_golden.py's loss, one token after the other: no masks, no batched products.

Each document (or whole sample, without document_reset) is cut out and run by itself, so nothing can cross a boundary.
"""
import numpy as np


def norm(c, x, weight):
    return x / np.sqrt(np.mean(x * x) + c["norm_epsilon"]) * weight


def coefficient(c, raw, back):
    """What multiplies the row `back` tokens ago; raw holds one head's parameters."""
    if c["form"] == "gate":
        share = 1 / (1 + np.exp(-raw[0]))
        return share if back == 0 else 1 - share
    value = raw[len(raw) - 1 - back]
    return min(max(value, 0), 1) if c["form"] == "clamp" else value


def shifted(c, raw, rows, t, previous):
    return sum(coefficient(c, raw, back) * rows[t - back] for back in range(previous + 1) if t - back >= 0)


def rotated(c, x, position):
    half = len(x) // 2
    z = x[:half] + 1j * x[half:]                       # a half pair is a complex number, RoPE turns it
    z = z * np.exp(1j * position * c["rope_base"] ** (-np.arange(half) / half))
    return np.concatenate([z.real, z.imag])


def stream(c, w, layer, name, xs):
    """rows[head][t], shifted but not rotated."""
    heads = []
    for h, matrix in enumerate(w[f"{layer}attention.{name}.weight"]):
        rows = [matrix @ x for x in xs]
        if c[name]:
            raw = w[f"{layer}attention.shift_{name}"][h]
            rows = [shifted(c, raw, rows, t, c[name]) for t in range(len(rows))]
        heads.append(rows)
    return heads


def attention(c, w, layer, xs):
    queries, keys, values = (stream(c, w, layer, name, xs) for name in ("query", "key", "value"))
    out = w[layer + "attention.out.weight"]
    result = []
    for t in range(len(xs)):
        y = np.zeros(c["hidden"])
        for h in range(c["heads"]):
            kv = h // (c["heads"] // c["kv_heads"])
            q = rotated(c, queries[h][t], t)
            scores = [q @ rotated(c, keys[kv][s], s) / np.sqrt(c["head_dim"]) for s in range(t + 1)]
            share = np.exp(scores) / np.sum(np.exp(scores))
            y += out[:, h] @ sum(share[s] * values[kv][s] for s in range(t + 1))
        result.append(y)
    return result


def document_loss(c, w, ids, targets):
    xs = [w["embedding.weight"][i] for i in ids]
    for n in range(c["layers"]):
        layer = f"layers.{n}."
        ys = attention(c, w, layer, [norm(c, x, w[layer + "attention_norm.weight"]) for x in xs])
        xs = [x + y for x, y in zip(xs, ys)]
        for t, x in enumerate(xs):
            y = norm(c, x, w[layer + "mlp_norm.weight"])
            gate = w[layer + "mlp.gate.weight"] @ y
            xs[t] = x + w[layer + "mlp.down.weight"] @ (gate / (1 + np.exp(-gate)) * (w[layer + "mlp.up.weight"] @ y))
    head = w["embedding.weight"] if c["tie_embeddings"] else w["head.weight"]
    total = 0.0
    for x, target in zip(xs, targets):
        if target != -1:
            logits = head @ norm(c, x, w["final_norm.weight"])
            total += np.log(np.sum(np.exp(logits))) - logits[target]
    return total


def loop_loss(c, w, ids, targets, starts):
    total = 0.0
    for sample in range(len(ids)):
        borders = [0, len(ids[sample])]
        if c["document_reset"]:
            borders = sorted(set(borders) | set(np.flatnonzero(starts[sample]).tolist()))
        for begin, end in zip(borders, borders[1:]):
            total += document_loss(c, w, ids[sample][begin:end], targets[sample][begin:end])
    return total / np.sum(targets != -1)
