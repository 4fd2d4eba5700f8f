// The retrieval gallery: which queries, in which order, and a card for each.
const EACH_PAGE = 12;
const IMPROVED = 10; // classes
const ours = () => runs[state.ours], base = () => runs[state.base];

function crossView() {
  const cosines = new Map(asking.map(item => [item, base().positive(item)[0]?.cosine ?? Infinity]));
  const order = asking.filter(item => cosines.get(item) < Infinity).sort((a, b) => cosines.get(a) - cosines.get(b) || a - b);
  return order.slice(0, Math.max(EACH_PAGE, Math.ceil(order.length / 10)));
}

function gains() {
  return classes.map((_, label) => ({ label, gain: (ours().per_class[label] ?? 0) - (base().per_class[label] ?? 0) }));
}

function improved() {
  const best = gains().filter(({ gain }) => gain > 0).sort((a, b) => b.gain - a.gain || a.label - b.label).slice(0, IMPROVED);
  return best.flatMap(({ label }) => asking.filter(item => labels[item] === label));
}

// One of each class, then the next of each: neighbours in the data are often alike.
function inTurns(items) {
  const met = new Map(), turns = [];
  items.forEach(item => {
    const turn = met.get(labels[item]) ?? 0;
    met.set(labels[item], turn + 1);
    (turns[turn] ??= []).push(item);
  });
  return turns.flat();
}

const FILTERS = [
  { key: "all", name: "All", words: () => "All queries: one of each class, then the next of each, in the order of the data.", queries: () => inTurns(asking) },
  { key: "wins", name: "Wins", pair: true, words: () => `Only ${ours().name} finds the right class first; ${base().name} does not.`,
    queries: () => inTurns(asking.filter(item => ours().right[item] && !base().right[item])) },
  { key: "losses", name: "Losses", pair: true, words: () => `Only ${base().name} finds the right class first; ${ours().name} does not.`,
    queries: () => inTurns(asking.filter(item => base().right[item] && !ours().right[item])) },
  { key: "wrong", name: several ? "Both wrong" : "Wrong", words: () => "Failure cases: the nearest item is of another class. Beside them, an item that should have been found.",
    queries: () => inTurns(asking.filter(item => !ours().right[item] && !base().right[item])) },
  { key: "improved", name: "Most improved classes", pair: true, queries: improved,
    words: () => `Queries of the ${IMPROVED} classes whose Recall@1 rises most from ${base().name} to ${ours().name}, the largest rise first.` },
  { key: "cross", name: "Cross-view", queries: crossView,
    words: () => `Hard queries: the nearest item of their class looks least like them to ${base().name}. A tenth of all, hardest first.` },
  { key: "local", name: "Local to global", queries: () => local, hidden: () => !local.length || !runs.some(run => run.local),
    words: () => `A part cut out of an image searches all whole images. Recall@1: ${compared().filter(run => runs[run].local_recall !== null)
      .map(run => `${runs[run].name} ${percent(runs[run].local_recall)}`).join(", ")}. Higher is better.` },
  { key: "chosen", name: "Chosen", queries: () => chosen, hidden: () => !chosen.length, words: () => "The queries that were asked for when this page was made." },
];
const asked = new Map(); // the queries of a filter for the runs compared: thousands are sorted once
function queriesOf(filter) {
  const key = [filter.key, state.base, state.ours].join();
  if (!asked.has(key)) asked.set(key, filter.queries());
  return asked.get(key);
}
const offered = () => FILTERS.filter(filter => !(filter.pair && !several) && !filter.hidden?.());
const filterNow = () => FILTERS.find(filter => filter.key === state.filter);

// Queries as {item, crop}: crop is the place among the local queries, or -1 for the whole item.
function wantedQueries() {
  if (state.item !== null) return [{ item: state.item, crop: -1 }];
  const all = queriesOf(filterNow()).map((item, place) => ({ item, crop: state.filter === "local" ? place : -1 }));
  const wanted = state.wanted.trim().toLowerCase();
  return wanted ? all.filter(({ item }) => classes[labels[item]].toLowerCase().includes(wanted)) : all;
}

// A long name breaks after its signs rather than anywhere.
function breakable(name) {
  return name.split(/(?<=[/_.\- ])/).flatMap(part => [part, document.createElement("wbr")]);
}

function thumb(item, crop = -1) {
  const picture = pictureOf(item, crop);
  return picture ? element("img", { src: picture, alt: "" }) : element("span", { class: "id" }, element("span", {}, ...breakable(names[item])));
}

