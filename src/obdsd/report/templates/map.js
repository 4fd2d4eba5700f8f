// The map of each run compared, in the same colours and shapes, and the list of classes that picks one out.
const SHAPES = [["circle", "●"], ["square", "■"], ["diamond", "◆"], ["cross", "✚"], ["x", "✖"], ["triangle-up", "▲"], ["star", "★"]];
const MAPS = 4; // a browser gives a page a handful of drawing surfaces only
const shape = label => SHAPES[label % SHAPES.length];
const classColour = label => series(label);

function hasWebGL() {
  try {
    return Boolean(document.createElement("canvas").getContext("webgl"));
  } catch {
    return false;
  }
}
const pointKind = hasWebGL() ? "scattergl" : "scatter";

function makeMaps() {
  const wanted = compared().slice(0, MAPS);
  const boxes = $("maps");
  if (boxes.dataset.runs === wanted.join()) return wanted;
  boxes.querySelectorAll(".plot").forEach(box => Plotly.purge(box));
  boxes.dataset.runs = wanted.join();
  boxes.replaceChildren(...wanted.map((run, place) => element("figure", {},
    element("h3", {}, several ? runs[run].name : "All items shown"),
    element("div", { class: "plot", id: `map-${place}`, role: "img", "aria-label": `Map of ${shown.length} items by ${runs[run].name}` }))));
  return wanted;
}

function drawMaps() {
  const fresh = $("maps").dataset.runs !== compared().slice(0, MAPS).join();
  const size = shown.length > 3000 ? 5 : shown.length > 600 ? 6 : 8;
  const axis = { showticklabels: false, showgrid: false, title: { text: "" }, automargin: false, showline: true, mirror: true };
  makeMaps().forEach((run, place) => {
    const box = $(`map-${place}`);
    const picked = shown.map(item => state.picked === null || labels[item] === state.picked);
    const trace = {
      type: pointKind, mode: "markers", x: runs[run].map.map(place => place[0]), y: runs[run].map.map(place => place[1]), hoverinfo: "none",
      marker: {
        size, opacity: picked.map(yes => (yes ? 0.85 : 0.07)), line: { width: 0 },
        color: shown.map(item => classColour(labels[item])), symbol: shown.map(item => shape(labels[item])[0]),
      },
    };
    const how = layout("", "", {
      height: null, margin: { l: 2, r: 2, t: 30, b: 2 }, showlegend: false, uirevision: "kept", xaxis: axis, yaxis: axis,
    });
    Plotly.react(box, [trace], how, { ...CONFIG, displayModeBar: true, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] });
    if (!fresh) return;
    box.on("plotly_hover", event => showTip(shown[event.points[0].pointNumber], event.event));
    box.on("plotly_unhover", hideTip);
    box.on("plotly_click", event => { hideTip(); openItem(shown[event.points[0].pointNumber]); });
  });
}

function showTip(item, { clientX, clientY }) {
  const tip = $("tip"), picture = pictureOf(item);
  tip.replaceChildren(
    ...(picture ? [element("img", { src: picture, alt: "" })] : []),
    element("strong", {}, classes[labels[item]]), element("span", {}, names[item]));
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(4, Math.min(clientX + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${clientY + 18 + height > innerHeight ? Math.max(4, clientY - height - 12) : clientY + 18}px`;
}

function hideTip() {
  $("tip").hidden = true;
}

function makeChips() {
  const there = [...new Set(shown.map(item => labels[item]))].sort((a, b) => a - b);
  $("chips").replaceChildren(...there.map(label => element("button", {
    type: "button", class: "chip", "aria-pressed": "false", "data-label": label,
    onclick: () => pick(state.picked === label ? null : label),
  }, element("span", { class: "glyph", "aria-hidden": "true" }, shape(label)[1]), classes[label])));
}

function colourChips() {
  document.querySelectorAll(".chip").forEach(chip => {
    chip.querySelector(".glyph").style.color = classColour(Number(chip.dataset.label));
    chip.setAttribute("aria-pressed", String(state.picked === Number(chip.dataset.label)));
  });
}

function pick(label) {
  state.picked = label;
  colourChips();
  if (window.Plotly) drawMaps();
}
