// Questions to a stored result, answered as a model would be answered; and all that a model was given of it.

import { Problem, events, get } from "./api.js";
import { card, dollars, duration, foreign, h, percent, plural, tokens, when, whole } from "./dom.js";
import { outcomeMark } from "./entries.js";

const MODES = [["auto", "the best way"], ["retrieve", "retrieve: passages, no model"], ["full-chunked", "full-chunked: a model reads all"], ["read-grep", "read-grep: a model searches"], ["truncate", "truncate: head and tail"]];

export function askCard(handle, signal, answered) {
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
      await events("/extract", { handle, extract: question.value, mode: mode.value }, (name, data) => {
        if (name === "plan") { all = data.chunks ?? data.chunks_total ?? 0; state.textContent = planned(data); }
        if (name === "chunk") { done += 1; meter.value = all ? done / all : 0; state.textContent = `Read ${whole(done)}${all ? ` of ${plural(all, "chunk")}` : " chunks"} …`; }
        if (name === "reduce") { meter.removeAttribute("value"); state.textContent = "Merging what was found …"; }
        if (name === "result") { state.textContent = told(data); out.replaceChildren(h("pre", { class: "text", tabindex: 0, "aria-label": "Answer" }, foreign(data.body))); }
        if (name === "error") state.textContent = data.detail;
      }, running.signal);
      await answered();
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Problem) && error.message !== "The service does not answer.") throw error;
      state.textContent = error.name === "AbortError" ? "Cancelled." : error.message;
    } finally {
      submit.disabled = false;
      cancel.hidden = meter.hidden = true;
    }
  }

  const form = h("form", { onsubmit: ask }, question, h("div", { class: "row" }, mode, submit, cancel));
  return card("Ask it", form, meter, state, out, h("p", { class: "note" }, "An answer is charged to the session and accounted, as if the model had asked."));
}

function planned(data) {
  return data.strategy ? `By ${data.strategy} …` : "Reading …";
}

function told(data) {
  const cost = data.usage.llm_calls ? `, ${plural(data.usage.llm_calls, "model call")}, ${dollars(data.usage.cost_usd)}` : "";
  return `${data.status} · ${data.strategy} · ${percent(data.coverage.ratio)} of the data · ${duration(data.latency_ms)}${cost}`;
}

const NAMES = { tool: "In place of the result", extract: "An answer", read: "Read back" };

/** What the model was given: returns the card, and how to read it again. */
export function givenCard(path, signal) {
  const list = h("div", { class: "given" });
  async function refresh() {
    const found = await get(`${path}/given`, { limit: 200 }, { signal });
    const open = new Set([...list.querySelectorAll("details[open]")].map((one) => one.dataset.id));
    list.replaceChildren(...found.given.map((one, place) => {
      const details = h("details", { "data-id": one.entry_id, open: open.has(one.entry_id) || (place === 0 && !open.size) },
        h("summary", {}, NAMES[one.type] ?? one.type, " · ", one.outcome ? outcomeMark(one.outcome) : (one.strategy ?? ""), " · ", tokens(one.tokens), " · ", when(one.timestamp)),
        one.text === null ? h("p", { class: "note" }, "The text was not kept.") : h("pre", { class: "text", tabindex: 0 }, foreign(one.text)));
      return details;
    }));
    if (!found.given.length) list.replaceChildren(h("p", { class: "none" }, "The accounting has no entry about it any more."));
  }
  return [card("What the model was given", list), refresh];
}

