# SPDX-License-Identifier: Apache-2.0
"""Llama with KV shifting attention for Hugging Face transformers 5 (TESTED, below): configuration, cache and model in one file.

    model = AutoModelForCausalLM.from_pretrained(DIRECTORY, trust_remote_code=True)

Each head mixes its rows with those of the previous tokens before RoPE ("KV Shifting Attention Enhances Language Modeling"):
y[t] = sum over j of taps[head, j] * x[t - (w - 1 - j)], taps oldest first, rows before the sequence are zero.
conv_k and conv_v, [1, 1, kv_heads, 1, w], hold the taps of keys and values, conv_q, [1, 1, heads, 1, w], those of queries; w is
shift_k + 1, shift_v + 1, shift_q + 1; a stream with a shift of 0 has none. Norms, mixing with RoPE, and SwiGLU are computed in
fp32 (in fp64 models: fp64) and rounded once, as the trainer does. In the text, b = batch, h = heads, t = tokens, d = head_dim.
"""
import inspect
import warnings

import torch
import transformers
from packaging import version
from torch import nn

TESTED = ("5.23.0", "5.24.0")  # releases of transformers, oldest first, with which generation was compared with recomputation


def check_release(found):
    """ImportError under a release that is older than those; a warning under one whose minor number is newer."""
    if version.parse(found) < version.parse(TESTED[0]):
        raise ImportError(f"transformers {found} is older than {TESTED[0]}, the first that this model's code was tested with: "
                          f"pip install transformers=={TESTED[-1]}")
    if version.parse(found).release[:2] > version.parse(TESTED[-1]).release[:2]:
        warnings.warn(f"this model's code was tested with transformers {', '.join(TESTED)}, not with {found}: compare generate(...) "
                      f"with generate(..., use_cache=False), or pip install transformers=={TESTED[-1]}", stacklevel=2)


check_release(transformers.__version__)  # before imports that only some releases have

from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, StaticLayer
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import can_return_tuple

CACHE_NAMES = ("cache", "past_key_values")  # since 5.24, and before; callers may use either
CACHE = next((name for name in CACHE_NAMES if name in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters), None)
if CACHE is None:
    raise ImportError(f"transformers {transformers.__version__} has a name for the cache that this model's code does not know: "
                      f"pip install transformers=={TESTED[-1]}")
BORDERS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")  # of packed texts, for flash attention


def rope_theta_of(rope_theta, stated):
    """RoPE's base: rope_theta unless `stated` has one in rope_parameters, as transformers 5 writes it; ValueError for other rotations."""
    ropes = [(key, stated.pop(key)) for key in ("rope_scaling", "rope_parameters") if stated.get(key)]
    if len(ropes) == 2 and ropes[0][1] != ropes[1][1]:
        raise ValueError(f"config.json: rope_scaling is {ropes[0][1]!r}, rope_parameters {ropes[1][1]!r}: keep the one that is meant")
    for key, rope in [*ropes, ("", stated)]:
        kind, part = rope.get("rope_type", rope.get("type", "default")), rope.get("partial_rotary_factor")
        if key and kind != "default":
            raise ValueError(f"config.json: {key} has rope_type {kind!r}; this model's code rotates by rope_theta alone, without scaling")
        if part not in (None, 1):
            raise ValueError(f"config.json: {key and key + '.'}partial_rotary_factor is {part!r}; this model's code rotates whole heads")
        if key and rope.get("rope_theta") is not None:
            rope_theta = rope["rope_theta"]
    return rope_theta


