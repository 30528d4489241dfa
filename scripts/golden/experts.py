# SPDX-License-Identifier: Apache-2.0
"""experts.py - mixtures of experts for models.py: transformers' models with each expert as linear
modules of its own, under the names that files on the hub and PEFT's adapters have. transformers 5
keeps all experts of a layer in one tensor; like() proves that both compute the same. Files of
gpt-oss have such tensors too, in MXFP4 (fused())."""

import importlib

import torch
import transformers
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRouter

NAMES = {  # of the block, and of an expert's gate, up and down
    "qwen3_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "olmoe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "mixtral": ("block_sparse_moe", "w1", "w3", "w2"),
    "gpt_oss": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "qwen2_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "qwen3_next": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "qwen3_5_moe_text": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "glm4_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "deepseek_v2": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "ernie4_5_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "glm4_moe_lite": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "gemma4_text": ("experts", "gate_proj", "up_proj", "down_proj"),
    "lfm2_moe": ("feed_forward", "w1", "w3", "w2"),
}
CLASS = {
    "qwen3_moe": transformers.Qwen3MoeForCausalLM,
    "olmoe": transformers.OlmoeForCausalLM,
    "mixtral": transformers.MixtralForCausalLM,
    "gpt_oss": transformers.GptOssForCausalLM,
    "qwen2_moe": transformers.Qwen2MoeForCausalLM,
    "qwen3_next": transformers.Qwen3NextForCausalLM,
    "qwen3_5_moe_text": transformers.Qwen3_5MoeForCausalLM,
    "glm4_moe": transformers.Glm4MoeForCausalLM,
    "deepseek_v2": transformers.DeepseekV2ForCausalLM,
    "ernie4_5_moe": transformers.Ernie4_5_MoeForCausalLM,
    "glm4_moe_lite": transformers.Glm4MoeLiteForCausalLM,
    "gemma4_text": transformers.Gemma4ForCausalLM,
    "lfm2_moe": transformers.Lfm2MoeForCausalLM,
}
GLM = ("glm4_moe", "glm4_moe_lite")


def count(config):
    return getattr(config, "num_local_experts", None) or config.num_experts


class Mlp(torch.nn.Module):
    def __init__(self, h, f):
        super().__init__()
        self.gate_proj = torch.nn.Linear(h, f, bias=False)
        self.up_proj = torch.nn.Linear(h, f, bias=False)
        self.down_proj = torch.nn.Linear(f, h, bias=False)

    def forward(self, x):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(torch.nn.Module):
    """A router and experts; remembers the router's logits."""

    def __init__(self, config, names):
        super().__init__()
        h, n = config.hidden_size, count(config)
        f = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
        self.names, self.k = names, config.num_experts_per_tok
        self.whole = getattr(config, "norm_topk_prob", True)
        self.oss = config.model_type == "gpt_oss"
        self.scores = "router" if self.oss else "gate"
        self.add_module(self.scores, torch.nn.Linear(h, n, bias=self.oss))
        self.glm, self.scale = config.model_type in GLM, 1.0
        self.ernie = config.model_type == "ernie4_5_moe"
        if self.glm:
            self.gate.register_buffer("e_score_correction_bias", torch.zeros(n))
            self.scale = config.routed_scaling_factor
            self.shared_experts = Mlp(h, f * config.n_shared_experts)
        self.lfm2 = config.model_type == "lfm2_moe"
        if self.lfm2:
            self.register_buffer("expert_bias", torch.zeros(n))
            self.scale = config.routed_scaling_factor
        if config.model_type == "deepseek_v2":
            self.scale = config.routed_scaling_factor
            self.shared_experts = Mlp(h, f * config.n_shared_experts)
        if self.ernie:
            self.moe_statics = torch.nn.Module()
            self.moe_statics.register_buffer("e_score_correction_bias", torch.zeros(1, n))
            self.shared_experts = Mlp(h, f * config.moe_num_shared_experts)
        if config.model_type in ("qwen2_moe", "qwen3_5_moe_text", "qwen3_next"):
            self.shared_expert = Mlp(h, config.shared_expert_intermediate_size)
            self.shared_expert_gate = torch.nn.Linear(h, 1, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.Module() for _ in range(n))
        for e in self.experts:
            for name, (i, o) in zip(names, ((h, f), (h, f), (f, h))):
                e.add_module(name, torch.nn.Linear(i, o, bias=self.oss))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        self.logits = getattr(self, self.scores)(x)
        if self.glm:
            scores = torch.sigmoid(self.logits.float())
            gate = getattr(self.gate, "base_layer", self.gate)  # within PEFT's
            chosen = torch.topk(scores + gate.e_score_correction_bias, self.k)[1]
            p = scores.gather(1, chosen)
        elif self.lfm2:
            scores = torch.sigmoid(self.logits.float())
            chosen = torch.topk(scores + self.expert_bias, self.k)[1]
            p = scores.gather(1, chosen)
        elif self.ernie:
            scores = torch.softmax(self.logits.float(), -1)
            chosen = torch.topk(scores + self.moe_statics.e_score_correction_bias, self.k)[1]
            p = scores.gather(1, chosen)
        else:
            p, chosen = torch.topk(torch.softmax(self.logits.float(), -1), self.k)
        if self.whole:
            p = p / (p.sum(-1, keepdim=True) + (1e-6 if self.lfm2 else 0))
        p = p * self.scale
        y = torch.zeros_like(x)
        if hasattr(self, "shared_experts"):
            y = self.shared_experts(x)
        if hasattr(self, "shared_expert"):
            y = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        for i, e in enumerate(self.experts):
            token, k = torch.where(chosen == i)
            if len(token):
                gate, up, down = (getattr(e, n) for n in self.names)
                g, u = gate(x[token]), up(x[token])
                if self.oss:
                    g, u = g.clamp(max=7.0), u.clamp(-7.0, 7.0)
                    out = down((u + 1) * g * torch.sigmoid(1.702 * g))
                else:
                    out = down(torch.nn.functional.silu(g) * u)
                y = y.index_add(0, token, out * p[token, k, None])
        y = y.reshape(shape)
        return (y, p) if self.oss else y


