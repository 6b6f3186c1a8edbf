// The steps of a pipeline: their list, the graph after the chosen one, and what that one changed.

import { block } from "./blocks.js";
import { filled, make } from "./made.js";
import { Picture } from "./picture.js";
import { go, place } from "./place.js";
import { code, figures, sentence, table } from "./sections.js";

const TURNS = { ",": -1, ".": 1 };

export class Steps {
  constructor(section, name) {
    this.section = section;
    this.name = name;
    this.picture = new Picture(name, section.height);
    this.list = make("div", { class: `steps ${this.constructor.list}` });
    this.shadow = filled(this.list, this.constructor.list);
    this.said = make("div", { class: "step-said" });
    this.below = make("div", { class: "step-below" });
    this.words = make("span", { class: "step-title", "aria-live": "polite" });
    const turn = (way, label, key) => make("button", { type: "button", title: `${label} (${key})`,
      onclick: () => this.turn(way) }, label);
    const [back, on] = this.constructor.ways;
    this.back = turn(-1, back, ",");
    this.on = turn(1, on, ".");
    this.at = make("div", { class: "board" }, this.list, make("div", { class: "after" },
      make("div", { class: "walk" }, this.back, this.on, this.words), this.said, this.picture.at),
    this.below);
    this.read();
  }

  static list = "steps";
  static ways = ["Previous", "Next"];

  get most() { return this.section.rows.length - 1; }

  // The step that the address names, else the one that was chosen.
  read() {
    const asked = place.get("step");
    const at = asked === "imported" ? 0 : Number(asked ?? this.section.chosen);
    this.choose(Number.isInteger(at) ? at : this.section.chosen);
  }

  // Where a button or a key leads; undefined where it leads nowhere.
  way(way) {
    const to = this.chosen + way;
    return to >= 0 && to <= this.most ? to : undefined;
  }

  turn(way) { this.choose(this.way(way) ?? this.chosen); }

  key(event) {
    if (!TURNS[event.key]) return false;
    this.turn(TURNS[event.key]);
    return true;
  }

  async choose(at) {
    const chosen = Math.max(0, Math.min(this.most, at));
    if (chosen === this.chosen) return;
    this.chosen = chosen;
    go({ step: chosen });
    this.back.disabled = this.way(-1) === undefined;
    this.on.disabled = this.way(1) === undefined;
    this.mark({
      parentElement: this.shadow,
      tell: ({ row }) => this.choose(row),
    });
    const details = await this.details(chosen);
    if (chosen === this.chosen) this.tell(details); // else a later choice is on its way
  }

  // In the list, and in words.
  mark(component) {
    const { chosen, section } = this;
    this.words.textContent = chosen
      ? `Step ${chosen} of ${this.most}: ${section.rows[chosen].title}` : "Imported program";
    listSteps({ ...component, data: { selected: chosen, rows: section.rows, still: true } });
    const listed = this.shadow.querySelector(".selected");
    if (listed && this.list.scrollHeight > this.list.clientHeight) {
      this.list.scrollTop = listed.offsetTop - this.list.clientHeight / 3;
    }
  }

  details(chosen) { return block(this.section.blocks[chosen]); }

  tell(details) {
    this.said.replaceChildren(...details.said.map(sentence));
    this.picture.at.hidden = !details.picture;
    if (details.picture) this.picture.show(details.picture);
    const onNode = (id) => this.picture.go(id);
    this.tables = details.tables;
    this.below.replaceChildren(
      ...(details.figures ? [figures(details.figures)] : []),
      ...details.tables.map((one) => table(one, onNode)),
      ...details.texts.map(code),
    );
    this.at.dataset.step = String(this.chosen);
  }
}
