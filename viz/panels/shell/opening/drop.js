// Files that are dropped anywhere on the page go to an uploader of Streamlit: the open dialog's, else
// the sidebar's for models. While a file is over the page, it says what can be opened.

import { element } from "../../../component/viewer/parts.js";

const UPLOADER = "[data-testid=stFileUploader]", ZONE = "[data-testid=stFileUploaderDropzone]";
const SAID = 8000, PATIENCE = 20000; // milliseconds

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const over = parentElement.querySelector(".over"), card = parentElement.querySelector(".card");
  const own = parentElement.querySelector("input");
  const stop = new AbortController();
  parentElement.relascopeStop?.(); // the last run's, in another theme: nothing else ends it
  const on = (at, type, then) => at.addEventListener(type, then, { signal: stop.signal });
  let deep = 0, timer = 0;

  const kinds = () => element("dl", {}, ...data.kinds.flatMap(([endings, what]) =>
    [element("dt", {}, endings), element("dd", {}, what)]));
  const show = (...parts) => {
    clearTimeout(timer);
    over.classList.remove("said");
    over.replaceChildren(element("div", { class: "sheet" }, ...parts));
    if (over.isConnected && !over.matches(":popover-open")) over.showPopover();
  };
  const hide = () => { if (over.isConnected && over.matches(":popover-open")) over.hidePopover(); };
  const say = (text) => {
    show(element("p", {}, text));
    over.classList.add("said");
    timer = setTimeout(hide, SAID);
  };

  const dialog = () => document.querySelector(`[role=dialog] ${UPLOADER}`);
  const input = () => (dialog() ?? document.querySelector(`.st-key-upload ${UPLOADER}`))
    ?.querySelector("input[type=file]");

  // Put files into the uploader, once it is there.
  const hand = async (files) => {
    if (!input()) setTriggerValue("dropped", files.length);
    const end = performance.now() + PATIENCE;
    while (!input() && performance.now() < end) await new Promise((done) => setTimeout(done, 60));
    const to = input();
    if (!to) return say("The page did not answer in time: drop the file again.");
    if (!to.multiple && files.length > 1) return say("Only one file can be opened here: drop one.");
    const carried = new DataTransfer();
    for (const file of files) carried.items.add(file);
    to.files = carried.files;
    to.dispatchEvent(new Event("change", { bubbles: true }));
    say(`Opening ${files.length > 1 ? `${files.length} files together` : files[0].name}.`);
  };

  const take = (files, folders) => {
    const empty = files.find((file) => !file.size);
    const zipped = !dialog() && files.some((file) => file.name.toLowerCase().endsWith(".zip"));
    if (folders.length) {
      say(`${folders[0]} is a folder: drop the model's file itself, with the files of its data `
        + "beside it where it has some.");
    } else if (empty) say(`${empty.name} is empty.`);
    else if (zipped) say("A replay file (.zip) is opened under Sessions, in the sidebar.");
    else if (files.length) hand(files);
  };

  const isFile = (event) => [...event.dataTransfer?.types ?? []].includes("Files");
  const elsewhere = (event) => event.target.closest?.(ZONE);
  on(window, "dragenter", (event) => {
    if (!isFile(event)) return;
    deep += 1;
    show(element("h2", {}, "Drop it to open it"), kinds(),
      element("p", {}, "You can drop several at once: a model with its data or parameter files."));
  });
  on(window, "dragleave", (event) => { if (isFile(event) && (deep = Math.max(0, deep - 1)) === 0) hide(); });
  on(window, "dragover", (event) => { if (isFile(event) && !elsewhere(event)) event.preventDefault(); });
  on(window, "drop", (event) => {
    if (!isFile(event)) return;
    deep = 0;
    hide();
    if (elsewhere(event)) return; // an uploader's own
    event.preventDefault();
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
    const folders = entries.filter((entry) => entry?.isDirectory).map((entry) => entry.name);
    take([...event.dataTransfer.files], folders);
  });
  on(own, "change", () => { take([...own.files], []); own.value = ""; });

  card.hidden = !data.card;
  if (data.card) {
    card.replaceChildren(element("div", { class: "sheet" },
      element("h2", {}, "Drop a file anywhere on this page"), kinds(), element("p", {}, data.careful),
      element("button", { onclick: () => own.click() }, "Choose a file")));
  }
  return parentElement.relascopeStop = () => { stop.abort(); clearTimeout(timer); hide(); };
}
