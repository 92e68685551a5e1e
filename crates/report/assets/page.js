"use strict";
// Draws the facts of one run, or of two side by side. All numbers are in them; nothing is computed here but how it looks.
const runs = JSON.parse(document.getElementById("facts").textContent);
const BINS = runs[0].series.links[0]?.values.length ?? 240;
const HOST = "#aab4c0", SEVERAL = "#cdbdf4";
const CARDS = ["#2f7ed8", "#f28f1c", "#20a67a", "#d6456b", "#8a6d3b", "#12a5c4", "#9acd32", "#b558c9",
  "#6b7fd7", "#c9a227", "#3a9d4f", "#e0735c", "#547a95", "#a0522d", "#44b8a4", "#cc5c9c"];
// Of kernels: none of a memory's.
const KERNELS = ["#4c6a92", "#b5838d", "#6d9f71", "#c08552", "#7d6b91", "#8fa3ad", "#a39a4b", "#5f9ea0"];
const REASONS = { demand: "#d6456b", user: "#20a67a", prefetch: "#2f7ed8", eviction: "#f28f1c", counter: "#12a5c4",
  collapse: "#7c3aed", thrash: "#8b1e3f", return: "#9aa5b1", lost: "#111827" };

const colour = (memory) => memory === 0 ? HOST : CARDS[(memory - 1) % CARDS.length];
const kernelNames = [...new Set(runs.flatMap((run) => run.kernels.map((kernel) => kernel.name)))];
const kernelColour = (name) => KERNELS[kernelNames.indexOf(name) % KERNELS.length];
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const number = (value) => value.toLocaleString("en");
function scaled(value, units, base) {
  let unit = 0;
  while (value >= base && unit < units.length - 1) { value /= base; unit += 1; }
  const digits = Number.isInteger(value) || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
const time = (ps) => scaled(ps, ["ps", "ns", "µs", "ms", "s"], 1000);
const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);

const pages = (it) => it.pages === 1 ? `page ${it.first_page}` : `pages ${it.first_page}–${it.first_page + it.pages - 1}`;

