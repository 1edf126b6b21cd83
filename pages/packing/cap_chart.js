// Tokens over original tokens for each cap: lines per packer, one upright line at the cap of now.

const HEIGHT = 300;
const LEFT = 66, RIGHT = 12, TOP = 10, BOTTOM = 42;
const DASHES = { solid: [], dash: [8, 5], dot: [2, 4], dashdot: [8, 4, 2, 4] };
const ON_DARK = { "#0072B2": "#56B4E9" }; // too dark there
const LABEL_ROOM = 110;
const WIDE = 5; // values further apart than this need a logarithmic axis to be told apart

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".chart");
  const canvas = root.querySelector("canvas");
  const tip = root.querySelector(".tip");
  const legend = root.querySelector(".legend");
  canvas.setAttribute("aria-label", data.label);

  const known = data.series.flatMap((s) => s.caps);
  const low = Math.min(data.low, ...known), high = Math.max(data.high, ...known);
  const values = data.series.flatMap((s) => [...s.paid, ...(s.tree || [])]);
  const axis = valueAxis(Math.min(1, ...values), Math.max(1.02, ...values));
  let width = 1;
  const inner = () => Math.max(width - LEFT - RIGHT, 1);
  const span = Math.log(high / low) || 1;
  const x = (cap) => LEFT + (Math.log(cap / low) / span) * inner();
  const y = (value) => TOP + (1 - axis.part(value)) * (HEIGHT - TOP - BOTTOM);
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
    const colorOf = (s) => (theme.mode === "dark" && ON_DARK[s.color]) || s.color;
    drawLegend(legend, data.series, colorOf);
    g.font = "12px " + theme.font;
    drawAxes(g, theme);
    for (const s of data.series) {
      g.strokeStyle = colorOf(s);
      drawLine(g, s, s.paid, 2.5);
      if (s.tree) drawLine(g, s, s.tree, 1);
    }
    drawCap(g, theme);
    root.dataset.cap = data.cap;
  }

  function drawAxes(g, theme) {
    g.fillStyle = theme.text;
    g.strokeStyle = theme.text;
    g.lineWidth = 1;
    g.textBaseline = "middle";
    g.textAlign = "right";
    for (const value of axis.ticks) {
      line(g, LEFT, y(value), width - RIGHT, y(value), 0.14);
      g.fillText(value.toFixed(2), LEFT - 8, y(value));
    }
    g.setLineDash([2, 3]);
    line(g, LEFT, y(1), width - RIGHT, y(1), 0.7); // what the rows themselves have
    g.setLineDash([]);
    g.textAlign = "center";
    const first = Math.ceil(Math.log2(low)), last = Math.floor(Math.log2(high));
    for (let n = first; n <= last; n++) {
      line(g, x(2 ** n), TOP, x(2 ** n), HEIGHT - BOTTOM, 0.14);
      g.fillText(counted(2 ** n), x(2 ** n), HEIGHT - BOTTOM + 13);
    }
    g.fillText("max_tokens_per_mb", LEFT + inner() / 2, HEIGHT - 9);
    g.save();
    g.translate(9, TOP + (HEIGHT - TOP - BOTTOM) / 2);
    g.rotate(-Math.PI / 2);
    g.fillText("tokens ÷ original tokens", 0, 0);
    g.restore();
  }

  function drawLine(g, s, heights, thickness) {
    g.lineWidth = thickness;
    g.setLineDash(DASHES[s.dash]);
    g.beginPath();
    heights.forEach((value, i) => g.lineTo(x(s.caps[i]), y(value)));
    g.stroke();
    g.setLineDash([]);
  }

  function drawCap(g, theme) {
    const at = x(data.cap);
    g.strokeStyle = RED;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(at, TOP);
    g.lineTo(at, HEIGHT - BOTTOM);
    g.stroke();
    g.fillStyle = theme.text;
    const leftOf = at + LABEL_ROOM > width;
    g.textAlign = leftOf ? "right" : "left";
    g.fillText(`now ${counted(data.cap)}`, at + (leftOf ? -5 : 5), TOP + 7);
  }

  canvas.onmousemove = (event) => {
    const cap = capAt(event.offsetX);
    const lines = data.series.map((s) => {
      const i = nearest(s.caps, cap);
      const trees = s.trees[i] ? ` · ${counted(s.trees[i])} trees` : "";
      const tree = s.tree ? ` · tree_token_ratio ${s.tree[i].toFixed(3)}` : "";
      return `${s.name}: ${s.paid[i].toFixed(3)} paid${tree}${trees} (at ${counted(s.caps[i])})`;
    });
    const words = [`${counted(cap)}: click to choose it`, ...lines].join("\n");
    showTip(tip, words, event.offsetX, Math.min(event.offsetY, HEIGHT / 2), width);
  };
  canvas.onmouseleave = () => showTip(tip, "");
  canvas.onclick = (event) => setTriggerValue("picked", capAt(event.offsetX));

  const stop = keepDrawn(root, canvas, draw);
  draw();
  return stop;
}

function line(g, x0, y0, x1, y1, alpha) {
  g.globalAlpha = alpha;
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
  g.globalAlpha = 1;
}

// From 0 in even steps, or logarithmic in steps of 1, 2, 5 where the values lie far apart.
function valueAxis(least, most) {
  if (least <= 0 || most / least < WIDE) {
    const unit = 10 ** Math.floor(Math.log10(most));
    const top = [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].map((n) => n * unit).find((n) => n >= most);
    return { part: (value) => value / top, ticks: [0, 1, 2, 3, 4].map((i) => (top * i) / 4) };
  }
  const ticks = [];
  for (let n = Math.floor(Math.log10(least)); n <= Math.ceil(Math.log10(most)); n++) {
    ticks.push(...[1, 2, 5].map((step) => step * 10 ** n));
  }
  const bottom = ticks.findLast((t) => t <= least), top = ticks.find((t) => t >= most);
  return {
    part: (value) => Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom),
    ticks: ticks.filter((t) => t >= bottom && t <= top),
  };
}

function nearest(caps, cap) {
  let best = 0;
  for (let i = 1; i < caps.length; i++) {
    if (Math.abs(caps[i] - cap) < Math.abs(caps[best] - cap)) best = i;
  }
  return best;
}

function drawLegend(legend, series, colorOf) {
  const sign = series.map((s) => s.name + colorOf(s)).join();
  if (legend.dataset.sign === sign) return;
  legend.dataset.sign = sign;
  const entry = (color, dash, thickness, words) => {
    const span = document.createElement("span");
    span.innerHTML =
      `<svg viewBox="0 0 30 10"><line x1="0" y1="5" x2="30" y2="5" stroke="${color}" `
      + `stroke-width="${thickness}" stroke-dasharray="${DASHES[dash].join(" ")}"/></svg>`;
    span.append(words);
    return span;
  };
  legend.replaceChildren(
    ...series.map((s) => entry(colorOf(s), s.dash, 2.5, `${s.name}: paid`)),
    ...series.filter((s) => s.tree)
      .map((s) => entry(colorOf(s), s.dash, 1, `${s.name}: tree_token_ratio`)),
  );
}
