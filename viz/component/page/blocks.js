// A page's data: blocks of JSON, deflated, as base64. Long texts stand once, in the pool.

import { MOST, unpack } from "../viewer/parts.js";

const SIGN = "\u0001";

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