class Call(torch.nn.Module):
    """Calls a block that is a child of the layer under another name."""

    def __init__(self, block):
        super().__init__()
        self.__dict__["block"] = block

    def forward(self, x):
        return self.block(x)


class Side(torch.nn.ModuleList):
    """The experts of Gemma 4, which are beside an MLP and have a router of their own."""

    def __init__(self, config):
        h, f = config.hidden_size, config.moe_intermediate_size
        super().__init__(Mlp(h, f) for _ in range(config.num_experts))

    def forward(self, x, chosen, p):
        y = torch.zeros_like(x)
        for i, e in enumerate(self):
            token, k = torch.where(chosen == i)
            if len(token):
                g = torch.nn.functional.gelu(e.gate_proj(x[token]), approximate="tanh")
                out = e.down_proj(g * e.up_proj(x[token]))
                y = y.index_add(0, token, out * p[token, k, None])
        return y


class SideRouter(Gemma4TextRouter):
    """Remembers its logits."""

    def forward(self, x):
        x = self.norm(x) * self.scale * self.scalar_root_size
        self.logits = self.proj(x)
        p, chosen = torch.topk(torch.softmax(self.logits.float(), -1), self.config.top_k_experts)
        p = p / p.sum(-1, keepdim=True)
        return None, p * self.per_expert_scale[chosen], chosen


def has_experts(config):
    """Gemma 4 has them or not."""
    return config.model_type in NAMES and getattr(config, "enable_moe_block", True)


def unfuse(model):
    name, *names = NAMES[model.config.model_type]
    for layer in model.model.layers if name == "experts" else ():
        layer.experts = Side(model.config)
        layer.router.__class__ = SideRouter
    for layer in model.model.layers:
        inside = "feed_forward" if name == "feed_forward" else "mlp"  # as transformers has it
        if not hasattr(getattr(layer, inside), "experts"):
            continue
        block = Block(model.config, names)
        setattr(layer, inside, block if name == inside else Call(block))
        if name != inside:
            layer.add_module(name, block)
    return model


def blocks(model):
    return [m for m in model.modules() if isinstance(m, (Block, SideRouter))]


