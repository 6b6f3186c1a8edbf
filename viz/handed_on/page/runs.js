// The passes of a recording: their list, and what the chosen one did to a function.

import { block } from "./blocks.js";
import { filled, make } from "./made.js";
import { figures, sentence, table } from "./sections.js";
import { Steps } from "./steps.js";

export class Runs extends Steps {
  static list = "runs";
  static ways = ["Previous change", "Next change"];

  get most() { return this.section.rows.name.length - 1; }

  way(way) {
    const { changes } = this.section;
    return way > 0 ? changes.find((at) => at > this.chosen)
      : changes.findLast((at) => at < this.chosen);
  }

  mark(component) {
    const { rows } = this.section;
    listRuns({
      ...component,
      data: { rows, selected: this.chosen },
      setTriggerValue: (name, row) => name === "select" && component.tell({ row }),
    });
  }

  async details(chosen) { return (await block(this.section.block))[chosen]; }

  tell(details) {
    this.words.replaceChildren(details.title, make("div", { class: "said" }, details.facts));
    const { functions } = details;
    // What was looked at last is looked at again, where the pass changed it, too.
    const at = Math.max(0, functions.findIndex(([name]) => name === this.function));
    const choice = make("select", { "aria-label": "Function", onchange: () => {
      this.function = functions[choice.selectedIndex][0];
      this.look(functions[choice.selectedIndex]);
    } }, ...functions.map(([name]) => make("option", {}, name)));
    if (functions.length) choice.selectedIndex = at;
    this.became = make("span", { class: "said" });
    this.said.replaceChildren(...details.said.map(sentence), make("div", { class: "function" },
      functions.length > 1 ? choice : null, this.became));
    this.look(functions[at] ?? ["", "", null, null]);
  }

  // What the pass did to one function.
  async look([, words, picture, text]) {
    const { chosen } = this;
    const looked = this.looked = {};
    this.became.textContent = words;
    const [graph, texts] = await Promise.all(
      [picture, text].map((at) => (at === null ? null : block(at))));
    if (looked !== this.looked) return;
    this.picture.at.hidden = !graph;
    if (graph) this.picture.show(graph.picture);
    if (!this.texts) {
      this.texts = make("div", { class: "texts" });
      this.textsRoot = filled(this.texts, "texts");
      this.picture.at.after(this.texts);
    }
    this.texts.hidden = !texts;
    if (texts) viewTexts({ parentElement: this.textsRoot, data: texts });
    const onNode = (id) => this.picture.go(id);
    this.tables = graph?.tables ?? [];
    this.below.replaceChildren(...(graph?.figures ? [figures(graph.figures)] : []),
      ...this.tables.map((one) => table(one, onNode)));
    this.at.dataset.step = String(chosen);
  }
}
