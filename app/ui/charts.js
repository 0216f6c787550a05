// Charts over time, drawn by uPlot (vendor/). Each has a table of the same numbers for a screen reader.

import { clock, day, h, short, whole } from "./dom.js";

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

/** `series`: [label, ink, numbers]. `ink` names a class of page.css. */
export function timeChart(root, label, times, series, step) {
  const bars = uPlot.paths.bars({ size: [0.82, 26], align: 1, radius: 0.18 });
  const line = uPlot.paths.spline();
  const box = h("div", { class: "chart", role: "img", "aria-label": label });
  const color = inks(["muted", "line", ...series.flatMap(([, ink]) => [ink, `${ink}-soft`])]);
  const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const ends = [times[0], (times.at(-1) ?? 0) + step / 1000];
  const chart = new uPlot({
    width: 600, height: 240, padding: [12, 22, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: true, range: ends }, y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high) * 1.05] } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 44, values: (_, splits, index, space, step) => labels(splits, step) },
      { ...axis, size: 56, values: (_, ticks) => ticks.map(short) },
    ],
    series: [
      { label: "Time", value: (_, at) => (at === null ? "–" : moment(at)) },
      ...series.map(([name, ink], index) => ({
        label: name, stroke: color(ink), width: index ? 2 : 0, fill: index ? undefined : color(`${ink}-soft`),
        paths: index ? line : bars, points: { show: false }, value: (_, value) => (value === null ? "–" : whole(value)),
      })),
    ],
  }, [times, ...series.map(([, , values]) => values)], box);
  const fit = new ResizeObserver(() => {
    if (box.clientWidth) chart.setSize({ width: box.clientWidth, height: 240 });
  });
  fit.observe(box);
  root.replaceChildren(box);
  // After the chart is shown: a week has 169 rows.
  setTimeout(() => { if (box.isConnected) box.after(numbers(label, times, series)); });
  return { destroy() { fit.disconnect(); chart.destroy(); } };
}

function numbers(label, times, series) {
  const rows = times.map((at, index) => h("tr", {}, h("th", { scope: "row" }, moment(at)),
    series.map(([, , values]) => h("td", {}, whole(values[index])))));
  return h("div", { class: "unseen" }, h("table", {}, h("caption", {}, label),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), series.map(([name]) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows)));
}
