// The policy in force for a tool and where each key was set; and what another one would have made of past results.

import { Problem, get, post } from "./api.js";
import { bytes, card, foreign, h, keyed, named, outcomeMark, plural, short, table, toSession, tokens, when, whole } from "./dom.js";
import { OUTCOMES } from "./outcomes.js";

const NUMBERS = [["max_bytes", "Cap in bytes"], ["max_tokens", "Cap in tokens"], ["max_chars", "Cap in characters"], ["head_chars", "Characters that truncate shows"], ["reject_rows", "Reject above this many rows"]];

export async function show(root, { signal }) {
  const summary = await get("/accounting/summary", { group_by: "tool_name", type: "tool" }, { signal });
  const tools = summary.rows.map((row) => row.group).filter(Boolean);
  const tool = h("input", { name: "tool", list: "tools", placeholder: "any other tool", "aria-label": "Tool", autocomplete: "off", spellcheck: "false" });
  const inForce = h("div");
  const outcome = h("select", { name: "on_oversize" }, h("option", { value: "" }, "as it is"), OUTCOMES.map((one) => h("option", { value: one }, one)));
  const mode = h("select", { name: "mode" }, h("option", { value: "" }, "as it is"), ["enforce", "observe"].map((one) => h("option", { value: one }, one)));
  const numbers = NUMBERS.map(([name, label]) => [name, label, h("input", { name, type: "number", min: 0, max: 1000000 })]);
  const out = h("div", { role: "status" });

  async function load() {
    const config = await get("/config", { tool_name: tool.value.trim() || "*" }, { signal });
    for (const [name, , input] of numbers) input.placeholder = String(config.policy[name] ?? "");
    inForce.replaceChildren(table("Policy in force", [
      ["Key", "text mono key", ([key]) => keyed(key)],
      ["Value", "text mono", ([, value]) => foreign(JSON.stringify(value))],
      ["Set by", "text", ([key]) => (config.set_by.policy[key] === "default" ? h("span", { class: "muted" }, "default") : foreign(config.set_by.policy[key]))],
    ], Object.entries(config.policy)));
  }

  async function tryIt(event) {
    event.preventDefault();
    const policy = Object.fromEntries(numbers.filter(([, , input]) => input.value !== "").map(([name, , input]) => [name, Number(input.value)]));
    if (outcome.value) policy.on_oversize = outcome.value;
    if (mode.value) policy.mode = mode.value;
    try {
      out.replaceChildren(...verdict(await post("/policy/what-if", { policy, ...(tool.value.trim() ? { tool_name: tool.value.trim() } : {}) }, { signal })));
    } catch (error) {
      if (!(error instanceof Problem) || error.status === 401) throw error;
      out.replaceChildren(h("p", { class: "warning" }, error.message));
    }
  }

  root.append(
    h("div", { class: "head" }, h("h1", {}, "Policy"), h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); load(); } }, tool,
      h("datalist", { id: "tools" }, tools.map((name) => h("option", { value: name }))), h("button", { type: "submit" }, "Show"))),
    h("div", { class: "columns two" },
      card("In force", inForce),
      card("What if", h("p", { class: "note" }, "Change a key, and see what it would have made of the newest 1,000 results of this tool, or of all. Nothing is changed."),
        h("form", { class: "form", onsubmit: tryIt },
          h("label", {}, "Outcome of what is too large", outcome), h("label", {}, "Mode", mode),
          numbers.map(([, label, input]) => h("label", {}, label, input)),
          h("button", { type: "submit", class: "primary" }, "Try it")),
        out)));
  tool.addEventListener("change", load);
  await load();
  return undefined;
}

function verdict(answer) {
  if (!answer.results) return [h("p", { class: "none" }, "No result was governed yet.")];
  const sum = (rows) => rows.reduce((total, row) => total + row.tokens, 0);
  const of = (rows, name) => rows.find((row) => row.outcome === name) ?? { results: 0, tokens: 0 };
  const names = ["pass", ...OUTCOMES].filter((name) => of(answer.was, name).results || of(answer.would_be, name).results);
  const [was, would] = [sum(answer.was), sum(answer.would_be)];
  const change = would === was ? "as many tokens as it did" : `${tokens(Math.abs(would - was))} ${would < was ? "fewer" : "more"} (${short(was)} → ${short(would)})`;
  return [
    h("p", {}, h("strong", {}, `${plural(answer.changed_results, "result")} of ${whole(answer.results)} would differ.`), ` The model would have read ${change}.`),
    table("Outcomes before and after", [
      ["Outcome", "text", (name) => outcomeMark(name)],
      ["Was", "number", (name) => whole(of(answer.was, name).results)],
      ["Would be", "number", (name) => whole(of(answer.would_be, name).results)],
      ["Tokens", "number", (name) => short(of(answer.was, name).tokens)],
      ["Would be", "number", (name) => short(of(answer.would_be, name).tokens)],
    ], names),
    answer.changed.length ? h("h3", {}, "The largest differences") : "",
    answer.changed.length ? table("Results that would differ", [
      ["When", "text", (one) => when(one.timestamp)],
      ["Tool", "text", (one) => named(one.tool_name)],
      ["Session", "text", (one) => h("a", { href: toSession(one.session_id) }, named(one.session_id))],
      ["Size", "number", (one) => bytes(one.bytes)],
      ["Was", "text", (one) => outcomeMark(one.outcome)],
      ["Would be", "text", (one) => outcomeMark(one.would_be)],
      ["Tokens", "number", (one) => `${short(one.tokens)} → ${short(one.would_be_tokens)}`],
    ], answer.changed.slice(0, 25)) : "",
    h("p", { class: "note" }, "Estimated from the accounting: budgets are taken to refuse what they refused."),
  ];
}
