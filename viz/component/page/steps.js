// The steps of a pipeline or recording: their list, the chosen one's graph, and its changes.

import listSteps from "../step_list.js";
import viewTexts from "../text_diff.js";
import { element } from "../viewer/parts.js";
import { filled, Picture } from "./picture.js";
import { chart, damaged, figures, sentence, table } from "./sections.js";

const TURNS = { ",": -1, ".": 1 };

export class Steps {
  constructor(section, name, { block, place }) {
    Object.assign(this, { section, name, block, place });
    this.picture = new Picture(name, section.height, place);
    this.list = element("div", { class: "steps" });
    this.shadow = filled(this.list, "step_list");
    this.texts = element("div", { class: "texts" });
    this.textsRoot = filled(this.texts, "text_diff");
    this.said = element("div", { class: "step-said" });
    this.below = element("div", { class: "step-below" });
    this.title = element("div", { class: "step-title" });
    this.at = element("div", { class: "board" }, this.list, element("div", { class: "after" },
      this.title, this.said, this.picture.at, this.texts), this.below);
    this.read();
  }

  // The step that the address names, else the one chosen in the data.
  read() {
    const asked = this.place.get("step");
    const at = asked === "imported" ? 0 : Number(asked ?? this.section.chosen);
    this.choose(Number.isInteger(at) ? at : this.section.chosen);
  }

  key(event) {
    if (!TURNS[event.key]) return false;
    this.shadow.querySelector(".passes").steps.walk(TURNS[event.key]);
    return true;
  }

  choose(at) { this.reach(at).catch((error) => this.said.replaceChildren(damaged(error))); }

  async reach(at) {
    const chosen = Math.max(0, Math.min(this.section.rows.length - 1, at));
    if (chosen === this.chosen) return;
    this.chosen = chosen;
    this.place.go({ step: chosen });
    listSteps({
      parentElement: this.shadow,
      data: { rows: this.section.rows, selected: chosen, still: true },
      setStateValue: (name, { deeds }) => this.choose(deeds.at(-1).row),
    });
    const details = (await this.block(this.section.block))[chosen];
    if (chosen === this.chosen) await this.tell(details); // else a later choice follows
  }

  async tell({ said, functions }) {
    this.title.textContent = this.section.rows[this.chosen].title;
    // The function looked at last is shown again if this step changed it, too.
    const at = Math.max(0, functions.findIndex(([name]) => name === this.function));
    const choice = element("select", { "aria-label": "Function", onchange: () => {
      this.function = functions[choice.selectedIndex][0];
      this.look(functions[choice.selectedIndex]);
    } }, ...functions.map(([name]) => element("option", {}, name)));
    if (functions.length) choice.selectedIndex = at;
    this.became = element("span", { class: "said" });
    this.said.replaceChildren(...said.map(sentence), element("div", { class: "function" },
      functions.length > 1 ? choice : null, this.became));
    await this.look(functions[at] ?? ["", "", null, null]);
  }

  // The step's changes to one function.
  async look([, words, picture, text]) {
    const { chosen } = this;
    const looked = this.looked = {};
    this.became.textContent = words;
    const [graph, texts] = await Promise.all(
      [picture, text].map((at) => (at === null ? null : this.block(at))));
    if (looked !== this.looked) return;
    this.picture.at.hidden = !graph;
    if (graph) await this.picture.show(graph.picture);
    if (looked !== this.looked) return;
    this.texts.hidden = !texts;
    if (texts) viewTexts({ parentElement: this.textsRoot, data: { texts } });
    const onNode = (id) => this.picture.go(id);
    const memory = graph?.memory ?? [];
    this.tables = [...memory.filter((one) => one.kind === "table"), ...(graph?.tables ?? [])];
    this.below.replaceChildren(...(graph ? [figures(graph.figures)] : []),
      ...[...memory.filter((one) => one.kind !== "table"), ...this.tables].map((one) =>
        ({ chart, sentence, table })[one.kind](one, onNode)));
    this.at.dataset.step = String(chosen);
  }
}
