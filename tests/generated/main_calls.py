"""The main calls through the client that openapi-python-client makes."""

import json
import os

from spillgate_generated.api.accounting import get_summary
from spillgate_generated.api.extract import post_extract
from spillgate_generated.api.results import (
    get_grep,
    get_lines,
    get_query,
    get_stored,
    post_check,
    post_result,
)
from spillgate_generated.api.sessions import get_session, put_session, report_usage
from spillgate_generated.api.tools import get_tools, post_tool_call
from spillgate_generated.client import Client
from spillgate_generated.models.check_in import CheckIn
from spillgate_generated.models.check_out import CheckOut
from spillgate_generated.models.extract_in import ExtractIn
from spillgate_generated.models.extract_out import ExtractOut
from spillgate_generated.models.grep_out import GrepOut
from spillgate_generated.models.line_page import LinePage
from spillgate_generated.models.problem import Problem
from spillgate_generated.models.query_out import QueryOut
from spillgate_generated.models.result_in import ResultIn
from spillgate_generated.models.result_out import ResultOut
from spillgate_generated.models.session_in import SessionIn
from spillgate_generated.models.session_out import SessionOut
from spillgate_generated.models.summary_out import SummaryOut
from spillgate_generated.models.tool_call_in import ToolCallIn
from spillgate_generated.models.tool_call_out import ToolCallOut
from spillgate_generated.models.tools_out import ToolsOut
from spillgate_generated.models.usage_in import UsageIn

client = Client(base_url=os.environ["SPILLGATE_URL"])
run = os.environ["SPILLGATE_SESSION"]
rows = "city,amount\n" + "".join(f"{'Rome' if n % 2 else 'Oslo'},{n}\n" for n in range(3000))

opened = put_session.sync(run, client=client, body=SessionIn(context_window=131_072))
assert isinstance(opened, SessionOut)
passed = post_result.sync(client=client, body=ResultIn(tool_name="sh", content="fits", session_id=run))
assert isinstance(passed, ResultOut)
stored = post_result.sync(client=client, body=ResultIn(tool_name="sh", content=rows, session_id=run))
assert isinstance(stored, ResultOut)
handle = stored.handle
assert handle is not None
checked = post_check.sync(client=client, body=CheckIn(tool_name="sh", bytes_=481_213, session_id=run))
assert isinstance(checked, CheckOut)
answer = post_extract.sync(client=client, body=ExtractIn(handle=handle, extract="Oslo,1234"))
assert isinstance(answer, ExtractOut)
lines = get_lines.sync(handle, client=client, offset=3, limit=1)
assert isinstance(lines, LinePage)
found = get_grep.sync(handle, client=client, pattern="^Rome,29..$")
assert isinstance(found, GrepOut)
queried = get_query.sync(handle, client=client, expression="SELECT count(*) AS n FROM data")
assert isinstance(queried, QueryOut)
report_usage.sync(run, client=client, body=UsageIn(used_tokens=52_000, turn=8))
offered = get_tools.sync(client=client, session_id=run)
assert isinstance(offered, ToolsOut)
asked = {"handle": handle, "lines": "2"}
called = post_tool_call.sync(
    client=client, body=ToolCallIn(name="tool_output", arguments=asked, session_id=run)
)
assert isinstance(called, ToolCallOut)
session = get_session.sync(run, client=client)
assert isinstance(session, SessionOut)
summary = get_summary.sync(client=client, session_id=run, group_by="type")
assert isinstance(summary, SummaryOut)
unknown = get_stored.sync("session-default/file-0", client=client)
assert isinstance(unknown, Problem)
said = {
    "passed": passed.content,
    "outcome": stored.outcome,
    "bytes": stored.measure.bytes_,
    "allowed": checked.allowed,
    "answered": "Oslo,1234" in answer.text,
    "line": lines.lines[0].text,
    "matches": found.total_matches,
    "result": queried.result,
    "used": session.budget.used_tokens,
    "offered": offered.tools[0]["function"]["name"],
    "tool": called.text.split("\n")[0],
    "stored": session.stored_results,
    "entries": summary.total.entries,
    "code": unknown.code,
}
print(json.dumps(said))