class KVShiftLlamaConfig(PreTrainedConfig):
    """Llama's keys, and shift_q, shift_k, shift_v: how many previous tokens are mixed into queries, keys and values."""

    model_type = "kv_shift_llama"
    keys_to_ignore_at_inference = list(CACHE_NAMES)

    def __init__(self, vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=24, num_attention_heads=16,
                 num_key_value_heads=None, head_dim=None, max_position_embeddings=4096, rope_theta=100000.0, rms_norm_eps=1e-5,
                 initializer_range=0.02, tie_word_embeddings=False, use_cache=True, shift_q=0, shift_k=1, shift_v=1,
                 conv_window=None, hidden_act="silu", attention_bias=False, mlp_bias=False, shift_residual=False,
                 shift_activation=None, norm_head=False, bos_token_id=None, eos_token_id=None, pad_token_id=None, **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads or num_attention_heads
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.rope_theta = rope_theta_of(rope_theta, kwargs)
        self.rms_norm_eps = rms_norm_eps
        self.initializer_range = initializer_range
        self.use_cache = use_cache
        self.shift_q, self.shift_k, self.shift_v = shift_q, shift_k, shift_v
        self.conv_window = conv_window or 1 + max(shift_q, shift_k, shift_v)
        self.hidden_act, self.attention_bias, self.mlp_bias = hidden_act, attention_bias, mlp_bias
        self.shift_residual, self.shift_activation, self.norm_head = shift_residual, shift_activation, norm_head
        for key, value in dict(hidden_act="silu", attention_bias=False, mlp_bias=False, shift_residual=False,
                               shift_activation=None, norm_head=False).items():
            if getattr(self, key) != value:
                raise ValueError(f"config.json: {key} is {getattr(self, key)!r}; this model's code has only {value!r}")
        if self.num_attention_heads % self.num_key_value_heads or self.head_dim % 2:
            raise ValueError(f"config.json: num_attention_heads {num_attention_heads} must be a multiple of num_key_value_heads "
                             f"{self.num_key_value_heads}, and head_dim {self.head_dim} must be even")
        super().__init__(tie_word_embeddings=tie_word_embeddings, bos_token_id=bos_token_id, eos_token_id=eos_token_id,
                         pad_token_id=pad_token_id, **kwargs)


class KVShiftCacheLayer(DynamicLayer):
    """Shifted, rotated keys and shifted values, and of each stream that is shifted the last raw rows, [b, h, rows, d]."""

    def __init__(self, **kwargs):
        super().__init__()
        self.raw = {}  # stream -> rows; all since activate_past_recording or the last crop, else only those that mixing needs
        self.previous = {}  # stream -> how many mixing needs
        self.record_past = False

    def extend(self, stream, rows, previous):
        """Takes new raw rows [b, h, t, d] and returns them behind the `previous` rows in front of them."""
        tokens = rows.shape[-2]
        if stream not in self.raw:
            self.raw[stream] = rows.new_zeros(*rows.shape[:-2], previous, rows.shape[-1])
            self.previous[stream] = previous
        rows = torch.cat([self.raw[stream], rows], dim=-2)
        self.raw[stream] = rows if self.record_past else rows[..., -previous:, :].clone()
        return rows[..., -(previous + tokens):, :]

    def activate_past_recording(self):
        self.record_past = True

    def crop(self, tokens_to_remove):
        for stream, rows in self.raw.items():  # before anything is changed
            recorded = rows.shape[-2] - self.previous[stream]
            if recorded + tokens_to_remove < 0:
                raise ValueError(f"the cache cannot give up {-tokens_to_remove} tokens: only {recorded} raw rows were "
                                 "recorded; call activate_past_recording() on the cache before those tokens")
        super().crop(tokens_to_remove)
        for stream, rows in self.raw.items():
            kept, needed = rows.shape[-2] + tokens_to_remove, self.previous[stream]
            self.raw[stream] = rows[..., kept - needed:kept, :].clone()

    def reset(self):
        super().reset()
        self.raw.clear()
        self.previous.clear()

    def _replace_raw(self, change):
        for stream, rows in self.raw.items():
            self.raw[stream] = change(rows)

    def reorder_cache(self, beam_idx):
        super().reorder_cache(beam_idx)
        self._replace_raw(lambda rows: rows.index_select(0, beam_idx.to(rows.device)))

    def batch_repeat_interleave(self, repeats):
        super().batch_repeat_interleave(repeats)
        self._replace_raw(lambda rows: rows.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices):
        super().batch_select_indices(indices)
        self._replace_raw(lambda rows: rows[indices, ...])

    def offload(self):
        super().offload()
        self._replace_raw(lambda rows: rows.to("cpu", non_blocking=True))

    def prefetch(self):
        super().prefetch()
        if self.is_initialized:
            self._replace_raw(lambda rows: rows.to(self.device, non_blocking=True))


def given_cache(cache, past_key_values):
    """The one that was given of the two, which are names of the same; None if neither."""
    if cache is not None and past_key_values is not None and cache is not past_key_values:
        raise TypeError("cache and past_key_values are two names of the same: give one of them")
    return past_key_values if cache is None else cache


def refuse_unknown(keywords, known):
    """A keyword that was swallowed could change what the caller means; one that is None says nothing."""
    for name, value in keywords.items():
        if name not in known and value is not None:
            raise TypeError(f"forward() got an unexpected keyword argument {name!r}, which this model's code does not compute "
                            f"(transformers {transformers.__version__}; tested with {', '.join(TESTED)})")


def keep_raw_rows(cache, layers):
    """Gives a cache that is still empty layers that keep raw rows, whoever made it."""
    if not isinstance(cache, Cache):
        raise TypeError(f"{CACHE} is a {type(cache).__name__}; give a Cache, for example DynamicCache()")
    while len(cache.layers) < layers:
        cache.layers.append(KVShiftCacheLayer())
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, KVShiftCacheLayer):
            continue
        if type(layer) is not DynamicLayer and not isinstance(layer, StaticLayer):
            raise TypeError(f"the cache holds a {type(layer).__name__}, which cannot keep the raw rows of KV shift; use DynamicCache()")
        if layer.get_seq_length() > 0:
            raise ValueError("the cache was filled by another model: it lacks the raw rows of KV shift; begin with an empty one")
        cache.layers[index] = KVShiftCacheLayer()
    return cache