function hitButton(query, { item, cosine }, mark = "") {
  const right = labels[item] === labels[query];
  return element("button", {
    type: "button", class: `hit ${right ? "right" : "wrong"}`, "data-item": item, title: `${classes[labels[item]]} · ${names[item]}`,
    "aria-label": `${right ? "same class" : "other class"}: ${classes[labels[item]]}, ${names[item]}, cosine ${cosine.toFixed(2)}. Search with it.`,
    onclick: () => openItem(item),
  }, element("span", { class: "frame" }, thumb(item), element("span", { class: "mark", "aria-hidden": "true" }, mark || (right ? "✓" : "✗"))),
  element("span", { class: "name" }, classes[labels[item]]), element("span", { class: "cosine" }, cosine.toFixed(2)));
}

function runRow(run, query, hits) {
  const right = hits.length > 0 && labels[hits[0].item] === labels[query];
  const colour = element("span", { class: "dot", "aria-hidden": "true", style: `--dot: var(--series-${runs.indexOf(run) % 8})` });
  const verdict = element("span", { class: right ? "verdict right" : "verdict wrong" }, right ? "✓ right" : "✗ wrong");
  return element("div", { class: "row" }, element("p", { class: "run" }, colour, element("span", {}, run.name), verdict),
    element("div", { class: "hits" }, ...hits.map(hit => hitButton(query, hit))));
}

// An item that should have been found: the nearest of the class.
function truth(item) {
  const [other] = ours().positive(item);
  if (!other) return element("p", { class: "note" }, "There is no other item of this class.");
  return element("div", { class: "truth" }, element("p", { class: "run" }, "Should have been found"), element("div", { class: "hits" }, hitButton(item, other, "=")));
}

function card({ item, crop }) {
  const label = labels[item];
  const rows = compared().map(index => runs[index]).filter(run => crop < 0 || run.local)
    .map(run => runRow(run, item, crop < 0 ? run.neighbours(item) : run.local(crop)));
  const change = several && (state.filter === "improved") ? `Recall@1 of the class ${percent(base().per_class[label])} → ${percent(ours().per_class[label])}` : "";
  return element("article", { class: "card", "data-query": item, "aria-label": `Query ${names[item]}, ${classes[label]}` },
    element("div", { class: "query" }, element("span", { class: "frame" }, thumb(item, crop)),
      element("p", {}, element("strong", {}, classes[label]), element("span", { class: "name" }, crop < 0 ? names[item] : `part of ${names[item]}`),
        ...(change ? [element("span", { class: "change" }, change)] : [])), ...(crop < 0 && !ours().right[item] && !base().right[item] ? [truth(item)] : [])),
    element("div", { class: "rows" }, ...rows));
}

function showFilters() {
  $("filters").replaceChildren(...offered().map(filter => element("button", {
    type: "button", "data-filter": filter.key, "aria-pressed": String(state.item === null && filter.key === state.filter), onclick: () => choose({ filter: filter.key }),
  }, filter.name, element("span", { class: "count" }, queriesOf(filter).length.toLocaleString("en")))));
}

function showGallery() {
  const queries = wantedQueries(), pages = Math.max(1, Math.ceil(queries.length / EACH_PAGE));
  state.page = Math.min(state.page, pages - 1);
  const first = state.page * EACH_PAGE, these = queries.slice(first, first + EACH_PAGE);
  const held = document.activeElement?.dataset?.filter; // the pressed filter keeps the focus although it is made anew
  showFilters();
  if (held) document.querySelector(`[data-filter="${held}"]`)?.focus();
  $("filter-words").textContent = state.item === null ? filterNow().words() : "The item's own neighbours. Press a found item to go on from there.";
  $("status").textContent = state.item !== null ? `Neighbours of ${names[state.item]} (${classes[labels[state.item]]})`
    : queries.length ? `${first + 1}–${first + these.length} of ${counted(queries.length, "query", "queries")}${state.wanted.trim() ? ` in classes with “${state.wanted.trim()}”` : ""}`
      : `No query${state.wanted.trim() ? ` in classes with “${state.wanted.trim()}”` : ""}.`;
  $("cards").replaceChildren(...these.map(card));
  $("page-number").textContent = pages > 1 ? `page ${state.page + 1} of ${pages}` : "";
  for (const [id, off] of [["previous", state.page === 0], ["next", state.page === pages - 1]]) {
    $(id).disabled = off;
    $(id).hidden = pages === 1;
  }
  $("back").hidden = state.item === null;
}

function choose(change) {
  Object.assign(state, { page: 0, item: null }, change);
  showGallery();
}

function openItem(item) {
  choose({ item });
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  $("status").scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "center" });
}
