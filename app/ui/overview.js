// What was kept out of context, and what reading it back cost: sums, charts and the newest entries.

import { get, keys, query, storedCommands } from "./api.js";
import { loaded, periods, stackedChart, timeChart } from "./charts.js";
import { bar, bytes, card, command, dollars, duration, entriesTable, h, named, outcomeMark, percent, plural, short, table, tokens, toResult, toSession, when, whole } from "./dom.js";
import { parameters } from "./lists.js";

const HOUR = 3_600_000;
const RANGES = [
  ["1 h", HOUR, "minute", 60_000],
  ["6 h", 6 * HOUR, "minute", 60_000],
  ["24 h", 24 * HOUR, "hour", HOUR],
  ["7 days", 168 * HOUR, "hour", HOUR],
  ["30 days", 720 * HOUR, "day", 24 * HOUR],
];
const FILTERS = ["tool_name", "outcome", "trigger"];
/** What the chart by tool shows: [name in the address, label, field of a sum]. */
const MEASURES = [["returned", "Returned", "tokens_in"], ["read", "Read by the model", "tokens_out"], ["kept", "Kept out", "tokens_saved"]];
const MOST_TOOLS = 6;

/** The range, the filter and the measure that the address names. */
function chosen() {
  const given = parameters();
  const range = RANGES.find(([name]) => name === given.get("range")) ?? RANGES[2];
  const measure = MEASURES.find(([name]) => name === given.get("tokens")) ?? MEASURES[0];
  return [range, Object.fromEntries(FILTERS.map((name) => [name, given.get(name)]).filter(([, value]) => value)), measure];
}

const GROUPS = [
  ["tool_name", "By tool", "Tool"],
  ["outcome", "By outcome", "Outcome"],
  ["trigger", "By trigger", "Trigger"],
];
const NEWEST = 25;
/** How old all below the chart but the newest entries may be, where nothing asks for more. */
const DETAILS_MS = 60_000;
/** The same where the window is looked at again. */
const LOOKED_AT_MS = 10_000;

/** Rows of a summary by several keys, added up by one of them. Mean and longest latency are those of the first row. Each field by
 *  its name: with names in a list, 676 rows take ten times as long. */
function summed(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const group = row.groups[key];
    const sums = groups.get(group);
    if (sums === undefined) {
      groups.set(group, { ...row, group });
      continue;
    }
    sums.entries += row.entries;
    sums.failed += row.failed;
    sums.bytes += row.bytes;
    sums.tokens_in += row.tokens_in;
    sums.tokens_out += row.tokens_out;
    sums.tokens_saved += row.tokens_saved;
    sums.tokens_saved_observed += row.tokens_saved_observed;
    sums.cost_usd += row.cost_usd;
    sums.stored += row.stored;
    sums.asked_back += row.asked_back;
    sums.found_nothing += row.found_nothing;
    sums.costs_more += row.costs_more;
  }
  return [...groups.values()].sort((one, two) => two.tokens_saved - one.tokens_saved);
}