def accumulation(x):
    return torch.promote_types(x.dtype, torch.float32)


class KVShiftRMSNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        y = x.to(accumulation(x))
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.epsilon)
        return (y * self.weight.to(y.dtype)).to(x.dtype)


def rope_table(positions, head_dim, base, dtype):
    """Cosines and sines [b, 1, t, d / 2], computed in fp64."""
    wide = positions.cpu() if positions.device.type == "mps" else positions  # mps has no fp64
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64, device=wide.device) / head_dim
    angle = (wide[..., None].to(torch.float64) * base**-exponent)[:, None]
    return angle.cos().to(dtype).to(positions.device), angle.sin().to(dtype).to(positions.device)


def rotate(x, table):
    cosine, sine = table
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def mix(rows, taps, positions):
    """rows [b, h, w - 1 + t, d] → [b, h, t, d] in the accumulation type; no row reaches over the start of its text."""
    window, tokens = taps.shape[-1], positions.shape[-1]
    dtype = accumulation(rows)
    taps = taps.to(dtype).view(-1, 1, 1, window)  # [h, 1, 1, w]
    mixed = 0
    for j in range(window):
        lag = window - 1 - j
        part = rows[..., j:j + tokens, :].to(dtype)
        if lag > 0:
            part = part.masked_fill((positions < lag)[:, None, :, None], 0)
        mixed = mixed + taps[..., j] * part
    return mixed


