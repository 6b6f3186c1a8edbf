// Finds a page's data in a file, which is read as text and never run, and reads its blocks: JSON,
// deflated, as base64. Long texts stand once, in the pool.

import { MOST, Refused, unpack } from "../viewer/parts.js";

const VERSION = 2; // of a page's data
export const DATA = "script[type='application/x-relascope']";

// Formats that may hold a page's data, not deflated: begin, end, name, and what adds it.
const HOLDERS = [
  ["PK", /PK\x05\x06[^]{0,18}$/, "session's file", "relascope replay FILE -o session.zip"],
  ['{"relascope_recording"', /\n$/, "recording", "relascope open FILE -o run.rsc"],
];
const PAGE = '"relascope_page": ';
const SIGN = "\u0001"; // before the number of a text of the pool

// A page's data from a file's text: the data, a graph's JSON, a page, a recording or a session.
export function dataOf(text) {
  const [, end, what, command] = HOLDERS.find(([begin]) => text.startsWith(begin)) ?? [];
  if (what) {
    if (!end.test(text.slice(-22))) throw new Refused(`This ${what} is truncated.`);
    const at = text.lastIndexOf(PAGE);
    if (at < 0) {
      throw new Refused(`This ${what} has no page in it. The command that adds one: ${command}`);
    }
    text = `{${text.slice(at, text.indexOf("}}", at) + 2)}`; // never in names and base64
  }
  const page = /^\s*</.test(text);
  const held = page ? new DOMParser().parseFromString(text, "text/html").querySelector(DATA) : null;
  let found;
  try {
    found = JSON.parse(page ? held?.textContent ?? "" : text);
  } catch {
    throw new Refused(page ? "This page has no data of relascope's in it, or is truncated."
      : "This file is truncated, or not one of relascope's.");
  }
  if (Array.isArray(found?.nodes) && !found.page) {
    throw new Refused("This graph has no picture in it. The command that writes both: "
      + "relascope graph MODEL -o graph.json");
  }
  const data = found?.page ?? found;
  if (data?.relascope_page === undefined) throw new Refused("This JSON is not a page of relascope's.");
  if (data.relascope_page !== VERSION) {
    throw new Refused(`This file has version ${data.relascope_page}; this viewer reads ${VERSION}. `
      + "Open it with the viewer of the relascope that wrote it.");
  }
  return data;
}

export async function fileText(file) {
  if (file.size > MOST) throw new Refused(`${file.name} is larger than 512 MiB.`);
  return file.text();
}

// The text of a file at an address; `own`: only from this site.
export async function fetched(address, own) {
  const at = new URL(address, document.baseURI);
  if (own && at.origin !== location.origin) throw new Refused(`${at.origin} is another site.`);
  if (at.protocol === "file:") {
    throw new Refused("A page opened from disk may not read other files. Drop the file "
      + "here, or serve its folder: python -m http.server");
  }
  let answer;
  try {
    answer = await fetch(at);
  } catch {
    throw new Refused(`${address} cannot be reached.`);
  }
  if (!answer.ok) throw new Refused(`${address}: the server answers ${answer.status}.`);
  return fileText(Object.assign(await answer.blob(), { name: address }));
}

// Replaces numbers by the pool's texts.
function filled(value, pool) {
  if (typeof value === "string") {
    return value.startsWith(SIGN) ? pool[Number(value.slice(1))] : value;
  }
  if (typeof value === "object" && value) {
    const keys = Array.isArray(value) ? value.keys() : Object.keys(value);
    for (const key of keys) value[key] = filled(value[key], pool);
  }
  return value;
}

// A function that reads a block by name, once; fails if it is missing, damaged or too large.
export function reader(blocks) {
  const known = new Map();
  const left = { bytes: MOST }; // for all of them
  const once = (id, make) => {
    if (!known.has(id)) known.set(id, make());
    return known.get(id);
  };
  const unpacked = async (id) => unpack(blocks[id], left);
  return (id) => once(id, async () =>
    filled(await unpacked(id), await once("pool", () => unpacked("pool"))));
}
