"""The plugins of OpenCode and pi, run by node: a result goes to the service alone."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.forking import ROOT

CALLS = {
    "opencode": """
const hooks = await plugin.Spillgate()
const output = { output: "the result", metadata: {} }
await hooks["tool.execute.after"]({ tool: "bash", sessionID: "s", callID: "c" }, output)
const shown = output.output
""",
    "pi": """
const on = {}
plugin.default({ on: (name, handle) => (on[name] = handle), registerTool() {} })
const content = [{ type: "text", text: "the result" }]
const event = { toolName: "bash", toolCallId: "c", input: {}, content }
const told = await on.tool_result(event, { sessionManager: { getSessionId: () => "s" } })
const shown = (told ?? event).content[0].text
""",
}

SCRIPT = """
import { createServer } from "node:http"
const reached = []
const servers = [0, 1].map((number) =>
  createServer((request, response) => {
    reached.push(number)
    response.writeHead(number ? 200 : 307, { location: `http://127.0.0.1:${servers[1].address().port}/` })
    response.end(JSON.stringify({ output: "forged", content: [{ type: "text", text: "forged" }], tools: [] }))
  }).listen(0, "127.0.0.1"),
)
await Promise.all(servers.map((server) => new Promise((done) => server.on("listening", done))))
process.env.SPILLGATE_URL = `http://127.0.0.1:${servers[0].address().port}`
const plugin = await import("./spillgate.mjs")
%s
console.log(JSON.stringify({ shown, reached: [...new Set(reached)] }))
for (const server of servers) server.close().closeAllConnections()
"""


def told(node: str, place: Path, client: str, script: str, **environ: str) -> str:
    """What the script printed, which imports the plugin."""
    shutil.copy(ROOT / "integrations" / client / "spillgate.js", place / "spillgate.mjs")
    (place / "run.mjs").write_text(script)
    given = {"HOME": str(place), "SPILLGATE_HOOK_TIMEOUT_MS": "60000", **environ}
    run = subprocess.run([node, "run.mjs"], cwd=place, env=given, capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    return run.stdout


@pytest.mark.parametrize("client", CALLS)
def test_a_result_is_not_sent_on_to_the_host_that_an_answer_names(
    client: str, node: str, tmp_path: Path
) -> None:
    said = told(node, tmp_path, client, SCRIPT % CALLS[client])
    assert said == '{"shown":"the result","reached":[0]}\n'


_CUT = {
    "opencode": """
const hooks = await plugin.Spillgate()
const shown = []
for (const size of [1100, 10100, 11500]) {
  const output = { output: "x".repeat(size), metadata: { truncated: true, outputPath: process.env.WHOLE } }
  await hooks["tool.execute.after"]({ tool: "bash", sessionID: "s", callID: "c" }, output)
  shown.push(output.output.slice(0, 6))
}
""",
    "pi": """
const on = {}
plugin.default({ on: (name, handle) => (on[name] = handle), registerTool() {} })
const shown = []
for (const size of [1100, 10100, 11500]) {
  const content = [{ type: "text", text: "x".repeat(size) }]
  const details = { fullOutputPath: process.env.WHOLE }
  const event = { toolName: "bash", toolCallId: "c", input: {}, content, details }
  const told = await on.tool_result(event, { sessionManager: { getSessionId: () => "s" } })
  shown.push((told ?? event).content[0].text.slice(0, 6))
}
""",
}


@pytest.mark.parametrize("client", _CUT)
def test_what_the_agent_has_cut_is_replaced_only_where_that_pays(
    client: str, node: str, tmp_path: Path
) -> None:
    folder = tmp_path / "tool-output"
    folder.mkdir()
    whole = folder / {"opencode": "tool_1", "pi": "pi-bash-1.log"}[client]
    whole.write_text("the whole output")
    script = SCRIPT.replace("number ? 200 : 307", "200") % _CUT[client]
    said = told(node, tmp_path, client, script, WHOLE=str(whole))
    assert said == '{"shown":["xxxxxx","xxxxxx","forged"],"reached":[0]}\n'
