// Readiness, store and ledger, models, and the settings in force.

import { Problem, get } from "./api.js";
import { bar, bytes, card, duration, foreign, h, keyed, named, percent, table, whole } from "./dom.js";

export async function show(root, { signal }) {
  const state = h("div");
  const quota = h("div");
  const models = h("div");
  const settings = h("div");
  root.append(h("div", { class: "head" }, h("h1", {}, "Health")),
    h("div", { class: "columns two" }, card("Readiness", state), card("Kept here", quota)), card("Models", models), card("Settings", settings));

  async function refresh() {
    const [health, config] = await Promise.all([
      get("/healthz", {}, { signal }).catch((error) => { if (error instanceof Problem && error.status !== 401) return error; throw error; }),
      get("/config", {}, { signal }),
    ]);
    state.replaceChildren(...readiness(health));
    quota.replaceChildren(quotas(health));
    models.replaceChildren(table("Models", [
      ["Model", "text", (one) => named(one.name)],
      ["Backend", "text", (one) => named(one.base_url)],
      ["State", "text", (one) => (one.retry_ms ? h("span", { class: "state bad" }, `left alone for ${duration(one.retry_ms)}: `, named(one.reason)) : h("span", { class: "state good" }, "is asked"))],
      ["Under way", "number", (one) => whole(one.in_flight)],
      ["Asked", "text", (one) => (one.is_default ? "unless a policy names others" : "where a policy names it")],
    ], config.models, "No model is configured. Questions are answered by retrieval."));
    if (!settings.firstChild) {
      settings.replaceChildren(table("Settings", [
        ["Setting", "text mono key", ([name]) => keyed(name)],
        ["Value", "text mono", ([, value]) => (value === null ? h("span", { class: "muted" }, "not set") : foreign(JSON.stringify(value)))],
        ["Set by", "text", ([name]) => h("span", { class: config.set_by.settings[name] === "default" ? "muted" : "" }, config.set_by.settings[name])],
      ], Object.entries(config.settings)));
    }
  }
  await refresh();
  return refresh;
}

function readiness(health) {
  if (health instanceof Problem) return [h("p", { class: "state bad" }, "Not ready"), h("p", {}, health.message)];
  return [
    h("p", { class: "state good" }, "Ready"),
    h("p", { class: "note" }, `Version ${health.version}, listening at ${health.address}`),
    health.warnings.length ? h("ul", { class: "plain" }, health.warnings.map((text) => h("li", { class: "warning" }, "⚠ ", foreign(text)))) : h("p", { class: "note" }, "No warnings."),
  ];
}

function quotas(health) {
  if (health instanceof Problem) return h("p", { class: "none" }, "Shown again once the service is ready.");
  const rows = [
    ["Bodies of results", health.stored_bytes, health.stored_bytes_cap, bytes],
    ["Ledger of the largest tenant", health.ledger_bytes, health.ledger_bytes_cap, bytes],
    ["Sessions of the largest tenant", health.sessions, health.sessions_cap, whole],
  ];
  return table("Quotas", [
    ["What", "text", ([name]) => name],
    ["Used", "number", ([, value, , unit]) => unit(value)],
    ["Of", "number", ([, , cap, unit]) => (cap ? unit(cap) : "no bound")],
    ["Share", "share", ([name, value, cap]) => (cap ? bar(value / cap, `${name}: ${percent(value / cap)}`, value / cap > 0.9 ? "bad" : "") : "")],
  ], rows);
}