export async function show(root, { signal, reread }) {
  const [range, filter, measure] = chosen();
  const parts = {
    figures: h("div", { class: "figures" }), gaps: h("div"), chart: h("div"), byTool: h("div"), groups: h("div", { class: "columns" }),
    extraction: h("div"), recent: h("div"), largest: h("div"), tenants: h("div"),
  };
  let [chart, toolChart, detailed, commands] = [null, null, 0, new Map()];
  signal.addEventListener("abort", () => { chart?.destroy(); toolChart?.destroy(); });
  // A chart has its colours from when it was drawn.
  window.addEventListener("theme", () => { detailed = 0; reread(); }, { signal });
  let isDrawn = false;

  function draw() {
    root.replaceChildren(
      h("div", { class: "head" }, h("h1", {}, "Overview"), ranges(range, filter), chips(range, filter)),
      parts.figures,
      parts.gaps,
      h("div", { class: "columns two" }, card("Tokens kept out of context", parts.chart),
        h("section", { class: "card" }, h("div", { class: "head titled" }, h("h2", {}, "Tokens of each tool"), measures(range, filter, measure)), parts.byTool)),
      parts.groups,
      h("div", { class: "columns two" }, card("Extraction", parts.extraction), card("Largest results", parts.largest)),
      parts.tenants,
      card("Newest entries", parts.recent));
    isDrawn = true;
  }

  async function refresh(isWhole = false) {
    const [, span, period, step] = range;
    const until = Date.now();
    const since = Math.floor((until - span) / step) * step;
    const selection = { ...filter, since };
    const sum = (group, more = {}) => get("/accounting/summary", { ...selection, group_by: group, ...more }, { signal });
    const newest = (type) => get("/accounting/entries", { ...selection, type, order: "newest", limit: 1000 }, { signal });
    const [sums, recent] = await Promise.all([
      sum(`${period},type`), get("/accounting/entries", { ...filter, order: "newest", limit: NEWEST }, { signal }), loaded]);
    if (sums.total.entries === 0 && recent.entries.length === 0 && !Object.keys(filter).length) {
      empty(root);
      isDrawn = false;
      return;
    }
    if (!isDrawn) draw();
    figures(parts.figures, summed(sums.rows, "type"), sums.total);
    parts.gaps.replaceChildren(...sums.warnings.map((text) => h("p", { class: "warning" }, "⚠ ", text)));
    const [times, saved, observed] = periods(
      sums.rows, step, since, until, (row) => row.tokens_saved, (row) => row.tokens_saved_observed);
    const lines = [["Kept out, net", "accent", saved]];
    if (observed.some(Boolean)) lines.push(["Would have been saved (observe)", "warm", observed]);
    chart?.destroy();
    chart = timeChart(parts.chart, `Tokens kept out of context, net of reading back, by ${period}`, times, lines, step);
    parts.recent.replaceChildren(entriesTable(recent.entries, commands));
    performance.mark("first-view");
    if (recent.entries.some((one) => one.type === "tool" && one.details.tool_output_handle && !commands.has(one.details.tool_output_handle))) {
      const found = await storedCommands({ limit: NEWEST }, { signal });
      // What was deleted is not asked for again.
      commands = new Map(recent.entries.map(({ details: { tool_output_handle: handle } }) => [handle, found.get(handle) ?? ""]));
      parts.recent.replaceChildren(entriesTable(recent.entries, commands));
    }
    if (until - detailed < (isWhole ? LOOKED_AT_MS : DETAILS_MS)) return;
    const [overTime, tools, kinds, questions, large] = await Promise.all([
      sum(`${period},tool_name`, { type: "tool" }), sum("tool_name,type"), sum("type,outcome,trigger,strategy"), newest("extract"), newest("tool"),
    ]);
    detailed = until;
    toolChart?.destroy();
    toolChart = ofTools(parts.byTool, overTime, { range, filter, measure }, since, until);
    const results = kinds.rows.filter((row) => row.groups.type === "tool");
    const rows = { tool_name: byTool(tools.rows), outcome: summed(results, "outcome"), trigger: summed(results, "trigger") };
    parts.groups.replaceChildren(...GROUPS.map(([name, title, head]) => card(title, group(name, head, rows[name], range, filter))));
    extraction(parts.extraction, kinds.rows.filter((row) => row.groups.type === "extract"), questions.entries, sums.total);
    largest(parts.largest, large.entries);
    await tenants(parts.tenants, since, signal);
  }

  await refresh();
  return refresh;
}

function empty(root) {
  const origin = location.origin;
  root.replaceChildren(h("section", { class: "empty" },
    h("h1", {}, "Nothing was governed yet"),
    h("p", {}, "Send a first result. It is too large for a model, so it is stored, and a short text takes its place:"),
    command(`seq 1 20000 | curl -s --data-binary @- -H 'Content-Type: text/plain' \\\n  '${origin}/results?session_id=demo&tool_name=execute_shell'`),
    keys.all().length ? h("p", {}, "Add ", h("code", {}, "-H \"Authorization: Bearer $KEY\""), " with your key.") : null,
    h("p", {}, "This page shows it within ten seconds. The API is described at ", h("a", { href: "/docs" }, "/docs"), ".")));
}

const there = (range, filter, [measure] = chosen()[2]) => `#/${query({ range: range[0], ...filter, tokens: measure === MEASURES[0][0] ? "" : measure })}`;

function ranges(range, filter) {
  return h("div", { class: "segments", role: "group", "aria-label": "Time range" },
    RANGES.map((one) => h("a", { href: there(one, filter), "aria-current": one === range ? "true" : null }, one[0])));
}

