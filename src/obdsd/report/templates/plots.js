// Plots other than the map. Colours come from the style sheet, so that both themes have their own.
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const series = index => css(`--series-${index % 8}`);
const byFinger = matchMedia("(pointer: coarse)").matches; // a finger on a plot scrolls the page
const DASHES = ["solid", "dash", "dashdot", "longdash", "longdashdot"];
const MARKS = ["circle", "diamond", "square", "triangle-up", "cross", "x", "star"];

// Plotly reads tags in texts; names must be shown as they are.
const plain = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const short = (text, length) => plain(text.length > length ? `${text.slice(0, length - 1)}…` : text);

function layout(x, y, more = {}) {
  const axis = title => ({
    title: { text: title, standoff: 8 }, gridcolor: css("--line"), linecolor: css("--line"), zeroline: false, automargin: true, ticks: "",
    exponentformat: "power", // 6×10⁻⁴, not 600µ
  });
  return {
    autosize: true, height: 290, margin: { l: 52, r: 12, t: 8, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: css("--font"), size: 12, color: css("--ink") },
    hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--line"), font: { color: css("--ink"), family: css("--font") }, namelength: 40 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--accent"), orientation: "h" },
    showlegend: several, hovermode: "closest", dragmode: byFinger ? false : "zoom", ...more,
    xaxis: { ...axis(x), ...more.xaxis }, yaxis: { ...axis(y), ...more.yaxis },
  };
}

const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false };

// Without a line there is nothing to draw: axes alone would show numbers that nobody measured.
function draw(id, traces, how) {
  const empty = !traces.some(({ x, z }) => (z ?? x).length);
  $(id).hidden = empty;
  if (!empty) Plotly.react(id, traces, how, CONFIG);
}

// From 0 on, unless something lies below it; where all is 0, up to 1.
const fromZero = traces => ({ rangemode: traces.some(({ y }) => y.some(value => value < 0)) ? "normal" : "nonnegative" });

function line(run, x, y, more = {}) {
  return {
    type: "scatter", mode: "lines", name: short(runs[run].name, 40), x, y,
    line: { color: series(run), dash: DASHES[Math.floor(run / 8) % DASHES.length], width: 2 },
    marker: { color: series(run), symbol: MARKS[run % MARKS.length], size: 6 }, ...more,
  };
}

function drawCurves() {
  content.curves.forEach(({ lines }, place) => {
    const traces = lines.flatMap((points, run) => {
      if (!points.length) return [];
      const mode = points.length <= 40 ? "lines+markers" : "lines";
      return [line(run, points.map(point => point[0]), points.map(point => point[1]), { mode, hovertemplate: "epoch %{x}: %{y:.4g}" })];
    });
    const last = Math.max(...traces.flatMap(trace => trace.x));
    draw(`curve-${place}`, traces, layout("epoch", "", { xaxis: { rangemode: "tozero", tickformat: "d", dtick: last <= 10 ? 1 : null }, yaxis: fromZero(traces) }));
  });
}

function drawSpectrum() {
  const traces = runs.map((run, index) => line(index, run.geometry.spectrum.map((_, i) => i + 1), run.geometry.spectrum, { hovertemplate: "direction %{x}: %{y:.3g}" }));
  const positive = runs.flatMap(run => run.geometry.spectrum.filter(value => value > 0));
  const decades = Math.max(...positive) > 100 * Math.min(...positive); // of fewer the ticks would be too few
  draw("spectrum", traces, layout("direction", "share", { yaxis: { type: "log", tickformat: "~g", dtick: decades ? 1 : "D2" } }));
}

// Two lines a run: solid for pairs of one class, dotted for pairs of different classes; the legend names the run once.
function pairLines(kind, template) {
  return compared().filter(run => runs[run].geometry[kind]).flatMap(run => {
    const { centres, same, different } = runs[run].geometry[kind], more = { legendgroup: String(run) };
    return [
      line(run, centres, same, { ...more, hovertemplate: `same class, ${template}` }),
      line(run, centres, different, { ...more, showlegend: false, hovertemplate: `different classes, ${template}` }),
    ];
  }).map((trace, index) => ({ ...trace, line: { ...trace.line, dash: index % 2 ? "dot" : "solid" } }));
}

// Where there is anything to see.
function span(traces) {
  const most = Math.max(...traces.flatMap(trace => trace.y));
  const there = traces.flatMap(trace => trace.x.filter((_, i) => trace.y[i] > 0.002 * most));
  return there.length ? [Math.min(...there), Math.max(...there)] : null;
}

function drawPairs(id, traces, x, y) {
  draw(id, traces, layout(x, y, { xaxis: { range: span(traces) }, yaxis: { tickformat: ".0%", rangemode: "tozero" } }));
}

function drawDistances() {
  drawPairs("distances", pairLines("distances", "distance %{x:.2f}: %{y:.1%} of pairs"), "cosine distance", "share of pairs");
}

function drawGradient() {
  if (!$("gradient")) return; // nobody taught
  const traces = pairLines("gradient", "cosine %{x:.2f}: %{y:.1%}");
  $("gradient-words").hidden = traces.length > 0;
  drawPairs("gradient", traces, "cosine of the pair", "share of the gradient");
}

function drawPerClass() {
  const recall = runs[state.base].per_class; // none for classes that are on the map but not scored
  const order = classes.map((_, c) => c).filter(c => recall[c] !== null).sort((a, b) => recall[a] - recall[b] || a - b);
  const x = order.map((_, place) => place);
  const traces = [...new Set([state.base, state.ours])].map((run, place) => ({
    type: "scatter", mode: "markers", name: short(runs[run].name, 40), x, y: order.map(c => runs[run].per_class[c]),
    text: order.map(c => plain(classes[c])), hovertemplate: "%{text}: %{y:.1%}",
    marker: { color: series(run), symbol: place ? "diamond" : several ? "circle-open" : "circle", size: order.length > 50 ? 6 : 8, line: { width: place ? 0 : 2 } },
  }));
  const most = Math.max(...traces.flatMap(trace => trace.y)) || 1;
  const few = order.length <= 24;
  const ticks = few ? { tickvals: x, ticktext: order.map(c => short(classes[c], 16)), tickangle: -45 } : { showticklabels: false };
  const title = few ? "" : `${order.length} classes, hardest first`;
  draw("per-class", traces, layout(title, "Recall@1", { xaxis: { ...ticks, showgrid: few }, yaxis: { tickformat: ".0%", range: [-0.04 * most, 1.06 * most] } }));
}

function drawCost() {
  const measured = runs.filter(run => run.cost);
  const teacher = cost => cost.teacher ?? 0, targets = cost => cost.targets ?? 0;
  const taught = runs.some(run => run.taught);
  const parts = taught ? [["the rest of the step", cost => 1 - teacher(cost) - targets(cost), 7], ["teacher", teacher, 0], ["targets", targets, 1]] : [["the step", () => 1, 7]];
  const traces = parts.map(([name, share, colour], place) => ({
    type: "bar", orientation: "h", name, y: measured.map(run => short(run.name, 28)), x: measured.map(run => run.cost.seconds * share(run.cost)),
    marker: { color: series(colour), pattern: { shape: ["", "/", "x"][place], fillmode: "overlay", fgcolor: css("--paper"), fgopacity: 0.6, size: 7, solidity: 0.2 } }, hovertemplate: "%{x:.3g} s",
  }));
  const height = 110 + 34 * measured.length;
  draw("cost-plot", traces, layout("seconds per step", "", { barmode: "stack", showlegend: taught, height, yaxis: { type: "category", autorange: "reversed", showgrid: false } }));
}
