// Draws every chart with the colours of the page's scheme when it comes near the window (a long page opens at once),
// all of them before printing, and those drawn again when the scheme changes.
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
  const near = new IntersectionObserver(
    (seen) => seen.filter((one) => one.isIntersecting).forEach((one) => {
      near.unobserve(one.target);
      draw(one.target);
    }),
    { rootMargin: "600px" },
  );
  charts.forEach((chart) => near.observe(chart));
  addEventListener("beforeprint", () => charts.filter((chart) => !drawn.has(chart)).forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
})();
