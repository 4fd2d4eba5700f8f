// What the page holds: numbers and pictures that were packed when it was written, and what the reader has chosen.
const $ = id => document.getElementById(id);

function bytes(base64) {
  return Uint8Array.from(atob(base64), character => character.charCodeAt(0));
}

// Bytes → numbers, row by row if there are columns.
function unpack({ kind, shape: [rows, columns], data }) {
  const { buffer } = bytes(data), numbers = Array.from(kind === "int32" ? new Int32Array(buffer) : new Float32Array(buffer));
  return columns === undefined ? numbers : Array.from({ length: rows }, (_, row) => numbers.slice(row * columns, (row + 1) * columns));
}

// The found items of a query, best first, as {item, cosine}.
function found(packed) {
  if (packed === null) return null;
  const indices = unpack(packed.indices), cosines = unpack(packed.cosines);
  return query => indices[query].map((item, place) => ({ item, cosine: cosines[query][place] })).filter(({ item }) => item >= 0);
}

const content = JSON.parse($("content").textContent);
const { classes, names, pictures, local_pictures: crops } = content;
const [labels, shown, asking, local, chosen] = ["labels", "shown", "asking", "local_queries", "chosen_queries"].map(name => unpack(content[name]));
const runs = content.runs.map(run => ({ ...run, map: unpack(run.map), neighbours: found(run.neighbours), positive: found(run.positive), local: found(run.local) }));
// Whether the nearest other is of the same class.
runs.forEach(run => { run.right = labels.map((label, item) => labels[run.neighbours(item)[0]?.item] === label); });

const state = {
  base: 0, ours: runs.length - 1, all: runs.length <= 4, // of the runs
  filter: "all", wanted: "", page: 0, item: null, // of the gallery
  picked: null, // class on the map
};
const several = runs.length > 1;
const compared = () => (state.all ? runs.map((_, run) => run) : [...new Set([state.base, state.ours])]);

function pictureOf(item, crop = -1) {
  const data = crop < 0 ? pictures[item] : crops[crop];
  return data && `data:image/webp;base64,${data}`;
}

// An element; names of classes and items only ever arrive as text.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const percent = share => `${(100 * share).toFixed(1)} %`;
const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
