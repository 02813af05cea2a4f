// The page of a job: shows what the coordinator tells (docs/observe.md), and asks nothing of anybody else.
// Everything comes by one stream of server-sent events; names and texts of a job are data, never markup.
"use strict";

const NONE = "–";  // not measured; never 0
const asked = new URLSearchParams(location.search);
const token = asked.get("token");

const find = id => document.getElementById(id);
const known = value => value !== undefined && value !== null;

function path(rest, parameters = {}) {
  const query = new URLSearchParams(parameters);
  if (token) query.set("token", token);
  const text = query.toString();
  return rest + (text ? "?" + text : "");
}

// ---- Numbers as `dtrun status` writes them

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const fixed = digits => value => value.toFixed(digits);
const percent = value => (100 * value).toFixed(1) + " %";

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds)), two = n => String(n).padStart(2, "0");
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + two(s % 60) + " s";
  return Math.floor(s / 3600) + " h " + two(Math.floor(s / 60) % 60) + " min";
}

function bytes(count) {
  const mebibytes = count / (1 << 20);
  return mebibytes < 1024 ? mebibytes.toFixed(1) + " MiB" : (mebibytes / 1024).toFixed(1) + " GiB";
}

// ---- Elements

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// A number for people, with the number itself beside it for programs.
function data(value, format) {
  const made = element("data", known(value) ? format(value) : NONE);
  made.value = known(value) ? String(value) : "";
  return made;
}

function fill(target, ...parts) { target.replaceChildren(...parts); }

function row(cells, tag = "td") {
  const made = element("tr");
  for (const cell of cells) {
    const box = element(tag);
    if (tag === "th") box.scope = "col";
    box.append(cell);
    made.append(box);
  }
  return made;
}

function table(target, titles, rows) {
  const head = element("thead"), body = element("tbody");
  head.append(row(titles, "th"));
  for (const cells of rows) body.append(row(cells));
  fill(target, head, body);
}

// ---- The status

const PHASES = {gathering: "waiting for nodes", running: "running", stopping: "stopping", over: "over"};
const recent = [];  // [seconds, step] of the last half minute, for the time left
let previous = null;  // a status some seconds ago, for rates

function timeLeft(progress) {
  const now = performance.now() / 1000;
  if (recent.length && recent[recent.length - 1][1] > progress.step) recent.length = 0;
  recent.push([now, progress.step]);
  while (now - recent[0][0] > 30) recent.shift();
  const steps = progress.step - recent[0][1];
  return steps > 0 ? (progress.total_steps - progress.step) * (now - recent[0][0]) / steps : null;
}

function showHead(run) {
  document.title = run.run_id + " · " + PHASES[run.phase] + " · dtrun";
  find("run").textContent = run.run_id;
  const failed = run.phase === "over" && run.exit_code !== 0;
  fill(find("phase"), element("span", run.phase === "over" ? "over, exit code " + run.exit_code : PHASES[run.phase],
                              failed ? "failed" : run.phase));
  const wanted = run.min_nodes === run.max_nodes ? run.max_nodes : run.min_nodes + " to " + run.max_nodes;
  const fact = (name, value, format = String, more = "") => {
    const made = element("span", name + " ");
    made.dataset.fact = name;
    made.append(data(value, format), more);
    return made;
  };
  const goodput = run.goodput && run.goodput.training > 0 ? run.goodput.ratio : null;
  fill(find("facts"), fact("generation", run.generation, String, " for " + duration(run.generation_age)),
       fact("world size", run.world_size), element("span", "nodes wanted " + wanted),
       fact("restarts", run.restarts, String, " of " + run.max_restarts),
       fact("membership changes", run.membership_changes), fact("goodput", goodput, percent));
  find("reason").textContent = run.reason ? "because " + run.reason : "";
  const verdict = find("verdict");
  verdict.hidden = !run.verdict;
  verdict.textContent = run.verdict ? "▲ " + run.verdict.text : "";
  verdict.className = run.verdict && run.verdict.serious ? "serious" : "";
}