def eager_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    scores = torch.matmul(query, key.transpose(2, 3)).to(accumulation(query)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask[..., :key.shape[-2]]
    weights = nn.functional.dropout(scores.softmax(-1).to(query.dtype), p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class KVShiftAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx, self.head_dim = config, layer_idx, config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.is_causal = True
        query, key_value = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(config.hidden_size, query * self.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, key_value * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, key_value * self.head_dim, bias=False)
        self.o_proj = nn.Linear(query * self.head_dim, config.hidden_size, bias=False)
        for stream, heads in dict(q=query, k=key_value, v=key_value).items():
            previous = getattr(config, f"shift_{stream}")
            taps = nn.Parameter(torch.zeros(1, 1, heads, 1, previous + 1, dtype=torch.float32)) if previous > 0 else None
            self.register_parameter(f"conv_{stream}", taps)

    def stream(self, name, x, positions, real, layer, table=None):
        """Rows of the stream [b, h, t, d]: projected, mixed with those of the previous tokens, rotated, rounded."""
        rows = getattr(self, f"{name}_proj")(x)
        rows = rows.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)
        mixed, taps = rows, getattr(self, f"conv_{name}")
        if taps is not None:
            previous = taps.shape[-1] - 1
            if real is not None:
                rows = rows.masked_fill(~real[:, None, :, None], 0)
            if layer is None:
                rows = nn.functional.pad(rows, (0, 0, previous, 0))
            else:
                rows = layer.extend(name, rows, previous)
            mixed = mix(rows, taps, positions)
        if table is not None:
            mixed = rotate(mixed.to(table[0].dtype), table)
        return mixed.to(rows.dtype)

    def forward(self, x, positions, table, attention_mask=None, real=None, kept=None, **borders):
        layer = None if kept is None else kept.layers[self.layer_idx]
        query = self.stream("q", x, positions, real, layer, table)
        key = self.stream("k", x, positions, real, layer, table)
        value = self.stream("v", x, positions, real, layer)
        if kept is not None:
            key, value = kept.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        attended, _ = attend(self, query, key, value, attention_mask, dropout=0.0, scaling=self.head_dim**-0.5,
                             position_ids=positions, **borders)
        return self.o_proj(attended.reshape(*x.shape[:-1], -1))


class KVShiftMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        gate, up = self.gate_proj(x), self.up_proj(x)
        wide = accumulation(gate)
        return self.down_proj((nn.functional.silu(gate.to(wide)) * up.to(wide)).to(gate.dtype))


class KVShiftDecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.input_layernorm = KVShiftRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = KVShiftAttention(config, layer_idx)
        self.post_attention_layernorm = KVShiftRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = KVShiftMLP(config)

    def forward(self, x, **kwargs):
        x = x + self.self_attn(self.input_layernorm(x), **kwargs)
        return x + self.mlp(self.post_attention_layernorm(x))


class KVShiftLlamaPreTrainedModel(PreTrainedModel):
    config_class = KVShiftLlamaConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["KVShiftDecoderLayer"]
    _skip_keys_device_placement = [*CACHE_NAMES, "kept"]
    _keep_in_fp32_modules_strict = ["conv_q", "conv_k", "conv_v"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _supports_context_parallel = False  # the rows in front of a rank's part lie on another rank

    def _init_weights(self, module):
        super()._init_weights(module)  # matrices, embeddings, norms
        if isinstance(module, KVShiftAttention):
            for taps in (module.conv_q, module.conv_k, module.conv_v):
                if taps is not None:  # shares of U(0, 1); the oldest row gets the rest of 1
                    shares = torch.rand_like(taps)
                    shares[..., 0] = 1 - shares[..., 1:].sum(-1)
                    init.copy_(taps, shares)


class KVShiftLlamaModel(KVShiftLlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([KVShiftDecoderLayer(config, index) for index in range(config.num_hidden_layers)])
        self.norm = KVShiftRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
                use_cache=None, output_hidden_states=None, output_attentions=None, cache=None, **borders):
        refuse_unknown(borders, BORDERS)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        if output_attentions:
            raise ValueError("output_attentions is not supported by this model's code")
        if position_ids is None and any(value is not None for value in borders.values()):
            raise ValueError(f"{', '.join(BORDERS)} say nothing to the shift: give position_ids that begin at 0 in each text too")
        cache = self.cache_of_this_call(given_cache(cache, past_key_values), use_cache)
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        tokens = x.shape[1]
        if position_ids is None:
            start = 0 if cache is None else cache.get_seq_length()
            position_ids = torch.arange(start, start + tokens, device=x.device)[None]
        mask = create_causal_mask(self.config, x, attention_mask, cache, position_ids)  # positional: names differ between releases
        real = None  # [b, t]: rows that are text, where a mask tells them from padding
        if attention_mask is not None and attention_mask.dim() == 2:
            real = attention_mask[:, -tokens:].to(torch.bool)
        table = rope_table(position_ids, self.config.head_dim, self.config.rope_theta, accumulation(x))
        hidden_states = [x]
        for layer in self.layers:
            # Not under a name that GradientCheckpointingLayer knows: it would take the cache away, without its rows.
            x = layer(x, positions=position_ids, table=table, attention_mask=mask, real=real, kept=cache, **borders)
            hidden_states.append(x)
        hidden_states[-1] = x = self.norm(x)
        return BaseModelOutputWithPast(last_hidden_state=x, hidden_states=tuple(hidden_states) if output_hidden_states else None,
                                       **{CACHE: cache})

    def cache_of_this_call(self, cache, use_cache):
        """The cache that was given, or an empty one, or None; with layers that keep raw rows."""
        computed_twice = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        if computed_twice and (cache is not None or use_cache):
            raise ValueError("with gradient checkpointing layers are computed twice, and a cache would take their rows twice: "
                             "leave out the cache and use_cache")
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if cache is None and use_cache:
            cache = DynamicCache(config=self.config)
        return None if cache is None else keep_raw_rows(cache, len(self.layers))


class KVShiftLlamaForCausalLM(KVShiftLlamaPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = KVShiftLlamaModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *arguments, **keywords):
        # Here and not only in forward: what generate asks the cache before the first forward must reach our layers.
        given = given_cache(*(model_kwargs.pop(name, None) for name in CACHE_NAMES))
        if given is not None:
            if generation_config.use_cache is False:
                raise ValueError("generate was given a cache and use_cache=False: every step would add all tokens to it again")
            model_kwargs[CACHE] = given
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *arguments, **keywords)
        cache = model_kwargs.get(CACHE)
        if cache is not None:
            keep_raw_rows(cache, self.config.num_hidden_layers)
            if generation_config.is_assistant:  # asked of the layers that are gone
                cache.activate_past_recording()

    def init_continuous_batching(self, *arguments, **keywords):
        raise NotImplementedError("continuous batching keeps keys and values in pages, without the raw rows of KV shift: use generate()")

    @can_return_tuple
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
                labels=None, use_cache=None, logits_to_keep=0, cache=None, output_hidden_states=None, output_attentions=None,
                **kwargs):
        of_loss = {name: kwargs.pop(name) for name in ("num_items_in_batch",) if name in kwargs}  # Trainer's
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                             inputs_embeds=inputs_embeds, use_cache=use_cache, output_hidden_states=output_hidden_states,
                             output_attentions=output_attentions, cache=given_cache(cache, past_key_values), return_dict=True, **kwargs)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep  # 0: all
        logits = self.lm_head(outputs.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **of_loss)
        return CausalLMOutputWithPast(loss=loss, logits=logits, hidden_states=outputs.hidden_states,
                                      **{CACHE: getattr(outputs, CACHE)})
