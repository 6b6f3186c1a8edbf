// The rows of a pipeline. Draws what Python sends and tells what was done to it; the only state of
// its own is which row was just chosen, so that the mark follows the hand and not the answer. A list
// that stands still (in a file that is handed on) can only be looked through.

const NOTHING_TO_DRAG = -1;
const ANSWERED_IN = 5000; // ms; after that what Python says counts, whatever was chosen here

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(className, label, onClick) {
  const made = element("button", className);
  made.type = "button";
  made.tabIndex = -1; // the list has the focus, and keys of its own
  made.title = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", (event) => {
    event.stopPropagation();
    onClick();
  });
  return made;
}

function counts(row) {
  const box = element("span", "counts");
  if (row.nodes === null) return box;
  for (const [name, sign] of [["added", "+"], ["removed", "−"], ["changed", "~"]]) {
    const part = element("span", name, row[name] ? sign + row[name] : "");
    part.title = row[name] ? `${row[name]} ${name}` : "";
    box.append(part);
  }
  const nodes = element("span", "nodes", String(row.nodes));
  nodes.title = `${row.nodes} nodes after this step`;
  box.append(nodes);
  return box;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const list = parentElement.querySelector(".list");
  // An answer to an earlier key must not undo the later ones that are still under way.
  const { chosen } = list;
  const waits = chosen && chosen.rows === data.rows.length && Date.now() < chosen.until
    && chosen.index !== data.selected;
  if (!waits) list.chosen = null;
  let selected = waits ? chosen.index : data.selected;
  let dragged = NOTHING_TO_DRAG;

  const mark = () => {
    for (const item of list.children) {
      const here = Number(item.dataset.row) === selected;
      item.classList.toggle("selected", here);
      item.setAttribute("aria-selected", String(here));
    }
    list.setAttribute("aria-activedescendant", `step-${selected}`);
  };
  const select = (index) => {
    if (index < 0 || index >= data.rows.length || index === selected) return;
    selected = index;
    list.chosen = { index, rows: data.rows.length, until: Date.now() + ANSWERED_IN };
    mark();
    setTriggerValue("select", index);
  };
  const change = (index) => !data.rows[index].fixed;
  const turn = (index) => {
    if (change(index)) {
      setTriggerValue("switch", { row: index, enabled: !data.rows[index].enabled });
    }
  };
  const remove = (index) => { if (change(index)) setTriggerValue("remove", index); };
  const move = (index, to) => {
    if (index > 0 && to > 0 && to < data.rows.length && to !== index) {
      list.chosen = null;
      setTriggerValue("move", { row: index, to });
    }
  };
  // The next row that can be seen, that way.
  const next = (index, way) => {
    let to = index + way;
    while (data.rows[to]?.hidden) to += way;
    return to;
  };

  const unmark = () => {
    for (const item of list.children) item.classList.remove("before", "after", "dragged");
  };
  // Where the dragged row would go, seen from a row that it is held over.
  const below = (item, event) => {
    const box = item.getBoundingClientRect();
    return item.dataset.row === "0" || event.clientY > box.top + box.height / 2;
  };
  const drag = (item, index) => {
    item.draggable = index > 0 && !data.still;
    item.addEventListener("dragstart", (event) => {
      dragged = index;
      event.dataTransfer.effectAllowed = "move";
      event.dataTransfer.setData("text/plain", data.rows[index].title);
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
      const gap = below(item, event) ? index + 1 : index; // stands before this one
      move(dragged, gap > dragged ? gap - 1 : gap);
      unmark();
    });
    item.addEventListener("dragend", () => { dragged = NOTHING_TO_DRAG; unmark(); });
  };

  list.replaceChildren(
    ...data.rows.map((row, index) => {
      const item = element("div", "row");
      item.id = `step-${index}`;
      item.setAttribute("role", "option");
      item.dataset.row = String(index);
      item.classList.toggle("off", !row.enabled);
      item.classList.toggle("idle", row.enabled && row.idle && !row.failure);
      item.classList.toggle("failed", Boolean(row.failure));
      item.classList.toggle("hidden", row.hidden);
      item.classList.toggle("waiting", row.waiting);

      if (row.fixed) {
        const mark = data.still ? index : "•";
        const fixed = element("span", "fixed", index === 0 ? "" : mark);
        fixed.title = index === 0 || data.still ? "" : "The pipeline cannot go without this step";
        item.append(fixed);
      } else {
        const label = `${row.title}: ${row.enabled ? "on" : "off"}`;
        const knob = button("switch", label, () => { list.focus(); turn(index); });
        knob.setAttribute("role", "switch");
        knob.setAttribute("aria-checked", String(row.enabled));
        item.append(knob);
      }

      const words = element("div", "words");
      const head = element("div", "head");
      head.append(element("span", "title", row.title));
      if (row.parameters) head.append(element("span", "tag parameters", row.parameters));
      if (row.looking) head.append(element("span", "tag", "view only"));
      if (row.failure) head.append(element("span", "tag bad", "failed"));
      if (row.error) head.append(element("span", "tag", row.error));
      if (row.waiting) head.append(element("span", "tag", "not run"));
      words.append(head, element("div", "summary", row.failure || row.summary));
      words.title = row.summary;

      const figures = element("div", "figures");
      figures.append(counts(row), element("span", "time", row.time));
      item.append(words, figures);
      if (!row.fixed) {
        const out = button("out", `Take ${row.title} out`, () => { list.focus(); remove(index); });
        out.innerHTML = '<svg viewBox="0 0 16 16"><path d="M4.5 4.5l7 7M11.5 4.5l-7 7"/></svg>';
        item.append(out);
      }
      item.addEventListener("click", () => { list.focus({ preventScroll: true }); select(index); });
      drag(item, index);
      return item;
    }),
  );
  mark();

  list.onkeydown = (event) => {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (way && event.altKey) move(selected, next(selected, way));
    else if (way) select(next(selected, way));
    else if (event.key === "Home") select(0);
    else if (event.key === "End") select(next(data.rows.length, -1));
    else if (event.key === " ") turn(selected);
    else if (event.key === "Delete") remove(selected);
    else return;
    event.preventDefault();
    list.children[selected]?.scrollIntoView({ block: "nearest" });
  };
}