function showProgress(run) {
  const progress = run.progress || {};
  const entries = [
    ["step", progress.step, whole.format], ["of", progress.total_steps, whole.format],
    ["epoch", progress.epoch, fixed(2)], ["loss", progress.loss, fixed(4)],
    ["samples/s", progress.samples_per_second || null, whole.format],
    ["time left", run.phase === "running" && progress.total_steps ? timeLeft(progress) : null, duration],
    ["GPU memory", progress.gpu_memory_used, bytes]];
  const parts = [];
  for (const [name, value, format] of entries) {
    const box = element("div");
    const value_box = element("dd");
    value_box.append(data(value, format));
    value_box.dataset.progress = name;
    box.append(element("dt", name), value_box);
    parts.push(box);
  }
  fill(find("progress"), ...parts);
  const bar = find("bar");
  bar.max = progress.total_steps || 1;
  bar.value = progress.step || 0;
}

function showGoodput(goodput) {
  const body = find("goodput").tBodies[0];
  const kinds = Object.entries(goodput || {}).filter(([kind]) => kind !== "ratio" && kind !== "steps_redone");
  const total = kinds.reduce((sum, [, seconds]) => sum + seconds, 0);
  fill(body, ...kinds.map(([kind, seconds]) => {
    const share = element("div", undefined, kind === "training" ? "share" : "share loss");
    share.style.width = (total > 0 ? 100 * seconds / total : 0) + "%";
    const made = row([kind, data(seconds, fixed(1)), total > 0 ? percent(seconds / total) : NONE, share]);
    made.dataset.kind = kind;
    return made;
  }));
}

function showNodes(nodes) {
  table(find("nodes"), ["node", "host", "address", "ranks", "state", "heard", "device"], nodes.map(node => [
    known(node.node_rank) ? String(node.node_rank) : NONE, node.host, node.address,
    node.ranks.length ? node.ranks[0] + (node.ranks.length > 1 ? "–" + node.ranks[node.ranks.length - 1] : "") : NONE,
    node.state, known(node.heartbeat_age) ? node.heartbeat_age.toFixed(1) + " s ago" : NONE,
    node.gpu || (node.device ? node.device.split(",")[0] : NONE)]));
}

const RANKS_SHOWN = 256;

function workersOf(run) {
  const workers = [];
  for (const node of run.nodes) {
    const told = node.workers || node.ranks.map((rank, i) => ({rank, pid: node.pids[i]}));
    for (const worker of told) workers.push({...worker, host: node.host});
  }
  return workers.sort((a, b) => a.rank - b.rank);
}

// Since the previous look, if the counters went on; else since the worker began.
function growth(worker, before, part) {
  const now = worker[part], then = before && before.pid === worker.pid ? before[part] : undefined;
  if (!now) return {};
  return Object.fromEntries(Object.entries(now).map(([key, value]) => [key, value - (then ? then[key] : 0)]));
}

function showRanks(run) {
  const workers = workersOf(run), before = new Map((previous ? previous.workers : []).map(w => [w.rank, w]));
  const rows = workers.slice(0, RANKS_SHOWN).map(worker => {
    const old = before.get(worker.rank);
    const times = growth(worker, old, "times"), usage = growth(worker, old, "usage");
    const all = times.math + times.data + times.wait_peers + times.other;
    const share = part => data(all > 0 ? times[part] / all : null, percent);
    const seconds = old && old.pid === worker.pid && worker.usage && old.usage ? (performance.now() - previous.at) / 1000 : null;
    const rate = value => data(seconds && known(value) ? value / seconds : null, percent);
    return [String(worker.rank), worker.host, worker.pid ? String(worker.pid) : NONE, data(worker.step || null, whole.format),
            share("math"), share("data"), share("wait_peers"), share("other"), rate(usage.cpu), rate(usage.cpu_wait),
            data(worker.usage && worker.usage.resident_bytes, bytes),
            data(worker.usage && worker.usage.output_age, s => duration(s) + " ago")];
  });
  table(find("ranks"), ["rank", "host", "pid", "step", "math", "data", "waiting", "other", "CPU", "ready, no CPU", "memory",
                        "last output"], rows);
  if (workers.length > RANKS_SHOWN) find("ranks").append(element("caption", "the first " + RANKS_SHOWN + " of " + workers.length));
  if (!previous || performance.now() - previous.at > 5000) previous = {at: performance.now(), workers};
}

function showStatus(run) {
  find("lost").hidden = true;
  showHead(run);
  showProgress(run);
  showGoodput(run.goodput);
  showNodes(run.nodes);
  showRanks(run);
}

// ---- Curves

const curves = {};  // by name, [step, value, time] in the order of steps
let events = [];

