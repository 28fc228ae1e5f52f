// The page generated/tables: one of PAGES' tables at a time, and its page's figures (docs/makers/tables.py).
const pages = document.getElementById("pages");
const tables = document.getElementById("tables");
const shown = document.getElementById("shown");

function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  parent?.append(made);
  return made;
}

function sorted(rows, column, falling) {
  const key = (row) => row[column].number ?? row[column].text;
  const order = [...rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1; // texts, such as a dash, stand last
    return (typeof x === "number" ? x - y : x.localeCompare(y)) * (falling ? -1 : 1);
  });
  return order;
}

function draw(table, figures, column, falling) {
  shown.replaceChildren();
  element("h2", table.title, shown);
  if (table.place) element("p", table.place, shown);
  const wide = element("div", "", shown);
  wide.className = "wide";
  const grid = element("table", "", wide);
  const head = element("tr", "", element("thead", "", grid));
  table.head.forEach((text, i) => {
    const button = element("button", text + (i === column ? (falling ? " ▼" : " ▲") : ""), element("th", "", head));
    button.onclick = () => draw(table, figures, i, i === column && !falling);
  });
  const body = element("tbody", "", grid);
  for (const row of column === undefined ? table.rows : sorted(table.rows, column, falling)) {
    const line = element("tr", "", body);
    for (const cell of row) {
      const place = element("td", cell.text, line);
      if (cell.best) place.classList.add("best");
      if (cell.text.length > 40) place.classList.add("text");
      if (cell.small) element("small", " " + cell.small, place);
    }
  }
  const notes = element("ul", "", shown);
  for (const note of table.notes) element("li", note, notes);
  for (const figure of figures) {
    const image = element("img", "", shown);
    image.src = "../_static/" + figure;
    image.alt = figure;
    image.loading = "lazy";
  }
}

function choose() {
  const page = PAGES[pages.value];
  draw(page.tables[tables.value], page.figures);
  history.replaceState(null, "", `#${pages.value}/${tables.value}`);
}

function list(number) {
  tables.replaceChildren();
  PAGES[pages.value].tables.forEach((table, i) => {
    element("option", table.title, tables).value = i;
  });
  tables.value = number in PAGES[pages.value].tables ? number : 0;
  choose();
}

for (const name of Object.keys(PAGES)) element("option", name, pages).value = name;
const [page, number] = location.hash.slice(1).split("/");
if (page in PAGES) pages.value = page;
pages.onchange = () => list(0);
tables.onchange = choose;
list(number ?? 0);
