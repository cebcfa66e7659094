// Draws every chart with the colours of the page's scheme, and again when the scheme changes: one after the other, so that
// a long page can be read meanwhile, and what is folded away when it is opened.
"use strict";
(() => {
  const PAPER = 640; // CSS pixels of an A4 page between margins
  const style = getComputedStyle(document.documentElement);
  function themed(value) {
    if (typeof value === "string" && value.startsWith("--")) return style.getPropertyValue(value).trim();
    if (Array.isArray(value)) return value.map(themed);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item)]));
    return value;
  }
  const figures = new Map();
  const drawn = new Set();
  function draw(chart) {
    const figure = themed(figures.get(chart));
    figure.layout.hoverlabel.bgcolor = themed("--raised");
    Plotly.react(chart, figure.data, figure.layout, { responsive: true, displayModeBar: false });
    drawn.add(chart);
  }
  const waiting = () => [...figures.keys()].filter((chart) => !drawn.has(chart) && chart.clientWidth);
  function next() {
    const [chart, another] = waiting();
    if (chart) draw(chart);
    if (another) setTimeout(next);
  }
  // Room is kept beforehand, so that nothing jumps.
  function add(chart, figure) {
    if (!figures.has(chart)) {
      const save = () => Plotly.downloadImage(chart, { format: "svg", filename: document.title });
      chart.after(stagebench.el("button", { type: "button", class: "copy", onclick: save }, "Save as SVG"));
    }
    figures.set(chart, figure);
    chart.style.minHeight = figure.layout.height + "px";
  }
  for (const chart of document.querySelectorAll("script[type='application/json'] + .chart"))
    add(chart, JSON.parse(chart.previousElementSibling.textContent));
  next();
  document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", next));
  // A chart is drawn as wide as its place; no event says how wide that is on paper.
  addEventListener("beforeprint", () => {
    waiting().forEach(draw);
    for (const chart of drawn) if (chart.clientWidth > PAPER) Plotly.relayout(chart, { width: PAPER });
  });
  addEventListener("afterprint", () => drawn.forEach((chart) => Plotly.relayout(chart, { width: null, autosize: true })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
  stagebench.chart = (chart, figure) => {
    drawn.delete(chart);
    add(chart, figure);
    draw(chart);
  };
})();
