// Draws the pictures of a report: each <div class="chart" data-chart="N"> gets chart N of the data, each
// <div data-life="N"> stretch N of the job's life.
"use strict";
const pageData = JSON.parse(document.getElementById("data").textContent);
const generations = pageData.generations.map(([step]) => ({step, colour: "#7f7f7f", sign: "│", line: true}));

for (const place of document.querySelectorAll(".chart")) {
  const chart = pageData.charts[Number(place.dataset.chart)], log = place.querySelector("input");
  const picture = new CurvePicture(place.querySelector(".curves"), place.querySelector(".legend"),
                                   chart.curves.map(curve => curve.name), {stacked: chart.stacked});
  const show = () => picture.show(chart.curves.map(curve => curve.points), generations, Boolean(log && log.checked));
  show();
  if (log) log.addEventListener("change", show);
  place.graph = picture.graph;  // what is drawn, for those who ask
}

for (const place of document.querySelectorAll("[data-life]")) drawLife(place, pageData.lives[Number(place.dataset.life)]);
