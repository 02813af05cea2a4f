// Pictures of a job, for its page and for its report: curves over steps, drawn by dygraphs, and its life over time. All data
// is given; names and texts in it are data, never markup.
"use strict";

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// ---- Curves

// Okabe and Ito's colours, which colour-blind people tell apart; on a light ground and on a dark one.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b8a000"];

// Its legend is made of styles in markup, which the page's Content-Security-Policy refuses.
Dygraph.PLUGINS = Dygraph.PLUGINS.filter(plugin => plugin !== Dygraph.Plugins.Legend);

class CurvePicture {
  // `names`: of the curves; `legend` gets them, with the values at the step that is pointed at, or the last ones. `format` makes
  // a text of a value.
  constructor(box, legend, names, {stacked = false, zero = false, format = value => String(Number(value.toPrecision(6)))} = {}) {
    Object.assign(this, {box, legend, names, format, stacked, zero, rows: [], marks: []});
    new ResizeObserver(() => { if (this.graph) this.graph.resize(); }).observe(box);
  }

  // `curves`: for each name [[step, value, …], …] in the order of steps. `marks`: [{step, colour, sign, line}], where a line goes
  // from top to bottom.
  show(curves, marks, log = false) {
    const rows = new Map();
    curves.forEach((points, i) => {
      for (const [step, value] of points) {
        if (!rows.has(step)) rows.set(step, [step, ...this.names.map(() => null)]);
        rows.get(step)[i + 1] = value;
      }
    });
    this.rows = [...rows.values()].sort((a, b) => a[0] - b[0]);
    this.last = curves.map(points => points.length ? points[points.length - 1][1] : null);
    this.marks = marks;
    if (this.graph) this.graph.updateOptions({file: this.rows, logscale: log});
    else if (this.rows.length) this.graph = new Dygraph(this.box, this.rows, this.options(log, curves));
    this.describe("", this.last);
  }

  options(log, curves) {
    const grey = "rgba(128, 128, 128, 0.35)";
    return {
      labels: ["step", ...this.names], colors: COLOURS, gridLineColor: grey, axisLineColor: grey, logscale: log,
      stackedGraph: this.stacked, fillGraph: this.stacked, includeZero: this.zero, connectSeparatedPoints: true,
      strokeWidth: 1.5, drawPoints: curves.some(points => points.length < 300), pointSize: 1.5, highlightCircleSize: 3,
      axes: {x: {axisLabelFormatter: step => Number.isInteger(step) ? step.toLocaleString("en") : ""},
             y: {axisLabelFormatter: value => String(Number(value.toPrecision(7))), axisLabelWidth: 72}},
      underlayCallback: (canvas, area, graph) => this.drawMarks(canvas, area, graph),
      highlightCallback: (_, step) => {
        const row = this.rows.find(each => each[0] === step);
        if (row) this.describe("step " + step.toLocaleString("en") + ": ", row.slice(1));
      },
      unhighlightCallback: () => this.describe("", this.last)};
  }

  describe(where, values) {
    const words = this.names.map((name, i) => name + " " + (values[i] == null ? "–" : this.format(values[i])));
    this.words = where + words.join(", ");
    this.legend.replaceChildren(where, ...words.flatMap((text, i) => {
      const key = element("span", text);
      key.style.borderBottom = "3px solid " + COLOURS[i % COLOURS.length];
      return [key, " "];
    }));
  }

  drawMarks(canvas, area, graph) {
    canvas.save();
    canvas.font = "12px sans-serif";
    canvas.textAlign = "center";
    for (const {step, colour, sign, line} of this.marks) {
      const x = Math.round(graph.toDomXCoord(step)) + 0.5;
      if (!(x >= area.x && x <= area.x + area.w)) continue;
      canvas.strokeStyle = canvas.fillStyle = colour;
      if (line) {
        canvas.beginPath();
        canvas.moveTo(x, area.y);
        canvas.lineTo(x, area.y + area.h);
        canvas.stroke();
      }
      canvas.fillText(sign, x, line ? area.y + 11 : area.y + area.h - 2);
    }
    canvas.restore();
  }
}

// ---- The life of a job

function shape(tag, attributes, title) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (title) made.append(document.createElementNS("http://www.w3.org/2000/svg", "title"));
  if (title) made.firstChild.textContent = title;
  return made;
}

const lives = new WeakMap();  // by their boxes

// Draws {begin, end, rows: [{name, bars: [{kind, begin, end, title}]}], marks: [{time, title}]} into `box`, as wide as that is;
// times are seconds since 1970, kinds those of goodput (pictures.css has their colours).
function drawLife(box, life) {
  if (!lives.has(box)) new ResizeObserver(() => paintLife(box, lives.get(box))).observe(box);
  lives.set(box, life);
  paintLife(box, life);
}

function paintLife(box, life) {
  const left = life.rows.some(row => row.name) ? 130 : 0, height = 18, bottom = height * life.rows.length;
  const width = Math.max(300, box.clientWidth);
  const clock = time => new Date(time * 1000).toLocaleString("sv");  // 2026-11-26 12:04:05
  const x = time => {
    const share = (time - life.begin) / Math.max(1e-3, life.end - life.begin);
    return left + Math.min(1, Math.max(0, share)) * (width - left);
  };
  const picture = shape("svg", {class: "life", role: "img", viewBox: `0 0 ${width} ${bottom + 20}`,
                                "aria-label": `what happened from ${clock(life.begin)} to ${clock(life.end)}`});
  const text = (at, y, words, anchor) => {
    const made = shape("text", {x: at, y, "text-anchor": anchor});
    made.textContent = words;
    picture.append(made);
  };
  life.rows.forEach((row, i) => {
    text(0, height * i + 13, row.name, "start");
    for (const bar of row.bars)
      picture.append(shape("rect", {class: "kind-" + bar.kind, x: x(bar.begin), y: height * i + 2, height: height - 4,
                                    width: Math.max(0.5, x(bar.end) - x(bar.begin))}, bar.title));
  });
  for (const mark of life.marks)
    picture.append(shape("path", {class: "mark", d: `M${x(mark.time)} ${bottom}V0m-5 0h10l-5 9z`}, mark.title));
  text(left, bottom + 14, clock(life.begin), "start");
  text(width, bottom + 14, clock(life.end), "end");
  box.replaceChildren(picture);
}
