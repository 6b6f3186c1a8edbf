// The rows of a pipeline. Draws what Python sends and reports clicks; holds no state of its own.

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
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
  const select = (index) => {
    if (index >= 0 && index < data.rows.length && index !== data.selected) {
      setTriggerValue("select", index);
    }
  };

  list.replaceChildren(
    ...data.rows.map((row, index) => {
      const item = element("div", "row");
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(index === data.selected));
      item.dataset.row = String(index);
      item.classList.toggle("selected", index === data.selected);
      item.classList.toggle("off", !row.enabled);
      item.classList.toggle("idle", row.enabled && row.idle && !row.failure);
      item.classList.toggle("failed", Boolean(row.failure));
      item.classList.toggle("hidden", row.hidden);

      if (row.fixed) {
        const mark = element("span", "fixed", index === 0 ? "" : "•");
        mark.title = index === 0 ? "" : "The pipeline cannot go without this step";
        item.append(mark);
      } else {
        const button = element("button", "switch");
        button.type = "button";
        button.setAttribute("role", "switch");
        button.setAttribute("aria-checked", String(row.enabled));
        button.setAttribute("aria-label", `${row.title}: ${row.enabled ? "on" : "off"}`);
        button.addEventListener("click", (event) => {
          event.stopPropagation();
          setTriggerValue("switch", { row: index, enabled: !row.enabled });
        });
        item.append(button);
      }

      const words = element("div", "words");
      const head = element("div", "head");
      head.append(element("span", "title", row.title));
      if (row.looking) head.append(element("span", "tag", "view only"));
      if (row.failure) head.append(element("span", "tag bad", "failed"));
      words.append(head, element("div", "summary", row.failure || row.summary));
      words.title = row.summary;

      const figures = element("div", "figures");
      figures.append(counts(row), element("span", "time", row.time));
      item.append(words, figures);
      item.addEventListener("click", () => select(index));
      return item;
    }),
  );

  list.onkeydown = (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    let next = data.selected + move;
    while (data.rows[next]?.hidden) next += move;
    select(next);
  };
}
