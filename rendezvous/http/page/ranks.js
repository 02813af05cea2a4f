// The ranks of a run beside each other: a table, a heat map of their own times, who waits for whom, and all that is known of one.
"use strict";

const RANKS_SHOWN = 256;
const WINDOWS_KEPT = 128, WINDOWS_WRITTEN = 12;  // of the heat map, and of its table
const RATIO_LEAST = 0.8, RATIO_MOST = 2;
const RANKS_WITH_WAITS = 64;  // they tell for whom they wait

let windows = [];  // [time, generation, [own_time_ratio by rank, or null]]
let selected = null;  // rank
let previous = null;  // the workers some seconds ago, for rates

function workersOf(run) {
  const workers = [];
  for (const node of run.nodes) {
    const told = node.workers || node.ranks.map((rank, i) => ({rank, pid: node.pids[i]}));
    for (const worker of told) workers.push({...worker, host: node.host, node_rank: node.node_rank, state: node.state});
  }
  return workers.sort((a, b) => a.rank - b.rank);
}

// Since the previous look, if the counters went on; else since the worker began.
function growth(worker, before, part) {
  const now = worker[part], then = before && before.pid === worker.pid ? before[part] : undefined;
  if (!now) return {};
  return Object.fromEntries(Object.entries(now).map(([key, value]) => [key, value - (then ? then[key] : 0)]));
}

const PARTS = ["math", "data", "wait_peers", "other"];

// What is shown of a worker: shares of its steps and of its time, and seconds of a step.
function lookAt(worker) {
  const old = previous && previous.workers.get(worker.rank);
  const times = growth(worker, old, "times"), usage = growth(worker, old, "usage");
  const all = PARTS.reduce((sum, part) => sum + times[part], 0);
  const goesOn = old && old.pid === worker.pid && worker.usage && old.usage;
  const seconds = goesOn ? (performance.now() - previous.at) / 1000 : null;
  return {share: part => all > 0 ? times[part] / all : null,
          ofStep: part => times.steps > 0 ? times[part] / times.steps : null,
          rate: fact => seconds && known(usage[fact]) ? usage[fact] / seconds : null};
}

const choices = new Map();  // buttons by rank

function choiceOf(rank) {
  if (!choices.has(rank)) {
    choices.set(rank, element("button", String(rank)));
    choices.get(rank).addEventListener("click", () => select(rank));
  }
  return choices.get(rank);
}

function showRanks(run) {
  const workers = workersOf(run);
  const rows = workers.slice(0, RANKS_SHOWN).map(worker => {
    const look = lookAt(worker), choose = choiceOf(worker.rank);
    choose.setAttribute("aria-pressed", worker.rank === selected);
    return [choose, worker.host, worker.pid ? String(worker.pid) : NONE, data(worker.step || null, whole.format),
            ...PARTS.map(part => data(look.share(part), percent)), data(look.rate("cpu"), percent),
            data(look.rate("cpu_wait"), percent), data(worker.usage && worker.usage.resident_bytes, bytes),
            data(worker.usage && worker.usage.output_age, s => duration(s) + " ago")];
  });
  table(find("ranks"), ["rank", "host", "pid", "step", "math", "data", "waiting", "other", "CPU", "ready, no CPU", "memory",
                        "last output"], rows);
  find("ranks").createCaption().textContent =
      workers.length > RANKS_SHOWN ? "the first " + RANKS_SHOWN + " of " + workers.length : "";
  showRank(run, workers.find(worker => worker.rank === selected));
  showMatrix(workers);
  if (!previous || performance.now() - previous.at > 5000)
    previous = {at: performance.now(), workers: new Map(workers.map(worker => [worker.rank, worker]))};
}

// ---- One rank

function select(rank) {
  selected = rank;
  if (shown) showRanks(shown);
  drawHeat();
  find("rank").scrollIntoView({block: "nearest"});
}

