"""The bodies of requests and answers as pydantic checks them, and what it takes for a whole number."""

from pydantic import BaseModel, BeforeValidator, ConfigDict


class BodyOut(BaseModel):
    """The body of an answer. Its schema is built when it is first used: a start needs none of them."""

    model_config = ConfigDict(defer_build=True)


class BodyIn(BaseModel):
    """The body of a request, or a part of it. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


def _integral(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


MOST = 1 << 50
"""The largest size, count or offset that is taken: an integer of every client and every ledger."""

INTEGRAL = BeforeValidator(_integral)
"""Must be the last item in an `Annotated[int, Field(strict=True)]`. Accepts 7.0, a whole number in JSON; not
"7" or true."""
