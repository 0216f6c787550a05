// One stored result: its lines, its structure, questions to it, and what the model was given in its place.

import { Away, Problem, events, get, keys, query, request } from "./api.js";
import { bytes, card, copyable, dollars, duration, foreign, h, named, outcomeMark, percent, plural, save, toResult, toSession, tokens, when, whole, words } from "./dom.js";
import { Lines, highlighter, marked } from "./lines.js";
import { parameters } from "./lists.js";
import { MOST_QUERY_BYTES, MOST_TREE_BYTES, tablePanel, treePanel } from "./structure.js";

// Bytes of a mean line from which the service searches data as greppable lines, too.
const ONE_LINE = 1000;
// The service pretty-prints a few megabytes a second.
const MOST_PRETTY_BYTES = 4 * 2 ** 20;

export async function show(root, { argument: handle, signal }) {
  const path = `/results/${handle}`;
  const info = await get(path, {}, { signal });
  const panel = h("div", { role: "tabpanel", id: "panel", tabindex: -1 });
  const given = parameters();
  const stay = (view, expression) => history.replaceState(null, "", `${toResult(handle)}${query({ view, query: expression })}`);
  let expression = given.get("query") ?? "";
  const asks = (value) => { expression = value; stay("table", value); };
  const tabs = [
    ["Lines", "lines", () => linesPanel(path, info, signal)],
    ["Tree", "tree", () => treePanel(path, info, signal)],
    ["Table", "table", (isSure) => tablePanel(path, info, signal, { expression, asks, isSure })],
  ];
  const asked = tabs.findIndex(([, name]) => name === given.get("view"));
  const [first, isNamed] = asked < 0 ? [usual(info), false] : [asked, true];
  const [bar, choose] = tabBar(tabs, panel, (name) => stay(name, name === "table" ? expression : ""));
  const [givenTexts, refresh] = givenCard(path, signal);
  const side = h("div", { class: "side" }, askCard(info.handle, signal), givenTexts);
  root.replaceChildren(heading(path, info), h("div", { class: "workspace" }, h("section", { class: "card" }, bar, panel), side));
  await Promise.all([refresh(), choose(first, isNamed).catch((error) => { if (error instanceof Away) throw error; return choose(0, true); })]);
  return refresh;
}

/** The tab that a result opens with: JSON as a tree, rows as a table, all else as lines. */
function usual({ kind, measure }) {
  if (kind === "json" && measure.bytes <= MOST_TREE_BYTES) return 1;
  return ["csv", "ndjson"].includes(kind) && measure.bytes <= MOST_QUERY_BYTES ? 2 : 0;
}

function heading(path, info) {
  const { measure } = info;
  const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
  return h("div", { class: "view" },
    h("div", { class: "head" }, h("h1", {}, named(info.tool_name)),
      h("span", { class: "grow" }), copyable(info.handle, "Copy handle"),
      h("button", { type: "button", onclick: () => download(path, info) }, "Download"),
      h("button", { type: "button", class: "danger", onclick: () => remove(path) }, "Delete")),
    info.command ? h("p", { class: "call" }, words(info.command, { title: info.tool_arguments })) : "",
    h("dl", { class: "facts" },
      fact("Kind", info.kind), fact("Size", bytes(measure.bytes)), fact("Lines", whole(measure.lines)),
      fact("Tokens", `${measure.tokens_exact ? "" : "about "}${whole(measure.tokens)}`),
      fact("Session", h("a", { href: toSession(info.session_id) }, named(info.session_id))),
      fact("Stored", when(info.stored_at)), fact("Kept until", when(info.expires_at)),
      info.is_error ? fact("Tool", "failed") : ""));
}

/** The tabs, and how to choose one: `isSure` shows what is wrong with it in its place. */
function tabBar(tabs, panel, chosen) {
  const bar = h("div", { class: "segments", role: "tablist", "aria-label": "Ways to look at the result" });
  const buttons = tabs.map(([name, make], index) => h("button", {
    type: "button", role: "tab", "aria-selected": String(index === 0), "aria-controls": "panel", tabindex: index ? -1 : 0, onclick: () => pick(index),
  }, name));
  let turn = 0;
  function pick(index) {
    buttons[index].focus();
    chosen(tabs[index][1]);
    return choose(index, true);
  }
  async function choose(index, isSure) {
    const mine = ++turn;
    buttons.forEach((button, other) => { button.setAttribute("aria-selected", String(other === index)); button.tabIndex = other === index ? 0 : -1; });
    panel.replaceChildren(h("p", { class: "none" }, "Reading …"));
    try {
      const shown = await tabs[index][2](isSure);
      if (mine === turn) panel.replaceChildren(shown);
    } catch (error) {
      if (error.name === "AbortError" || mine !== turn) return;
      if (!isSure) throw error;
      panel.replaceChildren(h("p", { class: "none" }, error.message));
    }
  }
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const now = buttons.findIndex((button) => button.tabIndex === 0);
    pick((now + step + buttons.length) % buttons.length);
  });
  bar.append(...buttons);
  return [h("div", { class: "bars" }, bar), choose];
}

