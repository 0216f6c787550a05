// Elements, and numbers, times, entries and foreign text as a reader sees them. All text becomes text nodes, never markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== undefined && one !== null && one !== false));
  return element;
}

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** Text that a tool or a caller wrote, as nodes: control and bidirectional characters become visible marks. */
export function foreign(text) {
  const shown = [];
  let end = 0;
  for (const match of text.matchAll(CONTROLS)) {
    if (match.index > end) shown.push(text.slice(end, match.index));
    shown.push(mark(match[0].codePointAt(0)));
    end = match.index + match[0].length;
  }
  if (end < text.length) shown.push(text.slice(end));
  return shown;
}

function mark(code) {
  if (code === 13) return h("span", { class: "ctl", title: "carriage return" }, "␍");
  const name = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  return h("span", { class: "ctl", title: name }, code < 32 ? String.fromCodePoint(0x2400 + code) : name);
}

/** The same, isolated, so that its direction does not reach what stands beside it. */
export const named = (text, attributes = {}) => h("bdi", attributes, foreign(String(text)));

/** A key of a setting or a policy, which may be broken after its underscores. */
export const keyed = (name) => name.split("_").flatMap((part, index) => (index ? ["_", h("wbr"), part] : [part]));

// Written without Intl: its first use in a tab takes 15 ms.

export const whole = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");

/** At most one digit after the point: 1.2K, 34M. */
export function short(value) {
  const [unit, size] = [["B", 1e9], ["M", 1e6], ["K", 1e3]].find(([, least]) => Math.abs(value) >= 0.99995 * least) ?? ["", 1];
  return whole(Math.round(10 * value / size) / 10) + unit;
}

export const tokens = (value) => `${short(value)} tokens`;
export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;
export const dollars = (value) => (value === 0 ? "$0" : value < 0.01 ? `$${value.toPrecision(2)}` : `$${value.toFixed(2)}`);
export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;

export function bytes(value) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${unit}`;
  }
  return `${whole(value)} B`;
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} days`;
}

export const clock = (date) => date.toTimeString().slice(0, 8);
export const day = (date) => date.toDateString().slice(4, 10);

/** A time in the reader's zone; the day too where it is not today. */
export function when(ms) {
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date().toDateString();
  return h("time", { datetime: date.toISOString(), title: date.toString() }, isToday ? clock(date) : `${day(date)}, ${clock(date)}`);
}

/** `text` is a text, or a function that says what is copied when the button is pressed. */
export function copyable(text, label = "Copy") {
  const button = h("button", { type: "button", class: "copy", onclick: copy }, label);
  async function copy() {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  }
  return button;
}

export function command(text) {
  return h("div", { class: "command" }, h("pre", { tabindex: 0 }, text), copyable(text));
}

export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/** A table. `columns` are [head, class, cell of a row]. Where it has no room for its columns, page.css shows each row as a list of
 *  its cells with their heads. */
export function table(label, columns, rows, none = "Nothing yet.") {
  if (rows.length === 0) return h("p", { class: "none" }, none);
  const size = columns.length > 6 ? "many" : columns.length > 4 ? "some" : "few";
  const head = h("tr", { role: "row" }, columns.map(([name, kind]) => h("th", { scope: "col", role: "columnheader", class: kind }, name)));
  const body = rows.map((row) => h("tr", { role: "row" }, columns.map(([name, kind, cell]) => h("td", { role: "cell", class: kind, "data-head": name }, cell(row)))));
  // A browser takes the roles of a table away where its parts are not laid out as one.
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", { role: "table", class: size }, h("thead", { role: "rowgroup" }, head), h("tbody", { role: "rowgroup" }, body)));
}

// A spreadsheet runs a cell that begins like a formula.
const safe = (value) => (typeof value === "string" && /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(value) ? `'${value}` : value);
const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