function chips(range, filter) {
  return Object.entries(filter).map(([name, value]) => {
    const others = Object.fromEntries(Object.entries(filter).filter(([other]) => other !== name));
    return h("a", { class: "chip", href: there(range, others), "aria-label": `Remove the filter ${name}` }, named(value), " ✕");
  });
}

function measures(range, filter, measure) {
  return h("div", { class: "segments", role: "group", "aria-label": "Which tokens" },
    MEASURES.map((one) => h("a", { href: there(range, filter, one), "aria-current": one === measure ? "true" : null }, one[1])));
}

/** The tokens of each tool over time: the largest tools with a colour each, all others with one. */
function ofTools(root, sums, { range, filter, measure }, since, until) {
  const [, , period, step] = range;
  const [, label, field] = measure;
  const totals = summed(sums.rows, "tool_name").sort((one, two) => two[field] - one[field]).filter((row) => row[field] > 0);
  if (!totals.length) {
    root.replaceChildren(h("p", { class: "none" }, "No tool returned anything in this time."));
    return null;
  }
  const largest = totals.slice(0, totals.length > MOST_TOOLS ? MOST_TOOLS - 1 : MOST_TOOLS).map((row) => row.group);
  const of = (rows) => periods(rows, step, since, until, (row) => Math.max(0, row[field]));
  const parts = largest.map((name, index) => [name, `tool-${index + 1}`, of(sums.rows.filter((row) => row.groups.tool_name === name))[1], there(range, { ...filter, tool_name: name }, measure)]);
  if (totals.length > largest.length) parts.push([`${whole(totals.length - largest.length)} others`, "tool-0", of(sums.rows.filter((row) => !largest.includes(row.groups.tool_name)))[1], null]);
  const chart = stackedChart(root, `Tokens of each tool (${label.toLowerCase()}), by ${period}`, of([])[0], parts, step);
  if (sums.rest) root.append(h("p", { class: "warning" }, "⚠ Too many tools for so long a time: some are not in this chart."));
  return chart;
}

function figures(root, types, total) {
  const of = Object.fromEntries(types.map((row) => [row.group, row]));
  const tool = of.tool ?? { entries: 0, tokens_in: 0, tokens_saved: 0, tokens_saved_observed: 0 };
  const back = -["extract", "read", "llm"].reduce((sum, name) => sum + (of[name]?.tokens_saved ?? 0), 0);
  const share = tool.tokens_in ? total.tokens_saved / tool.tokens_in : 0;
  const figure = (name, value, note) => h("div", { class: "figure" }, h("span", { class: "name" }, name), h("strong", {}, value), h("span", { class: "note" }, note));
  root.replaceChildren(
    figure("Kept out of context, net", tokens(total.tokens_saved), `${percent(share)} of the ${tokens(tool.tokens_in)} that tools returned`),
    figure("Read back", tokens(back), `${plural(of.extract?.asked_back ?? 0, "question")}, ${plural(of.read?.asked_back ?? 0, "read")}`),
    figure("Results governed", whole(tool.entries), `${whole(tool.failed ?? 0)} from failed tools, ${bytes(tool.bytes ?? 0)}`),
    figure("Spent on models", dollars(total.cost_usd), plural(of.llm?.entries ?? 0, "call")),
    tool.tokens_saved_observed ? figure("Observe would have saved", tokens(tool.tokens_saved_observed), "policies that only observe pass everything") : "");
}

function group(name, head, rows, range, filter) {
  const most = Math.max(1, ...rows.map((row) => row.tokens_saved));
  const label = (row) => (row.group === null ? h("span", { class: "muted" }, name === "trigger" ? "none fired" : "none")
    : h("a", { href: there(range, { ...filter, [name]: row.group }) }, name === "outcome" ? outcomeMark(row.group) : named(row.group)));
  return table(name, [
    [head, "text", label],
    ["Results", "number", (row) => whole(row.entries)],
    ["Kept out", "number", (row) => short(row.tokens_saved)],
    ["Share", "share", (row) => bar(row.tokens_saved / most, `${whole(row.tokens_saved)} tokens`)],
    ...(name === "tool_name" && !filter.outcome && !filter.trigger ? [["Asked back", "number", askedBack]] : []),
  ], rows.slice(0, 12));
}

