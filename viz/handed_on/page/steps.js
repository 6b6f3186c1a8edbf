// The steps of a pipeline: their list, the graph after the chosen one, and what that one changed.

import { block } from "./blocks.js";
import { make } from "./made.js";
import { Picture } from "./picture.js";
import { go, place } from "./place.js";
import { code, figures, sentence, table } from "./sections.js";

const TURNS = { ",": -1, ".": 1 };

export class Steps {
  constructor(section, name) {
    this.section = section;
    this.name = name;
    this.picture = new Picture(name, section.height);
    this.list = make("div", { class: "steps" });
    this.shadow = this.list.attachShadow({ mode: "open" });
    this.shadow.append(document.getElementById("steps").content.cloneNode(true));
    this.said = make("div", { class: "step-said" });
    this.below = make("div", { class: "step-below" });
    this.words = make("span", { class: "step-title", "aria-live": "polite" });
    const turn = (way, label, key) => make("button", { type: "button", title: `${label} (${key})`,
      onclick: () => this.turn(way) }, label);
    this.back = turn(-1, "Previous", ",");
    this.on = turn(1, "Next", ".");
    this.at = make("div", { class: "board" }, this.list, make("div", { class: "after" },
      make("div", { class: "walk" }, this.back, this.on, this.words), this.said, this.picture.at),
    this.below);
    this.read();
  }

  get most() { return this.section.rows.length - 1; }

  // The step that the address names, else the one that was chosen.
  read() {
    const asked = place.get("step");
    const at = asked === "imported" ? 0 : Number(asked ?? this.section.chosen);
    this.choose(Number.isInteger(at) ? at : this.section.chosen);
  }

  turn(way) { this.choose(this.chosen + way); }

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
    const row = this.section.rows[chosen];
    this.words.textContent = chosen ? `Step ${chosen} of ${this.most}: ${row.title}`
      : "Imported program";
    this.back.disabled = chosen === 0;
    this.on.disabled = chosen === this.most;
    listSteps({
      parentElement: this.shadow,
      data: { selected: chosen, rows: this.section.rows, still: true },
      tell: ({ row }) => this.choose(row),
    });
    const listed = this.shadow.querySelector(".selected");
    if (listed && this.list.scrollHeight > this.list.clientHeight) {
      this.list.scrollTop = listed.offsetTop - this.list.clientHeight / 3;
    }
    const details = await block(this.section.blocks[chosen]);
    if (chosen !== this.chosen) return; // a later choice is on its way
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
    this.at.dataset.step = String(chosen);
  }
}
