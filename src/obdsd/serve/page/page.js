"use strict";
// Whatever comes from the index or from a file is put on the page as text, never as HTML.
const $ = id => document.getElementById(id);
let facts = null, file = null, preview = "", asking = null;

async function begin() {
  facts = await answer(await fetch("/api/index"));
  document.title = `Search ${facts.name}`;
  $("name").textContent = facts.name;
  const labels = Object.keys(facts.labels), many = number => number.toLocaleString("en");
  $("facts").textContent = `${many(facts.items)} items${labels.length ? ` of ${many(labels.length)} labels` : ""}, by ${facts.model}`;
  $("labels").replaceChildren(...labels.map(label => made("option", { value: label })));
  $("only").hidden = !labels.length;
  $("again").hidden = facts.rerank === null;
  $("reranker").textContent = facts.rerank || "";
  if (facts.threshold !== null) $("threshold").placeholder = facts.threshold.toFixed(3);
  if (!facts.takes_images) {
    $("drop").hidden = true;
    $("title").textContent = "What is near to this item?";
    say("The model of this index knows no images. Add #item=NAME to the address to search for an item.");
  }
  document.documentElement.dataset.ready = "yes";
  search();
}

/** What the server answers; a refusal is thrown with its one line. */
async function answer(response) {
  const body = await response.json().catch(() => ({ detail: `the server answers with status ${response.status}` }));
  if (!response.ok) throw new Error(body.detail);
  return body;
}

function say(words, wrong = false) {
  $("status").textContent = words;
  $("status").classList.toggle("wrong", wrong);
}

function made(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** The item that the address asks for, or null. */
function item() {
  const found = location.hash.match(/^#item=(.*)$/);
  try { return found && decodeURIComponent(found[1]); } catch { return null; }
}

function take(given) {
  if (!given) return say("There was no image file in it.", true);
  if (given.size > facts.max_bytes)
    return say(`${given.name} has ${(given.size / 1e6).toFixed(1)} MB, more than the ${facts.max_bytes / 1e6} MB that are taken.`, true);
  file = given;
  URL.revokeObjectURL(preview);
  preview = URL.createObjectURL(file);
  if (item() === null) search(); else location.hash = "";  // which searches
}

/** Ask for the item of the address, else for the image that was given; an earlier search that is under way is dropped. */
async function search() {
  const name = item();
  if (!facts || (name === null && file === null)) return void ($("results").hidden = true);
  asking?.abort();
  const own = asking = new AbortController(), form = new FormData();
  if (name === null) form.append("image", file, file.name || "pasted image"); else form.append("item", name);
  form.append("k", $("k").value);
  form.append("rerank", $("rerank").checked);
  form.append("within", $("within").value);
  form.append("threshold", $("threshold").value);
  $("results").ariaBusy = "true";
  say("Searching …");
  try {
    show(await answer(await fetch("/api/search", { method: "POST", body: form, signal: own.signal })), name === null ? preview : null);
  } catch (fault) {
    if (own.signal.aborted) return;
    $("results").hidden = true;
    say(fault instanceof TypeError ? "The server does not answer; is it running?" : fault.message, true);
  } finally {
    if (own === asking) $("results").ariaBusy = "false";
  }
}

function show(answered, own) {
  const image = own || answered.image;
  $("preview").hidden = !image;
  $("preview").nextElementSibling.hidden = Boolean(image);
  if (image) Object.assign($("preview"), { src: image, alt: answered.query });
  $("query").textContent = answered.query;
  $("label").textContent = answered.label ?? "";
  $("verdict").textContent = verdict(answered);
  $("anyway").hidden = !answered.nothing_alike || answered.most_alike === null;
  $("found").replaceChildren(...answered.found.map(hit => card(hit, answered.rerank !== null)));
  $("results").hidden = false;
  const how = `${answered.rerank ? `, re-ranked by ${answered.rerank}` : ""}${answered.within === null ? "" : `, only ${answered.within}`}`;
  say(`${answered.found.length} found for ${answered.query}${how}, in ${answered.seconds.toFixed(2)} s.`);
}

function verdict({ nothing_alike, most_alike, threshold }) {
  if (most_alike === null) return "Nothing alike: there is no other item.";
  const nearest = most_alike.toFixed(3);
  if (nothing_alike) return `Nothing alike: the nearest item has ${nearest}, less than ${threshold.toFixed(3)}.`;
  if (threshold !== null) return `Something alike: the nearest item has ${nearest}, at least ${threshold.toFixed(3)}.`;
  return `The nearest item has ${nearest}. (obdsd calibrate measures from which similarity on that is alike enough.)`;
}

/** A found item, which searches in its turn. */
function card(hit, reranked) {
  const caption = made("span", { className: "caption" }, made("strong", { textContent: hit.similarity.toFixed(3) }));
  if (hit.label !== null) caption.append(` ${hit.label}`);
  caption.append(made("span", { textContent: hit.name }));
  if (reranked) caption.append(made("span", { textContent: `score ${hit.score.toPrecision(4)}` }));
  return made("li", {}, made("a", { href: `#item=${encodeURIComponent(hit.name)}`, title: "Search for this one" }, picture(hit), caption));
}

function picture(hit) {
  const none = () => made("div", { className: "none", textContent: "no picture" });
  if (hit.image === null) return none();
  const image = made("img", { src: hit.image, alt: hit.name, loading: "lazy" });
  image.addEventListener("error", () => image.replaceWith(none()));
  return image;
}

$("pick").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { if ($("file").files.length) take($("file").files[0]); $("file").value = ""; });
$("preview").addEventListener("error", () => { $("preview").hidden = true; $("preview").nextElementSibling.hidden = false; });
$("options").addEventListener("change", search);
$("options").addEventListener("submit", event => { event.preventDefault(); search(); });
$("anyway").addEventListener("click", () => { $("threshold").value = -1; search(); $("status").focus(); });
addEventListener("hashchange", () => { $("status").focus({ preventScroll: true }); scrollTo(0, 0); search(); });
addEventListener("paste", event => {
  if (event.clipboardData.files.length) { event.preventDefault(); take(event.clipboardData.files[0]); }
});
for (const kind of ["dragover", "dragleave", "drop"]) addEventListener(kind, event => {
  event.preventDefault();
  $("drop").classList.toggle("over", kind === "dragover");
  if (kind === "drop") take(event.dataTransfer.files[0]);
});
begin().catch(fault => say(fault instanceof TypeError ? "The server does not answer; is it running?" : fault.message, true));
