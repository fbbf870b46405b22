"""The model in float64 numpy, one sequence at a time and without a cache, from a step's tensors in their stored layout; and its AdamW.

Formulas are those of tests/reference/make_golden.py; no code is shared with the trainer or with the module for transformers.
"""
import numpy


def taps(raw, form):
    """[heads, w] as they multiply, oldest first. raw: [heads, w], of a gate [heads, 1]."""
    raw = raw.astype(numpy.float64)
    if form == "gate":
        share = 1 / (1 + numpy.exp(-raw))
        return numpy.concatenate([1 - share, share], axis=1)
    return raw.clip(0, 1) if form == "clamp" else raw  # a projected parameter lies in [0, 1] already


def rms_norm(x, weight, epsilon):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def rotate(x, base):
    tokens, _, head_dim = x.shape
    half = head_dim // 2
    angle = numpy.arange(tokens)[:, None] * float(base) ** (-2 * numpy.arange(half) / head_dim)
    cosine, sine = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return numpy.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def mix(x, coefficients):
    window = coefficients.shape[1]
    y = numpy.zeros_like(x)
    for t in range(x.shape[0]):
        for j in range(window):
            if t - (window - 1 - j) >= 0:
                y[t] += coefficients[:, j, None] * x[t - (window - 1 - j)]
    return y


def attention(weights, layer, config, x):
    streams = {}
    for name in ("query", "key", "value"):
        y = numpy.einsum("ti,hdi->thd", x, weights[f"{layer}.attention.{name}.weight"])
        if config["shift"][name]:
            y = mix(y, taps(weights[f"{layer}.attention.shift_{name}"], config["shift"]["form"]))
        streams[name] = y if name == "value" else rotate(y, config["model"]["rope_base"])
    query, key, value = streams.values()
    group = query.shape[1] // key.shape[1]
    attended = numpy.empty_like(query)
    hidden_from = numpy.triu(numpy.full((len(x), len(x)), -numpy.inf), 1)
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // group].T / numpy.sqrt(query.shape[2]) + hidden_from
        share = numpy.exp(scores - scores.max(1, keepdims=True))
        attended[:, head] = share / share.sum(1, keepdims=True) @ value[:, head // group]
    return numpy.einsum("thd,ohd->to", attended, weights[f"{layer}.attention.out.weight"])


def logits(parameters, config, ids):
    """[tokens, vocab] after each of `ids`; parameters: name -> array, config: section -> key -> value of the run."""
    weights = {name: array.astype(numpy.float64) for name, array in parameters.items()}
    epsilon = config["model"]["norm_epsilon"]
    x = weights["embedding.weight"][numpy.asarray(ids)]
    for number in range(config["model"]["layers"]):
        layer = f"layers.{number}"
        x = x + attention(weights, layer, config, rms_norm(x, weights[f"{layer}.attention_norm.weight"], epsilon))
        y = rms_norm(x, weights[f"{layer}.mlp_norm.weight"], epsilon)
        gate, up = y @ weights[f"{layer}.mlp.gate.weight"].T, y @ weights[f"{layer}.mlp.up.weight"].T
        x = x + (gate / (1 + numpy.exp(-gate)) * up) @ weights[f"{layer}.mlp.down.weight"].T
    x = rms_norm(x, weights["final_norm.weight"], epsilon)
    return x @ weights.get("head.weight", weights["embedding.weight"]).T
