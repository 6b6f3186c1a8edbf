// The graph to lay out: nodes and groups by number, made from Python's lists.

// From a block's `node`, `strings`, `groups` and `groupIds` to
//   count, and by node: id, title, sub, group (a number, -1 at the top), reads (nodes, each once),
//   types(n), texts of its results' types; and by group: groupId, parent, facts (from the block).
//
// If the block has a `backdrop`, a larger graph in whose places it is drawn, nodes and groups are
// the backdrop's, and `slot` has the backdrop's node for each node of the block. Then `current` has
// for each place the block's node that is drawn there (-1: none), `readsNow` the nodes it reads.
export function laidOutGraph(block) {
  const { strings, groups } = block;
  const { node, groupIds, groups: tree } = block.backdrop ?? block;
  const number = new Map(groupIds.map((id, i) => [id, i]));
  const count = node.id.length;
  const group = Int32Array.from(node.group, (id) => (id ? number.get(id) : -1));
  const current = new Int32Array(count).fill(-1);
  let readsNow = null;
  if (block.backdrop) {
    readsNow = Array.from({ length: count }, () => []);
    block.slot.forEach((slot, n) => { current[slot] = n; });
    block.node.inputs.forEach((inputs, n) => {
      const reads = new Set(nodesOf(inputs).map((input) => block.slot[input]));
      reads.delete(block.slot[n]);
      readsNow[block.slot[n]] = [...reads];
    });
  } else for (let n = 0; n < count; n++) current[n] = n;
  const types = (n) => block.node.types[n].map((t) => strings[t]);
  return {
    count, group, current, readsNow,
    reads: node.inputs.map(nodesOf),
    id: (n) => (current[n] < 0 ? node : block.node).id[current[n] < 0 ? n : current[n]],
    // A box has the backdrop's size and the block's words.
    lines: (n, now) => {
      const from = now && current[n] >= 0 ? block.node : node, at = from === node ? n : current[n];
      return from.sub[at] ? [from.title[at], from.sub[at]] : [from.title[at]];
    },
    types: (n) => types(current[n]),
    groupId: groupIds,
    parent: Int32Array.from(groupIds, (id) => (tree[id].parent ? number.get(tree[id].parent) : -1)),
    facts: groupIds.map((id) => groups[id] ?? tree[id]),
  };
}

function nodesOf(inputs) {
  return [...new Set(inputs.filter((input) => typeof input === "number"))];
}

// The groups that are drawn open: at first `first`, then with the reader's changes ("*": all).
export function openGroups(groupIds, first, toggles) {
  const opened = new Set("*" in toggles ? (toggles["*"] ? groupIds : []) : first);
  for (const [group, open] of Object.entries(toggles)) {
    if (open) opened.add(group); else opened.delete(group);
  }
  return opened;
}