function element(parent, kind, attributes = {}, html = "") {
  const made = document.createElement(kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.innerHTML = html;
  parent.append(made);
  return made;
}

// --- head, counts, remedies ---------------------------------------------------------------------

function head(parent, run) {
  const log = run.log;
  const memories = log.memories.map((memory) => memory.bytes ? `${escape(memory.name)} (${bytes(memory.bytes)})` : escape(memory.name));
  element(parent, "div", { class: "card" }, `<div class="name">${escape(log.program)}</div>
    <div class="soft">${escape(log.machine)} · scheme ${escape(log.scheme)} · ${time(log.end)} · ${number(log.events)} events · ${memories.join(", ")}</div>`);
  const warn = (text) => element(parent, "div", { class: "card warn" }, text);
  if (log.dropped > 0) warn(`${number(log.dropped)} events found no room in the log: all counts are too low by what they say.`);
  if (log.cut !== null) warn(`The log was cut: ${bytes(log.cut)} at its end are not read.`);
}

const COUNTS = [["faults", "faults"], ["pages_moved", "pages moved"], ["pages_copied", "of them copied"],
  ["pages_evicted", "evicted"], ["pages_returned", "evicted, came back"], ["pages_handed", "taken by turns"], ["kernels", "kernels"]];

function counts(parent, run, other) {
  const row = element(parent, "div", { class: "counts" });
  for (const [key, words] of COUNTS) {
    const value = run.totals[key], before = other?.totals[key];
    let change = "";
    if (other && before !== value) {
      const less = value < before;
      const by = before === 0 ? "new" : `${less ? "−" : "+"}${Math.abs(100 * (value - before) / before).toFixed(0)} %`;
      change = `<i class="${key === "kernels" ? "soft" : less ? "less" : "more"}">${by}</i>`;
    }
    element(row, "div", { class: "count" }, `<b>${number(value)}${change}</b><span>${words}</span>`);
  }
}

function remedies(parent, run) {
  const list = element(parent, "div", { class: "remedies" });
  if (run.remedies.length === 0) {
    element(list, "div", { class: "card soft" }, "Nothing that is known to be slow was found.");
  }
  run.remedies.forEach((remedy, place) => element(list, "div", { class: "card remedy" },
    `<div class="head"><b>${place + 1}</b><span class="tag">${remedy.rule.replace("-", " ")}</span>
     <b>${remedy.allocations.map(escape).join(", ")}</b><span class="saves">saves up to ${number(remedy.saves)} pages or faults</span></div>
     <p>${escape(remedy.evidence)}</p><p><code>${escape(remedy.remedy)}</code></p>`));
}

// --- charts -------------------------------------------------------------------------------------

// Panels lie below each other, share the axis of time and are zoomed together.
const PANELS = [["kernels", 24, 96], ["links", 24, 130], ["faults", 24, 104], ["reasons", 24, 104]];
const TITLES = { heat: "Where pages are", kernels: "Kernels", links: "Traffic between memories", faults: "Faults", reasons: "Pages that came, by reason" };
const LEFT = 128, RIGHT = 24;

function layout(rows) {
  const heat = Math.max(120, Math.min(430, rows * 5 + 20));
  const panels = { heat: { top: 26, height: heat } };
  let top = 26 + heat + 22;
  for (const [name, gap, height] of PANELS) {
    panels[name] = { top: top + gap, height };
    top += gap + height + 22;
  }
  return { panels, height: top + 44 };
}

function heatData(run) {
  const places = [], moves = [];
  run.heat.rows.forEach((row, y) => {
    for (let x = 0; x < row.places.length; x += 1) {
      const place = row.places.charCodeAt(x) - 97;
      if (row.places[x] === "*") places.push([x, y, 99]);
      else if (row.places[x] !== ".") places.push([x, y, place]);
    }
    for (const [x, pages] of row.moves) moves.push([x, y, pages]);
  });
  return { places, moves };
}

// Names stand once for all rows of an allocation, where there is room.
function rowLabels(rows, height) {
  const labels = rows.map(() => ""), bounds = new Set(), each = height / Math.max(rows.length, 1);
  let first = 0, last = -Infinity;
  for (let row = 1; row <= rows.length; row += 1) {
    if (row < rows.length && rows[row].first_page !== 0) continue;
    const middle = Math.floor((first + row - 1) / 2);
    if ((middle - last) * each >= 12) { labels[middle] = rows[first].name; last = middle; }
    bounds.add(row);
    first = row;
  }
  return { labels, bounds };
}

function options(run, panels, mode) {
  const names = run.log.memories.map((memory) => memory.name), bin = run.series.bin;
  const { places, moves } = run.heatData ??= heatData(run);
  const rows = run.heat.rows, { labels, bounds } = rowLabels(rows, panels.heat.height);
  const order = ["heat", "kernels", "links", "faults", "reasons"];
  const grid = order.map((name) => ({ left: LEFT, right: RIGHT, top: panels[name].top, height: panels[name].height,
    show: true, borderColor: "#e3e8ee", backgroundColor: "#fff" }));
  const shown = { color: "#5b6878", fontSize: 11 };
  const bins = Array.from({ length: BINS }, (_, x) => x);
  const xAxis = order.map((name, index) => name === "kernels"
    ? { type: "value", gridIndex: index, min: 0, max: bin * BINS, axisLabel: { ...shown, formatter: time, showMaxLabel: false }, splitLine: { show: false }, axisLine: { lineStyle: { color: "#c7d0da" } }, axisTick: { show: false } }
    : { type: "category", gridIndex: index, data: bins, boundaryGap: true, axisTick: { show: false }, axisLine: { lineStyle: { color: "#c7d0da" } },
        axisLabel: { ...shown, formatter: (x) => time(x * bin), hideOverlap: true } });
  const agents = [...new Set(run.runs.map((it) => it.agent))].sort((a, b) => a - b);
  const amount = { links: (value) => bytes(value), faults: number, reasons: number };
  const yAxis = order.map((name, index) => {
    if (name === "heat") return { type: "category", gridIndex: index, data: rows.map((_, y) => y), inverse: true, axisTick: { show: false }, axisLine: { show: false },
      axisLabel: { ...shown, interval: 0, formatter: (_, y) => labels[y].length > 20 ? labels[y].slice(0, 19) + "…" : labels[y] },
      splitLine: { show: true, interval: (y) => bounds.has(y), lineStyle: { color: "#c7d0da" } } };
    if (name === "kernels") return { type: "category", gridIndex: index, data: agents.map((agent) => names[agent] ?? "?"), inverse: true, axisTick: { show: false }, axisLine: { show: false }, axisLabel: shown };
    return { type: "value", gridIndex: index, splitNumber: 2, axisLabel: { ...shown, formatter: amount[name] }, splitLine: { lineStyle: { color: "#eef1f5" } } };
  });
  const stack = (name, index, colours) => run.series[name].map((one, place) => ({
    name: one.name, type: "bar", stack: name, xAxisIndex: index, yAxisIndex: index, data: one.values, barCategoryGap: "0%", large: false,
    itemStyle: { color: colours(one, place) }, emphasis: { focus: "series" } }));
  const byAgent = (one) => colour(Math.max(names.indexOf(one.name), 0));
  const link = (one, place) => one.name.startsWith("zeros") ? "#d4dae1" : CARDS[(place * 5 + 1) % CARDS.length];
  const most = moves.reduce((most, it) => Math.max(most, it[2]), 4);
  const heat = mode === "places"
    ? { name: "heat", type: "heatmap", xAxisIndex: 0, yAxisIndex: 0, data: places, progressive: 0, animation: false, emphasis: { itemStyle: { borderColor: "#111", borderWidth: 1 } } }
    : { name: "heat", type: "heatmap", xAxisIndex: 0, yAxisIndex: 0, data: moves, progressive: 0, animation: false };
  const pieces = [...names.map((_, memory) => ({ value: memory, color: colour(memory) })), { value: 99, color: SEVERAL }];
  const visualMap = mode === "places"
    ? { show: false, type: "piecewise", seriesIndex: 0, dimension: 2, pieces }
    : { show: false, type: "continuous", seriesIndex: 0, dimension: 2, min: 0, max: most, inRange: { color: ["#e8f0fc", "#5b93e6", "#d6456b", "#8b1e3f"] } };
  return {
    animation: false, textStyle: { fontFamily: "inherit" },
    title: order.map((name) => ({ text: name === "heat" && mode === "moves" ? "Where pages move" : TITLES[name], left: LEFT - 4, top: panels[name].top - 22, textStyle: { fontSize: 13, fontWeight: 600, color: "#1b2430" } })),
    grid, xAxis, yAxis, visualMap,
    legend: ["links", "faults", "reasons"].map((name) => ({ type: "scroll", data: run.series[name].map((it) => it.name), right: RIGHT, left: LEFT + 190,
      top: panels[name].top - 23, align: "left", itemWidth: 11, itemHeight: 11, itemGap: 12, textStyle: { color: "#5b6878", fontSize: 11 }, orient: "horizontal" })),
    tooltip: { trigger: "item", confine: true, borderColor: "#c7d0da", textStyle: { fontSize: 12, color: "#1b2430" }, formatter: (it) => tip(run, it) },
    axisPointer: { link: [{ xAxisIndex: [0, 2, 3, 4] }] },
    dataZoom: [{ type: "inside", xAxisIndex: [0, 1, 2, 3, 4], filterMode: "none", zoomOnMouseWheel: true, moveOnMouseMove: true },
      { type: "slider", xAxisIndex: [0, 1, 2, 3, 4], filterMode: "none", bottom: 8, height: 22, left: LEFT, right: RIGHT, brushSelect: false,
        labelFormatter: (value, text) => time((typeof value === "number" ? value : 0) * bin) }],
    series: [heat,
      { name: "kernels", type: "custom", xAxisIndex: 1, yAxisIndex: 1, renderItem: (params, api) => box(run, params, api), clip: true, encode: { x: [1, 2], y: 0 },
        data: run.runs.map((it) => [agents.indexOf(it.agent), it.from, it.until, it.kernel, it.count]) },
      ...stack("links", 2, link), ...stack("faults", 3, byAgent), ...stack("reasons", 4, (one) => REASONS[one.name] ?? HOST)],
  };
}

function box(run, params, api) {
  const [from, y] = api.coord([api.value(1), api.value(0)]), [until] = api.coord([api.value(2), api.value(0)]);
  const height = Math.min(api.size([0, 1])[1] * 0.72, 26);
  const shape = echarts.graphic.clipRectByRect({ x: from, y: y - height / 2, width: Math.max(until - from, 1), height }, params.coordSys);
  return shape && { type: "rect", shape, style: { fill: kernelColour(run.kernels[api.value(3)].name) } };
}

function tip(run, it) {
  const bin = run.series.bin, names = run.log.memories.map((memory) => escape(memory.name));
  const span = (x) => `${time(x * bin)} – ${time((x + 1) * bin)}`;
  if (it.seriesName === "heat") {
    const [x, y, value] = it.value, row = run.heat.rows[y], place = row.places[x];
    const where = place === "*" ? "in several memories" : place === "." ? "nowhere" : `mostly in ${names[place.charCodeAt(0) - 97]}`;
    const came = row.moves.find((move) => move[0] === x)?.[1] ?? 0;
    return `<b>${escape(row.name)}</b>, ${pages(row)}<br>${span(x)}<br>${where}; ${number(came)} pages came`;
  }
  if (it.seriesName === "kernels") {
    const [, from, until, kernel, count] = it.value;
    return `<b>${escape(run.kernels[kernel].name)}</b>${count > 1 ? `, ${count} runs` : ""}<br>${time(from)} – ${time(until)} (${time(until - from)})`;
  }
  const is = run.series.links.some((one) => one.name === it.seriesName) ? bytes(it.value) : number(it.value);
  return `${span(it.dataIndex)}<br>${escape(it.seriesName)}: <b>${is}</b>`;
}

function charts(parent, run, index) {
  const card = element(parent, "div", { class: "card" });
  const modes = element(card, "div", { class: "modes" });
  const legend = element(card, "div", { class: "legend" });
  const { panels, height } = layout(run.heat.rows.length);
  const place = element(card, "div", { id: `chart-${index}`, style: `height:${height}px` });
  const chart = echarts.init(place, null, { renderer: "canvas" });
  chart.on("finished", () => { window.firstPicture ??= performance.now(); });
  const draw = (mode) => {
    chart.setOption(options(run, panels, mode), { replaceMerge: ["visualMap"] });
    for (const button of modes.children) button.className = button.dataset.mode === mode ? "on" : "";
    const dot = (paint, words) => `<span><i style="background:${paint}"></i>${words}</span>`;
    const memories = run.log.memories.map((memory, place) => dot(colour(place), escape(memory.name)));
    legend.innerHTML = mode === "places" ? memories.join("") + dot(SEVERAL, "copies in several") + "<span>white: nowhere yet</span>"
      : dot("#e8f0fc", "few pages came") + dot("#8b1e3f", "many");
  };
  for (const [mode, words] of [["places", "where pages are"], ["moves", "where they move"]]) {
    const button = element(modes, "button", { "data-mode": mode }, words);
    button.onclick = () => draw(mode);
  }
  draw("places");
  if (run.heat.left_out > 0) element(card, "div", { class: "soft" }, `${number(run.heat.left_out)} allocations that cost least are not in the picture.`);
  chart.group = "runs";
  window.addEventListener("resize", () => chart.resize());
  return chart;
}

// --- tables -------------------------------------------------------------------------------------

function table(parent, columns, rows, weight) {
  const most = Math.max(1, ...rows.map(weight));
  const cells = (row) => columns.map(([, of], place) => place === 0
    ? `<td class="bar" style="--part:${(100 * weight(row) / most).toFixed(1)}%">${of(row)}</td>` : `<td>${of(row)}</td>`).join("");
  const scroll = element(parent, "div", { class: "card scroll" });
  element(scroll, "table", {}, `<thead><tr>${columns.map(([name]) => `<th>${name}</th>`).join("")}</tr></thead>
    <tbody>${rows.map((row) => `<tr>${cells(row)}</tr>`).join("")}</tbody>`);
}

function tables(parent, run) {
  const names = run.log.memories.map((memory) => escape(memory.name));
  element(parent, "h2", {}, "Allocations");
  table(parent, [["allocation", (it) => escape(it.name) + (it.times > 1 ? ` <span class="soft">× ${it.times}</span>` : "")], ["size", (it) => bytes(it.bytes)],
    ["faults", (it) => number(it.faults)], ["pages moved", (it) => number(it.pages_moved)], ["evicted", (it) => number(it.pages_evicted)],
    ["came back", (it) => number(it.pages_returned)], ["by turns", (it) => number(it.pages_handed)]],
  run.allocations, (it) => it.faults + it.pages_moved);
  if (run.allocations_left_out > 0) element(parent, "div", { class: "soft" }, `${number(run.allocations_left_out)} more cost less.`);
  element(parent, "h2", {}, "Kernels");
  table(parent, [["kernel", (it) => `<i class="dot" style="background:${kernelColour(it.name)}"></i>${escape(it.name)}`], ["runs", (it) => number(it.count)], ["failed", (it) => number(it.failed)], ["time", (it) => time(it.time)],
    ["longest", (it) => time(it.longest)], ["faults", (it) => number(it.faults)], ["pages moved", (it) => number(it.pages_moved)]],
  run.kernels, (it) => it.time);
  element(parent, "h2", {}, "Moves");
  table(parent, [["from → to", (it) => `${it.from === null ? "zeros" : names[it.from]} → ${names[it.to]}`], ["reason", (it) => it.reason], ["amount", (it) => bytes(it.bytes)],
    ["pages", (it) => number(it.bytes / run.log.page_bytes)]], run.moves, (it) => it.bytes);
  element(parent, "h2", {}, "Ranges that cost most");
  const card = element(parent, "div", { class: "card" });
  for (const range of run.ranges) {
    const details = element(card, "details");
    element(details, "summary", {}, `<b>${escape(range.name)}</b> ${pages(range)}
      <span class="right">${number(range.faults)} faults, ${number(range.pages_moved)} pages moved</span>`);
    const half = 12;
    const items = range.history.map((it) => `<li><time>${time(it.at)}</time><span>${escape(it.what)}</span></li>`);
    if (range.left_out > 0) items.splice(half, 0, `<li class="soft"><time></time><span>… ${number(range.left_out)} more …</span></li>`);
    element(details, "ol", {}, items.join(""));
  }
  if (run.ranges.length === 0) card.textContent = "Nothing moved.";
}

// --- the page -----------------------------------------------------------------------------------

const page = document.getElementById("page");
element(page, "h1", {}, runs.length > 1 ? "Two runs side by side" : "Why this run took what it took");
const section = (title) => {
  if (title) element(page, "h2", {}, title);
  const row = element(page, "div", { class: runs.length > 1 ? "runs two" : "runs", style: title ? "" : "margin-top:14px" });
  return runs.map(() => element(row, "div"));
};
section().forEach((column, index) => { head(column, runs[index]); counts(column, runs[index], index > 0 ? runs[0] : null); });
section("What to do").forEach((column, index) => remedies(column, runs[index]));
section("Over time").forEach((column, index) => charts(column, runs[index], index));
if (runs.length > 1) echarts.connect("runs");
section().forEach((column, index) => tables(column, runs[index]));
element(page, "footer", {}, "Made by <code>farside report</code>. Turn the wheel over a chart to zoom in time, drag to move. Charts by Apache ECharts 5.6.0 (Apache License 2.0).");
