// The lines of a stored result of any size. Only visible lines are in the page; others are read while the user scrolls.

import { get } from "./api.js";
import { foreign, h, whole } from "./dom.js";

const ROW = 20;
const BLOCK = 200;
const KEPT_BLOCKS = 48;
const SHOWN_CHARS = 2000;
const AROUND = 12;
const REST_MS = 40;
// Browsers lay out no element that is much taller. Above this height, a step of the scroll bar is several lines.
const TALLEST = 12_000_000;

export class Lines {
  /** `path` is that of the result. `onmove(first, last, total)` follows the scrolling. */
  constructor(path, total, signal, onmove = () => {}) {
    this.path = path;
    this.total = total;
    this.view = "raw";
    this.signal = signal;
    this.onmove = onmove;
    this.blocks = new Map();
    this.drawn = new Map();
    this.isSlow = false;
    this.hit = null;
    this.at = 0;
    this.top = 0;
    this.rows = h("div", { class: "rows" });
    this.spacer = h("div", { class: "spacer" });
    this.element = h("div", { class: "lines", tabindex: 0, role: "region", "aria-label": "Lines of the result" }, this.spacer, this.rows);
    this.element.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.fit = new ResizeObserver(() => this.draw());
    this.fit.observe(this.element);
    signal.addEventListener("abort", () => this.fit.disconnect());
    this.size();
  }

  size() {
    this.height = Math.min(this.total * ROW, TALLEST);
    this.spacer.style.height = `${this.height}px`;
  }

  get inSight() { return Math.ceil(this.element.clientHeight / ROW) + 1; }

  get isScaled() { return this.total * ROW > TALLEST; }

  scrolled() {
    const now = this.element.scrollTop;
    const room = this.height - this.element.clientHeight;
    const step = now - (this.last ?? 0);
    this.last = now;
    this.isSlow = Math.abs(step) < this.element.clientHeight;
    if (!this.isScaled) this.top = now / ROW;
    else if (Math.abs(step) > 2 * this.element.clientHeight || now <= 0 || now >= room - 1) {
      this.top = (now / Math.max(room, 1)) * (this.total - this.inSight + 2);
    } else this.top += step / ROW;
    this.top = Math.max(0, Math.min(this.top, this.total - 1));
    this.draw();
  }

  /** Shows line `number` (from 1) near the top, and marks it. */
  go(number) {
    this.at = Math.max(1, Math.min(number, this.total));
    const first = Math.max(0, this.at - 4);
    const room = this.height - this.element.clientHeight;
    const most = Math.max(1, this.total - this.inSight + 2);
    this.element.scrollTop = this.isScaled ? (first / most) * room : first * ROW;
    this.last = this.element.scrollTop;
    this.top = Math.min(first, Math.max(0, this.total - this.inSight + 1));
    this.draw();
  }

  /** Marks what matches from now on: a RegExp with the flag g, or null. */
  mark(hit) {
    this.hit = hit;
    this.draw();
  }

  async show(view) {
    this.view = view;
    this.blocks.clear();
    if (view === "raw" && this.rawTotal) this.total = this.rawTotal;
    else {
      this.rawTotal ??= this.total;
      this.total = (await this.read(1, 1)).total_lines;
    }
    this.at = 0;
    this.size();
    this.element.scrollTop = 0;
    this.scrolled();
  }

  read(offset, limit) {
    return get(`${this.path}/lines`, { offset, limit, view: this.view, accounted: false }, { signal: this.signal });
  }

  draw() {
    // Read before the page is changed: otherwise the browser lays it out twice.
    const [sight, scrollTop] = [this.inSight, this.element.scrollTop];
    const first = Math.floor(this.top);
    const from = Math.max(0, first - AROUND);
    const to = Math.min(this.total, first + sight + AROUND);
    this.place(from, to);
    const base = this.isScaled ? scrollTop - (this.top - from) * ROW : from * ROW;
    this.rows.style.transform = `translateY(${base}px)`;
    this.onmove(Math.min(first + 1, this.total), Math.min(first + sight - 1, this.total), this.total);
    this.want(from, to);
  }

