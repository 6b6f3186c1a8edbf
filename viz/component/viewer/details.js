// The card with everything about the selected node or group.

import { button, bytesText, element, Part } from "./parts.js";

export class Details extends Part {
  folded = false;
  unfolded = false; // the kernel's text

  show() {
    const v = this.viewer, key = v.drawing && v.selected;
    const show = key !== null && key !== undefined && v.exists(key);
    const focused = v.side.contains(v.root.getRootNode().activeElement);
    v.side.classList.toggle("hidden", !show);
    if (!show) {
      v.side.replaceChildren();
      if (focused) v.main.focus({ preventScroll: true });
      return;
    }
    v.side.classList.toggle("folded", this.folded);
    v.side.replaceChildren(...(key.startsWith("group:")
      ? this.group(key.slice(6)) : this.node(v.nodeIndex.get(key))));
    // The button with the focus is gone: keep it here, or keys would go to the page.
    if (focused) v.side.focus({ preventScroll: true });
  }

  head(title, subtitle, style) {
    const v = this.viewer, mark = element("span", { class: "mark" });
    v.theme.dress(mark, style);
    mark.textContent = "";
    const fold = element("button", {
      title: this.folded ? "Show details" : "Fold details", "aria-expanded": String(!this.folded),
      onclick: () => { this.folded = !this.folded; this.show(); },
    });
    fold.innerHTML = `<svg class="i" viewBox="0 0 16 16"><path d="${
      this.folded ? "M4 6l4 4 4-4" : "M4 10l4-4 4 4"}"/></svg>`;
    const close = element("button", { title: "Clear selection (Esc)", onclick: () => v.select(null) });
    close.innerHTML = '<svg class="i" viewBox="0 0 16 16"><path d="M4 4l8 8M12 4l-8 8"/></svg>';
    return element("header", {}, mark,
      element("div", { class: "grow" }, element("h2", {}, title), element("small", {}, subtitle)),
      fold, close);
  }

  facts(pairs) {
    const known = pairs.filter(([, value]) => (value ?? "") !== "");
    return element("dl", {}, ...known.flatMap(([name, value, code]) => [element("dt", {}, name),
      element("dd", {}, code ? element("code", {}, value) : value)]));
  }

  titled(title, pairs) { return pairs.length ? [element("h3", {}, title), this.facts(pairs)] : []; }

  operators(title, counts) {
    return this.titled(title, counts.map(([op, count]) => [`${count} ×`, op, true]));
  }

  node(n) {
    const { node, strings } = this.viewer.drawing;
    const extra = node.extra[n] ?? {};
    const role = node.role[n] ? `, ${node.role[n]}` : "";
    const body = element("div", { class: "body" }, this.told(node.id[n]));
    body.append(this.facts([
      ["Here", node.note[n]],
      ["Value", this.viewer.overlays.describe(n)],
      ["Type", node.types[n].map((t) => strings[t]).join("\n"), true],
      ["Size", bytesText(node.bytes[n])],
      ["Module", strings[node.scope[n]], true],
      ["Source", strings[node.source[n]], true],
      ["Line", strings[node.line?.[n]], true],
      ["Id", node.id[n], true],
    ]));
    const attributes = Object.entries(extra.attrs ?? {}).map(([name, value]) =>
      [name, typeof value === "string" ? value : JSON.stringify(value), true]);
    const readers = node.output[n] ? "Readers (and a result of the graph)" : "Readers";
    body.append(...this.titled("Attributes", attributes),
      ...this.operators("Fused operators", extra.body ?? []), ...this.kernel(extra.kernel),
      this.around(), ...this.links("Inputs", node.inputs[n]), ...this.links(readers, node.readers[n]));
    return [this.head(node.full[n], node.kind[n] + role, node.style[n]), body];
  }

  // The loops and the text of the kernel that a node calls; the text is folded until first opened.
  kernel(name) {
    if (name === undefined) return [];
    const kernel = this.viewer.drawing.kernels[name];
    const text = element("details", {
      open: this.unfolded ? "" : null, ontoggle: () => { this.unfolded = text.open; },
    }, element("summary", {}, `Text, ${kernel.text.split("\n").length} lines`),
    element("pre", { tabindex: 0 }, element("code", {}, kernel.text)));
    return [element("h3", {}, "Kernel"), this.facts(kernel.loops), text];
  }

  // Python's sentences on the chosen node, with buttons for its actions.
  told(key) {
    const v = this.viewer, card = v.drawing.card;
    if (!card || card.node !== key) return null;
    const buttons = card.actions.map(([name, label, able]) =>
      element("button", { class: "act", disabled: able ? null : "", onclick: () => {
        v.busy.classList.add("on");
        v.trigger("act", { node: key, action: name });
      } }, label));
    return element("section", { class: "told" },
      ...card.lines.map((line) => element("p", {}, line)), element("div", {}, ...buttons));
  }

  // Buttons for how far around the selection the picture stays bright.
  around() {
    const v = this.viewer;
    const widen = (by, sign, label) => button(label, { class: "act",
      title: `${label} (${by > 0 ? ">" : "<"})`, onclick: () => v.walk.widen(by) }, sign);
    return element("div", { class: "around" }, element("span", {}, "Highlight around it"),
      widen(-1, "−", "Fewer edges away"),
      element("b", {}, `${v.walk.reach} edge${v.walk.reach > 1 ? "s" : ""}`),
      widen(1, "+", "More edges away"),
      element("button", { class: "act", title: "A path to the node chosen next (p)",
        onclick: () => v.gestures.connect() }, "Path to…"));
  }

  links(title, list) {
    if (!list.length) return [element("h3", {}, title), element("div", { class: "lit" }, "none")];
    const { node, strings } = this.viewer.drawing, items = element("ul");
    const write = (from, to) => {
      for (const entry of list.slice(from, to)) {
        if (typeof entry === "string") {
          items.append(element("li", { class: "lit" }, element("code", {}, entry)));
          continue;
        }
        const type = node.types[entry].map((t) => strings[t]).join(", ");
        const link = element("button", {
          class: "link", title: strings[node.scope[entry]] || node.id[entry],
          onclick: () => this.viewer.focus(node.id[entry]),
        }, element("span", {}, node.title[entry]), element("small", {}, type));
        items.append(element("li", {}, link));
      }
      if (to < list.length) {
        const more = element("button", { class: "link" },
          element("span", {}, `${list.length - to} more`));
        const row = element("li", {}, more);
        more.onclick = () => { row.remove(); write(to, to + 200); };
        items.append(row);
      }
    };
    write(0, 40);
    return [element("h3", {}, `${title} (${list.length})`), items];
  }

  group(id) {
    const v = this.viewer, { groups } = v.drawing;
    const group = groups[id];
    const body = element("div", { class: "body" });
    body.append(this.facts([
      ["Nodes", group.nodes.toLocaleString("en")],
      ["Results", bytesText(group.bytes)],
      ["Captures", v.capturesText(id)],
      ["Weights", group.parameterBytes ? bytesText(group.parameterBytes) : ""],
    ]));
    const link = (label, onclick, title = null) =>
      element("button", { class: "link", title, onclick }, element("span", {}, label));
    body.append(link(group.open ? "Close this group" : "Open this group", () => {
      const i = v.index.get("group:" + id);
      if (i !== undefined) v.toggle(i);
      else v.focus("group:" + id);
    }));
    if (group.alone) {
      body.append(link("Open this module alone", () => v.openAlone(id),
        "The module alone, on the inputs it gets in the whole model"));
    }
    body.append(...this.operators("Operators", group.operators), this.around());
    return [this.head(group.path, "module", "call"), body];
  }
}
