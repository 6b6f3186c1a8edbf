// The boxes: nodes, closed groups, and open groups with children and ports.

const FORWARD = "forward:", BACKWARD = "backward:";

// The boxes of a graph with the open groups in `opened` (by number, 1 if open). `items` starts with
// the whole drawing and has every container before its contents; `slot` gives the item that shows
// each node; `halves` says whether forward and backward are side by side.
export class Items {
  constructor(graph, opened) {
    this.graph = graph;
    this.opened = opened;
    this.items = [];
    this.slot = new Int32Array(graph.count);
    // In the container at hand: its nodes, and by node its group there (-2 - group) or itself.
    this.mark = new Int32Array(graph.count); this.key = new Int32Array(graph.count);
    this.looked = 0;
    const roots = graph.groupId.filter((_, g) => graph.parent[g] < 0);
    this.halves = roots.length === 2 && roots.includes(FORWARD) && roots.includes(BACKWARD)
      && graph.group.every((g) => g >= 0) && !this.turnsBack();
    graph.all ??= Array.from({ length: graph.count }, (_, n) => n);
    const { items } = this;
    items.push(item({ members: graph.all, isOpen: true }));
    for (let done = 0; done < items.length; done++) if (items[done].isOpen) this.open(items[done]);
    this.numberParts();
  }

  // Whether the forward reads results of the backward, as steps drawn in each other's places may:
  // then the halves are cut into parts like any modules that read each other.
  turnsBack() {
    const { graph } = this, back = new Uint8Array(graph.groupId.length);
    graph.groupId.forEach((id, g) => { // groups follow the ones around them
      back[g] = graph.parent[g] < 0 ? Number(id === BACKWARD) : back[graph.parent[g]];
    });
    return graph.reads.some((reads, n) => !back[graph.group[n]]
      && reads.some((read) => back[graph.group[read]]));
  }

  // A group cut by a cycle, or inside one, is drawn in parts, in graph order.
  numberParts() {
    const groups = this.items.filter(({ group }) => group >= 0);
    for (const parts of Map.groupBy(groups, ({ group }) => group).values()) {
      parts.sort((a, b) => a.members[0] - b.members[0]);
      parts.forEach((one, number) => { one.part = number; one.parts = parts.length; });
    }
  }

  // The group right inside a container that a node's group lies in, or -1.
  toward(container, memo, group) {
    let found = memo.get(group);
    if (found !== undefined) return found;
    found = group;
    while (found >= 0 && this.graph.parent[found] !== container.group) {
      found = this.graph.parent[found];
    }
    if (group === container.group) found = -1;
    memo.set(group, found);
    return found;
  }

  open(container) {
    const { graph } = this;
    graph.inside ??= new WeakMap(); // it depends only on the members
    let content = graph.inside.get(container.members);
    if (!content) graph.inside.set(container.members, content = this.content(container));
    for (const [group, node, members] of content) this.add(container, node, group, members);
  }

  // The direct contents of a container: nodes, and groups or their parts with their members.
  content(container) {
    const { graph } = this;
    const memo = new Map(), byGroup = new Map(), order = [];
    this.looked += 1;
    for (const node of container.members) {
      const group = this.toward(container, memo, graph.group[node]);
      this.mark[node] = this.looked;
      this.key[node] = group < 0 ? node : -2 - group;
      if (group < 0) { order.push([-1, node, null]); continue; }
      const members = byGroup.get(group);
      if (members) members.push(node);
      else { byGroup.set(group, [node]); order.push([group, -1, null]); }
    }
    const parts = byGroup.size ? this.split(container, byGroup) : new Map();
    return order.flatMap(([group, node]) => (group < 0 ? [[-1, node, null]]
      : (parts.get(group) ?? [byGroup.get(group)]).map((members) => [group, -1, members])));
  }

  add(container, node, group, members) {
    const { graph, items } = this;
    const made = item({
      index: items.length, parent: container.index, local: container.children.length,
      depth: container.depth + (container.index > 0 ? 1 : 0),
      flip: container.flip || (this.halves && group >= 0 && graph.groupId[group] === BACKWARD),
      node, group, members: members ?? NONE,
      isOpen: group >= 0 && this.opened[group] === 1,
    });
    for (const one of members ?? [node]) this.slot[one] = made.index;
    container.children.push(made.index);
    items.push(made);
  }

