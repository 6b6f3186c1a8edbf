// The rows of a pipeline, as Python sends them. Reports the reader's changes: all that Python has
// not yet confirmed, numbered, so that none is lost or done twice while the page runs. The list
// shows them at once. In a saved page it can only be looked through.

import { element } from "./viewer/parts.js";

const NOTHING_TO_DRAG = -1;
const CROSS = '<svg viewBox="0 0 16 16"><path d="M4.5 4.5l7 7M11.5 4.5l-7 7"/></svg>';

// Change the rows as Python will; returns the index of the chosen one.
const DEEDS = {
  select: (rows, selected, { row }) => row,
  switch: (rows, selected, { row, enabled }) => {
    rows[row] = { ...rows[row], enabled };
    return selected;
  },
  add: (rows, selected, { row, name }) => {
    rows.splice(row, 0, { title: name, summary: "", enabled: true, nodes: null, time: "", waiting: true });
    return row;
  },
  move: (rows, selected, { row, to }) => {
    rows.splice(to, 0, ...rows.splice(row, 1));
    return to;
  },
  remove: (rows, selected, { row }) => {
    rows.splice(row, 1);
    return selected - (row <= selected);
  },
};

// Leaves the focus to the list, which has keys of its own.
function button(look, label, onClick, more) {
  const onclick = (event) => { event.stopPropagation(); onClick(); };
  return element("button", { type: "button", class: look, tabindex: -1, title: label,
    "aria-label": label, onclick, ...more });
}

function counts(row) {
  if (row.nodes === null) return element("span", { class: "counts" });
  const parts = [["added", "+"], ["removed", "−"], ["changed", "~"]].map(([name, sign]) =>
    element("span", { class: name, title: row[name] ? `${row[name]} ${name}` : "" },
      row[name] ? sign + row[name] : ""));
  const title = `${row.nodes} nodes after this step`;
  return element("span", { class: "counts" }, ...parts,
    element("span", { class: "nodes", title }, row.nodes));
}

// Previous and next step, where the page has a place for them.
function walking(parentElement, go) {
  const place = parentElement.querySelector(".walk");
  if (!place) return null;
  const [back, on, words] = place.children;
  back.onclick = () => go(-1);
  on.onclick = () => go(1);
  return { show(selected, most) {
    words.textContent = selected ? `Step ${selected} of ${most}` : "Imported program";
    back.disabled = selected === 0;
    on.disabled = selected === most;
  } };
}

// A field for a pass to add: its names complete what is typed.
function adding(parentElement, passes, add) {
  const field = parentElement.querySelector(".add");
  if (!field) return;
  const choices = parentElement.querySelector("datalist");
  if (choices.children.length !== passes.length) {
    choices.replaceChildren(
      ...passes.map(([value, title]) => element("option", { value }, title)));
  }
  const take = () => {
    const name = field.value.trim();
    const known = passes.some((pass) => pass[0] === name);
    field.setCustomValidity(known || !name ? "" : `There is no pass ${name}.`);
    if (!known) return void field.reportValidity();
    field.value = "";
    add(name);
  };
  // A choice from the list comes as a replacement, or as no typing at all.
  field.oninput = ({ inputType }) => {
    field.setCustomValidity("");
    if (!inputType || inputType === "insertReplacementText") take();
  };
  field.onkeydown = (event) => { if (event.key === "Enter") take(); };
}

