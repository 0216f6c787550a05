// The main calls through the types that openapi-typescript makes, with openapi-fetch.
import createClient from "openapi-fetch";
import type { paths } from "./spillgate.js";

declare const process: { env: Record<string, string> };

const client = createClient<paths>({ baseUrl: process.env["SPILLGATE_URL"] ?? "" });
const run = process.env["SPILLGATE_SESSION"] ?? "";
const numbers = Array.from({ length: 3000 }, (_, n) => `${n % 2 ? "Rome" : "Oslo"},${n}\n`);

async function some<T>(answer: Promise<{ data?: T; error?: unknown }>): Promise<T> {
  const { data, error } = await answer;
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

const json = { parseAs: "json" } as const;
await some(client.PUT("/sessions/{session_id}", { params: { path: { session_id: run } }, body: { context_window: 131072 } }));
const passed = await some(client.POST("/results", { ...json, body: { tool_name: "sh", content: "fits", session_id: run } }));
const content = `city,amount\n${numbers.join("")}`;
const stored = await some(client.POST("/results", { ...json, body: { tool_name: "sh", content, session_id: run } }));
if (typeof stored === "string" || typeof passed === "string" || !stored.handle) throw new Error("not stored");
const { handle } = stored;
const path = { handle };
const checked = await some(client.POST("/check", { body: { tool_name: "sh", bytes: 481213, session_id: run } }));
const answer = await some(client.POST("/extract", { ...json, body: { handle, extract: "Oslo,1234" } }));
const lines = await some(client.GET("/results/{handle}/lines", { params: { path, query: { offset: 3, limit: 1 } } }));
const found = await some(client.GET("/results/{handle}/grep", { params: { path, query: { pattern: "^Rome,29..$" } } }));
const expression = "SELECT count(*) AS n FROM data";
const queried = await some(client.GET("/results/{handle}/query", { params: { path, query: { expression } } }));
await some(client.POST("/sessions/{session_id}/usage", { params: { path: { session_id: run } }, body: { used_tokens: 52000, turn: 8 } }));
const offered = await some(client.GET("/tools", { params: { query: { session_id: run, format: "anthropic" } } }));
const asked = { session_id: run, name: "tool_output", arguments: { handle, lines: "2" } };
const called = await some(client.POST("/tools/call", { ...json, body: asked }));
const session = await some(client.GET("/sessions/{session_id}", { params: { path: { session_id: run } } }));
const summary = await some(
  client.GET("/accounting/summary", { ...json, params: { query: { session_id: run, group_by: "type" } } }),
);
const unknown = await client.GET("/results/{handle}", { params: { path: { handle: "session-default/file-0" } } });
if (typeof answer === "string" || typeof called === "string" || typeof summary === "string") throw new Error("text");
console.log(
  JSON.stringify({
    passed: passed.content,
    outcome: stored.outcome,
    bytes: stored.measure.bytes,
    allowed: checked.allowed,
    answered: answer.text.includes("Oslo,1234"),
    line: lines.lines[0]?.text,
    matches: found.total_matches,
    result: queried.result,
    used: session.budget.used_tokens,
    offered: offered.tools[0]?.["name"],
    tool: called.text.split("\n")[0],
    stored: session.stored_results,
    entries: summary.total.entries,
    code: unknown.error?.code,
  }),
);
