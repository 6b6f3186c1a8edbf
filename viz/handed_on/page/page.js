// The page around the graphs: tabs, light and dark, what can be saved, and keys.

import { block } from "./blocks.js";
import { element } from "../../component/viewer/parts.js";
import { fileName, save } from "./made.js";
import { Picture } from "./picture.js";
import { go, onAddress, place } from "./place.js";
import { asCsv, chart, figures, sentence, table } from "./sections.js";
import { Steps } from "./steps.js";

const find = (selector) => document.querySelector(selector);

class Page {
  constructor(index) {
    this.index = index;
    this.panels = new Map();
    find("h1").textContent = index.title;
    find(".about dl").append(...index.about.flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", {}, value)]));
    find(".caveats").append(...index.caveats.map((text) => sentence({ text, warning: true })));
    find("footer").textContent = `Made by relascope ${index.version}. The whole result is in this `
      + "file: it asks nothing of a server or the network.";
    this.tabs = index.tabs.map((tab, at) => element("button", {
      type: "button", role: "tab", id: `tab-${tab.key}`, "aria-controls": `panel-${tab.key}`,
      onclick: () => this.show(tab.key), onkeydown: (event) => this.tabKey(event, at),
    }, tab.title));
    find("nav").append(...this.tabs);
    find("nav").hidden = index.tabs.length < 2;
    find(".theme").addEventListener("click", () => this.turnTheme());
    find(".hand").addEventListener("click", () => this.menu());
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("click", (event) => {
      if (!event.target.closest(".menu, .hand")) this.closeMenu();
    });
    onAddress(() => this.follow());
    addEventListener("beforeprint", () => {
      this.printing = document.documentElement.dataset.theme ?? "";
      document.documentElement.dataset.theme = "light";
      for (const one of this.pictures()) { one.viewer?.readTheme(); one.viewer?.draw(); }
    });
    addEventListener("afterprint", () => this.theme(this.printing));
    this.show(place.get("tab"));
  }

  // The address was changed by hand, or by a link.
  follow() {
    this.show(place.get("tab"));
    const panel = this.panels.get(this.shown);
    const node = place.get("node");
    if (panel.steps) panel.steps.read();
    if (node) panel.picture?.go(node);
  }

  show(key) {
    const at = Math.max(0, this.index.tabs.findIndex((tab) => tab.key === key));
    const tab = this.index.tabs[at];
    const before = this.shown;
    this.shown = tab.key;
    if (before !== undefined && before !== tab.key) go({ node: null, step: null });
    go({ tab: this.index.tabs.length > 1 ? tab.key : null });
    this.tabs.forEach((one, i) => {
      one.setAttribute("aria-selected", String(i === at));
      one.tabIndex = i === at ? 0 : -1;
    });
    for (const [name, panel] of this.panels) panel.at.hidden = name !== tab.key;
    if (!this.panels.has(tab.key)) this.panels.set(tab.key, this.make(tab));
    else if (before !== tab.key && this.panels.get(tab.key).steps) {
      go({ step: this.panels.get(tab.key).steps.chosen });
    }
  }

  make(tab) {
    const at = element("section", { role: "tabpanel", id: `panel-${tab.key}`, class: "panel",
      "aria-labelledby": `tab-${tab.key}` });
    find("main").append(at);
    const panel = { at, tables: [] };
    const onNode = (id) => panel.picture?.go(id);
    const digest = find("main").dataset.digest;
    for (const section of tab.sections) {
      const name = `${digest} ${tab.key}`;
      if (section.kind === "steps") {
        panel.steps = new Steps(section, name);
        panel.picture = panel.steps.picture;
        at.append(panel.steps.at);
      } else if (section.kind === "graph") {
        panel.picture = new Picture(name, section.height);
        at.append(panel.picture.at);
        const { picture } = panel;
        block(section.block).then((drawing) => picture.show(drawing));
      } else {
        if (section.kind === "table") panel.tables.push(section);
        at.append({ chart, figures, sentence, table }[section.kind](section, onNode));
      }
    }
    return panel;
  }

  * pictures() {
    for (const { picture } of this.panels.values()) if (picture) yield picture;
  }

  // What can be saved of the tab that is shown.
  menu() {
    const menu = find(".menu");
    if (!menu.classList.contains("hidden")) { this.closeMenu(); return; }
    const panel = this.panels.get(this.shown);
    const { title } = this.index;
    const entry = (label, then) => element("button", { type: "button", role: "menuitem",
      onclick: () => { this.closeMenu(); then(); } }, label);
    const tables = [...panel.tables, ...(panel.steps?.tables ?? [])];
    menu.replaceChildren(
      ...(panel.picture?.viewer ? [entry("Picture of what is seen (.png)", async () => {
        save(fileName(title, "png"), await panel.picture.seen());
      })] : []),
      ...tables.map((one) => entry(`${one.title || "Table"} (.csv)`, () =>
        save(fileName(`${title}-${one.title}`, "csv"), asCsv(one), "text/csv"))),
      entry("Print, or save as PDF", () => print()),
    );
    menu.classList.remove("hidden");
    find(".hand").setAttribute("aria-expanded", "true");
    menu.querySelector("button").focus();
  }

  closeMenu() {
    find(".menu").classList.add("hidden");
    find(".hand").setAttribute("aria-expanded", "false");
  }

  theme(name) {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  }

  turnTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
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

block("index").then((index) => {
  new Page(index);
  document.documentElement.dataset.ready = "yes";
});
