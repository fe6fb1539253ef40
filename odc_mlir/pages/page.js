"use strict";
// Tables: sort by a click on a heading, search, and fold what is longer than a screen.
const FOLDED_ROWS = 30;

function sortValue(cell) {
  const value = cell.dataset.value ?? cell.textContent.trim();
  const number = Number(value);
  return value !== "" && !Number.isNaN(number) ? number : value;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return 1;
  if (typeof b === "number") return -1;
  return a.localeCompare(b);
}

for (const box of document.querySelectorAll("div.table")) {
  const body = box.querySelector("tbody");
  const rows = [...body.rows];
  const headings = [...box.querySelectorAll("thead th")];
  let wanted = "";
  let folded = rows.length > FOLDED_ROWS;
  let fold = null;

  function show() {
    let shown = 0;
    for (const row of body.rows) {
      const found = (row.textContent + " " + [...row.querySelectorAll("[title]")].map((e) => e.title).join(" "))
        .toLowerCase().includes(wanted);
      row.hidden = !found || (folded && wanted === "" && shown >= FOLDED_ROWS);
      if (found) shown += 1;
    }
    if (fold) fold.textContent = folded ? `Show all ${rows.length}` : `Show ${FOLDED_ROWS}`;
  }

  headings.forEach((heading, index) => {
    heading.querySelector("button").addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") !== "descending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const keyed = rows.map((row) => [sortValue(row.cells[index]), row]);
      keyed.sort((a, b) => sign * compare(a[0], b[0]));
      body.append(...keyed.map((pair) => pair[1]));
      show();
    });
  });

  if (rows.length > 8) {
    const tools = document.createElement("div");
    tools.className = "tools";
    const search = document.createElement("input");
    search.type = "search";
    search.placeholder = "search";
    search.setAttribute("aria-label", "search the table");
    search.addEventListener("input", () => { wanted = search.value.toLowerCase(); show(); });
    tools.append(search);
    if (folded) {
      fold = document.createElement("button");
      fold.type = "button";
      fold.addEventListener("click", () => { folded = !folded; show(); });
      tools.append(fold);
    }
    box.before(tools);
  }
  show();
}

// What a link leads to is unfolded.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target && target.tagName === "DETAILS") target.scrollIntoView();
}
window.addEventListener("hashchange", unfold);
unfold();

// Content that a page holds compressed is unpacked when its element is opened.
for (const box of document.querySelectorAll("details[data-packed]")) {
  box.addEventListener("toggle", async () => {
    const bytes = Uint8Array.from(atob(box.dataset.packed), (letter) => letter.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    box.insertAdjacentHTML("beforeend", await new Response(plain).text());
    markWords(box);
  }, { once: true });
}

// Words in which a removed line and the added line in its place differ are marked, if half of the words are the same.
// A shortened line is compared, and then shown, as a whole.
function markWords(part) {
  for (const text of part.querySelectorAll("pre.difference")) {
    const lines = [...text.children];
    for (let first = 0; first < lines.length;) {
      const run = (start, kind) => {
        let end = start;
        while (end < lines.length && lines[end].className === kind) end += 1;
        return lines.slice(start, end);
      };
      const before = run(first, "removed");
      const after = run(first + before.length, "added");
      before.slice(0, after.length).forEach((line, index) => markPair(line, after[index]));
      first += Math.max(before.length + after.length, 1);
    }
  }
}

function markPair(before, after) {
  const [a, b] = [before, after].map((line) => (line.title || line.textContent).slice(1).match(/[\w%]+|\s+|./g) ?? []);
  if (a.length * b.length > 4e6) return;
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1)); // of the ends from i and j
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  if (4 * common[0][0] < a.length + b.length) return;
  const mark = (word) => Object.assign(document.createElement("mark"), { textContent: word });
  const sides = [["-"], ["+"]];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      sides[0].push(a[i++]);
      sides[1].push(b[j++]);
    } else if (j === b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) sides[0].push(mark(a[i++]));
    else sides[1].push(mark(b[j++]));
  }
  before.replaceChildren(...sides[0]);
  after.replaceChildren(...sides[1]);
}
markWords(document);

// An operator that is selected in one view is highlighted in all of them; arrows lead to its neighbours, Escape clears.
for (const table of document.querySelectorAll("table")) {
  const isOfOperators = table.tHead && table.tHead.rows[0].cells[0].textContent === "#";
  if (isOfOperators) for (const row of table.tBodies[0].rows) row.dataset.op = row.cells[0].dataset.value;
}
const marks = [...document.querySelectorAll("[data-op]")];
const selection = document.createElement("div");
let selected = null;

function select(operator) {
  selected = operator;
  document.body.classList.toggle("selecting", operator !== null);
  for (const mark of marks) mark.classList.toggle("selected", mark.dataset.op === operator);
  selection.hidden = operator === null;
  if (operator === null) return;
  const row = document.querySelector("tr.selected");
  const name = document.createElement("strong");
  name.textContent = row ? [...row.cells].slice(0, 3).map((cell) => cell.textContent).join(" ") : operator;
  const sections = [...document.querySelectorAll("section")].filter((part) => part.querySelector(".selected"));
  selection.replaceChildren(name, ...sections.map((part) => {
    const link = document.createElement("a");
    link.href = `#${part.id}`;
    link.textContent = part.querySelector("h2").textContent;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      part.querySelector(".selected").scrollIntoView({ block: "center" });
    });
    return link;
  }));
}

if (marks.length) {
  selection.className = "selection";
  selection.hidden = true;
  selection.setAttribute("role", "status");
  document.body.append(selection);
  for (const mark of marks) if (mark.tagName === "TR") mark.tabIndex = 0;
  document.addEventListener("click", (event) => {
    const mark = event.target.closest("[data-op]");
    if (mark) select(mark.dataset.op === selected && !event.target.closest("a, details") ? null : mark.dataset.op);
  });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.target.tagName === "INPUT") return;
    if (event.key === "Escape") select(null);
    else if (event.target.tagName === "TR" && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      select(event.target.dataset.op);
    } else if (step && selected !== null) {
      const next = String(Number(selected) + step);
      if (marks.some((mark) => mark.dataset.op === next)) select(next);
    }
  });
}
