// Draws every chart with the colours of the page's scheme, and again when the scheme changes: one after the other, so that
// a long page can be read meanwhile, and what is folded away when it is opened.
(function () {
  "use strict";
  function themed(value) {
    if (typeof value === "string" && value.startsWith("--"))
      return getComputedStyle(document.documentElement).getPropertyValue(value).trim();
    if (Array.isArray(value)) return value.map(themed);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item)]));
    return value;
  }
  const charts = [...document.querySelectorAll(".chart")];
  const figures = new Map(charts.map((chart) => [chart, JSON.parse(chart.previousElementSibling.textContent)]));
  const drawn = new Set();
  function draw(chart) {
    const figure = themed(figures.get(chart));
    figure.layout.hoverlabel.bgcolor = themed("--raised");
    Plotly.react(chart, figure.data, figure.layout, { responsive: true, displayModeBar: false });
    drawn.add(chart);
  }
  // Room is kept beforehand, so that nothing jumps.
  charts.forEach((chart) => (chart.style.minHeight = figures.get(chart).layout.height + "px"));
  const waiting = () => charts.filter((chart) => !drawn.has(chart) && chart.clientWidth);
  function next() {
    const [chart, another] = waiting();
    if (chart) draw(chart);
    if (another) setTimeout(next);
  }
  next();
  document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", next));
  addEventListener("beforeprint", () => waiting().forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
})();
