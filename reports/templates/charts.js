// Draws every chart with the colours of the page's scheme, and again when the scheme changes.
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
  function draw() {
    document.querySelectorAll(".chart").forEach((chart) => {
      const figure = themed(JSON.parse(chart.previousElementSibling.textContent));
      figure.layout.hoverlabel.bgcolor = themed("--raised");
      Plotly.react(chart, figure.data, figure.layout, { responsive: true, displayModeBar: false });
    });
  }
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