function linesPanel(path, info, signal) {
  const shownLines = h("span", { class: "note", "aria-live": "off" });
  const lines = new Lines(path, info.measure.lines, signal, (first, last, total) => {
    shownLines.textContent = `Lines ${whole(first)} to ${whole(last)} of ${whole(total)}`;
  });
  const hits = h("div", { class: "hits", hidden: true, tabindex: 0, role: "region", "aria-label": "Matching lines" });
  const pattern = h("input", { type: "search", name: "pattern", placeholder: "Search lines (RE2)", "aria-label": "Search lines", spellcheck: "false", autocomplete: "off" });
  const ignoreCase = h("input", { type: "checkbox" });
  const literal = h("input", { type: "checkbox" });
  const number = h("input", { class: "short", inputmode: "numeric", placeholder: "Line", "aria-label": "Go to line", autocomplete: "off" });
  const view = h("select", { "aria-label": "Form of the lines", onchange: () => lines.show(view.value) },
    h("option", { value: "raw" }, "as stored"), h("option", { value: "greppable" }, "greppable"));
  if (info.measure.bytes >= ONE_LINE * info.measure.lines && info.measure.bytes <= MOST_PRETTY_BYTES) {
    view.value = "greppable";
    lines.show("greppable").catch(() => {});
  }
  const find = h("form", { class: "bars", role: "search", onsubmit: search }, pattern,
    h("label", {}, ignoreCase, "ignore case"), h("label", {}, literal, "literal"), h("button", { type: "submit" }, "Search"));
  const go = h("form", { class: "bars", onsubmit: (event) => { event.preventDefault(); lines.go(parseInt(number.value.replace(/\D/g, ""), 10) || 1); lines.element.focus(); } },
    number, h("button", { type: "submit" }, "Go to line"), view, h("span", { class: "grow" }), shownLines);

  async function search(event) {
    event.preventDefault();
    if (!pattern.value) { hits.hidden = true; lines.mark(null); return; }
    const filter = { pattern: pattern.value, ignore_case: ignoreCase.checked, literal: literal.checked, accounted: false };
    const hit = highlighter(pattern.value, { literal: literal.checked, ignoreCase: ignoreCase.checked });
    const list = h("ol");
    hits.replaceChildren(h("p", { class: "note" }, "Searching …"), list);
    hits.hidden = false;
    try {
      await more(filter, 0, list, hit);
    } catch (error) {
      if (error.name === "AbortError") return;
      hits.replaceChildren(h("p", { class: "warning" }, error.message));
    }
  }

  async function more(filter, offset, list, hit) {
    const page = await get(`${path}/grep`, { ...filter, offset, limit: 200 }, { signal });
    if (page.view !== lines.view) { view.value = page.view; await lines.show(page.view); }
    lines.mark(hit);
    hits.firstChild.textContent = page.total_matches ? plural(page.total_matches, "matching line") : "No line matches.";
    list.append(...page.matches.map((match) => h("li", {}, h("button", { type: "button", onclick: () => lines.go(match.line) },
      h("span", { class: "number" }, whole(match.line)), h("span", {}, marked(match.text.slice(0, 400), hit))))));
    if (page.next_offset !== null) {
      const next = h("li", {}, h("button", { type: "button", onclick: async () => { next.remove(); await more(filter, page.next_offset, list, hit); } }, "More matches …"));
      list.append(next);
    }
    if (offset === 0 && page.matches.length) lines.go(page.matches[0].line);
  }

  return h("div", {}, find, hits, go, lines.element);
}

async function download(path, info) {
  const name = `${info.handle.split("/")[1]}.txt`;
  const href = `${path}/content${query({ accounted: false })}`;
  if (keys.all().length) save(await (await request(href, { accept: "text/plain" })).blob(), name);
  else h("a", { href, download: name }).click();
}

