"""The policies that are replayed beside the one in force."""

from collections.abc import Sequence

from content.text import Preview
from policies.policy import Policy
from replay.in_process import Plan

CAPS = (4096, 8192, 12_288, 30_000)
"""The caps that are shown if the command names none."""

ADVISED_CAPS = (2048, 4096, 8192, 12_288, 20_480, 30_000)
_PREVIEWS = ("sketch", "head-tail")

IN_FORCE = Plan("policy in force")
OURS = (IN_FORCE.label, "cap ", "with ")
"""The beginning of the labels of policies. Labels of baselines begin differently, as baselines offer no
tools."""


_VARIANTS: tuple[tuple[str, str], ...] = (("preview", "none"), ("repeat", "name"))


def variants(policy: Policy) -> list[Plan]:
    """Returns the policy in force with one more key for every tool. Keys that the policy already has are left
    out."""
    return [
        Plan(f"with {key} = {value}", ((key, value),))
        for key, value in _VARIANTS
        if getattr(policy, key) != value
    ]


def capped(cap: int) -> Plan:
    """The policy in force with this size cap for every tool."""
    return Plan(f"cap {cap:,}", (("max_bytes", cap),))


def cap_of(plan: Plan) -> int:
    return int(dict(plan.keys)["max_bytes"])


def preview_of(plan: Plan) -> str:
    """The preview that the plan sets, "" for that of the policy in force."""
    return str(dict(plan.keys).get("preview", ""))


def capped_plans(caps: Sequence[int]) -> list[Plan]:
    """The caps to show and those to advise, the smallest first."""
    return [capped(cap) for cap in sorted({*caps, *ADVISED_CAPS})]


def previewed_plans(policy: Policy) -> list[list[Plan]]:
    """By preview other than that of the policy: the caps to advise, the smallest first."""
    others = [one for one in _PREVIEWS if one in tuple(Preview) and one != policy.preview]
    return [
        [Plan(f"cap {cap:,}, {preview}", (("max_bytes", cap), ("preview", preview))) for cap in ADVISED_CAPS]
        for preview in others
    ]
