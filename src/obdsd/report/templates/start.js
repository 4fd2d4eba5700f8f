// Wiring: the gallery needs nothing but the page; plots wait for plotly, which comes compressed inside it.
const drawCompared = () => [drawMaps, drawDistances, drawPerClass, drawGradient, drawMatrices].forEach(draw => draw()); // what depends on the runs compared
const drawAll = () => [drawCompared, drawCurves, drawSpectrum, drawCost].forEach(draw => draw());

function dark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function themed() {
  $("theme").setAttribute("aria-pressed", String(dark()));
  colourChips();
  if (window.Plotly) drawAll();
}

function remembered(value) {
  try { // pages from the disk may have no memory
    if (value) localStorage.setItem("obdsd-theme", value);
    return localStorage.getItem("obdsd-theme");
  } catch {
    return null;
  }
}

$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  remembered(document.documentElement.dataset.theme);
  themed();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);

function compareAnew() {
  state.ours = Number($("ours").value);
  state.base = Number($("base").value);
  state.all = $("all-runs")?.checked ?? false;
  if (runs[state.ours].batch.matrices.length) $("batch-run").value = String(state.ours);
  choose({});
  if (window.Plotly) drawCompared();
}
if (several) {
  $("compare").addEventListener("change", compareAnew);
  $("compare").addEventListener("submit", event => event.preventDefault());
  $("batch-run")?.addEventListener("change", () => window.Plotly && drawMatrices());
}
$("difference")?.addEventListener("change", () => window.Plotly && drawMatrices());

$("class-names").replaceChildren(...classes.map(name => element("option", { value: name })));
$("class-search").addEventListener("input", event => choose({ wanted: event.target.value }));
$("previous").addEventListener("click", () => turn(-1));
$("next").addEventListener("click", () => turn(1));
$("back").addEventListener("click", () => choose({}));

function turn(step) {
  state.page += step;
  showGallery();
  $("status").scrollIntoView({ block: "start" });
}

const kept = remembered();
if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
makeChips();
themed();
showGallery();

async function loadPlotly() {
  if (!window.DecompressionStream) throw new Error("this browser is from before 2023");
  const stream = new Blob([bytes($("plotly").textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

loadPlotly().then(drawAll).then(() => { document.documentElement.dataset.ready = "yes"; }, reason => {
  $("trouble").textContent = `The plots cannot be drawn: ${reason.message}. Tables and gallery are complete.`;
  $("trouble").hidden = false;
  console.error(reason);
});