function showRank(run, worker) {
  find("rank").hidden = !worker;
  if (!worker) return;
  const look = lookAt(worker), usage = worker.usage || {}, quiet = worker.quiet, waits = quiet && quiet.waits_for;
  const seconds = value => value.toFixed(1) + " s";
  const total = (fact, format) => [fact, usage[fact.replaceAll(" ", "_")], format];
  find("rank-title").textContent = "Rank " + worker.rank + " on " + worker.host;
  facts(find("rank-facts"), "rank", [
    ["node", worker.node_rank, String], ["state", worker.state, String], ["pid", worker.pid || null, String],
    ["step", worker.step || null, whole.format], ["own time by the usual", worker.own_time_ratio, ratioText],
    ...PARTS.map(part => [(part === "wait_peers" ? "waiting" : part) + ", of a step", look.ofStep(part),
                          value => (1000 * value).toFixed(1) + " ms"]),
    total("cpu", seconds), ["ready, no CPU", usage.cpu_wait, seconds],
    total("major faults", whole.format), total("read bytes", bytes), total("written bytes", bytes), ["memory", usage.resident_bytes, bytes],
    ["last output", usage.output_age, value => duration(value) + " ago"], ["its last line", usage.last_line, String]]);
  const peer = waits && (waits.rank === null ? "all others" : "rank " + waits.rank);
  const sentences = [
    run.verdict && run.verdict.rank === worker.rank ? run.verdict.text : "",
    waits ? `in flight for ${duration(quiet.seconds)}: ${waits.operation} of ${peer}` +
        (waits.bucket === null ? "" : ", bucket " + waits.bucket) + " after step " + whole.format(waits.step) : "",
    quiet && !waits ? "nothing done for " + duration(quiet.seconds) : "", quiet && quiet.where ? "stands at " + quiet.where : ""];
  fill(find("rank-says"), ...sentences.filter(text => text).map(text => element("p", text)));
  const failure = events.findLast(event => event.rank === worker.rank);
  find("rank-words").hidden = !failure;
  if (failure) fill(find("rank-words"), element("b", clock(failure.time) + ": " + failure.text), "\n" + failure.words);
}

// ---- The heat map

// Blue, the ground, orange: for 0.8, 1 and 2 times what is usual.
function heatColour(ratio, ground) {
  const [end, part] = ratio < 1 ? [[0, 114, 178], (1 - ratio) / (1 - RATIO_LEAST)]
                                : [[213, 94, 0], (ratio - 1) / (RATIO_MOST - 1)];
  const mixed = ground.map((value, i) => Math.round(value + Math.min(1, part) * (end[i] - value)));
  return "rgb(" + mixed.join(",") + ")";
}

const groundOf = part => getComputedStyle(part).backgroundColor.match(/\d+/g).slice(0, 3).map(Number);

// Of many ranks so many share a row, which shows the slowest of them.
const ranksInRow = ranks => Math.ceil(ranks / RANKS_SHOWN);

