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
  }, { once: true });
}