const CHARTS = [
  {title: "loss", curves: [["loss", "train"], ["eval_loss", "evaluation"]], format: fixed(4), log: true},
  {title: "samples/s", curves: [["samples_per_second", "samples/s"]], format: whole.format, zero: true},
  {title: "accuracy of evaluations", curves: [["eval_accuracy", "accuracy"]], format: percent},
  {title: "learning rate", curves: [["learning_rate", "learning rate"]], format: value => value.toPrecision(3)},
  {title: "gradient norm", curves: [["grad_norm", "gradient norm"]], format: fixed(3), log: true}];

// Its legend is made of styles in markup, which the page's Content-Security-Policy refuses; ours is the caption.
Dygraph.PLUGINS = Dygraph.PLUGINS.filter(plugin => plugin !== Dygraph.Plugins.Legend);

const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// A step that is there already: training went back, and what came after it is no more.
function addPoints(series) {
  for (const [name, points] of Object.entries(series)) {
    const curve = curves[name] || (curves[name] = []);
    for (const point of points) {
      while (curve.length && curve[curve.length - 1][0] >= point[0]) curve.pop();
      curve.push(point);
    }
    while (curve.length > 4096) curves[name] = curve.filter((_, i) => i % 2 === 0 || i === curve.length - 1);
  }
}

// Rows of [step, value of each curve, or null].
function rowsOf(chart) {
  const rows = new Map();
  chart.curves.forEach(([name], i) => {
    for (const [step, value] of curves[name] || []) {
      if (!rows.has(step)) rows.set(step, [step, ...chart.curves.map(() => null)]);
      rows.get(step)[i + 1] = value;
    }
  });
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}

const MARKS = {failure: ["red", "▼"], generation: ["dim", "│"], checkpoint: ["orange", "◆"]};

function drawMarks(canvas, area, graph) {
  canvas.save();
  canvas.font = "12px sans-serif";
  canvas.textAlign = "center";
  for (const event of events) {
    const mark = MARKS[event.kind];
    if (!mark) continue;
    const x = Math.round(graph.toDomXCoord(event.step)) + 0.5;
    if (!(x >= area.x && x <= area.x + area.w)) continue;
    canvas.strokeStyle = canvas.fillStyle = colour(mark[0]);
    if (event.kind !== "checkpoint") {
      canvas.beginPath();
      canvas.moveTo(x, area.y);
      canvas.lineTo(x, area.y + area.h);
      canvas.stroke();
    }
    canvas.fillText(mark[1], x, event.kind === "checkpoint" ? area.y + area.h - 2 : area.y + 11);
  }
  canvas.restore();
}

function makeChart(chart) {
  const figure = element("figure"), caption = element("figcaption"), value = element("output", "");
  caption.append(element("b", chart.title), value);
  chart.box = element("div", undefined, "chart");
  chart.box.setAttribute("role", "img");
  const more = element("details"), numbers = element("table");
  more.append(element("summary", "the numbers"), numbers);
  more.addEventListener("toggle", () => { if (more.open) showNumbers(chart, numbers); });
  new ResizeObserver(() => { if (chart.graph) chart.graph.resize(); }).observe(chart.box);
  chart.numbers = () => { if (more.open) showNumbers(chart, numbers); };
  figure.append(caption, chart.box, more);
  find("charts").append(figure);
  const label = (i, point) => chart.curves[i][1] + " " + chart.format(point);
  chart.options = {
    labels: ["step", ...chart.curves.map(([, title]) => title)], connectSeparatedPoints: true, legend: "never",
    strokeWidth: 1.5, includeZero: Boolean(chart.zero), underlayCallback: drawMarks, highlightCircleSize: 3,
    axes: {x: {axisLabelFormatter: step => Number.isInteger(step) ? whole.format(step) : ""},
           y: {axisLabelFormatter: value => String(Number(value.toPrecision(7))), axisLabelWidth: 72}},
    highlightCallback: (_, step, points) => {
      value.textContent = "step " + whole.format(step) + ": " +
          points.map(p => label(chart.curves.findIndex(([, title]) => title === p.name), p.yval)).join(", ");
    },
    unhighlightCallback: () => { value.textContent = ""; },
    drawPoints: true, pointSize: 1.5};
  return chart;
}

