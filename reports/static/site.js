// A page works without any of this. Here: a framework in all charts, sorting, search, and tables as CSV.
"use strict";
const stagebench = (() => {
  // An element; children are elements or text, which is never taken for markup.
  function el(tag, attributes = {}, ...children) {
    const svg = ["svg", "path", "line"].includes(tag);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children);
    return made;
  }

  // Three significant digits, as suite/analysis/wording.py writes them.
  function number(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    let text;
    if (size >= 100 || value === 0) text = value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, "\u202f");
    else if (size >= 0.001) text = value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
    else text = value.toExponential(1).replace(/e([+-])(\d)$/, "e$10$2");
    return text.replace(/-/g, "\u2212");
  }

  // A cell of CSV. A spreadsheet takes what begins with = + - @ for a formula: an apostrophe makes it text.
  function cell(value) {
    const plain = /^[−-]?[\d\u202f]+(\.\d+)?(e[−+-]?\d+)?$/.test(value);
    const text = plain ? value.replace(/\u202f/g, "").replace(/−/g, "-") : value.replace(/^(?=[=+\-@\t\r])/, "'");
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }
  const csv = (rows) => rows.map((row) => row.map((value) => cell(String(value ?? ""))).join(",") + "\r\n").join("");

  // Into the clipboard, or where the browser forbids that, into a file.
  async function copy(text, button, name = "table.csv") {
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      el("a", { href: "data:text/plain;charset=utf-8," + encodeURIComponent(text), download: name }).click();
      button.textContent = `Saved as ${name}`;
    }
    setTimeout(() => (button.textContent = words), 2000);
  }

  const words = (node) => [...node.childNodes].map((child) => child.textContent.trim()).filter(Boolean).join(" ");
  const shown = (row) => !row.hidden && !row.parentElement.hidden;
  const cells = (table) => [...table.rows].filter(shown).map((row) => [...row.cells].map(words));

  // What a cell sorts by: its number without its interval, else its words; what has none is last.
  function key(cell) {
    const text = (cell?.firstChild?.textContent ?? "").trim();
    const value = parseFloat(text.replace(/\u202f/g, "").replace(/−/g, "-"));
    return isNaN(value) ? text : value;
  }
  const order = (one, other) =>
    typeof one === typeof other ? (typeof one === "number" ? one - other : one.localeCompare(other)) : typeof one === "number" ? -1 : 1;

  // Across groups, a group's heading becomes a second line of each of its rows.
  function flatten(table) {
    const lines = [];
    for (const body of [...table.tBodies]) {
      const [first, ...rest] = body.rows;
      if (!first?.classList.contains("group")) lines.push(...body.rows);
      else for (const row of rest) {
        row.cells[0].append(el("small", {}, words(first.cells[0])));
        lines.push(row);
      }
      body.remove();
    }
    const whole = el("tbody", {}, ...lines);
    table.append(whole);
    return whole;
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    let whole = null;
    heads.forEach((head, column) => {
      const button = el("button", { type: "button", class: "sort", onclick: () => sort(head.ariaSort === "ascending") }, ...head.childNodes);
      head.replaceChildren(button);
      function sort(down) {
        whole ??= flatten(table);
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.ariaSort = down ? "descending" : "ascending";
        const rows = [...whole.rows], keys = new Map(rows.map((row) => [row, key(row.cells[column])]));
        const numbers = rows.some((row) => typeof keys.get(row) === "number");
        const last = (row) => (numbers ? typeof keys.get(row) !== "number" : keys.get(row) === "");
        rows.sort((a, b) => last(a) - last(b) || (down ? -1 : 1) * order(keys.get(a), keys.get(b)));
        whole.append(...rows);
      }
    });
  }

  function prepare(root) {
    for (const scroll of root.querySelectorAll(".scroll")) {
      const table = scroll.querySelector("table");
      if (!table?.tHead) continue;
      sortable(table);
      if (table.id !== "listed") scroll.after(el("button", { type: "button", class: "copy", onclick: ({ target }) => copy(csv(cells(table)), target) }, "Copy as CSV"));
    }
    for (const button of root.querySelectorAll("[data-copy]")) button.onclick = () => copy(csv(cells(document.getElementById(button.dataset.copy))), button);
    for (const button of root.querySelectorAll("[data-text]")) button.onclick = () => copy(document.getElementById(button.dataset.text).textContent, button, "case.toml");
  }
  prepare(document);

  // The search of all cases; its words are kept in the address. Lines beyond the first are loaded when they are asked for.
  const search = document.querySelector("input[type=search]"), form = search?.form, more = [];
  const first = search ? [...document.querySelectorAll("#listed tbody tr:not(.group)")] : [];
  function filter() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = (text) => wanted.every((word) => text.toLowerCase().includes(word));
    let count = 0;
    for (const body of document.getElementById("listed").tBodies) {
      const heading = body.rows[0]?.classList.contains("group") ? body.rows[0] : null;
      for (const row of body.rows) if (row !== heading) count += !(row.hidden = !hits(`${heading?.textContent ?? ""} ${row.cells[0].textContent} ${row.className}`) || row.dataset.more && !wanted.length);
      body.hidden = [...body.rows].every((row) => row === heading || row.hidden);
    }
    form.querySelector("output").textContent = wanted.length || Number(form.dataset.count) === first.length ? `${count} shown` : `${count} of ${form.dataset.count} shown`;
    history.replaceState(null, "", wanted.length ? "#q=" + encodeURIComponent(search.value) : location.pathname + location.search);
  }
  function load() {
    const missing = Number(form.dataset.pieces) - more.length;
    if (missing > 0) document.head.append(el("script", { src: `data/cases-${more.length}.js`, onload: load }));
    filter();
  }
  if (search) {
    form.addEventListener("submit", (event) => event.preventDefault());
    search.addEventListener("input", () => (more.length ? filter() : load()));
    const kept = /^#q=(.*)/.exec(location.hash);
    if (kept) {
      search.value = decodeURIComponent(kept[1]);
      load();
    }
  }
  function cases(lines) {
    more.push(lines);
    let body = null, last = null;
    for (const [title, kind, of, html] of lines) {
      if (title !== last) document.getElementById("listed").append((body = el("tbody", {}, el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: 8 }, (last = title))))));
      const row = el("tr", { class: kind || null, "data-of": of, "data-more": true });
      row.innerHTML = html; // written by stagebench, which escapes what others wrote
      body.append(row);
    }
    filter();
  }

  // Point at a framework: every panel shows it.
  function look(of) {
    document.body.classList.toggle("looking", Boolean(of));
    for (const row of document.querySelectorAll(".plot [data-of]")) row.classList.toggle("look", row.dataset.of === of);
  }
  document.addEventListener("pointerover", ({ target, pointerType }) => pointerType === "mouse" && look(target.closest(".plot [data-of]")?.dataset.of));

  document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

  // Paper unfolds nothing.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((one) => (one.open = true));
  });
  addEventListener("afterprint", () => folded.forEach((one) => (one.open = false)));
  return { el, number, csv, copy, cases, prepare };
})();
