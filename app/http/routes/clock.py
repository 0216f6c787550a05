"""The clock of the process, for operators."""

from app.http.api.bodies import BodyOut
from app.http.api.roles import KeyRole
from app.http.api.routing import ForOperators, InRuntime, Router, Traits
from app.runtime import Runtime

router = Router(tags=["health"])


class ClockOut(BodyOut):
    """`now`: the time (Unix ms) by which results expire. `reference`: whose clock that is, `machine`,
    `redis`, `postgresql` or both of these. `offset_ms`: how far the clock of this machine is ahead of the
    reference. `jump_ms`: by how much the reference has jumped, if that is not confirmed; else 0. `sweeps`:
    whether this instance deletes what has expired."""

    now: int
    reference: str
    offset_ms: int
    jump_ms: int
    sweeps: bool


class ConfirmedOut(ClockOut):
    """`confirmed_jump_ms`: the jump that was confirmed; 0 if there was none."""

    confirmed_jump_ms: int


_EXAMPLE = {"now": 1763712000000, "reference": "redis", "offset_ms": -3, "jump_ms": 0, "sweeps": True}


@router.get("/clock", dependencies=[ForOperators], summary="The clock by which results expire")
@Traits(roles=(KeyRole.ADMIN,), example=_EXAMPLE)
async def get_clock(rt: InRuntime) -> ClockOut:
    return ClockOut(**_shown(rt))


@router.post(
    "/clock/confirm",
    dependencies=[ForOperators],
    summary="Confirm that a clock that has jumped is right: what has expired by it is deleted",
)
@Traits(
    writes=True,
    roles=(KeyRole.ADMIN,),
    example={**_EXAMPLE, "now": 1763719200000, "offset_ms": 2, "confirmed_jump_ms": 7200000},
)
async def confirm_clock(rt: InRuntime) -> ConfirmedOut:
    jump = await rt.clock_watch.confirm()
    return ConfirmedOut(**_shown(rt), confirmed_jump_ms=jump)


def _shown(rt: Runtime) -> dict[str, object]:
    watch = rt.clock_watch
    return {
        "now": watch.now,
        "reference": watch.reference,
        "offset_ms": watch.offset_ms,
        "jump_ms": watch.jump_ms,
        "sweeps": watch.may_sweep,
    }
