// One case: loads the piece of the data that holds the case which the address names, and shows all of it.
"use strict";
(() => {
  const { el } = stagebench;
  const page = document.getElementById("case");
  const id = () => location.hash.slice(1);
  const CALM = ["foreign", "unsupported", "unavailable", "not measured"]; // outcomes that are no failure
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
      el("p", {}, el("strong", { class: one.outcome === "ok" ? "good" : CALM.includes(one.outcome) ? null : "bad" }, one.outcome), one.reason ? `: ${one.reason}` : ""),
      el("ul", {}, ...one.marks.map(([mark, meaning, bad]) => el("li", {}, el("span", { class: bad ? "mark bad" : "mark" }, mark), ` ${meaning}`))),
    );
    // What came out stands above the charts, how below them.
    const input = ([title]) => title === "Case" || title.startsWith("Process ");
    document.getElementById("result").replaceChildren(cards(one.groups.filter((group) => !input(group))), ...gpus(one.gpus));
    document.getElementById("rest").replaceChildren(
      cards(one.groups.filter(input)),
      ...one.logs.map(([name, text]) => el("section", {}, el("h2", {}, `Last lines, ${name}`), el("pre", { tabindex: 0 }, text))),
      ...(one.plan ? replay(one.plan, one.place) : []),
    );
    series("steps", one.steps);
    series("stages", one.stages);
    kernels(one.kernels);
  }

  // The profiler's view of the stages: each beside the staged pass, the longest kernels, and where its trace lies.
  function kernels(found) {
    const place = document.getElementById("kernels");
    place.hidden = !found;
    if (!found) return;
    const { profiler, trace, stages, rows } = found;
    place.querySelector(".found").replaceChildren(
      table(["Stage", "kernels, ms", "staged, ms", "no kernel"], stages.map(([stage, ...cells]) => [el("th", { scope: "row" }, stage), ...cells.map((cell) => el("td", {}, cell))])),
      el("h3", {}, "The longest kernels"),
      table(["Kernel", "stage", "kind", "calls", "ms", "share"], rows.map(([name, whole, stage, kind, ...cells]) => [
        el("th", { scope: "row", class: "long", title: whole }, name), el("td", { class: "word" }, stage), el("td", { class: "word" }, kind), ...cells.map((cell) => el("td", {}, cell)),
      ])),
      el("p", { class: "note" }, `By ${profiler}. Calls are those of an iteration; shares are of all kernels’ time.`,
        ...(trace ? [" All that it saw lies in the run folder, ", el("code", {}, trace), ": ", el("a", { href: "https://ui.perfetto.dev" }, "ui.perfetto.dev"), " opens it."] : [])),
    );
  }

  const table = (heads, lines) =>
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col", class: ["stage", "kind"].includes(head) ? "word" : null }, head)))),
      el("tbody", {}, ...lines.map((cells) => el("tr", {}, ...cells)))));

  const cards = (groups) =>
    el("div", { class: "facts flow" }, ...groups.map(([title, facts]) => el("section", {}, el("h2", {}, title), el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])))));

  const gpus = ([heads, ...rows]) =>
    !heads ? [] : [
      el("h2", {}, "GPUs while it was measured"),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
        el("tbody", {}, ...rows.map(([host, ...cells]) => el("tr", {}, el("th", { scope: "row" }, host), ...cells.map((cell) => el("td", {}, cell))))))),
    ];

  const replay = (plan, place) => [
    el("h2", {}, "Replay"),
    el("p", {}, "Save as ", el("code", {}, "case.toml"), place ? ` ${place} ` : ", ", "then type ", el("code", {}, "stagebench run case.toml -o again"), "."),
    el("pre", { tabindex: 0 }, plan),
    el("p", { class: "note" }, `Case ${id()}; its records are records/${id()}-r*.json in the run folder.`),
  ];

  // Step by step, and beside it how the same times are distributed; all of it as CSV.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#9AA0A6"];
  function series(id, ticks) {
    const named = ticks.map(([name, times, own]) => [name, times.map((time) => time / 1e4), own]); // from 0.1 µs to ms
    const place = document.getElementById(id), copy = place.querySelector(".copy");
    place.hidden = !named.length;
    if (!named.length) return;
    const axis = (text) => ({ title: { text, standoff: 6 }, gridcolor: "--line", zerolinecolor: "--muted", fixedrange: true });
    const traces = named.map(([name, times, own], index) => {
      const color = own ?? COLOURS[index % COLOURS.length];
      return [
        { type: "scatter", mode: "lines+markers", name, y: times, x: times.map((_, step) => step + 1), line: { color, width: 1 }, marker: { size: 3 },
          legendgroup: name, hovertemplate: `${name}, step %{x}: %{y:.4g} ms<extra></extra>` },
        { type: "box", name, y: times, xaxis: "x2", line: { color, width: 1 }, marker: { size: 3 }, legendgroup: name, showlegend: false },
      ];
    });
    stagebench.chart(place.querySelector(".chart"), {
      data: traces.flat(),
      layout: {
        height: 340, margin: { l: 60, r: 16, t: 12, b: 42 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: "--ink" }, hoverlabel: { align: "left" },
        xaxis: { ...axis("step"), domain: [0, 0.72], zeroline: false }, xaxis2: { domain: [0.76, 1], showticklabels: false, fixedrange: true },
        yaxis: { ...axis("ms"), rangemode: "tozero" }, showlegend: named.length > 1, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      },
    });
    copy.onclick = () => stagebench.copy([["step", ...named.map(([name]) => `${name}, ms`)], ...Array.from({ length: Math.max(...named.map(([, times]) => times.length)) }, (_, step) => [step + 1, ...named.map(([, times]) => times[step])])], copy);
  }

  addEventListener("hashchange", load);
  load();
})();
