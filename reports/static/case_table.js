// The table of all cases: filters, search, sorting. What the reader chose stands in the page's address.
"use strict";
(() => {
  const { el, number } = stagebench;
  // In the order of reports/cases.py; `pick`: it has a filter, `more`: it is wanted by few.
  const COLUMNS = [
    { name: "id" },
    { name: "framework", pick: true },
    { name: "strategy", pick: true },
    { name: "network", pick: true },
    { name: "data", pick: true },
    { name: "devices", pick: true },
    { name: "batch", title: "batch per device", pick: true },
    { name: "precision", pick: true },
    { name: "tuning", pick: true },
    { name: "settings" },
    { name: "rate", title: "samples/s" },
    { name: "low", title: "95 % interval, low" },
    { name: "high", title: "95 % interval, high" },
    { name: "verdict" },
    { name: "outcome", pick: true },
    { name: "marks" },
  ];
  const at = Object.fromEntries(COLUMNS.map((column, index) => [column.name, index]));
  const NUMBERS = ["devices", "batch", "rate"];
  const LONG = ["data", "verdict", "marks"]; // their words go on on a second line
  const MOST = 100; // rows at first
  const rows = [];
  let state = new URLSearchParams(location.hash.slice(1));
  let loaded = 0;

  const form = document.querySelector(".filters");
  const table = document.getElementById("listed");
  const more = document.getElementById("more");
  const values = (column) => [...new Set(rows.map((row) => (Array.isArray(row[at[column.name]]) ? row[at[column.name]].join() : row[at[column.name]])))].sort(stagebench.order);
  const ALWAYS = ["framework", "strategy", "network"];
  const shown = () => COLUMNS.filter((column) => ALWAYS.includes(column.name) || (column.name === "rate" && rows.some((row) => row[at.rate] !== null)) || (!["id", "rate", "low", "high"].includes(column.name) && values(column).length > 1));
  const asked = () => [...state].filter(([name]) => COLUMNS[at[name]]?.pick);

  function matching() {
    const words = (state.get("q") ?? "").toLowerCase().split(" ").filter(Boolean);
    const wanted = asked();
    const found = rows.filter((row) => wanted.every(([name, value]) => String(row[at[name]]) === value) && (!words.length || words.every((word) => row.join(" ").toLowerCase().includes(word))));
    const [, down, by] = /^(-?)(.*)$/.exec(state.get("sort") ?? "");
    if (Object.hasOwn(at, by)) found.sort((a, b) => order(a[at[by]], b[at[by]], down ? -1 : 1));
    return found;
  }
  // What is not known stands last, whichever way.
  function order(one, other, way) {
    if (one === null || other === null) return (one === null) - (other === null);
    return way * stagebench.order(Array.isArray(one) ? one.join() : one, Array.isArray(other) ? other.join() : other);
  }

  function choose(name, value) {
    if (value) state.set(name, value);
    else state.delete(name);
    history.replaceState(null, "", "#" + state);
    draw();
  }

  function filters() {
    const picks = COLUMNS.filter((column) => column.pick && values(column).length > 1);
    const held = document.activeElement?.name;
    form.replaceChildren(
      ...picks.map((column) =>
        el("label", {}, column.title ?? column.name,
          el("select", { name: column.name, onchange: ({ target }) => choose(column.name, target.value) },
            el("option", { value: "" }, "all"),
            ...values(column).map((value) => el("option", { value, selected: state.get(column.name) === String(value) }, value))))),
      el("label", {}, "search", el("input", { type: "search", name: "q", value: state.get("q") ?? "", oninput: ({ target }) => choose("q", target.value) })),
      el("button", { type: "reset", onclick: () => { state = new URLSearchParams(state.has("all") ? { all: 1 } : {}); history.replaceState(null, "", "#" + state); filters(); draw(); } }, "Show everything"),
    );
    if (held) form.elements[held]?.focus();
  }

  function head({ name, title }) {
    const [, down, by] = /^(-?)(.*)$/.exec(state.get("sort") ?? "");
    const sorted = by === name && (down ? "descending" : "ascending");
    return el("th", { scope: "col", "aria-sort": sorted, class: NUMBERS.includes(name) ? null : "word" },
      el("button", { type: "button", class: "sort", "data-column": name, onclick: () => { choose("sort", sorted === "ascending" ? "-" + name : name); table.querySelector(`[data-column=${name}]`).focus(); } }, title ?? name));
  }

  function cells(row, columns) {
    return columns.map(({ name }, index) => {
      const value = row[at[name]];
      if (index === 0) return el("th", { scope: "row" }, el("a", { href: "case.html#" + row[at.id] }, value));
      if (name === "rate") return el("td", { class: "strong" }, number(value), row[at.low] === null ? null : el("span", { class: "ends" }, row[at.high] > 10 * row[at.low] ? "interval not determined" : `${number(row[at.low])} … ${number(row[at.high])}`));
      if (name === "settings") return el("td", { class: "word long" }, value.replace(/[_=]/g, "$&\u200b")); // lines may end there
      const shape = NUMBERS.includes(name) ? null : LONG.includes(name) ? "word long" : "word";
      return el("td", { class: shape }, ...(name === "marks" ? value.map((mark) => el("span", { class: "mark" }, mark)) : [value]));
    });
  }

  function draw() {
    const found = matching(), columns = shown();
    const some = state.has("all") ? found : found.slice(0, MOST);
    table.replaceChildren(
      el("thead", {}, el("tr", {}, ...columns.map(head))),
      el("tbody", {}, ...some.map((row) => el("tr", {}, ...cells(row, columns)))),
    );
    more.hidden = some.length === found.length;
    more.textContent = `Show all ${found.length}`;
    document.getElementById("found").textContent = `${found.length} of ${rows.length} case${rows.length === 1 ? "" : "s"}` + (some.length < found.length ? `, the first ${some.length} below` : "");
  }

  function load() {
    document.head.append(el("script", { src: `data/cases-${loaded++}.js` }));
  }
  // The first piece is shown at once. The others come one after the other when the browser has nothing else to do, in a
  // second at the latest.
  const later = window.requestIdleCallback ? (task) => requestIdleCallback(task, { timeout: 1000 }) : setTimeout;
  stagebench.cases = (piece) => {
    rows.push(...piece.rows);
    const whole = rows.length >= piece.of;
    if (whole || loaded === 1) {
      filters();
      draw();
    }
    if (!whole) later(load);
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => choose("all", 1));
  document.getElementById("copy").addEventListener("click", ({ target }) => {
    const names = COLUMNS.map(({ name, title }) => title ?? name);
    stagebench.copy([names, ...matching().map((row) => row.map((value) => (Array.isArray(value) ? value.join(" ") : value)))], target);
  });
  addEventListener("hashchange", () => { state = new URLSearchParams(location.hash.slice(1)); filters(); draw(); });
  load();
})();
