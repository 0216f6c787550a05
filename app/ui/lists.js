// Lists with a search and filters, which stand in the address: a link to a list keeps them.

import { get, query } from "./api.js";
import { copyable, h, named } from "./dom.js";

const HOUR = 3_600_000;
const TIMES = [["", "Any time"], ["1h", "Last hour", HOUR], ["24h", "Last 24 hours", 24 * HOUR], ["7d", "Last 7 days", 168 * HOUR], ["30d", "Last 30 days", 720 * HOUR]];
const SIZES = [["", "Any size"], ["10000", "From 10 KB"], ["100000", "From 100 KB"], ["1000000", "From 1 MB"], ["10000000", "From 10 MB"]];
const STORED = [["", "Any number"], ["1", "With stored results"], ["10", "With 10 or more"], ["100", "With 100 or more"]];
/** The fields of a filter, by their names in the address: [label, choices, or null where any text may be written]. */
const FIELDS = {
  tool_name: ["Tool", null],
  client: ["Client", null],
  project: ["Project", null],
  min_bytes: ["Size", SIZES],
  min_stored: ["Stored results", STORED],
  time: ["Time", TIMES],
};
const TYPING_MS = 300;
const MOST_REQUESTS = 25;

export const parameters = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/** The form above a list. `where` is the address of the list, `hint` what its search looks at, `names` the filters that it has beside
 *  the search, and `fixed` those that only links set. `changed` is called when another list is wanted. Returns the form, what is
 *  wanted of the route, and how to suggest values. */
export function filterForm(where, hint, names, fixed, changed) {
  const given = parameters();
  const text = h("input", { type: "search", name: "text", value: given.get("text") ?? "", placeholder: hint, autocomplete: "off", spellcheck: "false", maxlength: 256 });
  const fields = names.map((name) => [name, field(name, given.get(name) ?? "")]);
  const chips = h("span", { class: "row" });
  const clear = h("a", { href: where }, "Clear");
  const state = () => Object.fromEntries([
    ["text", text.value.trim()], ...fields.map(([name, input]) => [name, input.value.trim()]),
    ...fixed.map((name) => [name, given.get(name)]),
  ].filter(([, value]) => value));
  let waiting = 0;
  let told = query(state());

  function tell() {
    clear.hidden = !Object.keys(state()).length;
    chips.replaceChildren(...fixed.filter((name) => given.get(name)).map((name) => h("button", {
      type: "button", class: "chip", "aria-label": `Remove the filter ${name}`, onclick: () => { given.delete(name); change(); },
    }, named(given.get(name)), " ✕")));
  }
  function change() {
    clearTimeout(waiting);
    const now = query(state());
    if (now === told) return;
    told = now;
    history.replaceState(null, "", `${where}${now}`);
    tell();
    changed();
  }
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter", onchange: change, onsubmit: (event) => { event.preventDefault(); change(); } },
    h("label", { class: "wide" }, "Search", text),
    fields.map(([name, input]) => h("label", {}, FIELDS[name][0], input, input.list_ ?? null)),
    h("div", { class: "row" }, chips, clear, copyable(() => location.href, "Copy link")));
  text.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(change, TYPING_MS); });
  tell();

  return {
    form,
    isAny: () => !Object.keys(state()).length,
    wanted() {
      const { time, ...others } = state();
      const span = TIMES.find(([name]) => name === time)?.[2];
      return { ...others, since: span && Date.now() - span };
    },
    /** Suggests values that there are. */
    suggest(name, values) {
      const list = fields.find(([other]) => other === name)?.[1].list_;
      list?.replaceChildren(...[...new Set(values)].filter(Boolean).sort().map((value) => h("option", { value })));
    },
  };
}

function field(name, value) {
  const [, choices] = FIELDS[name];
  if (choices) {
    const select = h("select", { name }, choices.map(([one, label]) => h("option", { value: one }, label)));
    select.value = value;
    if (select.value !== value) { select.append(h("option", { value }, value)); select.value = value; }
    return select;
  }
  const input = h("input", { name, value, list: `some-${name}`, placeholder: "Any", autocomplete: "off", spellcheck: "false", maxlength: 256 });
  input.list_ = h("datalist", { id: `some-${name}` });
  return input;
}

/** Reads at least `most` items of a list, if it has as many. `more` says whether the list goes on. Calls `step` with the items so far. */
export async function read(path, key, values, most, limit, signal, step) {
  const found = [];
  let cursor = null;
  for (let request = 0; request < MOST_REQUESTS; request += 1) {
    const page = await get(path, { ...values, limit, cursor }, { signal });
    found.push(...page[key]);
    cursor = page.next_cursor;
    if (!cursor || found.length >= most) break;
    step(found);
  }
  return { found, more: cursor !== null };
}

/** The names of tools and clients that there are, for the filters of a list. */
export async function suggestNames(filter, signal) {
  const [tools, clients] = await Promise.all(["tool_name", "door"].map((group) => get("/accounting/summary", { group_by: group, type: "tool" }, { signal })));
  filter.suggest("tool_name", tools.rows.map((row) => row.group));
  filter.suggest("client", clients.rows.map((row) => row.group));
}
