// What if: steps through the grid that `stagebench predict` computed.
"use strict";
(() => {
  const { el, number } = stagebench;
  const form = document.getElementById("controls");
  if (!form) return;
  const { trainings } = JSON.parse(document.getElementById("grid").textContent);
  const inputs = form.elements, steps = Object.fromEntries(["bandwidth", "speed"].map((name) => [name, JSON.parse(inputs[name].dataset.steps)]));

  function rates(one, schedule, bandwidth, speed) {
    const at = (schedule * steps.bandwidth.length + bandwidth) * steps.speed.length + speed;
    return one.rates.slice(at * one.sizes.length, (at + 1) * one.sizes.length);
  }
  const usual = (name) => steps[name].indexOf(1);

  function draw() {
    const one = trainings[inputs.training.value];
    const [schedule, bandwidth, speed] = ["schedule", "bandwidth", "speed"].map((name) => Number(inputs[name].value));
    const now = rates(one, schedule, bandwidth, speed);
    const fitted = rates(one, one.schedule, usual("bandwidth"), usual("speed"));
    const outputs = { bandwidth: one.bandwidth === null ? "free" : `${number(one.bandwidth * steps.bandwidth[bandwidth])} MB/s`, speed: `${number(steps.speed[speed])}×` };
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

  inputs.training.addEventListener("input", () => {
    inputs.schedule.value = trainings[inputs.training.value].schedule;
    for (const name of Object.keys(steps)) inputs[name].value = usual(name);
  });
  form.addEventListener("input", draw);
  inputs.schedule.value = trainings[0].schedule;
  draw();
})();
