// What if: steps through the grid that `stagebench predict` computed.
"use strict";
(() => {
  const { el, number } = stagebench;
  const form = document.getElementById("controls");
  if (!form) return;
  const { trainings } = JSON.parse(document.getElementById("grid").textContent);
  const inputs = form.elements, choices = ["schedule", "all-reduce"], factors = ["bandwidth", "latency", "speed"], axes = [...choices, ...factors];
  const steps = Object.fromEntries(factors.map((name) => [name, JSON.parse(inputs[name].dataset.steps)]));
  const length = (name) => steps[name]?.length ?? inputs[name].options.length;

  function rates(one, at) {
    const first = axes.reduce((index, name) => index * length(name) + at[name], 0) * one.sizes.length;
    return one.rates.slice(first, first + one.sizes.length);
  }
  const usual = (one) => ({ ...one.usual, ...Object.fromEntries(factors.map((name) => [name, Number(inputs[name].defaultValue)])) });

  function draw() {
    const one = trainings[inputs.training.value];
    const now = rates(one, Object.fromEntries(axes.map((name) => [name, Number(inputs[name].value)]))), fitted = rates(one, usual(one));
    const step = (name) => steps[name][inputs[name].value];
    const outputs = { bandwidth: one.units.bandwidth === null ? "free" : `${number(one.units.bandwidth * step("bandwidth"))} MB/s`, latency: `${number(one.units.latency + step("latency"))} µs`, speed: `${number(step("speed"))}×` };
    for (const [name, words] of Object.entries(outputs)) inputs[name].nextElementSibling.textContent = words;

    const ideal = one.sizes.map((size) => size * now[0]), every = [...now, ...fitted, ...ideal, ...one.measured.map(([, rate]) => rate)];
    const low = Math.log(Math.min(...every)), high = Math.log(Math.max(...every));
    const x = (size) => (100 * Math.log(size)) / (Math.log(one.sizes.at(-1)) || 1), y = (rate) => 100 - (100 * (Math.log(rate) - low)) / (high - low || 1);
    const line = (values) => "M" + values.map((rate, index) => `${x(one.sizes[index])} ${y(rate)}`).join("L");
    const dots = (points) => points.map(([size, rate]) => `M${x(size)} ${y(rate)}h0`).join("");
    const path = (kind, d) => el("path", { class: kind, d });
    const svg = el("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, path("line ideal", line(ideal)), path("line predicted", line(fitted)), path("line lead", line(now)), path("points lead", dots(one.sizes.map((size, index) => [size, now[index]]))), path("points", dots(one.measured.filter(([size]) => size <= one.sizes.at(-1)))));
    const across = one.sizes.map((size) => el("span", { class: "across", style: `left:${x(size)}%` }, size));
    const ups = [low, (low + high) / 2, high].map((value) => el("span", { class: "up", style: `bottom:${(100 * (value - low)) / (high - low || 1)}%` }, number(Math.exp(value))));
    const ends = [["what if", now, "lead"], ["as fitted", fitted, ""], ["ideal", ideal, ""]].map(([name, values, kind]) => [y(values.at(-1)), name, kind]).sort((a, b) => a[0] - b[0]);
    let last = -10;
    const names = ends.map(([place, name, kind]) => el("span", { class: `end ${kind}`, style: `top:${(last = Math.max(place, last + 7))}%` }, name));
    document.querySelector("#what_if .area").replaceChildren(svg, ...across, ...ups, ...names);

    const at = Math.max(0, one.sizes.indexOf(Math.min(16, one.sizes.at(-1))));
    document.getElementById("answer").textContent = `On ${one.sizes[at]} devices: ${number(now[at])} samples/s, ${number((100 * now[at]) / (one.sizes[at] * now[0]))} % of ${one.sizes[at]} times one; as fitted ${number(fitted[at])}.`;
  }

  function reset() {
    for (const [name, at] of Object.entries(usual(trainings[inputs.training.value]))) inputs[name].value = at;
  }
  inputs.training.addEventListener("input", reset);
  form.addEventListener("input", draw);
  reset();
  draw();
})();