  // Cut groups that both feed and are fed by something outside into consecutive parts.
  //
  // Boxes in one container must not form a cycle. In a strongly connected set of boxes, count how
  // often every path has changed boxes: a group is parted by these counts. They never fall along
  // an edge and rise where it changes boxes, so the result has no cycle.
  split(container, byGroup) {
    const { key, mark, looked, graph: { reads } } = this;
    const links = new Map();
    for (const node of container.members) {
      const me = key[node];
      for (const source of reads[node]) {
        if (mark[source] !== looked) continue;
        const other = key[source];
        if (other === me) continue;
        const list = links.get(other);
        if (!list) links.set(other, [me]);
        else if (list[list.length - 1] !== me) list.push(me);
      }
    }
    const component = cycles(links);
    const parts = new Map();
    if (!component.size) return parts;
    const level = new Map();
    const still = new Map(); // by node that depends on nothing here: its readers
    for (const node of container.members) {
      const me = key[node], number = component.get(me);
      if (number === undefined) continue;
      let high = 0, moving = false;
      for (const source of reads[node]) {
        if (mark[source] !== looked) continue;
        const other = key[source];
        if (component.get(other) !== number) continue;
        high = Math.max(high, level.get(source) + (other === me ? 0 : 1));
        still.get(source)?.push(node);
        moving ||= !still.has(source);
      }
      level.set(node, high);
      if (!moving) still.set(node, []);
    }
    for (const [node, readers] of [...still].reverse()) { // it goes with its first reader
      let low = Infinity;
      for (const reader of readers) {
        low = Math.min(low, level.get(reader) - (key[reader] === key[node] ? 0 : 1));
      }
      if (low > level.get(node) && low !== Infinity) level.set(node, low);
    }
    for (const [group, members] of byGroup) {
      if (!component.has(-2 - group)) continue;
      const pieces = [...Map.groupBy(members, (member) => level.get(member))];
      pieces.sort(([a], [b]) => a - b);
      parts.set(group, pieces.map(([, piece]) => piece));
    }
    return parts;
  }
}

const NONE = Object.freeze([]);

function item(fields) {
  const made = {
    index: 0, parent: -1, local: 0, depth: 0, flip: false, node: -1, group: -1, part: 0, parts: 1,
    members: NONE, children: NONE, ports: null, portKinds: NONE, portOrder: NONE, edges: null, flat: NONE,
    placed: null, w: 0, h: 0, x: 0, y: 0, left: 0, top: 0, lines: NONE, isOpen: false, ...fields,
  };
  if (made.isOpen) {
    Object.assign(made, { children: [], ports: new Map(), portKinds: [], portOrder: [],
      edges: new Map(), flat: [] });
  }
  return made;
}

// For each key on a cycle, the number of its strongly connected set (Tarjan, 1972).
function cycles(links) {
  const index = new Map(), low = new Map(), onStack = new Set(), stack = [];
  const component = new Map();
  let counter = 0, number = 0;
  for (const start of links.keys()) {
    if (index.has(start)) continue;
    const work = [[start, 0]];
    index.set(start, counter); low.set(start, counter++);
    stack.push(start); onStack.add(start);
    while (work.length) {
      const top = work[work.length - 1], [key, at] = top;
      const next = links.get(key) ?? NONE;
      if (at < next.length) {
        top[1] += 1;
        const other = next[at];
        if (!index.has(other)) {
          index.set(other, counter); low.set(other, counter++);
          stack.push(other); onStack.add(other);
          work.push([other, 0]);
        } else if (onStack.has(other)) low.set(key, Math.min(low.get(key), index.get(other)));
        continue;
      }
      work.pop();
      if (work.length) {
        const above = work[work.length - 1][0];
        low.set(above, Math.min(low.get(above), low.get(key)));
      }
      if (low.get(key) !== index.get(key)) continue;
      const found = [];
      let other;
      do { other = stack.pop(); onStack.delete(other); found.push(other); } while (other !== key);
      if (found.length > 1) { for (const one of found) component.set(one, number); number += 1; }
    }
  }
  return component;
}
