// Accounting entries as rows of a table.

import { bytes, dollars, duration, h, named, short, table, toResult, toSession, when, whole } from "./dom.js";

export function outcomeMark(outcome) {
  return h("span", { class: `outcome is-${outcome ?? "none"}` }, outcome ?? "–");
}

const KINDS = { tool: "result", extract: "question", llm: "model call", read: "read back" };

export function kindOf(entry) {
  if (entry.type === "tool") return outcomeMark(entry.outcome);
  return h("span", { class: `outcome is-${entry.status === "failed" ? "failed" : entry.type}` }, KINDS[entry.type] ?? entry.type);
}

export function about(entry) {
  const parts = [];
  if (entry.trigger) parts.push(entry.trigger.replace("_", " "));
  if (entry.strategy) parts.push(entry.strategy);
  if (entry.model && entry.type === "llm") parts.push(entry.model);
  if (entry.details.observed_outcome) parts.push(`would ${entry.details.observed_outcome}: ${short(entry.details.observed_tokens_saved)} tokens`);
  if (entry.error) parts.push(entry.error);
  if (entry.cost_usd) parts.push(dollars(entry.cost_usd));
  return named(parts.join(" · "));
}

const tool = (entry) => (entry.details.tool_output_handle
  ? h("a", { href: toResult(entry.details.tool_output_handle) }, named(entry.tool_name)) : named(entry.tool_name));

export function entriesTable(entries, { session = true } = {}) {
  const columns = [
    ["When", "text", (entry) => when(entry.timestamp)],
    ["What", "text", kindOf],
    ["Tool", "text", tool],
    ["Session", "text", (entry) => h("a", { href: toSession(entry.session_id) }, named(entry.session_id))],
    ["Size", "number", (entry) => bytes(entry.details.bytes)],
    ["Kept out", "number", (entry) => h("span", { title: `${whole(entry.tokens_saved)} tokens`, class: entry.tokens_saved < 0 ? "minus" : "" }, short(entry.tokens_saved))],
    ["Took", "number", (entry) => (entry.latency ? duration(entry.latency) : "")],
    ["About", "text", about],
  ];
  return table("Entries", columns.filter(([name]) => session || name !== "Session"), entries);
}
