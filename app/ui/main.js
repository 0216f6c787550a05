// The frame of the page: which view is shown, how often it is refreshed, the keys of the tab, light and dark.

import { Away, Problem, get, keys, query } from "./api.js";
import { h, named, toResult, when } from "./dom.js";
import * as overview from "./overview.js";

const EVERY_MS = 10_000;
/** Waits this many times as long as reading took: the service spends at most 3 % of its time on the page. */
const WAIT_FACTOR = 33;
const RETRY_MS = 3000;

const ROUTES = [
  [/^$/, async () => overview, "Overview"],
  [/^results$/, () => import("./results.js"), "Stored results"],
  [/^sessions$/, () => import("./sessions.js").then((module) => module.list), "Sessions"],
  [/^sessions\/([^/]+)$/, () => import("./sessions.js").then((module) => module.one), "Session"],
  [/^results\/(.+)$/, () => import("./result.js"), "Stored result"],
  [/^policy$/, () => import("./policy.js"), "Policy"],
  [/^health$/, () => import("./health.js"), "Health"],
];

const $ = (selector) => document.querySelector(selector);
let shown = null;
let timer = 0;
let paused = false;

async function route() {
  const path = decodeURIComponent(location.hash.replace(/^#\/?/, "").split("?")[0]);
  const raw = location.hash.replace(/^#\/?/, "").split("?")[0];
  const [pattern, load, title] = ROUTES.find(([one]) => one.test(raw)) ?? ROUTES[0];
  clearTimeout(timer);
  shown?.stop.abort();
  const page = { stop: new AbortController(), root: h("div", { class: "view" }), refresh: null, isBusy: true };
  shown = page;
  for (const link of document.querySelectorAll("nav a")) {
    const isCurrent = link.hash === "#/" ? path === "" : location.hash.startsWith(link.hash);
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} · Spillgate`;
  const [, argument] = pattern.exec(raw) ?? [];
  const view = await load();
  if (shown !== page) return;
  $("#view").replaceChildren(page.root);
  await read(page, async () => {
    page.refresh = await view.show(page.root, { argument: argument && decodeURIComponent(argument), signal: page.stop.signal, reread: () => reread(page) });
  });
}

/** Runs `work`; what goes wrong is shown and returned, and does not end the page. */
async function attempt(page, work) {
  try {
    await work();
    say("");
    return null;
  } catch (error) {
    if (error.name === "AbortError" || shown !== page) return error;
    if (error instanceof Problem && error.status === 401) askKey(error.message);
    else if (error instanceof Away) say("The service does not answer. Trying again …");
    else if (error instanceof Problem && error.status >= 500) say(error.message);
    else if (error instanceof Problem) failed(page, error);
    else throw error;
    return error;
  }
}

/** Replaces the view, which the next read builds again. */
function failed(page, problem) {
  page.root.replaceChildren(h("section", { class: "empty" },
    h("h1", {}, problem.status === 404 ? "Not found" : "That did not work"),
    h("p", {}, problem.message),
    h("p", {}, h("a", { href: "#/" }, "Back to the overview"))));
  page.refresh = null;
}

function say(text) {
  const banner = $("#banner");
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}

/** Runs `work`, and reads the view again later. */
async function read(page, work) {
  const [isFirst, began] = [page.refresh === null, performance.now()];
  page.isBusy = true;
  const error = await attempt(page, work);
  if (error?.name !== "AbortError") setAway(error instanceof Away);
  page.isBusy = false;
  if (shown !== page) return;
  if (error === null) $("#read").replaceChildren(when(Date.now()));
  if (page.refresh === undefined) return;
  clearTimeout(timer);
  const took = isFirst ? 0 : performance.now() - began;
  timer = setTimeout(() => again(), error instanceof Away ? RETRY_MS : Math.max(EVERY_MS, WAIT_FACTOR * took));
}

/** Reads a view at once, for another filter of it. */
function reread(page) {
  if (shown !== page) return;
  if (page.refresh) read(page, () => page.refresh(true));
  else route();
}

/** Reads the view that is shown; an `event` (focus, a click) reads its tables too. A hidden tab and a paused one wait
 *  until they are looked at. */
function again(event) {
  if (paused || document.hidden || shown.isBusy || shown.refresh === undefined) return;
  const { refresh } = shown;
  if (refresh === null) route();
  else read(shown, () => refresh(event !== undefined));
}

function askKey(why) {
  const input = h("input", { type: "password", name: "key", autocomplete: "off", required: true, "aria-label": "API key" });
  const form = h("form", { class: "empty", onsubmit: use },
    h("h1", {}, "API key"),
    h("p", {}, `${why} It stays in this tab, and is forgotten when the tab is closed.`),
    h("p", { class: "row" }, input, h("button", { type: "submit", class: "primary" }, "Use this key")));
  function use(event) {
    event.preventDefault();
    keys.use(input.value.trim());
    showKeys();
    route();
  }
  shown.refresh = undefined;
  clearTimeout(timer);
  shown.root.replaceChildren(form);
  if (keys.all().length) keys.drop(keys.all()[0]);
  showKeys();
  input.focus();
}

async function chooseKey() {
  const known = keys.all();
  const dialog = h("dialog", { "aria-label": "API keys" });
  const rows = await Promise.all(known.map(async (key, index) => {
    const tenant = await get("/config", {}, { key }).then((config) => config.tenant, () => "unknown key");
    return h("li", { class: "row" },
      named(tenant, { class: "grow" }), index === 0 ? "in use" : h("button", { type: "button", onclick: () => pick(() => keys.use(key)) }, "Use"),
      h("button", { type: "button", onclick: () => pick(() => keys.drop(key)) }, "Forget"));
  }));
  function pick(work) {
    work();
    dialog.close();
    showKeys();
    route();
  }
  const input = h("input", { type: "password", "aria-label": "Another API key", autocomplete: "off", placeholder: "Another key" });
  const tenant = h("input", { "aria-label": "Tenant of an admin's key", autocomplete: "off", placeholder: "Tenant, for an admin's key" });
  const add = () => { if (input.value.trim()) pick(() => keys.use(`${input.value.trim()} ${tenant.value.trim()}`.trim())); };
  dialog.append(h("h2", {}, "API keys of this tab"), h("ul", { class: "plain" }, rows),
    h("p", { class: "row" }, input, tenant, h("button", { type: "button", class: "primary", onclick: add }, "Add")),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function showKeys() {
  $("#keys").hidden = keys.all().length === 0;
}

function setPaused(value, event) {
  paused = value;
  $("#live").setAttribute("aria-pressed", String(!paused));
  $("#live .word").textContent = paused ? "Paused" : "Live";
  again(event);
}

function setAway(isAway) {
  $("#live").classList.toggle("away", isAway);
  $("#live").title = isAway ? "The service does not answer" : "";
}

function setTheme(value) {
  if (value) document.documentElement.dataset.theme = value;
  window.dispatchEvent(new Event("theme"));
}

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

$("#live").addEventListener("click", (event) => setPaused(!paused, event));
$("#keys").addEventListener("click", chooseKey);
$("#theme").addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  sessionStorage.setItem("spillgate-theme", next);
  setTheme(next);
});
$("form.find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = event.target.elements.find.value.trim();
  if (text) location.hash = /^session-.+\//.test(text) ? toResult(text) : `#/results${query({ text })}`;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(""));
document.addEventListener("visibilitychange", again);
window.addEventListener("focus", again);
window.addEventListener("hashchange", () => { $("#view").focus({ preventScroll: true }); scrollTo(0, 0); route(); });
window.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    (document.querySelector("#view input[type=search]") ?? $("form.find input")).focus();
  }
});

setTheme(sessionStorage.getItem("spillgate-theme") ?? "");
showKeys();
route();
