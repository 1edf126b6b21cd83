// Tokens over original tokens for each cap: lines per packer, one upright line at the cap of now.
// What is joined with what is decided before (figures/chart.py): lines come as points, null breaks.

const HEIGHT = 300;
const LEFT = 66, RIGHT = 12, TOP = 20, BOTTOM = 42;
const DASHES = { solid: [], dash: [8, 5], dot: [2, 4], dashdot: [8, 4, 2, 4] };
const LABEL_ROOM = 110, LABEL_HEIGHT = 14;

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const { root, part: find, canvas, tip } = partsOf(parentElement, "chart");
  canvas.setAttribute("aria-label", data.label);

  const [low, high] = data.axis;
  let width = 1, dark = 0;
  const inner = () => Math.max(width - LEFT - RIGHT, 1);
  const span = Math.log(high / low) || 1;
  const x = (cap) => LEFT + (Math.log(cap / low) / span) * inner();
  const { bottom, top } = data; // logarithmic from a bottom above 0
  const part = (value) => bottom > 0
    ? Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom) : value / top;
  const y = (value) => TOP + (1 - part(value)) * (HEIGHT - TOP - BOTTOM);
  const capAt = (px) => {
    const cap = low * Math.exp(((px - LEFT) / inner()) * span);
    const aligned = Math.round(cap / data.step) * data.step;
    return Math.min(Math.max(aligned, data.low), data.high);
  };

  function draw() {
    width = canvas.clientWidth;
    if (!width) return;
    const g = cleared(canvas, HEIGHT);
    const theme = themeOf(root);
    dark = theme.mode === "dark" ? 1 : 0;
    drawLegend(find(".legend"), data.series, dark);
    g.font = "12px " + theme.font;
    drawAxes(g, theme);
    for (const s of data.series) {
      g.strokeStyle = g.fillStyle = s.colors[dark];
      drawLine(g, s);
      s.caps.forEach((cap, i) => dot(g, x(cap), y(s.values[i]), s.width - 0.3).fill());
    }
    drawNow(g, theme);
    root.dataset.cap = data.cap;
  }

  function drawAxes(g, theme) {
    g.fillStyle = theme.text;
    g.strokeStyle = theme.text;
    g.lineWidth = 1;
    g.textBaseline = "middle";
    g.textAlign = "right";
    for (const [value, text] of data.ticks) {
      line(g, LEFT, y(value), width - RIGHT, y(value), 0.14);
      g.fillText(text, LEFT - 8, y(value));
    }
    g.setLineDash([2, 3]);
    line(g, LEFT, y(1), width - RIGHT, y(1), 0.7); // what the rows themselves have
    g.setLineDash([]);
    g.textAlign = "center";
    for (const [cap, text] of data.cap_ticks) {
      line(g, x(cap), TOP, x(cap), HEIGHT - BOTTOM, 0.14);
      g.fillText(text, x(cap), HEIGHT - BOTTOM + 13);
    }
    g.fillText("max_tokens_per_mb (log scale)", LEFT + inner() / 2, HEIGHT - 9);
    g.save();
    g.translate(9, TOP + (HEIGHT - TOP - BOTTOM) / 2);
    g.rotate(-Math.PI / 2);
    g.fillText(`tokens ÷ original tokens${data.bottom > 0 ? " (log scale)" : ""}`, 0, 0);
    g.restore();
  }

  function drawLine(g, s) {
    g.lineWidth = s.width;
    g.setLineDash(DASHES[s.dash]);
    g.beginPath();
    let down = false;
    for (const [cap, value] of s.line) {
      if (value !== null) g[down ? "lineTo" : "moveTo"](x(cap), y(value));
      down = value !== null;
    }
    g.stroke();
    g.setLineDash([]);
  }

  // The upright line, and what is paid there on every curve that was counted there.
  function drawNow(g, theme) {
    const at = x(data.cap), leftOf = at + LABEL_ROOM > width;
    g.strokeStyle = data.red[dark];
    g.lineWidth = 1.5;
    line(g, at, TOP, at, HEIGHT - BOTTOM, 1);
    g.textAlign = leftOf ? "right" : "left";
    const side = leftOf ? -9 : 9;
    g.fillStyle = theme.text;
    g.fillText(`now ${counted(data.cap)}`, at + side, TOP - 8);
    const here = data.series
      .map((s) => ({ s, value: s.values[s.caps.indexOf(data.cap)] }))
      .filter(({ s, value }) => s.trees[0] && value !== undefined) // what trees pay
      .sort((a, b) => b.value - a.value);
    let above = TOP, last = "";
    for (const { s, value } of here) {
      g.strokeStyle = s.colors[dark];
      g.lineWidth = 2.5;
      dot(g, at, y(value), 6).stroke();
      const text = value.toFixed(3);
      if (text === last) continue; // one number for what is drawn as one point
      last = text;
      above = Math.max(y(value) - 12, above + LABEL_HEIGHT);
      g.strokeStyle = theme.background; // the number stays legible on a curve
      g.lineWidth = 3;
      g.strokeText(text, at + side, above);
      g.fillText(text, at + side, above);
    }
  }

  canvas.onmousemove = (event) => {
    const cap = capAt(event.offsetX);
    const lines = data.series.map((s) => {
      const i = nearest(s.caps, cap), trees = s.trees[i] ? ` · ${many(s.trees[i], "tree")}` : "";
      return `${s.name} ${s.values[i].toFixed(3)}${trees} (at ${counted(s.caps[i])})`;
    });
    const words = [`${counted(cap)}: click to choose it`, ...lines].join("\n");
    showTip(tip, words, event.offsetX, Math.min(event.offsetY, HEIGHT / 2), width);
  };
  canvas.onmouseleave = () => showTip(tip, "");
  canvas.onclick = (event) => setTriggerValue("picked", capAt(event.offsetX));
  return keepDrawn(root, canvas, draw);
}

function nearest(caps, cap) {
  let best = 0;
  for (let i = 1; i < caps.length; i++) {
    if (Math.abs(caps[i] - cap) < Math.abs(caps[best] - cap)) best = i;
  }
  return best;
}

function drawLegend(legend, series, dark) {
  const sign = series.map((s) => s.name + s.colors[dark]).join();
  if (legend.dataset.sign === sign) return;
  legend.dataset.sign = sign;
  legend.replaceChildren(...series.map((s) => {
    const span = document.createElement("span");
    span.innerHTML =
      `<svg viewBox="0 0 30 10"><line x1="0" y1="5" x2="30" y2="5" stroke="${s.colors[dark]}" `
      + `stroke-width="${s.width}" stroke-dasharray="${DASHES[s.dash].join(" ")}"/></svg>`;
    span.append(s.name);
    return span;
  }));
}
