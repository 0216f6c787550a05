// What the overview asks first. The requests are sent while the rest of the page is still loaded.

import { get } from "./api.js";

const HOUR = 3_600_000;
export const RANGES = [
  ["1 h", HOUR, "minute", 60_000],
  ["6 h", 6 * HOUR, "minute", 60_000],
  ["24 h", 24 * HOUR, "hour", HOUR],
  ["7 days", 168 * HOUR, "hour", HOUR],
  ["30 days", 720 * HOUR, "day", 24 * HOUR],
];
export const FILTERS = ["tool_name", "outcome", "trigger"];

/** The range and the filter that the address names. */
export function chosen() {
  const given = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const range = RANGES.find(([name]) => name === given.get("range")) ?? RANGES[2];
  return [range, Object.fromEntries(FILTERS.map((name) => [name, given.get(name)]).filter(([, value]) => value))];
}

/** `since` and `until` (Unix ms; `since` begins a period), and the answers: sums by period and type, the newest entries. */
export function ask([, span, period, step], filter, options = {}) {
  const until = Date.now();
  const since = Math.floor((until - span) / step) * step;
  const sums = get("/accounting/summary", { ...filter, since, group_by: `${period},type` }, options);
  const recent = get("/accounting/entries", { ...filter, order: "newest", limit: 25 }, options);
  return { since, until, answers: Promise.all([sums, recent]) };
}

let early = null;
if (/^(#\/?)?(\?|$)/.test(location.hash)) {
  early = { hash: location.hash, ...ask(...chosen()) };
  early.answers.catch(() => {});
  // The first format of a process takes 20 ms: now, and not when the answers are there.
  new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }).format();
  new Intl.NumberFormat("en", { notation: "compact" }).format(0);
}

/** The answers that were asked for before the page was ready: once, and null for another address. */
export function taken() {
  const found = early?.hash === location.hash ? early : null;
  early = null;
  return found;
}
