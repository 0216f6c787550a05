// All stored results, newest first, with a search and filters.

import { bytes, command, csvButton, h, iso, named, plural, short, table, toResult, toSession, when, words } from "./dom.js";
import { filterForm, read, suggestNames } from "./lists.js";

const PAGE = 100;
const CSV = [
  ["stored_at", (one) => iso(one.stored_at)], ["handle", (one) => one.handle], ["tool_name", (one) => one.tool_name], ["command", (one) => one.command],
  ["session_id", (one) => one.session_id], ["client", (one) => one.client], ["project", (one) => one.project], ["bytes", (one) => one.measure.bytes],
  ["lines", (one) => one.measure.lines], ["tokens", (one) => one.measure.tokens], ["expires_at", (one) => iso(one.expires_at)],
];

export async function show(root, { signal, reread }) {
  const count = h("span", { class: "note", role: "status" });
  const rows = h("div");
  let [shown, turn, asked, results] = [PAGE, 0, false, []];
  const filter = filterForm("#/results", "Tool or command", ["tool_name", "client", "project", "min_bytes", "time"], ["session_id"], () => ask(PAGE));
  root.append(h("div", { class: "head" }, h("h1", {}, "Stored results"), count, h("span", { class: "grow" }), csvButton("results", CSV, () => results)),
    h("section", { class: "card" }, filter.form, rows));

  /** Reads the list at once, at least `most` of it. */
  function ask(most) {
    [shown, asked] = [most, true];
    reread();
  }

  async function refresh() {
    const mine = ++turn;
    const isWaitedFor = !rows.firstChild || asked;
    asked = false;
    const draw = (found, more) => { if (mine === turn) drawn(found, more); };
    const { found, more } = await read("/results", "results", filter.wanted(), shown, PAGE, signal, isWaitedFor ? (some) => draw(some, null) : () => {});
    draw(found, more);
  }

  /** `more`: whether there may be others; null while they are looked for. */
  function drawn(found, more) {
    results = found;
    filter.suggest("project", found.map((one) => one.project));
    count.textContent = `${plural(found.length, "result")}${more === null ? ", searching …" : more ? ", and there may be more" : ""}`;
    if (!found.length && more === false && filter.isAny()) {
      rows.replaceChildren(h("p", {}, "Nothing is stored. What is too large for a model is, such as:"),
        command(`seq 1 20000 | curl -s --data-binary @- -H 'Content-Type: text/plain' \\\n  '${location.origin}/results?session_id=demo&tool_name=execute_shell'`));
      return;
    }
    rows.replaceChildren(table("Stored results", [
      ["Stored", "text", (one) => when(one.stored_at)],
      ["Tool", "text main", (one) => [h("a", { href: toResult(one.handle) }, named(one.tool_name)), one.command ? h("div", {}, words(one.command)) : null]],
      ["Session", "text", (one) => h("a", { href: toSession(one.session_id) }, named(one.session_id))],
      ["Client", "text", (one) => (one.client ? named(one.client) : "")],
      ["Project", "text", (one) => (one.project ? named(one.project) : "")],
      ["Size", "number", (one) => bytes(one.measure.bytes)],
      ["Tokens", "number", (one) => short(one.measure.tokens)],
      ["Kept until", "text", (one) => when(one.expires_at)],
    ], found, more === false ? "No stored result is like that." : "None so far."),
    more ? h("p", {}, h("button", { type: "button", onclick: () => ask(Math.max(found.length, shown) + PAGE) }, "More results")) : "");
  }
  await Promise.all([refresh(), suggestNames(filter, signal)]);
  return refresh;
}