  /** Puts the rows `from` to before `to` into the page. Rows that are there and have not changed stay. */
  place(from, to) {
    const before = this.drawn;
    this.drawn = new Map();
    for (let index = from; index < to; index += 1) {
      const line = this.blocks.get(Math.floor(index / BLOCK))?.lines[index % BLOCK];
      const [isAt, hit, old] = [this.at === index + 1, this.hit, before.get(index)];
      const isSame = old && old.line === line && old.isAt === isAt && old.hit === hit;
      this.drawn.set(index, isSame ? old : { line, isAt, hit, element: this.row(index, line, isAt) });
    }
    for (const [index, row] of before) if (this.drawn.get(index) !== row) row.element.remove();
    let next = this.rows.firstChild;
    for (const { element } of this.drawn.values()) {
      if (element === next) next = next.nextSibling;
      else this.rows.insertBefore(element, next);
    }
  }

  row(index, line, isAt) {
    const number = h("span", { class: "number" }, whole(index + 1));
    const kind = `line${isAt ? " at" : ""}`;
    if (line === undefined) return h("div", { class: `${kind} waits` }, number, h("span", { class: "text" }, "…"));
    const text = line.text.length > SHOWN_CHARS ? line.text.slice(0, SHOWN_CHARS) : line.text;
    const cut = line.truncated || text.length < line.text.length;
    const more = cut && h("button", { type: "button", onclick: () => this.whole(line) },
      line.truncated ? "long line: read more" : `+${whole(line.text.length - text.length)} characters`);
    return h("div", { class: kind }, number, h("span", { class: "text" }, marked(text, this.hit)), more);
  }

  /** Reads what the blocks from line `from` to `to` lack: while one scrolls slowly those around too, else as soon as the
   *  scrolling rests for a moment. */
  want(from, to) {
    clearTimeout(this.waiting);
    const missing = [];
    const around = this.isSlow ? BLOCK / 2 : 0;
    const end = Math.min(to + around, this.total);
    for (let block = Math.floor(Math.max(0, from - around) / BLOCK); block * BLOCK < end; block += 1) {
      const cached = this.blocks.get(block);
      if (cached) { this.blocks.delete(block); this.blocks.set(block, cached); }
      const last = Math.min(end, (block + 1) * BLOCK) - block * BLOCK;
      if ((cached?.lines.length ?? 0) < last && !cached?.isRead) missing.push(block);
    }
    const rest = this.blocks.size && !this.isSlow ? REST_MS : 0;
    if (missing.length) this.waiting = setTimeout(() => missing.forEach((block) => this.fill(block)), rest);
  }

  async fill(block) {
    const cached = this.blocks.get(block) ?? { lines: [], isRead: false };
    if (cached.isRead) return;
    cached.isRead = true;
    this.blocks.set(block, cached);
    const view = this.view;
    try {
      // An answer holds 256 KiB: long lines take several.
      const have = cached.lines.length;
      const page = await this.read(block * BLOCK + have + 1, BLOCK - have);
      if (view !== this.view) return;
      cached.lines.push(...page.lines);
    } catch (error) {
      if (error.name === "AbortError") return;
      // The frame of the page says that the service is away; these lines are read at the next scroll.
    } finally {
      cached.isRead = false;
    }
    for (const oldest of this.blocks.keys()) {
      if (this.blocks.size <= KEPT_BLOCKS) break;
      this.blocks.delete(oldest);
    }
    if (cached.lines.length) this.draw();
    else setTimeout(() => { if (!this.signal.aborted) this.draw(); }, 2000);
  }

  whole(line) {
    const dialog = h("dialog", { "aria-label": `Line ${line.number}` });
    const note = line.truncated ? "The beginning of this line: it is longer than one answer of 256 KiB. Search it, or download the result." : "";
    const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
    dialog.append(h("h2", {}, `Line ${whole(line.number)}`), note && h("p", { class: "note" }, note),
      h("pre", { class: "text", tabindex: 0 }, marked(line.text, this.hit)), h("p", {}, close));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}

/** The text as nodes, with <mark> around what matches. */
export function marked(text, hit) {
  if (!hit) return foreign(text);
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(hit)) {
    if (!match[0]) continue;
    nodes.push(foreign(text.slice(end, match.index)), h("mark", {}, foreign(match[0])));
    end = match.index + match[0].length;
    if (nodes.length > 400) break;
  }
  nodes.push(foreign(text.slice(end)));
  return nodes;
}

/** What to mark for a search that the service does by RE2. null: the browser's own matching could take for ever. */
export function highlighter(pattern, { literal, ignoreCase }) {
  const source = literal ? pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") : pattern.replace(/^\(\?i\)/, "");
  if (!literal && /[)\]][*+{]|[*+}][*+{]|\\[1-9]/.test(source)) return null;
  try {
    return new RegExp(source, ignoreCase || source !== pattern && pattern.startsWith("(?i)") ? "giu" : "gu");
  } catch {
    return null;
  }
}