function remove(path) {
  const dialog = h("dialog", { "aria-label": "Delete this result" });
  const yes = h("button", { type: "button", class: "danger", onclick: async () => {
    try {
      await request(path, { method: "DELETE" });
      dialog.close();
      location.hash = "#/";
    } catch (error) {
      dialog.querySelector("p").textContent = error.message;
    }
  } }, "Delete");
  dialog.append(h("h2", {}, "Delete this result?"), h("p", {}, "Its bytes are deleted, and its handle is unknown from then on. The accounting keeps its entries."),
    h("div", { class: "row" }, yes, h("button", { type: "button", onclick: () => dialog.close() }, "Keep it")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// Questions to it, answered as a model would be answered, at no session's cost; and all that a model was given of it.

const MODES = [["auto", "the best way"], ["retrieve", "retrieve: passages, no model"], ["full-chunked", "full-chunked: a model reads all"], ["read-grep", "read-grep: a model searches"], ["truncate", "truncate: head and tail"]];

function askCard(handle, signal) {
  const question = h("textarea", { name: "extract", required: true, maxlength: 65536, "aria-label": "Question", placeholder: "What do you want to know of it?" });
  const mode = h("select", { name: "mode", "aria-label": "How it is answered" }, MODES.map(([name, label]) => h("option", { value: name }, label)));
  const submit = h("button", { type: "submit", class: "primary" }, "Ask");
  const cancel = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Cancel");
  const state = h("p", { class: "note", role: "status" });
  const meter = h("progress", { max: 1, hidden: true, "aria-label": "Progress of the answer" });
  const out = h("div");
  let running = null;
  signal.addEventListener("abort", () => running?.abort());
  question.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });

  async function ask(event) {
    event.preventDefault();
    running = new AbortController();
    submit.disabled = true;
    cancel.hidden = meter.hidden = false;
    meter.removeAttribute("value");
    state.textContent = "Reading …";
    out.replaceChildren();
    let done = 0;
    let all = 0;
    try {
      await events("/extract", { handle, extract: question.value, mode: mode.value, asked_by: "person" }, (name, data) => {
        if (name === "plan") { all = data.chunks ?? data.chunks_total ?? 0; state.textContent = planned(data); }
        if (name === "chunk") { done += 1; meter.value = all ? done / all : 0; state.textContent = `Read ${whole(done)}${all ? ` of ${plural(all, "chunk")}` : " chunks"} …`; }
        if (name === "reduce") { meter.removeAttribute("value"); state.textContent = "Merging what was found …"; }
        if (name === "result") { state.textContent = told(data); out.replaceChildren(h("pre", { class: "text", tabindex: 0, "aria-label": "Answer" }, foreign(data.body))); }
        if (name === "error") state.textContent = data.detail;
      }, running.signal);
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Problem) && error.message !== "The service does not answer.") throw error;
      state.textContent = error.name === "AbortError" ? "Cancelled." : error.message;
    } finally {
      submit.disabled = false;
      cancel.hidden = meter.hidden = true;
    }
  }

  const form = h("form", { onsubmit: ask }, question, h("div", { class: "row" }, mode, submit, cancel));
  return card("Ask it", form, meter, state, out, h("p", { class: "note" }, "Answered as the model is. Accounted as the dashboard's: it charges no session, and takes nothing off the savings."));
}

function planned(data) {
  return data.strategy ? `By ${data.strategy} …` : "Reading …";
}

function told(data) {
  const cost = data.usage.llm_calls ? `, ${plural(data.usage.llm_calls, "model call")}, ${dollars(data.usage.cost_usd)}` : "";
  return `${data.status} · ${data.strategy} · ${percent(data.coverage.ratio)} of the data · ${duration(data.latency_ms)}${cost}`;
}

const NAMES = { tool: "In place of the result", extract: "An answer", read: "Read back" };

/** Where a result was handed on, unread by the model. */
function handedOn(one) {
  return h("p", { class: "handed-on" }, "Handed on to ", h("b", {}, foreign(one.tool_name)), " · ", bytes(one.bytes), " · ", when(one.timestamp));
}

/** What the model was given: returns the card, and how to read it again. */
function givenCard(path, signal) {
  const list = h("div", { class: "given" });
  async function refresh() {
    const answer = await get(`${path}/given`, { limit: 200 }, { signal });
    const open = new Set([...list.querySelectorAll("details[open]")].map((one) => one.dataset.id));
    list.replaceChildren(...answer.given.map((one, index) => {
      if (one.type === "pass_on") return handedOn(one);
      const details = h("details", { "data-id": one.entry_id, open: open.has(one.entry_id) || (index === 0 && !open.size) },
        h("summary", {}, NAMES[one.type] ?? one.type, " · ", one.outcome ? outcomeMark(one.outcome) : (one.strategy ?? ""), " · ", tokens(one.tokens), " · ", when(one.timestamp)),
        one.question === null ? null : h("p", { class: "mono" }, foreign(one.question)),
        one.text === null ? h("p", { class: "note" }, "The text was not kept.") : h("pre", { class: "text", tabindex: 0 }, foreign(one.text)));
      return details;
    }));
    if (!answer.given.length) list.replaceChildren(h("p", { class: "none" }, "The accounting has no entry about it any more."));
  }
  return [card("What the model was given", list), refresh];
}
