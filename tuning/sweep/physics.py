"""A step's seconds on GPUs that are not here: FLOPs, bytes and traffic over what data sheets give.

``t = max(FLOPs / (peak x utilisation), launches) + masks + loss + exposed traffic + optimizer``,
for one rank. Notable:
- linear layers: 2 FLOPs a parameter and token forward, twice that backward, one forward more with
  checkpointing (https://arxiv.org/abs/2205.05198); our head runs on predicted tokens only, AReaL's
  on all that are padded
- attention: ``4 heads head_dim`` FLOPs a pair of the tiles that are visited forward, 2.5 times that
  backward
- FSDP2 gathers the parameters forward and backward and reduces gradients in fp32, in every
  micro-batch, at best beneath its work; Megatron does so once an update
- tensor parallelism: two all-reduces of the activations a layer forward, two backward, in full view
- AReaL as it is: a dense mask and ``create_block_mask`` for every tree (Megatron: in every layer),
  and a loss that cuts the logits once a node and once a transition, each cut with a whole gradient
  of the logits (measured on AReaL 1.0.4). No GPU has timed these: they are their bytes over the
  bandwidth, the least they can take
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuning.plan.gpus import Gpu
from tuning.plan.plan import TuningPlan

if TYPE_CHECKING:
    from tuning.measure.shares import Share

UTILISATION = (0.25, 0.4, 0.55)
"""Part of the peak that training steps are known to reach: least, middle, most."""

_MEASURED_BAND = 0.1
"""A measured efficiency of attention holds for other trees within so much."""

_BOUND = 3.0
"""What is only bounded from below may take so many times its bound."""

_LAUNCH_S = (2.5e-6, 5e-6, 15e-6)
"""From one kernel to the next where Python launches them one by one: best, as estimated, worst."""

_LAUNCHES = 25  # kernels of a decoder layer forward
_ADAM_BYTES = {"float32": 28, "bfloat16": 16}
"""Read and written per parameter: two moments, master weight, gradient, parameter."""

_REDUCED_BYTES = 4
_WIDTH = {"float32": 4, "bfloat16": 2}
_GRADIENT_PASSES = 4
"""Over the logits' gradient for each cut of them: zeros written; two read and one written to add it
to the sum so far."""


@dataclass(frozen=True)
class Shape:
    """What a step's FLOPs and bytes depend on: a decoder with gated MLPs."""

    layer_parameters: int
    head_parameters: int
    parameters: int
    layers: int
    heads: int
    head_dim: int
    hidden: int

    @classmethod
    def of(cls, model: str) -> Shape:
        """From a preset's or a model's config. Raises ModelNotFound."""
        from kernels.model import resolve_config

        c = resolve_config(model)
        hidden, layers, heads = c.hidden_size, c.num_hidden_layers, c.num_attention_heads
        head_dim = getattr(c, "head_dim", None) or hidden // heads
        kv_heads = getattr(c, "num_key_value_heads", None) or heads
        attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
        in_layers = layers * (attention + 3 * hidden * c.intermediate_size)
        head = c.vocab_size * hidden
        tied = 1 if c.tie_word_embeddings else 2
        return cls(in_layers, head, in_layers + tied * head, layers, heads, head_dim, hidden)


@dataclass(frozen=True)
class Work:
    """One rank's update: what its micro-batches hold in sum.

    tokens: padded; predicted: with logits; area: pairs in the tiles that attention visits
    largest: tokens of a micro-batch at most; trees: whether masks are built
    cuts: of the logits in AReaL's loss; updates: optimizer steps
    """

    tokens: int
    predicted: int
    area: int
    micro_batches: int
    largest: int
    cuts: int = 0
    trees: bool = False
    updates: int = 1

    @classmethod
    def of(cls, share: Share) -> Work:
        counted, trees = share.features, share.n_trees > 0
        return cls(
            tokens=int(counted["padded_tokens"]),
            predicted=share.tree_tokens if trees else int(counted["row_tokens"]),
            area=int(counted["visited_area"]),
            micro_batches=int(counted["micro_batches"]),
            largest=max(one.padded_tokens for one in share.batches),
            # one a node, one for each node after another, one where a row ends: at least two
            cuts=2 * int(counted["nodes"]) if trees else 0,
            trees=trees,
            updates=int(counted["steps"]),
        )


@dataclass(frozen=True)
class StepTime:
    """Seconds: middle, a band over all that is not known, and the step under every scenario.

    scenarios: what differs between caps at its best, as estimated and at its worst, in a fixed
               order, while what caps share (the utilisation) is as estimated
    parts:     seconds by name, as estimated
    """

    low: float
    middle: float
    high: float
    scenarios: tuple[float, ...]
    parts: Mapping[str, float]


