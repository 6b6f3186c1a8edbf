// The parts of tabs: figures, sentences, tables, charts and texts.

import { element, Refused } from "../viewer/parts.js";

const SHOWN = 200; // rows at first
const FILTERED = 12; // rows that call for a filter

export function figures({ items, large }) {
  const facts = items.map(([figure, of]) =>
    element("span", {}, element("b", {}, figure), ` ${of}`));
  return element("div", { class: large ? "figures large" : "figures" }, ...facts);
}

export function sentence({ text, warning }) {
  return element("p", { class: warning ? "warning" : "said" }, text);
}

export function passage({ title, words, code }) {
  return element("section", {}, title ? element("h2", {}, title) : null,
    words ? element("p", { class: "words" }, words) : null,
    code ? element("pre", { class: "wide", tabindex: "0" }, code) : null);
}

// Shown in place of a damaged part.
export function damaged(error, what = "part of the file") {
  const known = error instanceof Refused;
  const text = known ? error.message : `This ${what} is damaged, or from another version.`;
  return sentence({ text, warning: true });
}

const UNDRAWN = "script, style, foreignObject, image, a, use, iframe, animate, set";

export function chart({ title, svg, note }) {
  const made = element("figure", { class: "chart" }, title ? element("h2", {}, title) : null);
  const drawn = document.importNode(
    new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true);
  // A file from elsewhere may hold more than a picture.
  for (const part of drawn.querySelectorAll(UNDRAWN)) part.remove();
  for (const part of [drawn, ...drawn.querySelectorAll("*")]) {
    for (const { name } of [...part.attributes]) {
      if (/^on|href$/i.test(name)) part.removeAttribute(name);
    }
  }
  for (const mark of drawn.querySelectorAll("[aria-roledescription][aria-label]")) {
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = mark.getAttribute("aria-label");
    mark.append(title); // its tooltip
  }
  made.append(drawn, ...(note ? [element("figcaption", {}, note)] : []));
  return made;
}

export function table({ title, columns, numbers, rows, ids, note }, onNode) {
  const made = element("section", { class: "table" }, title ? element("h2", {}, title) : null);
  if (!rows.length) {
    made.append(element("p", { class: "said" }, note || "Nothing."));
    return made;
  }
  const body = element("tbody");
  const order = rows.map((_, i) => i);
  let words = [], most = SHOWN, by = -1, down = false;
  const more = element("button", { class: "more", type: "button", onclick: () => {
    most += 1000; write();
  } });
  const line = (i) => element("tr", {}, ...rows[i].map((cell, c) => {
    const link = c === 0 && ids?.[i] && onNode;
    // A word with a sign, "+ added", has the graph's colour too.
    const look = columns[c] === "what" ? `look ${cell.replace(/[^a-z]/g, "")}` : null;
    return element("td", { class: numbers[c] ? "number" : look }, link
      ? element("button", { class: "link", type: "button", title: "Show it in the graph",
        onclick: () => onNode(ids[i]) }, cell) : cell);
  }));
  const write = () => {
    const fit = order.filter((i) => {
      const hay = rows[i].join(" ").toLowerCase();
      return words.every((word) => hay.includes(word));
    });
    body.replaceChildren(...fit.slice(0, most).map(line));
    more.hidden = fit.length <= most;
    more.textContent = `${fit.length - most} more rows`;
  };
  const value = (i) => {
    const number = Number.parseFloat(rows[i][by].replace(/[\u202f ]/g, ""));
    return numbers[by] && !Number.isNaN(number) ? number : rows[i][by].toLowerCase();
  };
  const heads = columns.map((name, c) => {
    const head = element("th", { class: numbers[c] ? "number" : null, scope: "col" },
      element("button", { type: "button", title: "Sort", onclick: () => {
        down = by === c ? !down : false;
        by = c;
        order.sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          return (x < y ? -1 : x > y ? 1 : a - b) * (down ? -1 : 1);
        });
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        write();
      } }, name));
    return head;
  });
  if (rows.length >= FILTERED) {
    made.append(element("input", { type: "search", placeholder: "Filter", "aria-label":
      `Filter ${title || "the table"}`, oninput: (event) => {
        words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
        write();
      } }));
  }
  const label = title || "Table";
  made.append(element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)), more);
  if (note) made.append(element("p", { class: "said" }, note));
  write();
  return made;
}

export function asCsv({ columns, rows }) {
  const cell = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
