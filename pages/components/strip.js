// The packed strip. One canvas: what is narrower than a pixel is merged, so that zooming over
// 50,000 nodes costs a scan of typed arrays and a few hundred rectangles.

const TRUNK = ["#0b5d4f", "#14806a", "#3b9e83", "#6fb99f", "#a3d2bd", "#c9e4d6"];
const LANES = 14;
const AXIS = 18;
const HEIGHT = 190;

function decode(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Kind(bytes.buffer);
}

function niceStep(span, ticks) {
  const raw = span / ticks;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= raw) || raw;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".strip");
  const canvas = root.querySelector("canvas");
  const tip = root.querySelector(".tip");
  const css = getComputedStyle(root);
  const color = (name) => css.getPropertyValue(name).trim();
  canvas.setAttribute("aria-label", data.label);

  const start = decode(data.start, Int32Array);
  const end = decode(data.end, Int32Array);
  const reach = decode(data.reach, Int32Array);
  const level = decode(data.level, Uint16Array);
  const rows = decode(data.rows, Int32Array);
  const count = start.length;
  const used = count ? end[count - 1] : 0;
  const deepest = level.reduce((a, b) => Math.max(a, b), 0);
  const lanes = Math.max(Math.min(deepest + 1, LANES), 1);
  const laneOf = (i) => Math.min(level[i], lanes - 1);
  const highlighted = new Set(data.highlight);

  // The window survives reruns of the same tree; another tree starts with all of it.
  const same = root.dataset.tree === data.start;
  root.dataset.tree = data.start;
  let x0 = data.window ? data.window[0] : 0;
  let x1 = data.window ? data.window[1] : data.cap;
  if (same && root.view) [x0, x1] = root.view;

  const scale = () => canvas.clientWidth / (x1 - x0);
  const laneHeight = () => (HEIGHT - AXIS) / lanes;

  function draw() {
    const began = performance.now();
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    if (!width) return;
    canvas.width = width * ratio;
    canvas.height = HEIGHT * ratio;
    canvas.style.height = HEIGHT + "px";
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, HEIGHT);
    const s = scale();
    const h = laneHeight();
    const text = color("--st-text-color");
    drawPadding(g, s, text);
    // Merge what is narrower than a pixel: remember how far each lane is painted.
    const painted = new Float64Array(lanes).fill(-1);
    for (let i = 0; i < count; i++) {
      if (reach[i] <= x0 || start[i] >= x1) continue;
      const lane = laneOf(i);
      const left = Math.max((start[i] - x0) * s, 0);
      const right = Math.min((end[i] - x0) * s, width);
      if (right < painted[lane] + 0.75 && i !== data.node && !highlighted.has(i)) continue;
      const y = AXIS + lane * h;
      const far = Math.min((reach[i] - x0) * s, width);
      if (far > right) {
        g.fillStyle = TRUNK[Math.min(level[i], TRUNK.length - 1)] + "2e";
        g.fillRect(Math.max(right, 0), y, far - Math.max(right, 0), h - 1);
      }
      if (right <= 0) continue;
      g.fillStyle = i === data.node || highlighted.has(i)
        ? "#D55E00" : TRUNK[Math.min(level[i], TRUNK.length - 1)];
      g.fillRect(left, y, Math.max(right - left - (right - left > 3 ? 0.5 : 0), 0.75), h - 1);
      painted[lane] = right;
    }
    drawAxis(g, s, width, text);
    root.dataset.drawMs = (performance.now() - began).toFixed(1);
    root.dataset.window = Math.round(x0) + "," + Math.round(x1);
  }

  function drawPadding(g, s, text) {
    const left = Math.max((used - x0) * s, 0);
    const right = Math.min((data.cap - x0) * s, canvas.clientWidth);
    if (right <= left) return;
    g.save();
    g.beginPath();
    g.rect(left, AXIS, right - left, HEIGHT - AXIS);
    g.clip();
    g.strokeStyle = text;
    g.globalAlpha = 0.22;
    for (let x = left - HEIGHT; x < right; x += 8) {
      g.beginPath();
      g.moveTo(x, HEIGHT);
      g.lineTo(x + HEIGHT, 0);
      g.stroke();
    }
    g.globalAlpha = 0.75;
    g.fillStyle = text;
    g.font = "12px " + color("--st-font");
    if (right - left > 64) g.fillText("padding", left + 6, AXIS + 15);
    g.restore();
  }

  function drawAxis(g, s, width, text) {
    g.fillStyle = text;
    g.globalAlpha = 0.7;
    g.font = "11px " + color("--st-font");
    const step = Math.max(niceStep(x1 - x0, width / 110), 1);
    for (let t = Math.ceil(x0 / step) * step; t < x1; t += step) {
      const x = (t - x0) * s;
      g.fillRect(x, AXIS - 4, 1, 4);
      g.fillText(Math.round(t).toLocaleString("en-US"), x + 3, 11);
    }
    g.globalAlpha = 1;
  }

  // The node whose tokens stand at x; with y above it, its ancestor in that lane.
  function at(px, py) {
    const token = x0 + px / scale();
    if (token >= used || token < 0 || py < AXIS) return -1;
    let low = 0, high = count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (start[middle] <= token) low = middle; else high = middle - 1;
    }
    const lane = Math.floor((py - AXIS) / laneHeight());
    if (lane >= laneOf(low)) return low;
    for (let i = low; i >= 0; i--) {
      if (laneOf(i) === lane && reach[i] > token) return i;
    }
    return low;
  }

  function say(px, py) {
    const i = at(px, py);
    if (i < 0) {
      tip.hidden = true;
      return;
    }
    const own = end[i] - start[i];
    const words = data.tips[String(i)];
    tip.textContent = `${own.toLocaleString("en-US")} tokens · ${rows[i].toLocaleString("en-US")} rows · `
      + `${((rows[i] - 1) * own).toLocaleString("en-US")} tokens saved` + (words ? "\n" + words : "");
    tip.hidden = false;
    const room = canvas.clientWidth - tip.offsetWidth - 12;
    tip.style.left = Math.max(Math.min(px + 14, room), 0) + "px";
    tip.style.top = Math.min(py + 14, HEIGHT - 20) + "px";
  }

  function move(a, b) {
    const span = Math.min(Math.max(b - a, 16), data.cap);
    x0 = Math.min(Math.max(a, 0), data.cap - span);
    x1 = x0 + span;
    root.view = [x0, x1];
    draw();
    clearTimeout(root.settled);
    root.settled = setTimeout(
      () => setTriggerValue("moved", [Math.floor(x0), Math.ceil(x1)]), 600);
  }

  function zoom(factor, px) {
    const center = x0 + px / scale();
    move(center - (center - x0) * factor, center + (x1 - center) * factor);
  }

  let drag = null;
  canvas.onwheel = (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX);
  };
  canvas.onpointerdown = (event) => {
    drag = { x: event.offsetX, from: [x0, x1], moved: false };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (!drag) return say(event.offsetX, event.offsetY);
    const shift = (drag.x - event.offsetX) / scale();
    if (Math.abs(drag.x - event.offsetX) > 3) drag.moved = true;
    if (drag.moved) move(drag.from[0] + shift, drag.from[1] + shift);
  };
  canvas.onpointerup = (event) => {
    const still = drag && !drag.moved;
    drag = null;
    if (still) setTriggerValue("picked", at(event.offsetX, event.offsetY));
  };
  canvas.onpointerleave = () => { tip.hidden = true; };
  canvas.onkeydown = (event) => {
    const span = x1 - x0;
    const middle = canvas.clientWidth / 2;
    const keys = {
      "+": () => zoom(0.8, middle), "=": () => zoom(0.8, middle), w: () => zoom(0.8, middle),
      "-": () => zoom(1.25, middle), s: () => zoom(1.25, middle),
      ArrowLeft: () => move(x0 - span / 8, x1 - span / 8), a: () => move(x0 - span / 8, x1 - span / 8),
      ArrowRight: () => move(x0 + span / 8, x1 + span / 8), d: () => move(x0 + span / 8, x1 + span / 8),
      0: () => move(0, data.cap),
      Enter: () => setTriggerValue("picked", at(middle, HEIGHT - 2)),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  };

  if (root.observer) root.observer.disconnect();
  root.observer = new ResizeObserver(draw);
  root.observer.observe(canvas);
  draw();
  return () => root.observer.disconnect();
}
