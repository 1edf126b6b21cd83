"""What AReaL's config classes refuse because two of their fields do not go together.

A check holds in every version whose class has the fields it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tuning.areal.config import UNKNOWN
from tuning.areal.parser import sections
from tuning.areal.schema import table
from tuning.doctor.rules.base import Case, Found, rule, set_to

_Values = Mapping[str, Any]


class _Joined(NamedTuple):
    """One refusal: of which fields (the first is blamed), when, and its mend.

    problem, says: formatted with the values of the fields
    fix:           the value of each field that mends it
    """

    fields: tuple[str, ...]
    wrong: Callable[[_Values], bool]
    problem: str
    says: str
    fix: Mapping[str, Any]


def _shared_seed(name: str) -> Callable[[_Values], bool]:
    def wrong(v: _Values) -> bool:
        own = v[name] if v[name] is not None else v["gconfig"]
        samples = own["n_samples"] > 1 and own["seed"] is not None
        return bool(v["rollout"]["deterministic_sampling"] and samples)

    return wrong


_HEAD = "lm_head_loss_chunk_size"
_TRAINED = (
    _Joined(
        ("init_from_scratch", "fsdp"),
        lambda v: v["init_from_scratch"] and v["fsdp"]["memory_efficient_load"],
        "fsdp.memory_efficient_load loads weights, and init_from_scratch loads none.",
        "memory_efficient_load cannot be used with init_from_scratch=True.",
        {"fsdp.memory_efficient_load": False},
    ),
    _Joined(
        ("dta_block_size", "tree_training_mode"),
        lambda v: (
            v["tree_training_mode"] == "dta"
            and (v["dta_block_size"] == 0 or v["dta_block_size"] < -1)
        ),
        "dta_block_size is {dta_block_size}.",
        "dta_block_size must be -1 or a positive integer when tree_training_mode='dta', got "
        "{dta_block_size}.",
        {"dta_block_size": 2048},
    ),
)
JOINED: dict[str, tuple[_Joined, ...]] = {
    **dict.fromkeys(("TrainEngineConfig", "PPOCriticConfig", "DPOEngineConfig"), _TRAINED),
    "NormConfig": (
        _Joined(
            ("group_size", "mean_level", "std_level"),
            lambda v: "group" in (v["mean_level"], v["std_level"]) and v["group_size"] < 1,
            "group_size is {group_size} in a norm over groups.",
            "group_size must be a positive integer when using group normalization, got "
            "{group_size}",
            {"group_size": 1},
        ),
    ),
    "ArchonFP8Config": (
        _Joined(
            ("use_triton", "mode"),
            lambda v: v["mode"] != "disabled" and not v["use_triton"],
            "FP8 needs Triton, and use_triton is false.",
            "fp8_config.use_triton must be True when FP8 is enabled.",
            {"use_triton": True},
        ),
    ),
    "MegatronEngineConfig": (
        _Joined(
            (_HEAD, "enable_chunked_logits"),
            lambda v: v[_HEAD] > 0 and not v["enable_chunked_logits"],
            "The chunked head is set to {lm_head_loss_chunk_size}, and enable_chunked_logits is "
            "false.",
            "lm_head_loss_chunk_size requires enable_chunked_logits=True",
            {_HEAD: 0},
        ),
        _Joined(
            (_HEAD, "entropy_requires_grad"),
            lambda v: v[_HEAD] > 0 and v["entropy_requires_grad"],
            "The chunked head has no gradient of the entropy.",
            "lm_head_loss_chunk_size requires entropy_requires_grad=False",
            {_HEAD: 0},
        ),
        _Joined(
            (_HEAD, "enable_mtp"),
            lambda v: v[_HEAD] > 0 and v["enable_mtp"],
            "The chunked head does not serve multi-token prediction.",
            "lm_head_loss_chunk_size does not support enable_mtp=True",
            {_HEAD: 0},
        ),
    ),
    "RejectionSamplingConfig": (
        _Joined(
            ("lower", "upper"),
            lambda v: v["lower"] is not None and v["lower"] > v["upper"],
            "lower ({lower}) is above upper ({upper}).",
            "lower ({lower}) cannot be greater than upper ({upper})",
            {"lower": None},
        ),
        _Joined(
            ("upper", "metric"),
            lambda v: v["metric"] == "ratio" and v["upper"] <= 1,
            "upper is {upper}: a ratio of at most that keeps no token that changed.",
            "upper must be > 1.0 for 'ratio' metric (otherwise all non-identical policy tokens "
            "will be filtered), got {upper}",
            {"upper": 5.0},
        ),
        _Joined(
            ("lower", "metric"),
            lambda v: v["metric"] == "ratio" and v["lower"] is not None and v["lower"] <= 0,
            "lower is {lower}; a ratio is above 0.",
            "lower must be positive for 'ratio' metric, got {lower}",
            {"lower": None},
        ),
        _Joined(
            ("upper", "metric"),
            lambda v: v["metric"] in ("kl_k2", "kl_k3") and v["upper"] <= 0,
            "upper is {upper}; {metric} is above 0.",
            "upper must be positive for '{metric}' metric, got {upper}",
            {"upper": 5.0},
        ),
        _Joined(
            ("action", "metric"),
            lambda v: v["action"] == "clamp" and v["metric"] != "ratio",
            "action is clamp, which only a ratio can be; metric is {metric}.",
            "action='clamp' only supports metric='ratio' (direct importance weight truncation).",
            {"action": "mask"},
        ),
    ),
    "PPOActorConfig": (
        *_TRAINED,
        _Joined(
            ("use_sapo_loss", "sapo_tau_pos", "sapo_tau_neg"),
            lambda v: v["use_sapo_loss"] and min(v["sapo_tau_pos"], v["sapo_tau_neg"]) <= 0,
            "SAPO's temperatures are {sapo_tau_pos} and {sapo_tau_neg}; both must be above 0.",
            "SAPO temperatures (sapo_tau_pos, sapo_tau_neg) must be positive.",
            {"sapo_tau_pos": 1.0, "sapo_tau_neg": 1.05},
        ),
        _Joined(
            ("use_sapo_loss", "use_decoupled_loss"),
            lambda v: v["use_sapo_loss"] and v["use_decoupled_loss"],
            "SAPO and use_decoupled_loss exclude each other.",
            "SAPO is not compatible with `use_decoupled_loss=True`.",
            {"use_decoupled_loss": False},
        ),
        _Joined(
            ("use_cispo_loss", "use_sapo_loss"),
            lambda v: v["use_cispo_loss"] and v["use_sapo_loss"],
            "CISPO and SAPO exclude each other.",
            "CISPO and SAPO are mutually exclusive surrogates.",
            {"use_sapo_loss": False},
        ),
        _Joined(
            ("use_cispo_loss", "eps_clip_higher"),
            lambda v: v["use_cispo_loss"] and not (v["eps_clip_higher"] or 0) > 0,
            "CISPO clips from above only, and eps_clip_higher is {eps_clip_higher}.",
            "CISPO requires a positive eps_clip_higher",
            {"eps_clip_higher": 0.28},
        ),
        _Joined(
            ("use_cispo_loss", "importance_sampling_level"),
            lambda v: v["use_cispo_loss"] and v["importance_sampling_level"] != "token",
            "CISPO works on tokens, and importance_sampling_level is {importance_sampling_level}.",
            "CISPO only supports importance_sampling_level='token'.",
            {"importance_sampling_level": "token"},
        ),
        _Joined(
            ("enable_delta_weight_update", "ppo_n_minibatches"),
            lambda v: (
                v["enable_delta_weight_update"]
                and v["ppo_n_minibatches"] != 1
                and not (v["prox_logp_method"] == "reuse_train_logp" and v["ppo_n_minibatches"] > 1)
            ),
            "The delta weight update takes one optimizer step, and ppo_n_minibatches is "
            "{ppo_n_minibatches}.",
            "actor.enable_delta_weight_update=true currently requires ppo_n_minibatches=1",
            {"ppo_n_minibatches": 1},
        ),
        *(
            _Joined(
                (norm, "packing_algorithm"),
                lambda v, norm=norm: (  # type: ignore[misc]
                    v["packing_algorithm"] == "dta"
                    and v[norm] is not None
                    and "group" in (v[norm]["mean_level"], v[norm]["std_level"])
                ),
                f"{norm} is over groups, which packing_algorithm dta takes apart.",
                f"{norm} uses 'group' level normalization, which is incompatible with "
                "packing_algorithm='dta'.",
                {"packing_algorithm": "ffd"},
            )
            for norm in ("adv_norm", "reward_norm")
        ),
    ),
    "TeacherConfig": (
        *(
            _Joined(
                ("engine_type", kind),
                lambda v, kind=kind: v["engine_type"] == kind and v[kind] is None,  # type: ignore[misc]
                f"The teacher's engine_type is {kind}, and teacher.{kind} is not there.",
                f"teacher.{kind} must be provided when teacher.engine_type='{kind}'.",
                {},
            )
            for kind in ("rollout", "train")
        ),
    ),
    "RWConfig": (
        _Joined(
            ("actor",),
            lambda v: not v["actor"]["is_critic"],
            "A reward model is a critic, and actor.is_critic is false.",
            "RWConfig requires actor.is_critic=True for reward modeling.",
            {"actor.is_critic": True},
        ),
    ),
    "DPOConfig": (
        _Joined(
            ("actor",),
            lambda v: v["actor"]["is_critic"],
            "DPO trains a language model, and actor.is_critic is true.",
            "DPOConfig requires a language model (is_critic=False).",
            {"actor.is_critic": False},
        ),
    ),
    "PPOConfig": (
        *(
            _Joined(
                (name, "rollout"),
                _shared_seed(name),
                f"Deterministic sampling with one seed in {name} gives every sample of a prompt "
                "the same answer.",
                f"deterministic_sampling with grouped rollouts cannot use a shared {name}.seed",
                {f"{name}.seed": None},
            )
            for name in ("gconfig", "eval_gconfig")
        ),
        _Joined(
            ("gconfig", "actor"),
            lambda v: (
                v["gconfig"]["reward_normalization"] and v["actor"]["reward_norm"] is not None
            ),
            "gconfig.reward_normalization and actor.reward_norm both normalise the reward.",
            "gconfig.reward_normalization (rollout-time, per-prompt) and actor.reward_norm "
            "(training-time, on collected batch) both apply reward normalization.",
            {"gconfig.reward_normalization": False},
        ),
    ),
}


@rule("joined-values", "fails at start", "api/cli_args.py, __post_init__ of the class", "file")
def joined_values(case: Case) -> Iterator[Found]:
    if not case.config.class_name:
        return
    parsed = case.config.parsed(case.version)
    for above, name, values in sections(parsed.values, case.version, case.config.class_name):
        fields = table(case.version, name)
        for one in JOINED.get(name, ()):
            shown = {key: values.get(key) for key in one.fields if key in fields}
            try:
                wrong = len(shown) == len(one.fields) and one.wrong(values)
            except (KeyError, TypeError):  # UNKNOWN, or a field that this version has not
                continue
            if not wrong or any(value is UNKNOWN for value in shown.values()):
                continue
            prefix = f"{above}." if above else ""
            fix = {f"{prefix}{key}": value for key, value in one.fix.items()}
            yield Found(
                (f"{above}: " if above else "") + one.problem.format(**shown),
                set_to(fix) or "Add it, or choose the other.",
                one.says.format(**shown),
                next(iter(fix), prefix + one.fields[0]),
                fix=fix,
            )