/** One row for each tool: the sums of its results, and in `all` those of its results and of what was asked about them. */
function byTool(rows) {
  const all = new Map(summed(rows, "tool_name").map((row) => [row.group, row]));
  return summed(rows.filter((row) => row.groups.type === "tool"), "tool_name").map((row) => ({ ...row, all: all.get(row.group) }));
}

/** Answers about a tool's stored results, for each result, and a hint if storing them costs more than it saves. */
function askedBack({ all }) {
  if (all.stored === 0) return "–";
  const net = Math.round(all.tokens_saved / all.stored);
  const title = `${plural(all.asked_back, "answer")} about ${plural(all.stored, "stored result")}; ${whole(all.found_nothing)} found nothing; `
    + `${whole(net)} tokens a stored result kept out, net; ${whole(all.costs_more)} cost more than storing the result saved`;
  const pays = net > 0 && 2 * all.costs_more <= all.stored;
  return [h("span", { title }, `${(all.asked_back / all.stored).toFixed(1)} ×`),
    pays ? null : h("div", { class: "minus", title: "Storing these results costs more tokens than it saves: raise max_bytes for this tool." }, "cap does not pay")];
}

/** `strategies`: rows of a summary, one for each strategy. */
function extraction(root, strategies, questions, total) {
  if (strategies.length === 0) {
    root.replaceChildren(h("p", { class: "none" }, "No question was asked. Open a stored result, and ask it one."));
    return;
  }
  const fallbacks = new Map();
  for (const one of questions) if (one.fallback_reason) fallbacks.set(one.fallback_reason, (fallbacks.get(one.fallback_reason) ?? 0) + 1);
  const latencies = questions.map((one) => one.latency).sort((a, b) => a - b);
  const at = (share) => latencies[Math.min(latencies.length - 1, Math.floor(share * latencies.length))] ?? 0;
  root.replaceChildren(
    table("Extraction by strategy", [
      ["Strategy", "text", (row) => row.groups.strategy ?? "none"],
      ["Asked", "number", (row) => whole(row.entries)],
      ["Failed", "number", (row) => whole(row.failed)],
      ["Mean", "number", (row) => duration(row.latency_ms_mean)],
      ["Longest", "number", (row) => duration(row.latency_ms_max)],
      ["Tokens", "number", (row) => short(row.tokens_out)],
    ], strategies),
    h("p", { class: "note" }, `Half answered within ${duration(at(0.5))}, 95 % within ${duration(at(0.95))}. Models cost ${dollars(total.cost_usd)}.`),
    fallbacks.size ? table("Fallbacks", [
      ["Fell back because", "text", ([reason]) => named(reason)],
      ["Questions", "number", ([, count]) => whole(count)],
    ], [...fallbacks].sort((one, two) => two[1] - one[1])) : h("p", { class: "note" }, "No question fell back to another strategy."));
}

function largest(root, entries) {
  const rows = [...entries].sort((one, two) => two.details.bytes - one.details.bytes).slice(0, 8);
  root.replaceChildren(table("Largest results", [
    ["Tool", "text", (one) => (one.details.tool_output_handle ? h("a", { href: toResult(one.details.tool_output_handle) }, named(one.tool_name)) : named(one.tool_name))],
    ["Size", "number", (one) => bytes(one.details.bytes)],
    ["Tokens", "number", (one) => short(one.tokens_in)],
    ["Session", "text", (one) => h("a", { href: toSession(one.session_id) }, named(one.session_id))],
    ["When", "text", (one) => when(one.timestamp)],
  ], rows), entries.length === 1000 ? h("p", { class: "note" }, "Of the newest 1,000 results.") : "");
}

/** By tenant, where the tab holds keys of several: a key reads its own tenant alone. */
async function tenants(root, since, signal) {
  if (keys.all().length < 2) return;
  const rows = await Promise.all(keys.all().map(async (key) => {
    const [config, sums] = await Promise.all([get("/config", {}, { key, signal }), get("/accounting/summary", { since, group_by: "type" }, { key, signal })]);
    return { tenant: config.tenant, ...sums.total };
  }));
  root.replaceChildren(card("By tenant", table("By tenant", [
    ["Tenant", "text", (row) => named(row.tenant)],
    ["Entries", "number", (row) => whole(row.entries)],
    ["Kept out, net", "number", (row) => whole(row.tokens_saved)],
    ["Models", "number", (row) => dollars(row.cost_usd)],
  ], rows)));
}
