"""A batch from groups to trees is AReaL's, number for number, and nothing is lost on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing.batch.dispatch import batches
from packing.batch.passes import Comparison
from packing.batch.pipeline import as_they_stand, simulate
from packing.batch.refusal import BatchRefused
from packing.batch.simulation import BatchSimulation
from packing.batch.spec import BatchSpec
from packing.packers.areal import pack_areal
from packing.packers.flat import PaddingRule
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tests.packing.strategies import any_rows
from tests.packing.ties import same_ties

GOLDEN = [
    "gsm8k_64g_dp4_mb1",
    "gsm8k_64g_dp4_mb4",
    "gsm8k_64g_dp2_mb2_spmd",
    "tau_traj_48g_dp4_mb1",
    "tau_traj_48g_dp4_mb4",
    "tau_turns_8g_dp2_mb2",
]


@pytest.fixture(scope="module")
def chains(shared_dir: Path) -> dict[str, Any]:
    return dict(json.loads((shared_dir / "golden" / "areal_chain_golden.json").read_text()))


@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_chain(chains: dict[str, Any], golden_rows: Any, name: str) -> None:
    assert set(chains) == set(GOLDEN)
    golden, rows = chains[name], golden_rows(chains[name]["dataset"])
    plan = BatchSpec(
        max_tokens_per_mb=golden["max_tokens_per_mb"],
        dp_size=golden["dp_size"],
        ppo_n_minibatches=golden["ppo_n_minibatches"],
        dispatch=golden["mode"],
    )
    chain = simulate(rows, plan, groups=np.unique(rows.group)[: golden["groups"]])
    ours = json.loads(json.dumps(chain.to_json()))
    if not same_ties():
        if golden["mode"] == "spmd":
            pytest.skip("numpy orders equal lengths differently on this CPU, and AReaL with it")
        for rank in golden["ranks"]:  # what no ffd has touched
            del rank["ppo_update"], rank["baseline_full_batch"]
        golden["summary"] = {"ratio_compute_logp": golden["summary"]["ratio_compute_logp"]}
    for part in ("dp_parts", "ranks", "summary"):
        assert _only(ours[part], golden[part]) == golden[part]
    # What is paid restates the ratio in tokens.
    summary = ours["summary"]
    paid = summary["padded_ratio_ppo_update"] * summary["original_tokens"]
    assert summary["paid_ppo_update"]["tree"] == pytest.approx(paid)


def test_one_rank_one_minibatch_is_the_packer_alone(golden_rows: Any) -> None:
    rows = golden_rows("tau_airline_trajectories")
    order = PrefixOrder.of(rows)
    chain = simulate(rows, BatchSpec(16384, dispatch="spmd"), order)
    (rank,) = chain.compute_logp.ranks
    packing = pack_areal(order, 16384, chain.rank_rows[0])
    assert rank.tokens_per_tree.tolist() == packing.tokens_per_tree.tolist()
    assert rank.tree_of_member.tolist() == packing.tree_of_row[rank.members].tolist()


def test_minibatches_cost_sharing(golden_rows: Any) -> None:
    rows = golden_rows("tau_airline_turns")
    order, groups = PrefixOrder.of(rows), np.unique(rows.group)[:8]
    ratios = [
        simulate(rows, BatchSpec(16384, 2, n), order, groups).summary()["ratio_ppo_update"]
        for n in (1, 2, 4, 8)
    ]
    assert ratios == sorted(ratios) and ratios[0] < ratios[-1]


def test_dummy_trees_keep_the_ranks_in_step() -> None:
    # Rank 0 gets two rows that share nothing, rank 1 two copies of one.
    rows = Rows.from_lists([[1] * 8, [2] * 8, [3] * 7, [3] * 7], [0, 0, 1, 1])
    chain = simulate(rows, BatchSpec(8, dp_size=2, block_size=8))
    (update,) = chain.ppo_update
    assert [rank.n_trees for rank in update.ranks] == [2, 1]
    assert [rank.dummies for rank in update.ranks] == [0, 1]
    assert update.trees_per_rank == 2
    summary = chain.summary()
    assert summary["dummy_trees_ppo_update"] == 1
    assert summary["padded_ratio_ppo_update"] == 32 / 30
    assert chain.comparison.tree == 32 and chain.comparison.padded == 32
    assert chain.comparison.flat == 2 * 2 * 256  # two micro-batches a rank, a page each


def test_comparison_with_flat_and_padded() -> None:
    rows = Rows.from_lists([[1] * 200 + [2], [1] * 200 + [3], [4] * 60], [0, 0, 0])
    compared = simulate(rows, BatchSpec(256)).comparison
    assert compared == Comparison(original_tokens=462, tree=512, flat=768, padded=603)
    assert compared.tree_over_flat == 512 / 768 and compared.tree_over_padded == 512 / 603
    assert compared.to_json()["tree_over_flat"] == compared.tree_over_flat


def test_what_flat_training_refuses_does_not_stop_the_trees() -> None:
    rows = Rows.from_lists([[1, 2], [1, 3], [1, 4]], [0, 0, 0])
    chain = simulate(rows, BatchSpec(8, granularity=2, block_size=8))
    assert chain.compute_logp.tree_tokens == 4
    assert chain.comparison.flat is None
    assert chain.comparison.flat_error == "Batch size 3 cannot divide granularity 2."
    (rank,) = chain.to_json()["ranks"]
    assert rank["baseline_full_batch"] is None


def test_samples_per_prompt_limits_each_group() -> None:
    rows = Rows.from_lists([[1, 2], [1, 3], [1, 4], [9, 9]], [0, 0, 0, 1])
    chain = simulate(rows, BatchSpec(8, samples_per_prompt=2, block_size=8))
    assert sorted(chain.rank_rows[0].tolist()) == [0, 1, 3]
    assert chain.sample_of.tolist() == [0, 1, -1, 0]


def test_padding_rule_reaches_the_baseline() -> None:
    rows = Rows.from_lists([[1, 2], [1, 3]], [0, 0])
    plan = BatchSpec(512, ppo_n_minibatches=1, padding=PaddingRule(pad_to_maximum=True))
    assert simulate(rows, plan).comparison.flat == 512


def refused(rows: Rows, spec: BatchSpec) -> BatchRefused:
    with pytest.raises(BatchRefused) as error:
        simulate(rows, spec)
    return error.value


THREE = Rows.from_lists([[1, 2], [1, 3], [4] * 150], [0, 0, 1])
THIRDS = Rows.from_lists([[1], [2], [3]])


@pytest.mark.parametrize(
    ("rows", "spec", "words", "mend"),
    [
        (THREE, BatchSpec(256, dp_size=3), "Number of items (2) must be >= K (3).", "2 ranks"),
        (
            THIRDS,
            BatchSpec(128, dp_size=2),
            "The length of nums must be divisible by K.",
            "3 prompts do not divide over 2 data-parallel ranks: choose 1 or 3 ranks, or 2 prompts",
        ),
        (
            THIRDS,
            BatchSpec(128, dp_size=2, dispatch="spmd"),
            "batch size(3) must be divisible by world_size(2)!",
            "1 or 3 ranks",
        ),
        (
            THREE,
            BatchSpec(256, ppo_n_minibatches=4),
            "Number of values 3 is smaller than min_groups 4",
            "A rank of this batch has 3 rows, and ppo_n_minibatches is 4: choose 3 or fewer.",
        ),
        (
            THREE,
            BatchSpec(128),
            "Sequence length 150 exceeds max_tokens_per_tree 128; adjust limit or split sequences.",
            "Row 2 has 150 tokens: choose max_tokens_per_mb 256 or more.",
        ),
        (
            THREE,
            BatchSpec(0),
            "MicroBatchSpec.max_tokens_per_mb must be a positive value for tree training.",
            "Choose max_tokens_per_mb 256.",
        ),
        (
            THREE,
            BatchSpec(-128),
            "MicroBatchSpec.max_tokens_per_mb must be a positive value for tree training.",
            "Choose max_tokens_per_mb 256.",
        ),
        (
            THREE,
            BatchSpec(400),
            "max_tokens_per_tree (400) must be a multiple of 128",
            "Choose max_tokens_per_mb 384 or 512.",
        ),
        (
            THREE,
            BatchSpec(400, parallel_size=3),
            "must be a multiple of 384 (lcm of BLOCK_SIZE=128 and parallel_size=3)",
            "Choose max_tokens_per_mb 384 or 768.",
        ),
        (Rows.from_lists([]), BatchSpec(128), "max() arg is an empty sequence", "no rows"),
    ],
)
def test_where_areal_stops_its_words_and_a_mend(
    rows: Rows, spec: BatchSpec, words: str, mend: str
) -> None:
    error = refused(rows, spec)
    assert words in error.words and mend in error.mend
    assert str(error) == f"AReaL stops: “{error.words}” {error.mend}"


@settings(deadline=None)
@given(
    any_rows,
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(-3, 700),
    st.sampled_from(["controller", "spmd"]),
)
def test_every_mend_mends(
    sequences: list[list[int]], groups: int, dp: int, minibatches: int, cap: int, dispatch: Any
) -> None:
    sequences = [[*row, *[7] * (90 * at)] for at, row in enumerate([*sequences, [1]])]
    rows = Rows.from_lists(sequences, np.sort(np.arange(len(sequences)) % groups))
    spec = BatchSpec(cap, dp, minibatches, dispatch)
    for _ in range(4):  # of each kind of refusal at most one, each mended for good
        try:
            simulate(rows, spec)
        except BatchRefused as refusal:
            assert refusal.fixes, refusal
            for fix in refusal.fixes:
                kept = rows.first_groups(fix["n_groups"]) if "n_groups" in fix else rows
                changed = {name: n for name, n in fix.items() if name != "n_groups"}
                if "n_groups" in fix and fix["n_groups"] > rows.n_groups:
                    continue  # more prompts than there are
                try:
                    simulate(kept, replace(spec, **changed))  # type: ignore[arg-type]
                except BatchRefused as other:
                    assert other.words.split()[0] != refusal.words.split()[0] or (
                        "n_groups" in fix
                    ), (refusal, fix, other)
            first = next(f for f in refusal.fixes if "n_groups" not in f or len(refusal.fixes) == 1)
            if "n_groups" in first:
                return
            spec = replace(spec, **first)  # type: ignore[arg-type]
        else:
            return
    raise AssertionError(spec)


def test_a_row_may_nest_too_deep_for_areals_recursion() -> None:
    rows = Rows.from_lists([[1] * length for length in range(1, 1200)])
    error = refused(rows, BatchSpec(1280))
    assert "RecursionError" in error.words and "1,199 nodes" in error.mend
    # Small trees hold short paths only.
    assert simulate(Rows.from_lists([[1] * n for n in range(1, 900)]), BatchSpec(1280)).n_trees == 1


def test_rows_without_tokens_run_one_empty_tree_a_rank() -> None:
    simulation = simulate(Rows.from_lists([[], []], [0, 1]), BatchSpec(128, dp_size=2))
    assert (simulation.n_trees, simulation.n_dummy_trees) == (0, 2)
    assert simulation.paid_tokens == 256 and simulation.tree_token_ratio == 1.0
    assert len(simulation.forest) == 0


def test_our_packer_stands_where_areals_stood() -> None:
    random = np.random.default_rng(3)
    lists, groups = [], []
    for group in range(8):
        prompt = random.integers(0, 9, 60).tolist()
        for _ in range(6):
            lists.append(prompt + random.integers(0, 9, int(random.integers(5, 90))).tolist())
            groups.append(group)
    rows = Rows.from_lists(lists, groups)
    for dp, minibatches in ((1, 1), (2, 1), (2, 3), (4, 2)):
        areal = simulate(rows, BatchSpec(256, dp, minibatches))
        ours = simulate(rows, BatchSpec(256, dp, minibatches, packer="prefix-aware"))
        assert [a.tolist() for a in areal.rank_rows] == [o.tolist() for o in ours.rank_rows]
        for one, other in zip(areal.ppo_update, ours.ppo_update, strict=True):
            for a, o in zip(one.ranks, other.ranks, strict=True):
                assert a.members.tolist() == o.members.tolist() and o.n_trees <= a.n_trees
        assert ours.paid_tokens <= areal.paid_tokens
        assert ours.bounds == areal.bounds and ours.bounds.trees <= ours.n_trees


def test_spec_names_what_it_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"^dispatch is 'controller' or 'spmd', not 'ray'\.$"):
        BatchSpec(8, dispatch="ray")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^packer is 'areal' or 'prefix-aware', not 'lpt'\.$"):
        BatchSpec(8, packer="lpt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^Unknown packing algorithm 'lpt'"):
        BatchSpec(8, packing_algorithm="lpt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^dp_size is 0; the smallest is 1\.$"):
        BatchSpec(8, dp_size=0)


@given(any_rows, st.integers(1, 20))
def test_figures_count_tokens_one_by_one(sequences: list[list[int]], spare: int) -> None:
    sequences = [*sequences, [1]]
    rows = Rows.from_lists(sequences)
    cap = rows.longest + spare
    spec = BatchSpec(cap, block_size=1)
    plain = as_they_stand(rows, PrefixOrder.of(rows)).packed(spec)
    areal = pack_areal(plain.order, cap)
    assert plain.packing.tree_of_row.tolist() == areal.tree_of_row.tolist()
    for figures in (plain, simulate(rows, spec)):
        packing = figures.packing
        trees = [_prefixes(sequences, packing.rows_of_tree(t)) for t in range(packing.n_trees)]
        assert packing.tokens_per_tree.tolist() == [len(tree) for tree in trees]
        assert figures.original_tokens == sum(map(len, sequences))
        assert figures.ideal_tokens == len(_prefixes(sequences, range(len(sequences))))
        assert figures.tree_area == sum(len(prefix) for tree in trees for prefix in tree)
        assert figures.flat_area == sum(n + 1 for s in sequences for n in range(len(s)))
        assert figures.paid_tokens == packing.n_trees * cap
        assert 0 < figures.tree_token_ratio <= 1 <= figures.prefix_reuse
        assert figures.tree_token_ratio <= figures.padded_token_ratio
        assert 0 < figures.fill <= 1 <= figures.figures()["sharing_lost"]
        assert figures.tree_area <= figures.flat_area


@pytest.mark.parametrize("name", ["gsm8k_solutions", "tau_airline_trajectories"])
def test_rows_as_they_stand_are_areals(golden_rows: Any, shared_dir: Any, name: str) -> None:
    golden = json.loads((shared_dir / "golden" / "areal_golden.json").read_text())
    cases = [case for case in golden.values() if case["dataset"] == name]
    assert cases
    for case in cases:
        rows = golden_rows(name).take(np.arange(*case["rows"]))
        spec = BatchSpec(case["max_tokens_per_mb"], block_size=1)
        printed = as_they_stand(rows, PrefixOrder.of(rows)).packed(spec).figures()
        for figure in ("n_trees", "tree_tokens", "original_tokens", "tree_token_ratio"):
            assert printed[figure] == case[figure]
        assert printed["tokens_per_tree"] == case["tokens_per_tree"]


def _prefixes(sequences: list[list[int]], members: Any) -> set[tuple[int, ...]]:
    rows = [sequences[int(row)] for row in members]
    return {tuple(row[: n + 1]) for row in rows for n in range(len(row))}


def test_a_plan_is_a_key() -> None:
    assert hash(BatchSpec(8)) == hash(BatchSpec(8)) and BatchSpec(8) != BatchSpec(8, dp_size=2)


def test_steps_of_a_dataset(golden_rows: Any) -> None:
    rows = golden_rows("gsm8k_solutions")
    order = PrefixOrder.of(rows)
    plan = BatchSpec(4096, dp_size=4, ppo_n_minibatches=1)
    steps = batches(rows, 256, shuffle_seed=1)
    assert len(steps) == 1319 // 256
    for groups in steps:
        chain = simulate(rows, plan, order, groups)
        fed = np.concatenate(chain.rank_rows)
        assert sorted(fed.tolist()) == np.flatnonzero(np.isin(rows.group, groups)).tolist()


@settings(deadline=None)
@given(
    any_rows,
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(0, 12),
    st.sampled_from(["controller", "spmd"]),
)
def test_every_row_in_one_minibatch_and_one_tree(
    sequences: list[list[int]], dp: int, per_rank: int, n_minibatches: int, spare: int, mode: Any
) -> None:
    sequences = sequences + [[1]] * (dp * per_rank)  # a row for every group at least
    rows = Rows.from_lists(sequences, np.arange(len(sequences)) % (dp * per_rank))
    plan = BatchSpec(rows.longest + spare, dp, n_minibatches, mode, block_size=1)
    groups = np.random.default_rng(spare).permutation(dp * per_rank)
    try:
        chain = simulate(rows, plan, groups=groups)
    except BatchRefused as refusal:
        fewest = min(len(np.flatnonzero(rows.group == g)) for g in groups) * per_rank
        assert fewest < n_minibatches or mode == "spmd"
        assert refusal.words.endswith(f"is smaller than min_groups {n_minibatches}")
        return
    assert sorted(np.concatenate(chain.parts).tolist()) == list(range(dp * per_rank))
    if mode == "controller":
        assert {len(part) for part in chain.parts} == {per_rank}
    _check(chain, rows)


def _check(chain: BatchSimulation, rows: Rows) -> None:
    batch = list(range(len(rows)))
    order = PrefixOrder.of(rows)
    for passes in ([chain.compute_logp], chain.ppo_update):
        fed = [row for one in passes for rank in one.ranks for row in rank.members.tolist()]
        assert sorted(fed) == batch
    for one in (chain.compute_logp, *chain.ppo_update):
        assert len({rank.n_trees + rank.dummies for rank in one.ranks}) == 1
        run = min(rank.dummies for rank in one.ranks)
        assert run == 0 or (run == 1 and one.tree_tokens == 0)  # no token at all: one empty tree
        for rank in one.ranks:
            assert rank.tokens == int(rows.lengths[rank.members].sum())
            empty = rows.lengths[rank.members] == 0
            assert ((rank.tree_of_member == -1) == empty).all()
            alone = pack_areal(order, chain.spec.max_tokens_per_mb, rank.members)
            assert rank.tokens_per_tree.tolist() == alone.tokens_per_tree.tolist()
            assert rank.tree_of_member.tolist() == alone.tree_of_row[rank.members].tolist()
            for tree, places in enumerate(rank.sequence_ids):
                assert rank.tokens_per_tree[tree] == order.tree_tokens(rank.members[places])
    packing, forest = chain.packing, chain.forest
    assert (packing.tree_of_row >= 0).tolist() == (rows.lengths > 0).tolist()
    assert len(chain.rank_of_tree) == len(chain.minibatch_of_tree) == packing.n_trees == len(forest)
    for tree in range(packing.n_trees):
        of = chain.ppo_update[chain.minibatch_of_tree[tree]].ranks[chain.rank_of_tree[tree]]
        members = packing.rows_of_tree(tree)
        assert set(members.tolist()) <= set(of.members.tolist())
        assert packing.tokens_per_tree[tree] == order.tree_tokens(members)
    for number, ordered in enumerate(chain.rank_rows):
        place = {row: at for at, row in enumerate(ordered.tolist())}
        for update in chain.ppo_update:
            at = [place[row] for row in update.ranks[number].members.tolist()]
            assert at == sorted(at)


def _only(ours: Any, golden: Any) -> Any:
    """Ours without the fields that AReaL's result does not have."""
    if isinstance(golden, dict):
        return {key: _only(ours[key], golden[key]) for key in golden}
    if isinstance(golden, list) and len(ours) == len(golden):
        return [_only(one, two) for one, two in zip(ours, golden, strict=True)]
    return ours
