// What is laid out: nodes and groups by number, made from the lists that Python sends.

// From a block's `node`, `strings`, `groups` and `groupIds` to
//   count, and by node: id, title, sub, group (a number, -1 at the top), reads (nodes, each once),
//   label(n), the types of its results; and by group: groupId, parent, facts (of the block).
export function laidOutGraph(block) {
  const { node, strings, groups, groupIds } = block;
  const number = new Map(groupIds.map((id, i) => [id, i]));
  const count = node.id.length;
  const group = new Int32Array(count);
  for (let i = 0; i < count; i++) group[i] = node.group[i] ? number.get(node.group[i]) : -1;
  return {
    count, group, number,
    id: node.id, title: node.title, sub: node.sub,
    reads: node.inputs.map(nodesOf),
    types: (n) => node.types[n].map((t) => strings[t]),
    groupId: groupIds,
    parent: Int32Array.from(groupIds, (id) => (groups[id].parent
      ? number.get(groups[id].parent) : -1)),
    facts: groupIds.map((id) => groups[id]),
  };
}

function nodesOf(inputs) {
  const nodes = [];
  for (const input of inputs) {
    if (typeof input === "number" && !nodes.includes(input)) nodes.push(input);
  }
  return nodes;
}

// The groups that are drawn open: those of the first look, then what the person changed ("*": all).
export function openGroups(groupIds, first, toggles) {
  const opened = new Set("*" in toggles ? (toggles["*"] ? groupIds : []) : first);
  for (const [group, open] of Object.entries(toggles)) {
    if (open) opened.add(group); else opened.delete(group);
  }
  return opened;
}
