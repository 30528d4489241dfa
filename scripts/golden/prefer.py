#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prefer.py - golden file of the losses of preferences: tests/golden/prefer/expect.safetensors.

Logits of tests/golden/models/llama2 with a LoRA adapter in all linear layers (PyTorch,
transformers, PEFT), without it for the reference; losses by the methods of TRL's trainers
(DPOTrainer.dpo_loss, CPOTrainer.cpo_loss, ORPOTrainer.odds_ratio_loss, KTOTrainer.kto_loss) and
what their get_batch_loss_metrics() makes of them; gradients by autograd, of the mean over the rows.

  <data>.{id,pos,label,start,answer,good}   a microbatch of ROWS rows as in src/data/batch.h, data
                                            being `pairs`, `single`, or `prompts`: pairs in which
                                            the prompts of chosen sequences have labels
  <data>.ref (S) F64                        log-probabilities of the answers without the adapter
  lora_r, lora_alpha; lora.<module>.A, .B
  <case>.loss (1) F64                       mean over the rows
  <case>.reward (2) F64                     mean rewards of chosen and rejected answers
  <case>.grad.<module>.A, .B

Needs: pip install torch transformers==4.53.2 trl==0.19.1 peft accelerate datasets safetensors"""
import os
from types import SimpleNamespace as Bag

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import LlamaForCausalLM
from trl import CPOTrainer, DPOTrainer, KTOTrainer, ORPOTrainer
from trl.trainer.dpo_config import FDivergenceType

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MODEL = os.path.join(TOP, "tests", "golden", "models", "llama2")
OUT = os.path.join(TOP, "tests", "golden", "prefer")
ROWS, R, ALPHA = 3, 3, 6
CPU = Bag(device="cpu", gather_for_metrics=lambda x: x)

torch.manual_seed(5)
torch.set_default_dtype(torch.float32)
base = LlamaForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32)
model = get_peft_model(
    base, LoraConfig(r=R, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
)
out = {"lora_r": torch.tensor([float(R)]), "lora_alpha": torch.tensor([float(ALPHA)])}
adapter = {}
for name, p in model.named_parameters():
    if "lora_" in name:
        p.data = (torch.randn(p.shape) * 0.15).bfloat16().float()
        key = name.replace("base_model.model.", "").replace(".default.weight", "")
        module, which = key.rsplit(".lora_", 1)
        adapter[f"{module}.{which}"] = p
        out[f"lora.{module}.{which}"] = p.data.clone()


def tokens(n):
    return torch.randint(3, 131, (n,)).tolist()


prompts = [tokens(n) for n in (5, 3, 7)]
answers = [(tokens(a), tokens(b)) for a, b in ((6, 4), (2, 9), (1, 5))]
good = [1, 0, 1]
pairs = [(p, a) for p, two in zip(prompts, answers) for a in two]
# KTO: the answer of the row before, of the first row that of the last (_get_kl_dataset)
own = [two[0] for two in answers]
single = [s for i, p in enumerate(prompts) for s in ((p, own[i]), (p, own[i - 1]))]


def write(name, seqs, prompt_labels, flags):
    ids, pos, label, start, answer = [], [], [], [0], []
    for s, (p, a) in enumerate(seqs):
        one = p + a
        answer.append(len(ids) + len(p) - 1)
        first = 0 if prompt_labels and s % 2 == 0 else len(p) - 1
        label += [one[i + 1] if first <= i < len(one) - 1 else -100 for i in range(len(one))]
        ids += one
        pos += range(len(one))
        start.append(len(ids))
    for key, v in (("id", ids), ("pos", pos), ("label", label), ("start", start)):
        out[f"{name}.{key}"] = torch.tensor(v, dtype=torch.int32)
    out[f"{name}.answer"] = torch.tensor(answer, dtype=torch.int32)
    out[f"{name}.good"] = torch.tensor(flags, dtype=torch.int32)


def padded(seqs):
    n = max(len(p) + len(a) for p, a in seqs)
    ids = torch.zeros(len(seqs), n, dtype=torch.long)
    mask = torch.zeros(len(seqs), n, dtype=torch.long)
    labels = torch.full((len(seqs), n), -100)
    for s, (p, a) in enumerate(seqs):
        one = torch.tensor(p + a)
        ids[s, : len(one)] = one
        mask[s, : len(one)] = 1
        labels[s, len(p) : len(one)] = torch.tensor(a)
    return ids, mask, labels


def nll(logits, labels):
    """cross_entropy_loss() of the trainers"""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def forward(seqs):
    ids, mask, labels = padded(seqs)
    logits = model(ids, attention_mask=mask).logits
    total = CPOTrainer.get_batch_logps(logits, labels, average_log_prob=False)
    mean = CPOTrainer.get_batch_logps(logits, labels, average_log_prob=True)
    whole = torch.where(mask == 1, ids, -100)
    return total, mean, nll(logits[::2], labels[::2]), nll(logits[::2], whole[::2])


def store(case, loss, chosen, rejected):
    model.zero_grad()
    loss.backward(retain_graph=True)
    out[f"{case}.loss"] = loss.detach().double().reshape(1)
    out[f"{case}.reward"] = torch.stack([chosen.mean(), rejected.mean()]).detach().double()
    for key, p in adapter.items():
        out[f"{case}.grad.{key}"] = p.grad.clone()
    print(f"{case}: loss {loss.item():.6f}, rewards {chosen.mean():.4f} {rejected.mean():.4f}")


def dpo(case, kind, logps, refs, beta, smoothing=0.0, rpo=None, likelihood=None):
    bag = Bag(accelerator=CPU, reference_free=False, loss_type=kind, beta=beta)
    bag.label_smoothing = smoothing
    bag.f_divergence_type, bag.f_divergence_params = FDivergenceType.REVERSE_KL.value, None
    losses, chosen, rejected = DPOTrainer.dpo_loss(
        bag, logps[::2], logps[1::2], refs[::2], refs[1::2]
    )
    store(case, (losses + rpo * likelihood if rpo else losses).mean(), chosen, rejected)


write("pairs", pairs, False, [1] * ROWS)
write("prompts", pairs, True, [1] * ROWS)
write("single", single, False, good)
with torch.no_grad(), model.disable_adapter():
    ref, ref_mean, _, _ = forward(pairs)
    ref_single, _, _, _ = forward(single)
out["pairs.ref"], out["prompts.ref"] = ref.double(), ref.double()
out["single.ref"] = ref_single.double()

total, mean, of_answers, of_all = forward(pairs)
dpo("dpo", "sigmoid", total, ref, 0.1)
dpo("dpo-rpo", "sigmoid", total, ref, 0.3, 0.1, 0.7, of_answers)
dpo("ipo", "ipo", mean, ref_mean, 0.2)

bag = Bag(accelerator=CPU, beta=2.0, loss_type="simpo", simpo_gamma=0.5, label_smoothing=0)
losses, chosen, rejected = CPOTrainer.cpo_loss(bag, mean[::2], mean[1::2])
store("simpo", losses.mean() + 0.3 * of_answers, chosen, rejected)

losses, chosen, rejected, _, _ = ORPOTrainer.odds_ratio_loss(
    Bag(accelerator=CPU, beta=0.25), mean[::2], mean[1::2]
)
store("orpo", of_all - losses.mean(), chosen, rejected)

total, _, _, _ = forward(single)
for case, shift in (("kto", 0.0), ("kto-zero", -10.0)):
    # `shift` moves the reference of the mismatched answers, so that the baseline is 0
    refs = ref_single.clone()
    refs[1::2] -= shift
    out[f"{case}.ref"] = refs.double()
    flags = torch.tensor(good).bool()
    bag = Bag(accelerator=CPU, calculate_KL=True, loss_type="kto", beta=0.4)
    bag.desirable_weight, bag.undesirable_weight = 1.0, 1.5
    losses, chosen, rejected, kl = KTOTrainer.kto_loss(
        bag,
        total[::2][flags],
        total[::2][~flags],
        total[1::2],
        refs[::2][flags],
        refs[::2][~flags],
        refs[1::2],
    )
    print(f"baseline {kl.item():.4f}")
    store(case, losses.nanmean(), chosen, rejected)

os.makedirs(OUT, exist_ok=True)
save_file({k: v.contiguous() for k, v in out.items()}, os.path.join(OUT, "expect.safetensors"))