@dataclass(frozen=True)
class Physics:
    """A plan's step on a GPU.

    attention: part of the peak that attention was measured to reach there; None: not measured
    """

    gpu: Gpu
    shape: Shape
    plan: TuningPlan
    attention: float | None = None

    def step(self, work: Work) -> StepTime:
        """The seconds of ``work`` on one rank."""
        least, middle, most = UTILISATION
        reached = (most, middle, least)
        if self.attention is not None:
            band = self.attention * _MEASURED_BAND
            reached = (self.attention + band, self.attention, self.attention - band)
        best, usual, worst = zip(reached, _LAUNCH_S, strict=True)
        parts = self._parts(work, middle, usual, 1.0, 0.0)
        scenarios = [
            sum(self._parts(work, middle, *one).values())
            for one in itertools.product((best, worst), (1.0, _BOUND), (0.0, 1.0))
        ]
        ends = [
            sum(self._parts(work, *one).values())
            for one in ((most, best, 1.0, 0.0), (least, worst, _BOUND, 1.0))
        ]
        whole = sum(parts.values())
        return StepTime(ends[0], whole, ends[1], (whole, *scenarios), parts)

    def _parts(
        self,
        work: Work,
        linear: float,
        kernels: tuple[float, float],
        bound: float,
        in_view: float,
    ) -> dict[str, float]:
        """linear: part of the peak; kernels: that of attention, and seconds from one to the next.

        bound: so many times the least that masks and loss can take
        in_view: 0 where traffic hides beneath work, or 1
        """
        attention, launch_s = kernels
        plan, shape, own = self.plan, self.shape, 1 / self.plan.tp_size
        again = int(plan.gradient_checkpointing)
        ours = plan.step_of == "espalier" or (plan.step_of == "areal-espalier" and work.trees)
        heads = work.predicted if ours else work.tokens
        peak = self.gpu.bfloat16_tflops if plan.dtype == "bfloat16" else self.gpu.float32_tflops
        through = shape.layer_parameters * work.tokens + shape.head_parameters * heads
        pairs = 4 * (3.5 + again) * shape.layers * shape.heads * shape.head_dim * work.area
        computed = 2 * (3 + again) * through * own / (peak * 1e12 * linear)
        attended = pairs * own / (peak * 1e12 * attention)
        launched = work.micro_batches * (3 + again) * shape.layers * _LAUNCHES * launch_s
        working = computed + attended
        moved = _ADAM_BYTES[plan.optimizer_dtype] * shape.parameters * own / plan.dp_size
        bandwidth = self.gpu.bandwidth_gbs * 1e9
        return {
            "linear layers": computed,
            "attention": attended,
            "launches": max(launched - working, 0.0),
            "masks": bound * self._mask_bytes(work) / bandwidth,
            "loss": bound * self._loss_bytes(work) / bandwidth,
            "parameters and gradients between ranks": self._shown(work, working, in_view),
            "tensor parallelism": self._tensor_bytes(work) / self._network,
            "optimizer": work.updates * moved / bandwidth,
        }

    @property
    def _network(self) -> float:
        return self.gpu.network_gbs(self.plan.network) * 1e9

    def _shown(self, work: Work, working: float, in_view: float) -> float:
        """Seconds of the ranks' traffic that no work hides: the first layer's is never hidden."""
        plan = self.plan
        traffic = self._state_bytes(work) / self._network
        if plan.engine == "megatron" and plan.step_of != "espalier":
            return traffic
        first = traffic / max(self.shape.layers, 1)
        return max(traffic - working, first) * (1 - in_view) + traffic * in_view

    def _state_bytes(self, work: Work) -> float:
        """Bytes that a rank receives: parameters gathered twice and gradients reduced."""
        plan = self.plan
        others = (plan.dp_size - 1) / plan.dp_size * self.shape.parameters / plan.tp_size
        width = _WIDTH[plan.dtype]
        if plan.engine == "megatron" and plan.step_of != "espalier":
            return work.updates * others * (width + _REDUCED_BYTES)
        return work.micro_batches * others * (2 * width + _REDUCED_BYTES)

    def _tensor_bytes(self, work: Work) -> float:
        """Bytes of the activations' all-reduces, over a ring."""
        plan = self.plan
        ring = 2 * (plan.tp_size - 1) / plan.tp_size
        times = self.shape.layers * (4 + 2 * int(plan.gradient_checkpointing))
        return times * ring * work.tokens * self.shape.hidden * _WIDTH[plan.dtype]

    def _mask_bytes(self, work: Work) -> float:
        """Bytes written for AReaL's masks: one a pair for the dense one, ten beside it."""
        from kernels.memory import BLOCK_MASK_TRANSIENT

        plan = self.plan
        if plan.step_of != "areal" or not work.trees:
            return 0.0
        layers = self.shape.layers * (1 + int(plan.gradient_checkpointing))
        built = layers if plan.engine == "megatron" else 1
        pairs = work.micro_batches * work.largest**2
        return float(pairs * (1 + BLOCK_MASK_TRANSIENT * built))

    def _loss_bytes(self, work: Work) -> float:
        """Bytes of the logits' gradients in AReaL's loss, one for each cut but the first."""
        plan = self.plan
        if plan.step_of != "areal" or not work.trees:
            return 0.0
        vocabulary = self.shape.head_parameters // max(self.shape.hidden, 1)
        cuts = max(work.cuts - work.micro_batches, 0)
        whole = work.largest * vocabulary * _WIDTH[plan.dtype] / plan.tp_size
        return _GRADIENT_PASSES * cuts * whole