def aux_loss(model, logits):
    """The balance loss by the model's own code; logits: a list of those of each layer."""
    c = model.config
    kind = c.model_type.removesuffix("_text")
    code = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    return code.load_balancing_loss_func(tuple(logits), count(c), c.num_experts_per_tok)


def has_aux_loss(model):
    none = (*GLM, "ernie4_5_moe", "deepseek_v2", "gemma4_text", "lfm2_moe")
    return model.config.model_type not in none


def like(model):
    """The same model by transformers alone."""
    kind = model.config.model_type
    plain = CLASS[kind](model.config).to(torch.float32).eval()
    state = dict(model.state_dict())
    if kind == "gpt_oss":
        plain.load_state_dict(fused(state, count(model.config), False))
        return plain
    plain.load_state_dict(stacked(state, model.config))
    return plain


def stacked(state, config):
    """The names and tensors of transformers 5, of which `state` has those of experts as modules."""
    name, gate, up, down = NAMES[config.model_type]
    for i in range(config.num_hidden_layers):
        at = f"model.layers.{i}.{name}."
        if name == "experts":
            take = lambda e, n: state.pop(f"{at}{e}.{n}.weight")
            n = range(config.num_experts)
            state[at + "down_proj"] = torch.stack([take(e, down) for e in n])
            parts = [torch.cat([take(e, gate), take(e, up)]) for e in n]
            state[at + "gate_up_proj"] = torch.stack(parts)
            continue
        if at + "gate.weight" not in state:
            continue
        take = lambda e, n: state.pop(f"{at}experts.{e}.{n}.weight")
        parts = [
            (torch.cat([take(e, gate), take(e, up)]), take(e, down)) for e in range(count(config))
        ]
        to = at if name == "feed_forward" else f"model.layers.{i}.mlp."
        state[to + "gate.weight"] = state.pop(at + "gate.weight")
        statics = "moe_statics.e_score_correction_bias"
        if to + statics in state:
            state[to + "gate." + statics] = state.pop(to + statics)
        state[to + "experts.gate_up_proj"] = torch.stack([p[0] for p in parts])
        state[to + "experts.down_proj"] = torch.stack([p[1] for p in parts])
    return state


# ---- gpt-oss ------------------------------------------------------------------------------------

CODE = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mx(w):
    """Blocks (..., in/32, 16) and scales (..., in/32) of w (..., in) in MXFP4, the number in the
    low nibble first; and w as they give it."""
    parts = w.reshape(*w.shape[:-1], -1, 32)
    scale = torch.floor(torch.log2(parts.abs().amax(-1, keepdim=True))) - 2
    code = (parts / 2**scale)[..., None].sub(CODE).abs().argmin(-1)
    blocks = code[..., ::2] | code[..., 1::2] << 4
    return (
        blocks.to(torch.uint8),
        (scale[..., 0] + 127).to(torch.uint8),
        (CODE[code] * 2**scale).reshape(w.shape),
    )


def round_mx(model):
    """The experts' matrices become numbers that MXFP4 holds exactly."""
    for k, v in model.named_parameters():
        if ".experts." in k and v.ndim == 2:
            v.data = mx(v.data)[2]


def fused(state, n, packed):
    """The names and tensors of gpt-oss, of which `state` has those of its experts as modules."""
    out = {k: v for k, v in state.items() if ".experts." not in k}
    for k in [k for k in state if k.endswith(".experts.0.gate_proj.weight")]:
        at = k.removesuffix("0.gate_proj.weight")
        take = lambda m, p: torch.stack([state[f"{at}{e}.{m}.{p}"] for e in range(n)])
        for name, parts in (
            ("gate_up_proj", ("gate_proj", "up_proj")),
            ("down_proj", ("down_proj",)),
        ):
            w = torch.stack([take(m, "weight") for m in parts], 2).flatten(1, 2)  # (E,out,in)
            out[at + name + "_bias"] = torch.stack([take(m, "bias") for m in parts], 2).flatten(1)
            if packed:
                out[at + name + "_blocks"], out[at + name + "_scales"] = mx(w.float())[:2]
            else:
                out[at + name] = w.transpose(1, 2).contiguous()
    return out
