// The batch's matrices as heat maps; targets also as their difference to those without diffusion.
const LINES = 16; // more classes than this, and the lines between them would hide what they part

function minus(rows, others) {
  return rows.map((row, i) => row.map((value, j) => value - others[i][j]));
}

// From the least to nearly the greatest of the pairs of different items; a difference spans as much below nothing as above.
function limits(rows, difference) {
  const values = rows.flatMap((row, i) => row.filter((_, j) => i !== j)).map(value => (difference ? Math.abs(value) : value));
  values.sort((a, b) => a - b);
  const most = values.length ? values[Math.floor(0.99 * (values.length - 1))] : 1;
  return difference ? [-most, most] : [values[0] ?? 0, most];
}

function classLines(rows) {
  const edges = rows.map((name, i) => (i && name !== rows[i - 1] ? i - 0.5 : null)).filter(edge => edge !== null);
  if (edges.length >= LINES) return [];
  const line = { width: 1, color: "rgba(150,150,150,.8)" }, end = rows.length - 0.5;
  return edges.flatMap(edge => [
    { type: "line", x0: edge, x1: edge, y0: -0.5, y1: end, line }, { type: "line", x0: -0.5, x1: end, y0: edge, y1: edge, line },
  ]);
}

// Blue below, orange above, the page's own colour between: told apart by all eyes.
const diverging = () => [[0, series(0)], [0.5, css("--paper")], [1, series(1)]];

function makeMatrices(matrices) {
  const box = $("matrices");
  box.querySelectorAll(".plot").forEach(plot => Plotly.purge(plot));
  box.replaceChildren(...matrices.map(({ title, sentence }, place) => element("figure", {},
    element("h3", {}, title),
    element("div", { class: "plot", id: `matrix-${place}`, role: "img", "aria-label": `${title}, as a heat map` }),
    element("figcaption", {}, sentence))));
}

function drawMatrices() {
  if (!$("matrices")) return; // nobody taught
  const run = runs[Number($("batch-run")?.value ?? 0)];
  const { matrices, classes: rows, which } = run.batch;
  $("batch-words").textContent = `${run.name}: ${which}, ${counted(rows.length, "item")} of ${counted(new Set(rows).size, "class", "classes")}.`;
  if ($("matrices").dataset.run !== run.name) makeMatrices(matrices);
  $("matrices").dataset.run = run.name;
  const ticks = rows.map((name, i) => `${i + 1} ${plain(name)}`), shapes = classLines(rows);
  const targets = matrices.find(({ kind }) => kind === "targets");
  matrices.forEach((own, place) => {
    const difference = Boolean($("difference")?.checked && targets && own.kind === "refined");
    const values = unpack(own.values), z = difference ? minus(values, unpack(targets.values)) : values;
    const [zmin, zmax] = limits(z, difference);
    const axis = { type: "category", showticklabels: false, showgrid: false, automargin: false, constrain: "domain" };
    draw(`matrix-${place}`, [{
      type: "heatmap", z, x: ticks, y: ticks, zmin, zmax, colorscale: difference ? diverging() : "Cividis",
      hovertemplate: "%{y}<br>%{x}<br>%{z:.4g}<extra></extra>",
      colorbar: { thickness: 10, outlinewidth: 0, len: 0.9, tickfont: { size: 11 }, nticks: 5, tickformat: "~g" },
    }], layout("", "", { height: 300, margin: { l: 4, r: 4, t: 4, b: 4 }, shapes, xaxis: axis, yaxis: { ...axis, autorange: "reversed", scaleanchor: "x" } }));
  });
}
