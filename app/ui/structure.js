// A stored result as data: JSON as a tree, rows as a table, and a box for queries.

import { Problem, get, query, request } from "./api.js";
import { bytes, copyable, foreign, h, named, plural, save, whole } from "./dom.js";

export const MOST_TREE_BYTES = 8 * 2 ** 20;
export const MOST_QUERY_BYTES = 32 * 2 ** 20;
const CHILDREN = 100;
const COLUMNS = 40;
const CELL_CHARS = 300;
const PAGE = 100;

/** A number that the browser would round, as it was written. */
class Exact {
  constructor(source) { this.source = source; }
}

const keepExact = (_, value, context) =>
  (typeof value === "number" && context?.source && String(value) !== context.source && !Number.isSafeInteger(value) ? new Exact(context.source) : value);

export async function treePanel(path, info, signal) {
  if (info.measure.bytes > MOST_TREE_BYTES) {
    return h("p", { class: "none" }, `The tree is for at most ${bytes(MOST_TREE_BYTES)}; this has ${bytes(info.measure.bytes)}. Read the lines as “greppable”, or query it under Table.`);
  }
  const text = await (await request(`${path}/content`, { accept: "text/plain", signal })).text();
  let data;
  try {
    data = JSON.parse(text, keepExact);
  } catch {
    try {
      data = text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line, keepExact));
    } catch {
      throw new Error("This is neither JSON nor JSON lines.");
    }
  }
  const root = h("ul");
  root.append(node("", data, true));
  return h("div", { class: "tree", tabindex: 0, role: "region", "aria-label": "The data as a tree" }, root);
}

function kindOf(value) {
  if (value === null) return "null";
  if (value instanceof Exact) return "number";
  return Array.isArray(value) ? "array" : typeof value;
}

function node(key, value, open = false) {
  const kind = kindOf(value);
  const label = key === "" ? "" : [h("span", { class: "key" }, named(key)), ": "];
  if (kind !== "array" && kind !== "object") return h("li", {}, label, leaf(value, kind));
  const count = kind === "array" ? value.length : Object.keys(value).length;
  const note = kind === "array" ? `[${plural(count, "item")}]` : `{${plural(count, "key")}}`;
  const button = h("button", { type: "button", "aria-expanded": "false", onclick: toggle }, "▸ ", label, h("span", { class: "muted" }, note));
  const item = h("li", {}, button);
  let list = null;
  function toggle() {
    const opens = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(opens));
    button.firstChild.textContent = opens ? "▾ " : "▸ ";
    if (!opens) { list.hidden = true; return; }
    if (list === null) { list = h("ul"); item.append(list); more(list, value, kind, 0); }
    list.hidden = false;
  }
  if (open) toggle();
  return item;
}

function more(list, value, kind, from) {
  const names = kind === "array" ? null : Object.keys(value);
  const count = names ? names.length : value.length;
  const to = Math.min(count, from + CHILDREN);
  for (let index = from; index < to; index += 1) list.append(node(names ? names[index] : String(index), value[names ? names[index] : index]));
  if (to < count) {
    const next = h("li", {}, h("button", { type: "button", onclick: () => { next.remove(); more(list, value, kind, to); } }, `… ${whole(count - to)} more`));
    list.append(next);
  }
}

function leaf(value, kind) {
  const text = value instanceof Exact ? value.source : kind === "string" ? JSON.stringify(value) : String(value);
  if (text.length <= 2000) return h("span", { class: `is-${kind}` }, foreign(text));
  const span = h("span", { class: `is-${kind}` }, foreign(text.slice(0, 2000)));
  const rest = h("button", { type: "button", onclick: () => { span.replaceChildren(...foreign(text.slice(0, 200_000)).flat()); rest.remove(); } }, `… ${whole(text.length - 2000)} more characters`);
  return h("span", {}, span, rest);
}