function drawHeat() {
  const map = find("heat"), box = map.parentElement;
  const columns = windows.filter(([, generation]) => shown && generation === shown.generation);
  find("heat-part").hidden = columns.length === 0;
  if (!columns.length) return;
  const ranks = columns[0][2].length, together = ranksInRow(ranks), rows = Math.ceil(ranks / together);
  const high = Math.max(2, Math.min(18, Math.floor(320 / rows))), wide = box.clientWidth / WINDOWS_KEPT;
  const sharp = devicePixelRatio || 1;
  map.width = Math.round(box.clientWidth * sharp);
  map.height = Math.round(rows * high * sharp);
  map.style.height = rows * high + "px";
  const canvas = map.getContext("2d"), ground = groundOf(find("heat-part"));
  canvas.scale(sharp, sharp);
  columns.forEach(([, , ratios], column) => {
    const left = (column + WINDOWS_KEPT - columns.length) * wide;
    for (let row = 0; row < rows; ++row) {
      const ratio = Math.max(...ratios.slice(row * together, (row + 1) * together).map(value => value ?? -1));
      if (ratio < 0) continue;
      canvas.fillStyle = heatColour(ratio, ground);
      canvas.fillRect(left, row * high, wide + 0.5, high - (high > 4 ? 1 : 0));
    }
  });
  if (selected !== null) {
    canvas.strokeStyle = getComputedStyle(map).color;
    canvas.strokeRect(0.5, Math.floor(selected / together) * high + 0.5, box.clientWidth - 1, high - 1);
  }
  const newest = columns[columns.length - 1][2], slowest = newest.indexOf(Math.max(...newest.map(value => value ?? -1)));
  map.setAttribute("aria-label", "own times of " + ranks + " ranks in " + columns.length + " windows; in the newest rank " +
      slowest + " is the slowest, with " + ratioText(newest[slowest]) + " of the usual");
  const written = columns.slice(-WINDOWS_WRITTEN).reverse();
  const numbers = rank => [String(rank), ...written.map(([, , ratios]) => data(ratios[rank], ratioText))];
  if (find("heat-numbers").open)
    table(find("heat-table"), ["rank", ...written.map(([time]) => clock(time))],
          newest.slice(0, RANKS_SHOWN).map((_, rank) => numbers(rank)));
}

const ratioText = ratio => known(ratio) ? ratio.toFixed(2) + " ×" : NONE;

const newestWindow = () => windows.length ? windows[windows.length - 1][2] : [];

// The rank under a pointer.
function heatAt(pointer) {
  const ranks = newestWindow().length, together = ranksInRow(ranks), rows = Math.ceil(ranks / together);
  return Math.min(ranks - 1, Math.floor(pointer.offsetY / find("heat").clientHeight * rows) * together);
}

function followHeat() {
  find("heat").addEventListener("click", pointer => select(heatAt(pointer)));
  find("heat").addEventListener("pointermove", pointer => {
    const rank = heatAt(pointer);
    find("heat-value").textContent = "rank " + rank + ": " + ratioText(newestWindow()[rank]);
  });
  find("heat").addEventListener("pointerleave", () => { find("heat-value").textContent = ""; });
  find("heat").addEventListener("keydown", key => {
    const step = {ArrowDown: 1, ArrowUp: -1}[key.key], last = newestWindow().length - 1;
    if (!step) return;
    key.preventDefault();
    select(selected === null ? 0 : Math.min(last, Math.max(0, selected + step)));
  });
  find("heat-numbers").addEventListener("toggle", drawHeat);
  new ResizeObserver(drawHeat).observe(find("heat").parentElement);
}

// ---- Who waits for whom

// Seconds per 100 steps that each rank waited for each other, of worlds whose ranks tell; null where that is not measured:
// ranks that share memory wait for no messages.
function waitsOf(workers) {
  return workers.map(worker => {
    const {wait_for: waits = [], steps = 0} = worker.times || {};
    const told = (peer, at) => steps > 0 && known(waits[at]) && peer.node_rank !== worker.node_rank;
    return workers.map((peer, at) => told(peer, at) ? 100 * waits[at] / steps : null);
  });
}

let matrixAt = -Infinity;

function showMatrix(workers) {
  if (performance.now() - matrixAt < 50 * workers.length) return;
  matrixAt = performance.now();
  const waits = workers.length <= RANKS_WITH_WAITS ? waitsOf(workers) : [], most = Math.max(...waits.flat());
  find("matrix-part").hidden = !(most > 0);
  table(find("matrix"), ["waits for", ...waits.map((_, rank) => "rank " + rank)], waits.map((row, rank) => [
    "rank " + rank, ...row.map(value => {
      const cell = data(value, number => number.toFixed(2));
      if (value > 0) cell.style.background = `color-mix(in srgb, var(--orange) ${Math.round(70 * value / most)}%, transparent)`;
      return cell;
    })]));
}
