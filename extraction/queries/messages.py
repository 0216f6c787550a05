"""What a service and the process of a query send each other, a line of JSON each."""

from msgspec import Struct

from content.data.slices import Slice
from content.kinds import Kind

TOO_LARGE = "The query takes more memory than it has: the data, or what the expression makes, is too large."


class Query(Struct, frozen=True):
    """A JMESPath expression. It answers at most `limit` items of an array, and `max_bytes` of JSON."""

    expression: str
    max_bytes: int
    tool_name: str = ""
    limit: int = 100
    offset: int = 0


class Found(Struct, frozen=True, tag=True):
    """What the data was read as, and the part of the expression's value that is answered. `hint` says why the
    expression selects nothing, where keys are the cause."""

    kind: Kind
    slice: Slice
    hint: str = ""


class Refused(Struct, frozen=True, tag=True):
    """The code and the detail of an InvalidField or of one of its subclasses."""

    code: str
    detail: str
