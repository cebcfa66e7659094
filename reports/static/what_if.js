// The controls of the model: a training, a link, a schedule, and what they make of the speed.
"use strict";
(() => {
  const { el, number, model } = stagebench;
  const place = document.getElementById("controls");
  if (!place) return; // nothing of this run can be predicted: the page says why
  const asked = JSON.parse(document.getElementById("scenarios").textContent);
  const SCHEDULES = ["sequential", "fused", "wfbp", "buckets", "merged", "priority"];
  const DEVICES = Array.from({ length: 9 }, (_, power) => 2 ** power);
  // A hierarchical exchange needs nodes that are full.
  const full = asked.every(({ scenario }) => DEVICES.includes(scenario.network.ranks_per_node));
  const ALGORITHMS = ["ring", "tree", "doubling", "halving", ...(full ? ["hierarchical"] : []), "server"];

  const select = (name, options) => el("select", { name }, ...options.map(([value, text]) => el("option", { value }, text ?? value)));
  const slider = (name, min, max) => el("input", { type: "range", name, min, max, step: "any" });
  const inputs = {
    training: select("training", asked.map((one, index) => [index, one.label])),
    schedule: select("schedule", SCHEDULES.map((name) => [name])),
    algorithm: select("algorithm", ALGORITHMS.map((name) => [name])),
    bandwidth: slider("bandwidth", 6, 12), // powers of ten, bytes a second
    latency: slider("latency", -7, -2), // powers of ten, seconds
    compute: slider("compute", -1, 1), // powers of ten
  };
  const outputs = Object.fromEntries(["bandwidth", "latency", "compute"].map((name) => [name, el("output")]));
  const words = { training: "training", schedule: "schedule", algorithm: "all-reduce", bandwidth: "bandwidth", latency: "latency", compute: "device speed" };
  const titles = Object.fromEntries(Object.entries(words).map(([name, text]) => [name, el("span", {}, text)]));
  place.append(...Object.entries(inputs).map(([name, input]) => el("label", {}, titles[name], input, outputs[name])));

  // As it was fitted; a link without latency or without cost stands at the slider's end.
  function fitted() {
    const { scenario } = asked[inputs.training.value];
    inputs.schedule.value = scenario.schedule;
    inputs.algorithm.value = scenario.network.algorithm;
    inputs.bandwidth.value = Math.log10(1 / (scenario.network.between.beta || 1e-12));
    inputs.latency.value = Math.log10(scenario.network.between.alpha || 1e-7);
    inputs.compute.value = 0;
    // A link within a node that was measured by itself stays as it is.
    for (const name of ["bandwidth", "latency"]) titles[name].textContent = words[name] + (scenario.network.within ? " between nodes" : "");
    draw();
  }

  // The scenario that the controls make of the training.
  function chosen() {
    const { scenario } = asked[inputs.training.value];
    const { between } = scenario.network;
    const touched = (name, value, was) => (inputs[name].dataset.touched ? value : was);
    const faster = touched("compute", 10 ** inputs.compute.value, 1);
    const link = {
      alpha: touched("latency", 10 ** inputs.latency.value, between.alpha),
      beta: touched("bandwidth", 10 ** -inputs.bandwidth.value, between.beta),
      gamma: between.gamma,
    };
    return {
      ...scenario, schedule: inputs.schedule.value, h2d: scenario.h2d / faster, update: scenario.update / faster,
      layers: scenario.layers.map((layer) => ({ ...layer, forward: layer.forward / faster, backward: layer.backward / faster })),
      network: { ...scenario.network, algorithm: inputs.algorithm.value, between: link },
    };
  }

  stagebench.chosen = chosen;

  function draw() {
    const one = asked[inputs.training.value], now = chosen();
    const devices = DEVICES.filter((ranks) => ranks <= (one.together ?? ranks)); // each needs a sample
    outputs.bandwidth.textContent = `${number(1e-6 / now.network.between.beta)} MB/s`;
    outputs.latency.textContent = `${number(now.network.between.alpha * 1e6)} µs`;
    outputs.compute.textContent = `${number(inputs.compute.dataset.touched ? 10 ** inputs.compute.value : 1)} ×`;
    const rate = (scenario, ranks) => model.rate(scenario, ranks, one.together);
    const line = (name, scenario, dash, colour) => ({
      type: "scatter", mode: "lines+markers", name, x: devices, y: devices.map((ranks) => rate(scenario, ranks)),
      line: { dash, color: colour }, hovertemplate: `${name}<br>%{x} devices: %{y:.4g} samples/s<extra></extra>`,
    });
    const single = rate(now, 1);
    const axis = (text) => ({ title: { text, standoff: 6 }, type: "log", gridcolor: "--line", zerolinecolor: "--muted", fixedrange: true });
    stagebench.chart(document.getElementById("what-if"), {
      data: [
        { type: "scatter", mode: "lines", name: "ideal", x: devices, y: devices.map((ranks) => ranks * single), line: { dash: "dot", color: "#9AA0A6" }, hoverinfo: "skip" },
        line("as fitted", one.scenario, "dash", "#56B4E9"),
        line("what if", now, "solid", "#0072B2"),
        { type: "scatter", mode: "markers", name: "measured", x: one.measured.map(([ranks]) => ranks), y: one.measured.map(([, rate]) => rate), marker: { color: "#D55E00", size: 9, symbol: "diamond" } },
      ],
      layout: {
        height: 380, margin: { l: 60, r: 16, t: 12, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: "--ink" }, hoverlabel: { align: "left" }, legend: { orientation: "h", y: 1.1 },
        xaxis: { ...axis("devices"), tickvals: DEVICES, ticktext: DEVICES.map(String) }, yaxis: axis("samples/s, all devices together"),
      },
    });
    const at = Math.min(16, devices.at(-1));
    document.getElementById("answer").textContent = `On ${at} devices: ${number(rate(now, at))} samples/s, ${number((100 * rate(now, at)) / (at * single))} % of ${at} times one; as fitted ${number(rate(one.scenario, at))}.`;
  }

  for (const [name, input] of Object.entries(inputs))
    input.addEventListener("input", () => {
      if (name === "training") Object.values(inputs).forEach((other) => delete other.dataset.touched);
      input.dataset.touched = true;
      if (name === "training") fitted();
      else draw();
    });
  fitted();
})();