/** A button that downloads the rows of a list as CSV. `columns` are [head, value of a row]; `rows` are asked for when it is pressed. */
export function csvButton(name, columns, rows) {
  const line = (values) => values.map((value) => quoted(String(safe(value ?? "")))).join(",");
  const text = () => [columns.map(([head]) => head), ...rows().map((row) => columns.map(([, value]) => value(row)))].map(line).join("\r\n");
  return h("button", { type: "button", onclick: () => save(new Blob([text(), "\r\n"], { type: "text/csv" }), `${name}.csv`) }, "CSV");
}

/** Downloads a blob under a name. */
export function save(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export const iso = (ms) => new Date(ms).toISOString();

/** What the colours mean. `parts` are [class of the swatch, text]. */
export const legend = (parts) => h("ul", { class: "legend" }, parts.map(([kind, text]) => h("li", {}, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text)));

/** A bar for a share of 0 to 1, with the text that says the same. */
export function bar(share, label, kind = "") {
  const width = Math.max(0, Math.min(1, share || 0));
  const fill = h("span", { class: `fill ${kind}` });
  fill.style.width = `${100 * width}%`;
  return h("span", { class: "bar", role: "img", "aria-label": label }, fill);
}

/** A command, arguments or a question, in one line that its title shows whole. */
export const words = (text, attributes = {}) => h("bdi", { class: "mono words", title: text, ...attributes }, foreign(text.replace(/\s+/g, " ").slice(0, 400)));

export const toResult = (handle) => `#/results/${handle}`;
export const toSession = (id) => `#/sessions/${encodeURIComponent(id)}`;

// Accounting entries as rows of a table.

export function outcomeMark(outcome) {
  return h("span", { class: `outcome is-${outcome ?? "none"}` }, outcome ?? "–");
}

const KINDS = { tool: "result", extract: "question", llm: "model call", read: "read back", pass_on: "handed on", unrecorded: "not recorded", lost: "entries lost" };

export function kindOf(entry) {
  if (entry.type === "tool") return outcomeMark(entry.outcome);
  return h("span", { class: `outcome is-${entry.status === "failed" ? "failed" : entry.type}` }, KINDS[entry.type] ?? entry.type);
}

export function about(entry) {
  const parts = [];
  if (entry.trigger) parts.push(entry.trigger.replace("_", " "));
  if (entry.strategy) parts.push(entry.strategy);
  if (entry.model && entry.type === "llm") parts.push(entry.model);
  if (entry.details.observed_outcome) parts.push(`would ${entry.details.observed_outcome}: ${short(entry.details.observed_tokens_saved)} tokens`);
  const masked = Object.entries(entry.details.redacted ?? {}).map(([kind, count]) => `${count} ${kind}`);
  if (masked.length) parts.push(`redacted: ${masked.join(", ")}`);
  if (entry.error) parts.push(entry.error);
  if (entry.cost_usd) parts.push(dollars(entry.cost_usd));
  return parts.length ? named(parts.join(" · ")) : "";
}

const tool = (entry) => (entry.details.tool_output_handle
  ? h("a", { href: toResult(entry.details.tool_output_handle) }, named(entry.tool_name)) : named(entry.tool_name));

/** `commands` are the commands of stored results, by handle. */
export function entriesTable(entries, commands, { session = true } = {}) {
  const columns = [
    ["When", "text", (entry) => when(entry.timestamp)],
    ["What", "text", kindOf],
    ["Tool", "text main", (entry) => [tool(entry), entry.type === "tool" && commands.get(entry.details.tool_output_handle) ? h("div", {}, words(commands.get(entry.details.tool_output_handle))) : null]],
    ["Session", "text", (entry) => h("a", { href: toSession(entry.session_id) }, named(entry.session_id))],
    ["Size", "number", (entry) => bytes(entry.details.bytes)],
    ["Kept out", "number", (entry) => h("span", { title: `${whole(entry.tokens_saved)} tokens`, class: entry.tokens_saved < 0 ? "minus" : "" }, short(entry.tokens_saved))],
    ["Took", "number", (entry) => (entry.latency ? duration(entry.latency) : "")],
    ["About", "text", about],
  ];
  return table("Entries", columns.filter(([name]) => session || name !== "Session"), entries);
}
