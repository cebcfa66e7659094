// One case: loads the piece of the data that holds the case which the address names, and draws its steps.
"use strict";
(() => {
  const { el, number } = stagebench;
  const page = document.getElementById("case"), times = document.getElementById("times");
  const id = () => location.hash.slice(1);
  const found = {};
  const WORDS = {
    steps: ["Native steps", "Every step of every process, in the order in which they ran: the slowest rank’s time."],
    stages: ["Staged steps", "The stages one by one, synchronised after each, in the first process that ran them."],
  };

  stagebench.details = (piece) => Object.assign(found, piece);

  async function load() {
    if (!/^[0-9a-f]{12}$/.test(id())) return missing("The address names no case.");
    const src = `data/case-${id().slice(0, Number(page.dataset.digits))}.js`;
    if (!found[id()]) await new Promise((done) => document.head.append(el("script", { src, onload: done, onerror: done })));
    if (!found[id()]) return missing(`This report has no case ${id()}.`);
    const one = found[id()];
    document.title = `${one.title} · stagebench`;
    page.innerHTML = one.html; // written by stagebench, which escapes what others wrote
    times.replaceChildren(...Object.keys(WORDS).filter((name) => one[name].length).map((name) => series(name, one[name])));
    page.querySelector(".columns").before(times);
    stagebench.prepare(page);
  }

  function missing(words) {
    page.replaceChildren(el("p", {}, words, " ", el("a", { href: "index.html#cases" }, "See all cases.")));
    times.replaceChildren();
  }

  // A strip a series: its steps from the first to the last, on one scale.
  function series(name, ticks) {
    const [title, words] = WORDS[name];
    const most = Math.max(...ticks.map(([, values]) => quantile(values, 0.98))) * 1.1 || 1;
    const rows = ticks.map(([label, values, stage]) => {
      const points = values.map((value, step) => `${((100 * step) / Math.max(values.length - 1, 1)).toFixed(2)} ${(100 - (100 * Math.min(value, most)) / most).toFixed(1)}`);
      const drawn = el("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" }, el("path", { class: `line ${stage ?? ""}`, d: "M" + points.join("L") }));
      return el("tr", {}, el("th", { scope: "row" }, label), el("td", { class: "track" }, drawn), el("td", { class: "value" }, number(quantile(values, 0.5) / 1e4)));
    });
    const heads = el("tr", {}, el("td"), el("th", { scope: "col", class: "track" }, `0 … ${number(most / 1e4)} ms`), el("th", { scope: "col", class: "value" }, "median"));
    const save = ({ target }) => {
      const longest = Math.max(...ticks.map(([, values]) => values.length));
      const lines = Array.from({ length: longest }, (_, step) => [step + 1, ...ticks.map(([, values]) => (values[step] === undefined ? "" : values[step] / 1e4))]);
      stagebench.copy(stagebench.csv([["step", ...ticks.map(([label]) => `${label}, ms`)], ...lines]), target);
    };
    const table = el("table", { class: "plot strips" }, el("thead", {}, heads), el("tbody", {}, ...rows));
    const button = el("button", { type: "button", class: "copy", onclick: save }, "Copy as CSV");
    return el("section", { id: name }, el("h2", {}, title), el("p", { class: "sub" }, words), ticks.length > 3 ? el("details", { open: ticks.length < 9 }, el("summary", {}, `${ticks.length} series`), table) : table, button);
  }

  function quantile(values, share) {
    const sorted = [...values].sort((one, other) => one - other);
    return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  }

  addEventListener("hashchange", load);
  load();
})();