/** Runs `expression` at once, "" for all rows. Calls `asks` with each expression that runs. Unless `isSure`, throws the first one's Problem. */
export async function tablePanel(path, info, signal, { expression: first, asks, isSure }) {
  if (info.measure.bytes > MOST_QUERY_BYTES) {
    return h("p", { class: "none" }, `Queries read at most ${bytes(MOST_QUERY_BYTES)}; this has ${bytes(info.measure.bytes)}.`);
  }
  const expression = h("input", { class: "wide mono", name: "expression", placeholder: "SELECT status, count(*) FROM data GROUP BY status, or JMESPath", "aria-label": "Query", autocomplete: "off", spellcheck: "false", value: first });
  const out = h("div");
  const form = h("form", { class: "bars", onsubmit: (event) => { event.preventDefault(); asks(expression.value.trim()); run(0); } }, expression,
    h("button", { type: "submit" }, "Query"), copyable(link, "Copy link"), h("button", { type: "button", onclick: download }, "CSV"));
  const asked = () => expression.value.trim() || "@";
  // The copied link runs the expression in the box.
  function link() {
    asks(expression.value.trim());
    return location.href;
  }
  const told = (error) => {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    out.replaceChildren(h("p", { class: "warning" }, error.message));
  };
  async function download() {
    try {
      const rows = await request(`${path}/query${query({ expression: asked(), accounted: false })}`, { accept: "text/csv", signal });
      save(await rows.blob(), `${info.handle.split("/")[1]}.csv`);
    } catch (error) {
      told(error);
    }
  }
  async function run(offset) {
    out.replaceChildren(h("p", { class: "none" }, "Querying …"));
    try {
      await ask(offset);
    } catch (error) {
      told(error);
    }
  }
  async function ask(offset) {
    out.replaceChildren(answer(await get(`${path}/query`, { expression: asked(), limit: PAGE, offset, accounted: false }, { signal }), offset, run));
  }
  await (isSure ? run(0) : ask(0));
  return h("div", {}, form, out);
}

function answer(page, offset, run) {
  const parts = [];
  if (page.hint) parts.push(h("p", { class: "note" }, foreign(page.hint)));
  if (page.type === "array") {
    const last = offset + page.result.length;
    const pageButton = (name, to, on) => h("button", { type: "button", disabled: !on, onclick: () => run(to) }, name);
    parts.push(h("div", { class: "bars" }, h("span", { class: "note grow" }, page.total ? `${page.columns ? "Rows" : "Items"} ${whole(offset + 1)} to ${whole(last)} of ${whole(page.total)} (${page.kind})` : "No items"),
      pageButton("Previous", Math.max(0, offset - PAGE), offset > 0), pageButton("Next", page.next_offset ?? 0, page.next_offset !== null)));
    parts.push(rowsOf(page.result, offset));
  } else {
    parts.push(h("pre", { class: "text", tabindex: 0 }, foreign(JSON.stringify(page.result, null, 2).slice(0, 400_000))));
  }
  return h("div", {}, parts);
}

function rowsOf(items, offset) {
  const names = [];
  for (const item of items) {
    if (kindOf(item) !== "object") continue;
    for (const name of Object.keys(item)) if (!names.includes(name) && names.length <= COLUMNS) names.push(name);
  }
  const isTable = items.length > 0 && items.every((item) => kindOf(item) === "object");
  const columns = isTable ? names.slice(0, COLUMNS) : [];
  const cell = (value) => {
    if (value === undefined || value === null) return h("td", { class: "muted" }, value === null ? "null" : "");
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return h("td", { title: text.length > 40 ? text.slice(0, 1000) : null, class: typeof value === "number" ? "number" : "" }, h("bdi", {}, foreign(text.slice(0, CELL_CHARS)), text.length > CELL_CHARS ? "…" : ""));
  };
  const head = h("tr", {}, h("th", { scope: "col", class: "number" }, "#"), isTable ? columns.map((name) => h("th", { scope: "col", class: items.some((item) => typeof item[name] === "number") ? "number" : "" }, named(name.slice(0, 200)))) : h("th", { scope: "col" }, "Value"));
  const body = items.map((item, index) => h("tr", {}, h("td", { class: "number muted" }, whole(offset + index + 1)), isTable ? columns.map((name) => cell(item[name])) : cell(item)));
  const widest = Math.max(0, ...items.map((item) => (kindOf(item) === "object" ? Object.keys(item).length : 0)));
  return h("div", {}, h("div", { class: "cells", tabindex: 0, role: "region", "aria-label": "Rows" }, h("table", {}, h("thead", {}, head), h("tbody", {}, body))),
    isTable && widest > COLUMNS && h("p", { class: "note" }, `The first ${COLUMNS} of ${whole(widest)} columns. Choose others by a query.`));
}