function showNumbers(chart, target) {
  const rows = rowsOf(chart), every = Math.ceil(rows.length / 200);
  table(target, ["step", ...chart.curves.map(([, title]) => title)],
        rows.filter((_, i) => i % every === 0 || i === rows.length - 1).reverse().map(
            ([step, ...values]) => [whole.format(step), ...values.map(v => known(v) ? chart.format(v) : NONE)]));
}

function draw(chart) {
  const rows = rowsOf(chart), figure = chart.box.parentElement;
  figure.hidden = rows.length === 0;
  if (figure.hidden) return;
  const options = {...chart.options, logscale: Boolean(chart.log) && find("log").checked};
  const last = rows[rows.length - 1];
  const said = chart.curves.map(([name, title]) => {
    const curve = curves[name];
    return curve && curve.length ? title + " " + chart.format(curve[curve.length - 1][1] ?? NaN) : "";
  }).filter(text => text).join(", ");
  chart.box.setAttribute("aria-label", "curve of " + chart.title + " up to step " + last[0] + ": " + said);
  if (chart.graph) chart.graph.updateOptions({file: rows, logscale: options.logscale});
  else chart.graph = new Dygraph(chart.box, rows, {
    ...options, colors: [colour("blue"), colour("orange")], gridLineColor: colour("line"), axisLineColor: colour("line")});
  chart.numbers();
}

let charts = [];
function drawAll() { for (const chart of charts) draw(chart); }

function recolour() {
  for (const chart of charts) {
    if (chart.graph) chart.graph.destroy();
    chart.graph = null;
  }
  drawAll();
}

// ---- Events

function showEvents() {
  const words = find("filter").value.toLowerCase();
  const lines = events.map(event => {
    const item = element("li", undefined, event.kind), at = new Date(event.time * 1000);
    const time = element("time", at.toLocaleTimeString("en-GB"));
    time.dateTime = at.toISOString();
    const what = event.kind === "checkpoint" ? "checkpoint of step " + whole.format(event.step) :
        event.kind + ": " + (event.text || "none stands out any more");
    item.append(time, what);
    return item;
  });
  fill(find("events"), ...lines.reverse().filter(item => item.textContent.toLowerCase().includes(words)));
}

// ---- The stream

function showLinks(id) {
  const link = (text, address) => {
    const made = element("a", text);
    made.href = address;
    return made;
  };
  const api = "api/v1/runs/" + encodeURIComponent(id);
  fill(find("links"), link("status as JSON", path(api)), link("curves", path(api + "/series")),
       link("events", path(api + "/events")), link("all runs", path("api/v1/runs")));
}

function follow(id) {
  showLinks(id);
  find("run").textContent = id;
  find("job").hidden = false;  // a curve that is not shown has no size
  charts = CHARTS.map(makeChart);
  find("log").addEventListener("change", drawAll);
  find("filter").addEventListener("input", showEvents);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  const stream = new EventSource(path("api/v1/stream", {run: id}));
  stream.addEventListener("status", message => showStatus(JSON.parse(message.data)));
  stream.addEventListener("point", message => {
    const told = JSON.parse(message.data);
    if (told.anew) for (const name of Object.keys(curves)) delete curves[name];
    addPoints(told.series);
    drawAll();
  });
  stream.addEventListener("event", message => {
    const told = JSON.parse(message.data);
    events = (told.anew ? [] : events).concat(told.events).slice(-256);
    showEvents();
    drawAll();
  });
  stream.addEventListener("error", () => {
    const lost = find("lost");
    if (lost.hidden) lost.textContent = "no word from the coordinator since " + new Date().toLocaleTimeString("en-GB") +
        ": what is shown is older";
    lost.hidden = false;
  });
}

function showRuns(runs) {
  const list = element("ul");
  for (const run of runs) {
    const item = element("li"), link = element("a", run.run_id);
    link.href = path("./", {run: run.run_id});
    item.append(link, " " + PHASES[run.phase] + (run.progress ? ", step " + whole.format(run.progress.step) + " of " +
        whole.format(run.progress.total_steps) : ""));
    list.append(item);
  }
  fill(find("runs"), element("h1", runs.length ? "runs" : "no run yet"), list);
  find("runs").hidden = false;
  if (!runs.length) setTimeout(begin, 2000);
}

async function begin() {
  if (asked.get("run")) return follow(asked.get("run"));
  const runs = await (await fetch(path("api/v1/runs"))).json();
  find("runs").hidden = true;
  if (runs.length === 1) return follow(runs[0].run_id);
  showRuns(runs);
}

begin();
