"""Values that the examples of the OpenAPI document share: they are about one stored result."""

from app.api.answers import BudgetOut
from domain.results import Measure

HANDLE = "session-demo/file-3f0c2f0e-6f5b-4c7e-9d2a-8b1f0a7c5d11"
SHORT_TEXT = "On branch main\nnothing to commit, working tree clean\n"
MESSAGE = (
    "Tool output is too large (481213 bytes, 6203 lines, 172904 tokens).\n"
    f'Call tool_output(handle = "{HANDLE}", extract = "what to extract").\n'
    "The handle is a relative path under the tool_output root.\n"
    "Provide precise and detailed instructions in `extract` about what you are looking for."
)
MEASURE = Measure(bytes=481213, lines=6203, chars=481213, tokens=172904, tokens_exact=False)
BUDGET = BudgetOut(
    limit_tokens=106496,
    used_tokens=41200,
    reserved_tokens=118,
    remaining_tokens=65178,
    exhausted=False,
    enforced=True,
)
ENTRY_ID = "entry-5d0e3b2c-7a43-4a7c-9b58-0c5c3c1b9a10"
STORED_AT = 1763712060000
EXPIRES_AT = 1763798460000