export default function listSteps(component) {
  const { data, parentElement, setStateValue } = component;
  const list = parentElement.querySelector(".list");
  const known = list.log && list.log.session === data.session;
  const log = known ? list.log : { session: data.session, count: data.done, deeds: [] };
  list.log = log;
  log.deeds = log.deeds.filter((deed) => deed.number > data.done);
  const rows = [...data.rows];
  let selected = data.selected;
  let dragged = NOTHING_TO_DRAG;
  for (const deed of log.deeds) {
    if (deed.row < rows.length || deed.what === "add") selected = DEEDS[deed.what](rows, selected, deed);
  }

  const mark = () => {
    for (const item of list.children) {
      const here = Number(item.dataset.row) === selected;
      item.classList.toggle("selected", here);
      item.setAttribute("aria-selected", String(here));
    }
    list.setAttribute("aria-activedescendant", `step-${selected}`);
    walk?.show(selected, rows.length - 1);
  };
  const tell = component.tell ?? ((deed) => {
    log.deeds.push({ number: ++log.count, ...deed });
    setStateValue("log", { session: log.session, deeds: [...log.deeds] });
  });
  const did = (what, deed) => {
    selected = DEEDS[what](rows, selected, deed);
    tell({ what, ...deed });
    if (what === "select") mark();
    else draw();
  };
  const select = (row) => {
    if (row >= 0 && row < rows.length && row !== selected) did("select", { row });
  };
  const change = (index) => !rows[index].fixed;
  const turn = (row) => {
    if (change(row)) did("switch", { row, enabled: !rows[row].enabled });
  };
  const remove = (row) => { if (change(row)) did("remove", { row }); };
  const move = (row, to) => {
    if (row > 0 && to > 0 && to < rows.length && to !== row) did("move", { row, to });
  };
  adding(parentElement, data.passes, (name) => did("add", { row: selected + 1, name }));
  const walk = walking(parentElement, (way) => select(selected + way));
  // The next visible row in a direction.
  const next = (index, way) => {
    let to = index + way;
    while (rows[to]?.hidden) to += way;
    return to;
  };

  const unmark = () => {
    for (const item of list.children) item.classList.remove("before", "after", "dragged");
  };
  // Whether the dragged row would go below the row that it is held over.
  const below = (item, event) => {
    const box = item.getBoundingClientRect();
    return item.dataset.row === "0" || event.clientY > box.top + box.height / 2;
  };
  const drag = (item, index) => {
    item.draggable = index > 0 && !data.still;
    item.addEventListener("dragstart", (event) => {
      dragged = index;
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", rows[index].title);
      item.classList.add("dragged");
    });
    item.addEventListener("dragover", (event) => {
      if (dragged === NOTHING_TO_DRAG) return;
      event.preventDefault();
      for (const other of list.children) other.classList.remove("before", "after");
      item.classList.add(below(item, event) ? "after" : "before");
    });
    item.addEventListener("drop", (event) => {
      if (dragged === NOTHING_TO_DRAG) return;
      event.preventDefault();
      const gap = below(item, event) ? index + 1 : index; // the row goes before this one
      move(dragged, gap > dragged ? gap - 1 : gap);
      unmark();
    });
    item.addEventListener("dragend", () => { dragged = NOTHING_TO_DRAG; unmark(); });
  };

  const draw = () => {
    list.replaceChildren(...rows.map((row, index) => {
      const span = (look, text, more) => element("span", { class: look, ...more }, text);
      const fixed = index === 0 || data.still ? "" : "The pipeline requires this step";
      const switched = { role: "switch", "aria-checked": row.enabled };
      const first = row.fixed
        ? span("fixed", index === 0 ? "" : data.still ? index : "•", { title: fixed })
        : button("switch", `${row.title}: ${row.enabled ? "on" : "off"}`,
          () => { list.focus(); turn(index); }, switched);
      const said = row.failure || row.summary;
      const tag = (text, more = "") => (text ? span(`tag${more}`, text) : null);
      const looks = ["row", !row.enabled && "off", row.enabled && row.idle && "idle",
        row.failure && "failed", row.hidden && "hidden", row.waiting && "waiting"];
      const item = element("div", { class: looks, id: `step-${index}`, role: "option",
        "data-row": index },
      first,
      element("div", { class: "words", title: said },
        element("div", { class: "head" }, span("title", row.title),
          tag(row.parameters, " parameters"), tag(row.looking && "view only"),
          tag(row.failure && "failed", " bad"), tag(row.error), tag(row.waiting && "not run")),
        element("div", { class: "summary" }, said)),
      element("div", { class: "figures" }, counts(row), span("time", row.time)),
      row.fixed ? null
        : button("out", `Remove ${row.title}`, () => { list.focus(); remove(index); }));
      if (!row.fixed) item.lastChild.innerHTML = CROSS;
      item.addEventListener("click", () => { list.focus({ preventScroll: true }); select(index); });
      drag(item, index);
      return item;
    }));
    mark();
  };
  draw();

  list.onkeydown = (event) => {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (way && event.altKey) move(selected, next(selected, way));
    else if (way) select(next(selected, way));
    else if (event.key === "Home") select(0);
    else if (event.key === "End") select(next(rows.length, -1));
    else if (event.key === " ") turn(selected);
    else if (event.key === "Delete") remove(selected);
    else return;
    event.preventDefault();
    list.children[selected]?.scrollIntoView({ block: "nearest" });
  };
}
