// Sessions: their budgets, and the timeline of one, with what was asked of each result below it.

import { askedWords, get, query, storedCommands } from "./api.js";
import { about, bytes, card, command, csvButton, foreign, h, iso, kindOf, legend, named, plural, short, table, tokens, toResult, toSession, when, whole, words } from "./dom.js";
import { filterForm, read, suggestNames } from "./lists.js";

const PAGE = 100;
const CALLS = 200;
/** The session of the entries of a person's questions. */
const OURS = "dashboard";

function budgetBar(budget) {
  const part = (value, kind) => {
    const span = h("span", { class: `fill ${kind}` });
    span.style.width = `${Math.min(100, (100 * value) / Math.max(budget.limit_tokens, 1))}%`;
    return span;
  };
  const text = `${whole(budget.used_tokens)} used and ${whole(budget.reserved_tokens)} reserved of ${whole(budget.limit_tokens)} tokens`;
  return h("span", { class: "budget", role: "img", "aria-label": text, title: text }, part(budget.used_tokens, budget.exhausted ? "bad" : ""), part(budget.reserved_tokens, "warm"));
}

const budgetLegend = () => legend([["", "used, as last reported"], ["is-warm", "reserved by results since"], ["is-bad", "used, and exhausted"], ["is-free", "left"]]);

const remaining = (budget) => (budget.exhausted ? h("span", { class: "state bad" }, "exhausted") : budget.enforced ? `${short(budget.remaining_tokens)}` : h("span", { class: "muted" }, "not enforced"));

const called = ({ last_call: call }, name) => (call?.[name] ? named(call[name]) : "");

/** The command of the newest stored result. Of a result that passed no argument is kept, so only its tool is known. */
const lastCommand = ({ last_call: call }) => (call?.command ? words(call.command) : called({ last_call: call }, "tool_name"));

const CSV = [
  ["session_id", (one) => one.session_id], ["last_used_at", (one) => iso(one.last_used_at)], ["client", (one) => one.last_call?.client], ["project", (one) => one.last_call?.project],
  ["last_tool", (one) => one.last_call?.tool_name], ["last_command", (one) => one.last_call?.command], ["stored_results", (one) => one.stored_results],
  ["limit_tokens", (one) => one.budget.limit_tokens], ["used_tokens", (one) => one.budget.used_tokens], ["reserved_tokens", (one) => one.budget.reserved_tokens],
];

export const list = {
  async show(root, { signal, reread }) {
    const rows = h("div");
    const count = h("span", { class: "note", role: "status" });
    let [shown, turn, sessions] = [PAGE, 0, []];
    const filter = filterForm("#/sessions", "Id or last command", ["tool_name", "client", "project", "min_stored", "time"], [], () => { shown = PAGE; reread(); });
    root.append(h("div", { class: "head" }, h("h1", {}, "Sessions"), count, h("span", { class: "grow" }), csvButton("sessions", CSV, () => sessions)),
      h("section", { class: "card" }, filter.form, budgetLegend(), rows));
    async function refresh() {
      const mine = ++turn;
      const { found, more } = await read("/sessions", "sessions", { ...filter.wanted(), order: "newest", last_call: true }, shown, PAGE, signal, () => {});
      if (mine !== turn) return;
      // One that was used between two pages is on both.
      sessions = [...new Map(found.map((session) => [session.session_id, session])).values()];
      filter.suggest("project", sessions.map((session) => session.last_call?.project));
      count.textContent = sessions.length || more ? `${plural(sessions.length, "session")}${more ? ", and there may be more" : ""}` : "";
      if (!sessions.length && !more && filter.isAny()) {
        rows.replaceChildren(h("p", {}, "No session is open. A first result opens one, or:"),
          command(`curl -s -X PUT ${location.origin}/sessions/demo -H 'Content-Type: application/json' -d '{"context_window": 131072}'`));
        return;
      }
      rows.replaceChildren(table("Sessions", [
        ["Session", "text", (one) => h("a", { href: toSession(one.session_id) }, named(one.session_id))],
        ["Last used", "text", (one) => when(one.last_used_at)],
        ["Client", "text", (one) => called(one, "client")],
        ["Project", "text", (one) => called(one, "project")],
        ["Last command", "text main", lastCommand],
        ["Stored", "number", (one) => (one.stored_results ? h("a", { href: `#/results${query({ session_id: one.session_id })}` }, whole(one.stored_results)) : "0")],
        ["Budget", "share", (one) => budgetBar(one.budget)],
        ["Left", "number", (one) => remaining(one.budget)],
      ], sessions, more ? "None so far." : "No session is like that."),
      more ? h("p", {}, h("button", { type: "button", onclick: () => { shown = Math.max(sessions.length, shown) + PAGE; reread(); } }, "More sessions")) : "");
    }
    await Promise.all([refresh(), suggestNames(filter, signal)]);
    return refresh;
  },
};

