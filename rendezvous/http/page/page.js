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
const clock = time => new Date(time * 1000).toLocaleTimeString("en-GB");

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

// ---- Elements (element() is of pictures.js)

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

// A row whose first cell has the same element as before is kept: its button has the focus, or is being pressed.
function table(target, titles, rows) {
  const body = target.tBodies[0] || target.createTBody();
  fill(target.createTHead(), row(titles, "th"));
  rows.forEach((cells, i) => {
    const old = body.rows[i];
    if (!old) body.append(row(cells));
    else if (old.cells[0].firstChild !== cells[0]) old.replaceWith(row(cells));
    else cells.slice(1).forEach((cell, k) => fill(old.cells[k + 1], cell));
  });
  while (body.rows.length > rows.length) body.lastChild.remove();
}

// ---- The status

const PHASES = {gathering: "waiting for nodes", running: "running", stopping: "stopping", over: "over"};
const recent = [];  // [seconds, step] of the last half minute, for the time left
let shown = null;  // the newest status

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
}

// `entries`: [name, value, format].
function facts(target, key, entries) {
  fill(target, ...entries.map(([name, value, format]) => {
    const box = element("div"), value_box = element("dd");
    value_box.append(data(value, format));
    value_box.dataset[key] = name;
    box.append(element("dt", name), value_box);
    return box;
  }));
}

function showProgress(run) {
  const progress = run.progress || {};
  facts(find("progress"), "progress", [
    ["step", progress.step, whole.format], ["of", progress.total_steps, whole.format],
    ["epoch", progress.epoch, fixed(2)], ["loss", progress.loss, fixed(4)],
    ["samples/s", progress.samples_per_second || null, whole.format],
    ["time left", run.phase === "running" && progress.total_steps ? timeLeft(progress) : null, duration],
    ["GPU memory", progress.gpu_memory_used, bytes]]);
  const bar = find("bar");
  bar.max = progress.total_steps || 1;
  bar.value = progress.step || 0;
}

// Kinds of goodput with their seconds, and the sum.
function kindsOf(goodput) {
  const kinds = Object.entries(goodput || {}).filter(([kind]) => kind !== "ratio" && kind !== "steps_redone");
  return [kinds, kinds.reduce((sum, [, seconds]) => sum + seconds, 0)];
}

