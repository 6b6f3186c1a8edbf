// The page around the graphs: tabs, light and dark, the menu for saving, and keys.

import { element } from "../viewer/parts.js";
import { Picture } from "./picture.js";
import { asCsv, chart, damaged, figures, passage, sentence, table } from "./sections.js";
import { Steps } from "./steps.js";

function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function fileName(title, suffix) {
  return `${title.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "") || "relascope"}.${suffix}`;
}

export class Page {
  // `host` is the element, whose root has the page's parts; `data` has the "index", a function that
  // reads a "block", the "place" shown, the data's "digest", and the file that it came "from".
  constructor(host, data) {
    const { index, place } = data;
    const find = (selector) => host.shadowRoot.querySelector(selector);
    Object.assign(this, { host, data, index, find, panels: new Map(), over: new AbortController() });
    const { signal } = this.over;
    find("h1").textContent = index.title;
    find("main").replaceChildren();
    find(".about dl").replaceChildren(...index.about.flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", {}, value)]));
    find(".caveats").replaceChildren(
      ...index.caveats.map((text) => sentence({ text, warning: true })));
    find("footer").textContent = `Made by relascope ${index.version}. The whole result is in `
      + `${data.from ?? "this file"}, and nothing leaves this page.`;
    this.tabs = index.tabs.map((tab, at) => element("button", {
      type: "button", role: "tab", id: `tab-${tab.key}`, "aria-controls": `panel-${tab.key}`,
      onclick: () => this.show(tab.key), onkeydown: (event) => this.tabKey(event, at),
    }, tab.title));
    find("nav").replaceChildren(...this.tabs);
    find("nav").hidden = index.tabs.length < 2;
    find(".theme").onclick = () => this.turnTheme();
    find(".hand").onclick = () => this.menu();
    (place.ours ? window : host).addEventListener("keydown", (event) => this.key(event), { signal });
    addEventListener("click", (event) => {
      if (!event.composedPath()[0].closest?.(".menu, .hand")) this.closeMenu();
    }, { signal });
    place.onAddress(() => this.follow(), signal);
    addEventListener("beforeprint", () => {
      this.printing = host.dataset.theme ?? "";
      this.theme("light");
      for (const one of this.pictures()) one.viewer?.draw();
    }, { signal });
    addEventListener("afterprint", () => this.theme(this.printing), { signal });
    this.show(place.get("tab"));
  }

  end() {
    this.over.abort();
    for (const one of this.pictures()) one.viewer?.destroy();
  }

  // The address was changed by hand, or by a link.
  follow() {
    const { place } = this.data;
    this.show(place.get("tab"));
    const panel = this.panels.get(this.shown), node = place.get("node");
    panel.steps?.read();
    if (node) for (const one of panel.pictures) one.go(node);
  }

  show(key) {
    const at = Math.max(0, this.index.tabs.findIndex((tab) => tab.key === key));
    const tab = this.index.tabs[at];
    const before = this.shown;
    this.shown = tab.key;
    const { place } = this.data;
    if (before !== undefined && before !== tab.key) place.go({ node: null, step: null, cut: null });
    place.go({ tab: this.index.tabs.length > 1 ? tab.key : null });
    this.tabs.forEach((one, i) => {
      one.setAttribute("aria-selected", String(i === at));
      one.tabIndex = i === at ? 0 : -1;
    });
    for (const [name, panel] of this.panels) panel.at.hidden = name !== tab.key;
    if (!this.panels.has(tab.key)) this.panels.set(tab.key, this.make(tab));
    else if (before !== tab.key && this.panels.get(tab.key).steps) {
      place.go({ step: this.panels.get(tab.key).steps.chosen });
    }
  }

  make(tab) {
    const at = element("section", { role: "tabpanel", id: `panel-${tab.key}`, class: "panel",
      "aria-labelledby": `tab-${tab.key}` });
    this.find("main").append(at);
    const panel = { at, tables: [], pictures: [] };
    for (const section of tab.sections) {
      this.fill(panel, section, `${this.data.digest} ${tab.key}`)
        .catch((error) => at.append(damaged(error)));
    }
    return panel;
  }

  async fill(panel, section, name) {
    if (section.kind === "steps") {
      panel.steps = new Steps(section, name, this.data);
      panel.pictures.push(panel.steps.picture);
      panel.at.append(panel.steps.at);
    } else if (section.kind === "graph") {
      const picture = new Picture(`${name} ${panel.pictures.length}`, section.height, this.data.place);
      panel.pictures.push(picture);
      panel.at.append(picture.at);
      await picture.show(await this.data.block(section.block));
    } else {
      if (section.kind === "table") panel.tables.push(section);
      // For two graphs, a row has a node of each, or of one.
      const onNode = (ids) => [ids].flat().forEach((id, i) => panel.pictures[i]?.go(id));
      panel.at.append({ chart, figures, passage, sentence, table }[section.kind](section, onNode));
    }
  }

  * pictures() {
    for (const { pictures } of this.panels.values()) yield* pictures;
  }

  // What can be saved from the current tab.
  menu() {
    const menu = this.find(".menu");
    if (!menu.classList.contains("hidden")) { this.closeMenu(); return; }
    const panel = this.panels.get(this.shown);
    const { title } = this.index;
    const entry = (label, then) => element("button", { type: "button", role: "menuitem",
      onclick: () => { this.closeMenu(); then(); } }, label);
    const tables = [...panel.tables, ...(panel.steps?.tables ?? [])];
    menu.replaceChildren(
      ...panel.pictures.filter((one) => one.viewer).map((one, i, { length }) =>
        entry(`Picture of this view${length > 1 ? ` in ${"AB"[i]}` : ""} (.png)`, async () => {
          save(fileName(title, "png"), await one.seen());
        })),
      ...tables.map((one) => entry(`${one.title || "Table"} (.csv)`, () =>
        save(fileName(`${title}-${one.title}`, "csv"), asCsv(one), "text/csv"))),
      entry("Print, or save as PDF", () => print()),
    );
    menu.classList.remove("hidden");
    this.find(".hand").setAttribute("aria-expanded", "true");
    menu.querySelector("button").focus();
  }

  closeMenu() {
    this.find(".menu").classList.add("hidden");
    this.find(".hand").setAttribute("aria-expanded", "false");
  }

  theme(name) {
    if (name) this.host.dataset.theme = name;
    else delete this.host.dataset.theme;
  }

  turnTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = this.host.dataset.theme ?? (dark ? "dark" : "light");
    this.theme(now === "dark" ? "light" : "dark");
  }

  tabKey(event, at) {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const to = (at + way + this.tabs.length) % this.tabs.length;
    this.show(this.index.tabs[to].key);
    this.tabs[to].focus();
    event.preventDefault();
  }

  key(event) {
    const typing = event.composedPath()[0]?.closest?.("input, textarea, select");
    if (typing || event.altKey || event.metaKey || event.ctrlKey) return;
    if (event.key === "Escape") this.closeMenu();
    else if (event.key === "d") this.turnTheme();
    else if (!this.panels.get(this.shown).steps?.key(event)) return;
    event.preventDefault();
  }
}
