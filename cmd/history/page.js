// Draws the charts of a report: each <div class="chart" data-chart="N"> gets chart N of the data.
"use strict";
(function () {
  var data = JSON.parse(document.getElementById("data").textContent);
  var dark = matchMedia("(prefers-color-scheme: dark)").matches;
  // Okabe and Ito's colours, which colour-blind people tell apart.
  var colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b8a000"];

  // Rows of all curves by step, with null where a curve has no point.
  function rows_of(chart) {
    var rows = new Map();
    chart.curves.forEach(function (curve, at) {
      curve.points.forEach(function (point) {
        if (!rows.has(point[0])) rows.set(point[0], new Array(chart.curves.length).fill(null));
        rows.get(point[0])[at] = point[1];
      });
    });
    return Array.from(rows.keys()).sort(function (a, b) { return a - b; })
      .map(function (step) { return [step].concat(rows.get(step)); });
  }

  // A line at each step from which a generation went on.
  function draw_generations(canvas, area, graph) {
    canvas.save();
    canvas.strokeStyle = dark ? "#999" : "#777";
    canvas.setLineDash([3, 3]);
    data.generations.forEach(function (generation) {
      var x = graph.toDomXCoord(generation[0]);
      canvas.beginPath();
      canvas.moveTo(x, area.y);
      canvas.lineTo(x, area.y + area.h);
      canvas.stroke();
    });
    canvas.restore();
  }

  document.querySelectorAll(".chart").forEach(function (place) {
    var chart = data.charts[Number(place.dataset.chart)];
    var graph = new Dygraph(place.querySelector(".curves"), rows_of(chart), {
      labels: ["step"].concat(chart.curves.map(function (curve) { return curve.name; })),
      labelsDiv: place.querySelector(".legend"),
      legend: "always",
      colors: colours,
      connectSeparatedPoints: true,
      stackedGraph: chart.stacked,
      fillGraph: chart.stacked,
      drawPoints: chart.curves.some(function (curve) { return curve.points.length < 3; }),
      digitsAfterDecimal: 6,
      strokeWidth: 1.5,
      gridLineColor: dark ? "#444" : "#ddd",
      axisLineColor: dark ? "#888" : "#999",
      axes: { x: { valueFormatter: function (step) { return "step " + step; } }, y: { axisLabelWidth: 64 } },
      underlayCallback: draw_generations,
    });
    var log = place.querySelector("input");
    if (log) log.addEventListener("change", function () { graph.updateOptions({ logscale: log.checked }); });
    place.graph = graph;  // what is drawn, for those who ask
  });
})();