function showGoodput(goodput) {
  const body = find("goodput").tBodies[0], [kinds, total] = kindsOf(goodput);
  fill(body, ...kinds.map(([kind, seconds]) => {
    const share = element("div", undefined, "share kind-" + kind), name = element("span", kind);
    share.style.width = (total > 0 ? 100 * seconds / total : 0) + "%";
    name.prepend(element("span", undefined, "swatch kind-" + kind));
    const made = row([name, data(seconds, fixed(1)), total > 0 ? percent(seconds / total) : NONE, share]);
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

function showStatus(run) {
  shown = run;
  find("lost").hidden = true;
  showHead(run);
  showProgress(run);
  showGoodput(run.goodput);
  showNodes(run.nodes);
  showRanks(run);
  drawSoon();
}

// ---- The life of the job

let life = [];  // [kind of goodput, or null once it is over, time from which on]
let ahead = 0;  // of the coordinator's clock before the browser's, in seconds

function lifeSpans() {
  const now = Date.now() / 1000 + ahead;
  const end = i => i + 1 < life.length ? life[i + 1][1] : now;
  return life.map(([kind, begin], i) => ({kind, begin, end: end(i)})).filter(span => span.kind);
}

function showLife() {
  if (!life.length) return;
  const spans = lifeSpans(), begin = spans[0].begin, end = spans[spans.length - 1].end;
  const bars = spans.map(span => ({...span, title: span.kind + ", " + duration(span.end - span.begin)}));
  const marks = events.filter(event => event.kind === "failure").map(event => ({time: event.time, title: event.text}));
  drawLife(find("life"), {begin, end, rows: [{name: "", bars}], marks});
  const [, lasted] = kindsOf(shown.goodput);
  find("life-since").textContent = lasted > end - begin + 2 ? "since " + clock(begin) + ", when this coordinator began" : "";
  if (find("life-numbers").open)
    table(find("life-table"), ["from", "spent on", "for"],
          spans.slice(-200).reverse().map(span => [clock(span.begin), span.kind, data(span.end - span.begin, duration)]));
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

const MARKS = {failure: ["#c00030", "▼"], generation: ["#7f7f7f", "│"], checkpoint: ["#e69f00", "◆"]};

function makeChart(chart) {
  const figure = element("figure"), caption = element("figcaption"), legend = element("output", "");
  const more = element("details"), numbers = element("table");
  caption.append(element("b", chart.title), legend);
  chart.box = element("div", undefined, "chart");
  chart.box.setAttribute("role", "img");
  more.append(element("summary", "the numbers"), numbers);
  chart.numbers = () => { if (more.open) showNumbers(chart, numbers); };
  more.addEventListener("toggle", chart.numbers);
  figure.append(caption, chart.box, more);
  find("charts").append(figure);
  chart.picture = new CurvePicture(chart.box, legend, chart.curves.map(([, title]) => title), chart);
  return chart;
}

function showNumbers(chart, target) {
  const rows = chart.picture.rows, every = Math.ceil(rows.length / 200);
  table(target, ["step", ...chart.picture.names], rows.filter((_, i) => i % every === 0 || i === rows.length - 1).reverse().map(
      ([step, ...values]) => [whole.format(step), ...values.map(v => known(v) ? chart.format(v) : NONE)]));
}

function draw(chart) {
  const points = chart.curves.map(([name]) => curves[name] || []);
  const empty = points.every(curve => curve.length === 0);
  chart.box.parentElement.hidden = empty;
  if (empty) return;
  const marks = events.filter(event => MARKS[event.kind]).map(({kind, step}) =>
      ({step, colour: MARKS[kind][0], sign: MARKS[kind][1], line: kind !== "checkpoint"}));
  chart.picture.show(points, marks, Boolean(chart.log) && find("log").checked);
  const last = chart.picture.rows[chart.picture.rows.length - 1][0];
  chart.box.setAttribute("aria-label", "curve of " + chart.title + " up to step " + last + ": " + chart.picture.words);
  chart.numbers();
}

let charts = [];
function drawAll() { for (const chart of charts) draw(chart); }

// A picture costs more than what changed in it. On a busy host the page would fall behind: what comes in is worked off in
// order, a lost coordinator last. So pictures take a tenth of the time at most, and none in a tab that nobody sees.
let waiting = false, rest = 0;
function drawSoon() {
  if (waiting) return;
  waiting = true;
  setTimeout(requestAnimationFrame, rest, () => {
    waiting = false;
    if (!shown) return;  // the first status comes behind the first points
    const begin = performance.now();
    drawAll();
    drawHeat();
    showLife();
    rest = 9 * (performance.now() - begin);
  });
}

// ---- Events

function showEvents() {
  const words = find("filter").value.toLowerCase();
  const lines = events.map(event => {
    const item = element("li", undefined, event.kind), time = element("time", clock(event.time));
    time.dateTime = new Date(event.time * 1000).toISOString();
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
       link("events", path(api + "/events")), link("all runs", path("api/v1/runs")), link("metrics", path("metrics")));
}

// "train.learning_rate" and its value, for all that are no objects themselves.
function flattened(config, above = "") {
  return Object.entries(config).flatMap(([key, value]) =>
      value && typeof value === "object" && !Array.isArray(value) ? flattened(value, above + key + ".")
                                                                  : [[above + key, JSON.stringify(value)]]);
}

async function showConfig(id) {
  const told = await (await fetch(path("api/v1/runs/" + encodeURIComponent(id) + "/config"))).json();
  find("version").textContent = "dtrun " + told.version + ", protocol " + told.protocol +
      (told.command.length ? "; it runs " + told.command.join(" ") : "");
  table(find("config"), ["config", "value"], flattened(told.config || {}));
  find("config").hidden = !told.config;
}

function follow(id) {
  showLinks(id);
  find("run").textContent = id;
  find("job").hidden = false;  // a curve that is not shown has no size
  charts = CHARTS.map(makeChart);
  find("log").addEventListener("change", drawAll);
  find("filter").addEventListener("input", showEvents);
  find("life-numbers").addEventListener("toggle", showLife);
  find("config-part").addEventListener("toggle", () => { if (find("config-part").open) showConfig(id); });
  find("rank-close").addEventListener("click", () => select(null));
  followHeat();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawHeat);
  listen(id, "");
}

// `heard`: milliseconds since 1970.
function showLost(heard) {
  const lost = find("lost");
  if (lost.hidden) lost.textContent = "no word from the coordinator since " + clock(heard / 1000) +
      ": what is shown is older. Should another host be the coordinator now, `dtrun status` says where the page is.";
  lost.hidden = false;
}

// A status comes every second. A host without power or a cut network says nothing, and ends no connection either.
let patience = 20000;  // in milliseconds; a history of a long run may take that long over a slow line

// `since`: the id of the newest status that is known.
function listen(id, since) {
  const stream = new EventSource(path("api/v1/stream", {run: id, since}));
  let heard = Date.now();
  const on = (kind, show) => stream.addEventListener(kind, message => {
    heard = Date.now();
    show(JSON.parse(message.data), message.lastEventId);
  });
  on("status", (told, mark) => {
    since = mark;
    showStatus(told);
  });
  on("point", told => {
    if (told.anew) for (const name of Object.keys(curves)) delete curves[name];
    addPoints(told.series);
    windows = (told.anew ? [] : windows).concat(told.windows).slice(-WINDOWS_KEPT);
    if (told.anew || told.life.length) life = told.life;
    ahead = told.now - Date.now() / 1000;
    drawSoon();
  });
  on("event", told => {
    events = (told.anew ? [] : events).concat(told.events).slice(-256);
    showEvents();
    drawSoon();
  });
  stream.addEventListener("error", () => showLost(heard));
  const watch = setInterval(() => {
    const closed = stream.readyState === EventSource.CLOSED;  // by an answer that is no stream
    if (!closed && Date.now() - heard < patience) return;
    clearInterval(watch);
    stream.close();
    showLost(heard);
    listen(id, since);
  }, 1000);
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
