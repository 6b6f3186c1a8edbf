// Search: words of a node, fields, comparisons, and paths of such terms joined by arrows.
//   softmax attention      all words, anywhere in operator, name, module, type, attributes
//   op:add module:layer.3. name:weight shape:768 attr:axis id:…
//   bytes>1MB flops>=1e6   comparisons; B, KB, MB, GB and KiB, MiB, GiB, and powers
//   matmul -> * -> softmax  nodes in a row along edges; * is any one node, ** any number of them

const UNITS = { "": 1, b: 1, k: 1e3, kb: 1e3, m: 1e6, mb: 1e6, g: 1e9, gb: 1e9, t: 1e12,
  kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30 };
const COMPARED = /^(bytes|flops)(>=|<=|>|<|=)([\d.]+(?:e[+-]?\d+)?)([a-z]*)$/;
const FIELD = /^(op|name|module|shape|type|attr|id|role|source|line):(.*)$/;
const SIGNS = { ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b,
  "<=": (a, b) => a <= b, "=": (a, b) => a === b };

// The searched texts of each drawing's nodes, in lower case.
const made = new WeakMap();
export function texts(node, strings) {
  let found = made.get(node.id);
  if (found) return found;
  const low = strings.map((s) => s.toLowerCase());
  const attributes = (n) => Object.entries(node.extra[n]?.attrs ?? {}).map(([key, value]) =>
    `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ").toLowerCase();
  const type = (n) => node.types[n].map((t) => low[t]).join(" ");
  const op = (n) => node.full[n].toLowerCase();
  found = {
    op, name: op, module: (n) => low[node.scope[n]], shape: type, type, attr: attributes,
    id: (n) => node.id[n].toLowerCase(), role: (n) => node.role[n],
    source: (n) => low[node.source[n]], line: (n) => low[node.line?.[n]] ?? "", // not in older pages
  };
  found.all = node.id.map((_, n) =>
    `${op(n)} ${found.module(n)} ${found.id(n)} ${type(n)} ${attributes(n)}`);
  made.set(node.id, found);
  return found;
}

function test(term, node, known) {
  const compared = COMPARED.exec(term);
  if (compared && compared[4] in UNITS) {
    const [, what, sign, number, unit] = compared;
    const limit = Number(number) * UNITS[unit], values = node[what];
    return (n) => values?.[n] !== null && values?.[n] !== undefined && SIGNS[sign](values[n], limit);
  }
  const field = FIELD.exec(term);
  if (field) {
    const of = known[field[1]];
    return (n) => of(n).includes(field[2]);
  }
  return (n) => known.all[n].includes(term);
}

function terms(text, node, known) {
  const tests = text.split(/\s+/).filter(Boolean).map((term) => test(term, node, known));
  return (n) => tests.every((passes) => passes(n));
}

// Numbers of the nodes that match a text, in the graph's order; for a path, all nodes on it, with
// its last ones in `ends`. null if the text is empty.
export function search(text, node, strings) {
  const steps = text.toLowerCase().split(/->|→/).map((step) => step.trim());
  if (!steps.some(Boolean)) return null;
  const known = texts(node, strings);
  if (steps.length === 1) {
    const found = Array.from(node.id, (_, n) => n).filter(terms(steps[0], node, known));
    return { found, ends: found };
  }
  return path(steps.map((step) => step || "*"), node, known);
}

function path(steps, node, known) {
  const stages = steps.map((step) => (step === "**" ? null // any number of nodes
    : step === "*" ? () => true : terms(step, node, known)));
  const all = Array.from(node.id, (_, n) => n);
  const linked = (n, links) => links[n].filter((m) => typeof m === "number");
  const next = (nodes, links) => [...new Set(nodes.flatMap((n) => linked(n, links)))];
  const reach = (nodes, links) => { // any number of steps, none included
    const seen = new Set(nodes);
    for (const n of seen) for (const m of linked(n, links)) seen.add(m); // which it then visits
    return [...seen];
  };
  // Forward: the nodes reached after each step. Then back: those of them that lead to an end.
  const reached = [];
  stages.forEach((stage, k) => {
    if (k === 0) { reached.push(stage ? all.filter(stage) : all); return; }
    const on = next(reached[k - 1], node.readers);
    reached.push(stage ? on.filter(stage) : reach([...new Set([...reached[k - 1], ...on])], node.readers));
  });
  let back = reached.at(-1);
  const found = new Set(back), ends = [...back].sort((a, b) => a - b);
  for (let k = stages.length - 1; k > 0; k--) {
    const before = new Set(reached[k - 1]);
    let from = next(back, node.inputs);
    if (!stages[k]) from = [...new Set([...back, ...reach(from, node.inputs)])];
    back = from.filter((n) => before.has(n));
    back.forEach((n) => found.add(n));
  }
  return { found: [...found].sort((a, b) => a - b), ends };
}
