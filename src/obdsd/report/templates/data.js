// What the page holds: numbers and pictures that were packed when it was written, and what the reader has chosen.
const read = id => JSON.parse(document.getElementById(id).textContent);
const $ = id => document.getElementById(id);

function bytes(base64) {
  return Uint8Array.from(atob(base64), character => character.charCodeAt(0));
}

// Little-endian codes → numbers; the largest code stands for none (-1 among indices, null among values).
function unpack(packed) {
  const view = new DataView(bytes(packed.data).buffer);
  const wide = packed.kind === "wide";
  const nothing = wide ? 4294967295 : 65535;
  const numbers = new Array(view.byteLength / (wide ? 4 : 2));
  for (let i = 0; i < numbers.length; i++) {
    const code = wide ? view.getUint32(4 * i, true) : view.getUint16(2 * i, true);
    if (packed.kind === "number") numbers[i] = code === nothing ? null : packed.low + packed.step * code;
    else numbers[i] = code === nothing ? -1 : code;
  }
  return numbers;
}

// Row by row: the found items of a query, best first, as {item, cosine}.
function found(packed) {
  if (packed === null) return null;
  const indices = unpack(packed.indices), cosines = unpack(packed.cosines);
  return query => {
    const row = [];
    for (let i = query * packed.each; i < (query + 1) * packed.each; i++) if (indices[i] >= 0) row.push({ item: indices[i], cosine: cosines[i] });
    return row;
  };
}

const numbers = read("numbers"), pictures = read("pictures");
const classes = numbers.classes, names = numbers.names, labels = unpack(numbers.labels);
const shown = unpack(numbers.shown), asking = unpack(numbers.asking), local = unpack(numbers.local), chosen = unpack(numbers.chosen);
const runs = numbers.runs.map(run => ({
  ...run,
  x: unpack(run.x), y: unpack(run.y),
  neighbours: found(run.neighbours), positive: found(run.positive), local: found(run.local),
  right: Array.from(run.right, mark => mark === "1"),
}));

const state = {
  base: 0, ours: runs.length - 1, all: runs.length <= 4, // of the runs
  filter: "all", wanted: "", page: 0, item: null, // of the gallery
  picked: null, // class on the map
};
const several = runs.length > 1;
const compared = () => (state.all ? runs.map((_, run) => run) : [...new Set([state.base, state.ours])]);

function pictureOf(item, crop = -1) {
  const data = (crop >= 0 && numbers.crops ? pictures[names.length + crop] : null) ?? pictures[item];
  if (!data) return null;
  const kind = data.startsWith("/9j/") ? "jpeg" : data.startsWith("UklGR") ? "webp" : "png";
  return `data:image/${kind};base64,${data}`;
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
