// Charts over time, drawn by uPlot (vendor/). Each has a table of the same numbers for a screen reader.

import { clock, day, foreign, h, named, short, whole } from "./dom.js";

/** Until uPlot has run. */
export const loaded = document.readyState === "loading" || document.readyState === "interactive" && !window.uPlot
  ? new Promise((done) => { document.addEventListener("DOMContentLoaded", done, { once: true }); }) : Promise.resolve();

/** The colours of classes of page.css: a function from a name to its colour. Read together, so that the browser computes styles once. */
function inks(names) {
  const probes = names.map((name) => h("span", { class: `ink-${name}` }));
  document.body.append(...probes);
  const colors = new Map(probes.map((probe, index) => [names[index], getComputedStyle(probe).color]));
  for (const probe of probes) probe.remove();
  return (name) => colors.get(name);
}

/** Every period from `since` to `until` (Unix ms): their times (Unix s), and for each of `values` its sums over the `rows` (group: a
 *  UTC time) of each period. */
export function periods(rows, step, since, until, ...values) {
  const times = [];
  const first = Math.floor(since / step) * step;
  for (let at = first; at <= until; at += step) times.push(at / 1000);
  const indexes = rows.map((row) => (Date.parse(row.group) - first) / step);
  return [times, ...values.map((value) => {
    const sums = times.map(() => 0);
    rows.forEach((row, number) => {
      if (indexes[number] < times.length) sums[indexes[number]] += value(row);
    });
    return sums;
  })];
}

/** A time (Unix s) in the reader's zone: its day, year, hour and minute. */
const moment = (at) => new Date(1000 * at).toString().slice(4, 21);

/** Times in the reader's zone; the day below the first time of each. */
function labels(splits, step) {
  let before = "";
  return splits.map((at) => {
    const date = new Date(1000 * at);
    const [text, today] = [clock(date).slice(0, 5), day(date)];
    if (step >= 86_400) return today;
    const isNew = today !== before;
    before = today;
    return isNew ? `${text}\n${today}` : text;
  });
}

const HEIGHT = 240;

/** Draws `data` into a new box below `root`. `lines` makes uPlot's series of the colours. */
function drawn(root, label, data, step, names, lines, more = {}) {
  const [times] = data;
  const box = h("div", { class: "chart", role: "img", "aria-label": label });
  const color = inks(["muted", "line", ...names]);
  const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const ends = [times[0], (times.at(-1) ?? 0) + step / 1000];
  const chart = new uPlot({
    width: root.clientWidth || 600, height: HEIGHT, padding: [12, 22, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: true, range: ends }, y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high) * 1.05] } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 44, values: (_, splits, index, space, step) => labels(splits, step) },
      { ...axis, size: 56, values: (_, ticks) => ticks.map(short) },
    ],
    ...more,
    series: [{ label: "Time", value: (_, at) => (at === null ? "–" : moment(at)) }, ...lines(color)],
  }, data, box);
  const fit = new ResizeObserver(() => {
    if (box.clientWidth) chart.setSize({ width: box.clientWidth, height: HEIGHT });
  });
  fit.observe(box);
  root.replaceChildren(box);
  return [box, { destroy() { fit.disconnect(); chart.destroy(); } }];
}

/** `series`: [label, ink, numbers]. `ink` names a class of page.css. */
export function timeChart(root, label, times, series, step) {
  const bars = uPlot.paths.bars({ size: [0.82, 26], align: 1, radius: 0.18 });
  const line = uPlot.paths.spline();
  const lines = (color) => series.map(([name, ink], index) => ({
    label: name, stroke: color(ink), width: index ? 2 : 0, fill: index ? undefined : color(`${ink}-soft`),
    paths: index ? line : bars, points: { show: false }, value: (_, value) => (value === null ? "–" : whole(value)),
  }));
  const data = [times, ...series.map(([, , values]) => values)];
  const [box, chart] = drawn(root, label, data, step, series.flatMap(([, ink]) => [ink, `${ink}-soft`]), lines);
  // After the chart is shown: a week has 169 rows.
  setTimeout(() => { if (box.isConnected) box.after(numbers(label, times, series.map(([name]) => name), (index) => series.map(([, , values]) => whole(values[index])))); });
  return chart;
}

/** Bars of several parts, each with its colour and its link in the legend, which tells the sums, and below the pointer those of its
 *  period. `parts`: [name, ink, numbers, link or null], the largest first. */
export function stackedChart(root, label, times, parts, step) {
  const bars = uPlot.paths.bars({ size: [0.82, 26], align: 1 });
  let below = times.map(() => 0);
  const sums = parts.map(([, , values]) => (below = below.map((sum, index) => sum + values[index])));
  // Each bar reaches down to zero, and what is drawn later covers what was drawn before.
  const order = parts.map((_, index) => index).reverse();
  const lines = (color) => order.map((index) => ({ label: parts[index][0], width: 0, fill: color(parts[index][1]), paths: bars, points: { show: false } }));
  const when = h("span", { class: "note" });
  const counts = parts.map(() => h("span", { class: "count" }));
  function tell(index) {
    const isOne = index !== null && index !== undefined && times[index] !== undefined;
    when.textContent = isOne ? moment(times[index]) : "In all";
    parts.forEach(([, , values], number) => { counts[number].textContent = short(isOne ? values[index] : values.reduce((sum, value) => sum + value, 0)); });
  }
  const hooks = { setCursor: [(plot) => tell(plot.cursor.idx)] };
  const [box, chart] = drawn(root, label, [times, ...order.map((index) => sums[index])], step, parts.map(([, ink]) => ink), lines,
    { legend: { show: false }, cursor: { y: false, points: { show: false } }, hooks });
  tell(null);
  const names = parts.map(([name, ink, , href], number) => h("li", {}, h("span", { class: `swatch fill-${ink}`, "aria-hidden": "true" }), href ? h("a", { href }, named(name)) : name, counts[number]));
  box.after(h("ul", { class: "legend" }, h("li", {}, when), names));
  setTimeout(() => {
    const told = (index) => [parts.filter(([, , values]) => values[index]).map(([name, , values]) => `${name} ${whole(values[index])}`).join("; ") || "none"];
    if (box.isConnected) root.append(numbers(label, times, ["Tokens"], told));
  });
  return chart;
}

function numbers(label, times, heads, cells) {
  const rows = times.map((at, index) => h("tr", {}, h("th", { scope: "row" }, moment(at)), cells(index).map((text) => h("td", {}, foreign(text)))));
  return h("div", { class: "unseen" }, h("table", {}, h("caption", {}, label),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), heads.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows)));
}
