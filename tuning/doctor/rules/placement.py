"""Which GPUs each engine and the rollout's servers get, and who shares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuning.doctor.rules.base import Case, Found, rule

_MOST_GPUS = 100_000
_FIRST = ("actor", "critic", "ref")
"""The order in which AReaL makes its engines; a teacher and the rollout follow."""


def colocated(case: Case) -> bool:
    """Whether actor and rollout are put on the same GPUs."""
    return _target(case, "actor") == "rollout" or _target(case, "rollout") == "actor"


def _target(case: Case, role: str) -> str | None:
    """The role whose GPUs this one is to share."""
    strategy = case.get(case.of(role).path("scheduling_strategy"))
    if not isinstance(strategy, Mapping) or strategy.get("type") != "colocation":
        return None
    target = strategy.get("target")
    return target if isinstance(target, str) else None


def _sizes(case: Case) -> dict[str, int]:
    """GPUs of each role whose backend can be read, in the order in which they are made."""
    roles = [one for one in _FIRST if one in case.engines]
    roles += [one for one in case.engines if one not in roles]
    backends = {role: case.of(role).backend for role in roles}
    sizes = {role: one.gpus for role, one in backends.items() if one is not None}
    if case.server is not None and case.config.has("rollout.backend"):
        sizes["rollout"] = case.server.gpus
    return sizes


def _home(case: Case, role: str) -> str:
    """The role whose GPUs this one has; its own where it shares none."""
    for _ in range(len(case.engines) + 1):  # targets may run in a circle
        target = _target(case, role)
        if role == "actor" and target == "rollout":
            return role
        if target is None:
            return "actor" if role == "rollout" and colocated(case) else role
        role = target
    return role


def asked(case: Case) -> dict[str, int]:
    """GPUs that each role asks for and does not share by the config's own will."""
    return {role: n for role, n in _sizes(case).items() if _home(case, role) == role}


def _cluster(case: Case) -> int | None:
    """GPUs of the cluster where the file says so."""
    nodes, each = case.whole("cluster.n_nodes"), case.whole("cluster.n_gpus_per_node")
    given = case.config.has("cluster.n_nodes") and case.config.has("cluster.n_gpus_per_node")
    return nodes * each if given and nodes and each else None


def placed(case: Case) -> dict[str, frozenset[int]]:
    """The GPUs of each role, numbered; the local scheduler starts again at 0 where they end.

    Empty where they are more than any cluster has.
    """
    wraps = _cluster(case) if case.get("scheduler.type") == "local" else None
    found: dict[str, frozenset[int]] = {}
    start = 0
    if sum(asked(case).values()) > _MOST_GPUS:
        return found
    for role, n in asked(case).items():
        places = range(start, start + n)
        found[role] = frozenset(place % wraps if wraps else place for place in places)
        start += n
    for role in _sizes(case):
        if (home := _home(case, role)) in found:
            found.setdefault(role, found[home])
    if case.spmd and "actor" in found:  # every engine lives in the actor's processes
        found |= dict.fromkeys([r for r in found if r != "rollout"], found["actor"])
    return found


@rule("gpus", "fails at start", "infra/scheduler; cluster of the config", "file")
def gpus(case: Case) -> Iterator[Found]:
    """GPUs asked for against those of the cluster, roles on GPUs of their own counted."""
    there, wanted = _cluster(case), asked(case)
    total = sum(wanted.values())
    if there is None or total <= there:
        return
    listed = " + ".join(f"{role} {n}" for role, n in wanted.items())
    local = case.get("scheduler.type") == "local"
    nodes = case.whole("cluster.n_nodes")
    yield Found(
        f"{total} GPUs are asked for ({listed}); the cluster has {nodes} × "
        f"{case.whole('cluster.n_gpus_per_node')}.",
        "Ask for fewer, or give cluster.n_nodes and n_gpus_per_node what there is.",
        says="" if local else "the scheduler waits for resources that never come",
        path="cluster",
        when="in every step: the local scheduler gives the same GPU to two workers"
        if local
        else "when workers are placed",
        severity="slow" if local else None,
    )