export const one = {
  async show(root, { argument: id, signal }) {
    const top = h("div", { class: "view" });
    const line = h("div");
    let shown = CALLS;
    root.append(h("div", { class: "head" }, h("h1", {}, named(id)), h("span", { class: "grow" }), h("a", { href: `#/results${query({ session_id: id })}` }, "Its stored results")), top, card("Calls, newest first", line));
    async function refresh() {
      const path = `/sessions/${encodeURIComponent(id)}`;
      const [session, page, commands, asked] = await Promise.all([
        get(path, {}, { signal }).catch((error) => { if (error.status === 410 || error.status === 404) return error; throw error; }),
        newest(id, shown, signal),
        storedCommands({ session_id: id, limit: CALLS }, { signal }),
        askedWords(id, { signal }),
      ]);
      if (session instanceof Error && !page.entries.length) throw session;
      const isOurs = session instanceof Error && id === OURS;
      top.replaceChildren(isOurs ? h("p", { class: "note" }, "What people asked on this page. No session pays for it.") : session instanceof Error ? h("p", { class: "warning" }, session.message) : facts(session));
      line.replaceChildren(timeline(page.entries, (entry) => (entry.type === "tool" ? commands.get(entry.details.tool_output_handle) : asked.get(entry.id))), page.more ? h("p", {}, h("button", { type: "button", onclick: () => { shown += CALLS; refresh(); } }, "Earlier calls")) : "");
    }
    await refresh();
    return refresh;
  },
};

async function newest(id, most, signal) {
  const entries = [];
  let cursor = null;
  do {
    const page = await get("/accounting/entries", { session_id: id, order: "newest", limit: CALLS, cursor }, { signal });
    entries.push(...page.entries);
    cursor = page.next_cursor;
  } while (cursor && entries.length < most);
  return { entries, more: cursor !== null };
}

function facts(session) {
  const { budget } = session;
  const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
  return h("section", { class: "card" }, h("h2", {}, "Budget"), budgetBar(budget), budgetLegend(),
    h("dl", { class: "facts spaced" }, fact("Limit", tokens(budget.limit_tokens)), fact("Used", tokens(budget.used_tokens)), fact("Reserved", tokens(budget.reserved_tokens)),
      fact("Remaining", remaining(budget)), fact("Turn", session.turn ?? "–"), fact("Model", session.model ? named(session.model) : "–"),
      fact("Stored results", whole(session.stored_results)), fact("Opened", when(session.created_at)), fact("Kept until", when(session.expires_at))),
    session.policy ? h("p", { class: "mono" }, "Policy: ", foreign(JSON.stringify(session.policy))) : "");
}

/** Extractions, model calls and reads stand below the result that they are about. `told`: the command of a result's
 *  call, or the words of a question. */
function timeline(entries, told) {
  if (!entries.length) return h("p", { class: "none" }, "No call was accounted.");
  const below = new Map();
  const results = new Set(entries.filter((entry) => entry.type === "tool").map((entry) => entry.details.tool_output_handle).filter(Boolean));
  const heads = [];
  for (const entry of entries) {
    const handle = entry.details.tool_output_handle;
    if (entry.type === "tool" || !results.has(handle)) heads.push(entry);
    else below.set(handle, [entry, ...(below.get(handle) ?? [])]);
  }
  return h("ol", { class: "timeline" }, heads.map((entry) => {
    const handle = entry.details.tool_output_handle;
    const questions = entry.type === "tool" ? below.get(handle) ?? [] : [];
    return h("li", {}, item(entry, told(entry), true), questions.length ? h("ul", {}, questions.map((other) => h("li", {}, item(other, told(other))))) : "");
  }));
}

/** `isAlone`: it does not stand below its result. */
function item(entry, told, isAlone = false) {
  const handle = entry.details.tool_output_handle;
  const name = isAlone || entry.type === "pass_on" ? named(entry.tool_name) : "";
  return h("span", { class: "row" }, when(entry.timestamp), kindOf(entry), handle && isAlone && entry.type !== "pass_on" ? h("a", { href: toResult(handle) }, name) : name,
    h("span", { class: "muted" }, [bytes(entry.details.bytes), `${short(entry.tokens_out)} tokens read`, entry.turn === null ? "" : `turn ${entry.turn}`, entry.tokens_saved > 0 ? `${short(entry.tokens_saved)} kept out` : ""].filter(Boolean).join(" · ")),
    h("span", { class: "muted" }, about(entry)),
    told ? words(told) : "");
}

