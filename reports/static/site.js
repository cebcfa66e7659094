// What every page needs: making elements from text, tables that sort and that are copied as CSV.
"use strict";
const stagebench = (() => {
  // An element; children are elements or text, which is never taken for markup.
  function el(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
    return made;
  }

  // Three significant digits, as reports/text.py writes them.
  function number(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    let text;
    if (size >= 100 || value === 0) text = value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, "\u202f");
    else if (size >= 0.001) text = value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
    else text = value.toExponential(1).replace(/e([+-])(\d)$/, "e$10$2");
    return text.replace(/-/g, "\u2212");
  }

  // One cell of CSV. A spreadsheet takes what begins with = + - @ for a formula: an apostrophe makes it text.
  function cell(value) {
    const plain = /^[−-]?[\d\u202f]+(\.\d+)?(e[−+-]?\d+)?$/.test(value);
    let text = plain ? value.replace(/\u202f/g, "").replace(/−/g, "-") : value.replace(/^(?=[=+\-@\t\r])/, "'");
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }
  const csv = (rows) => rows.map((row) => row.map((value) => cell(String(value ?? ""))).join(",") + "\r\n").join("");

  // Into the clipboard, or where the browser forbids that, into a file.
  async function copy(rows, button) {
    const text = csv(rows);
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      el("a", { href: "data:text/csv;charset=utf-8," + encodeURIComponent(text), download: "table.csv" }).click();
      button.textContent = "Saved as table.csv";
    }
    setTimeout(() => (button.textContent = "Copy as CSV"), 2000);
  }

  // What a cell sorts by: its number without its interval, else its words.
  function key(cell) {
    const text = (cell?.firstChild?.textContent ?? "").trim();
    const value = parseFloat(text.replace(/\u202f/g, "").replace(/−/g, "-"));
    return isNaN(value) ? text : value;
  }
  const order = (one, other) =>
    typeof one === typeof other ? (typeof one === "number" ? one - other : one.localeCompare(other)) : typeof one === "number" ? -1 : 1;

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const words = head.textContent;
      head.replaceChildren(el("button", { type: "button", class: "sort", onclick: sort }, words));
      function sort() {
        const down = head.ariaSort === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.ariaSort = down ? "descending" : "ascending";
        for (const body of table.tBodies) {
          const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
          const keys = new Map(rows.map((row) => [row, key(row.cells[column])]));
          rows.sort((a, b) => (down ? -1 : 1) * order(keys.get(a), keys.get(b)));
          body.append(...rows);
        }
      }
    });
  }

  const text = (cell) => [...cell.childNodes].map((node) => node.textContent.trim()).filter(Boolean).join(" ");

  document.addEventListener("DOMContentLoaded", () => {
    for (const scroll of document.querySelectorAll(".scroll")) {
      scroll.tabIndex = 0; // so that the keyboard can scroll it
      const table = scroll.querySelector("table[id='listed']") ? null : scroll.querySelector("table");
      if (!table?.tHead) continue;
      sortable(table);
      const button = el("button", { type: "button", class: "copy", onclick: () => copy([...table.rows].map((row) => [...row.cells].map(text)), button) }, "Copy as CSV");
      scroll.after(button);
    }
  });

  // Paper unfolds nothing.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((one) => (one.open = true));
  });
  addEventListener("afterprint", () => folded.forEach((one) => (one.open = false)));
  return { el, number, csv, copy, order };
})();
