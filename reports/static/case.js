// One case: loads the piece of the data that holds the case which the address names, and shows all of it.
"use strict";
(() => {
  const { el, number } = stagebench;
  const page = document.getElementById("case");
  const id = () => location.hash.slice(1);
  let found = {};

  stagebench.details = (piece) => Object.assign(found, piece);

  async function load() {
    if (!/^[0-9a-f]{12}$/.test(id())) return missing("The address names no case.");
    const src = `data/case-${id().slice(0, Number(page.dataset.digits))}.js`;
    if (!found[id()]) await new Promise((done) => document.head.append(el("script", { src, onload: done, onerror: done })));
    if (found[id()]) show(found[id()]);
    else missing(`This report has no case ${id()}.`);
  }

  const missing = (words) => page.replaceChildren(el("p", {}, words, " ", el("a", { href: "index.html#case_table" }, "See all cases.")));

  function show(one) {
    document.title = `${one.label} · stagebench`;
    document.querySelector("h1").textContent = one.label;
    page.replaceChildren(
      el("p", {}, el("strong", { class: one.outcome === "ok" ? "good" : "bad" }, one.outcome), one.reason ? `: ${one.reason}` : ""),
      el("ul", {}, ...one.marks.map(([mark, meaning, bad]) => el("li", {}, el("span", { class: bad ? "mark bad" : "mark" }, mark), ` ${meaning}`))),
    );
    document.getElementById("rest").replaceChildren(
      el("div", { class: "facts" }, ...one.groups.map(([title, facts]) => el("section", {}, el("h3", {}, title), el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))))),
      ...one.logs.map(([name, text]) => el("section", {}, el("h3", {}, `Last lines, ${name}`), el("pre", { tabindex: 0 }, text))),
      ...(one.plan ? replay(one.plan) : []),
    );
    steps(one.steps);
  }

  const replay = (plan) => [
    el("h3", {}, "Replay"),
    el("p", {}, "Save as ", el("code", {}, "case.toml"), ", then type ", el("code", {}, "stagebench run case.toml -o again"), "."),
    el("pre", { tabindex: 0 }, plan),
    el("p", { class: "note" }, `Case ${id()}; its records are records/${id()}-r*.json in the run folder.`),
  ];

  // Every native step of every process, in the order in which they ran.
  function steps(processes) {
    const chart = document.getElementById("steps");
    chart.closest("figure").hidden = !processes.length;
    if (!processes.length) return;
    const colours = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#9AA0A6"];
    const axis = (text) => ({ title: { text, standoff: 6 }, gridcolor: "--line", zerolinecolor: "--muted", fixedrange: true });
    stagebench.chart(chart, {
      data: processes.map(([repeat, times], index) => ({
        type: "scatter", mode: "lines+markers", name: `process ${repeat}`, y: times, x: times.map((_, step) => step + 1),
        line: { color: colours[index % colours.length], width: 1 }, marker: { size: 3 },
        hovertemplate: `process ${repeat}, step %{x}: %{y:.4g} ms<extra></extra>`,
      })),
      layout: {
        height: 320, margin: { l: 60, r: 16, t: 12, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: "--ink" }, hoverlabel: { align: "left" },
        xaxis: axis("native step"), yaxis: { ...axis("ms, slowest rank"), rangemode: "tozero" },
        showlegend: processes.length > 1, legend: { orientation: "h", y: 1.12 },
      },
    });
  }

  addEventListener("hashchange", load);
  load();
})();
