// What the drawings share: arrays, colours (PALETTE of chart.py), numbers, hover texts.

const DEPTHS = {
  light: ["#0b5d4f", "#14806a", "#3b9e83", "#6fb99f", "#a3d2bd", "#c9e4d6"],
  dark: ["#a6dfc9", "#78c6aa", "#52ae90", "#307f6a", "#2a705e", "#256455"],
};
const [WHITE, INK] = ["#ffffff", "#10231c"]; // what can be read on each depth
const INKS = {
  light: [WHITE, WHITE, INK, INK, INK, INK], dark: [INK, INK, INK, WHITE, WHITE, WHITE],
};

function decode(text, Kind) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return new Kind(bytes.buffer);
}

function counted(number) {
  return Math.round(number).toLocaleString("en-US");
}

// "1 row", "12 rows"
function many(number, thing) {
  return `${counted(number)} ${thing}${number === 1 ? "" : "s"}`;
}

function themeOf(element) {
  const css = getComputedStyle(element);
  const read = (name) => css.getPropertyValue(name).trim();
  const background = read("--st-background-color");
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})/i.exec(background);
  const [r, g, b] = hex ? hex.slice(1).map((h) => parseInt(h, 16)) : [255, 255, 255];
  const mode = 0.3 * r + 0.6 * g + 0.1 * b < 128 ? "dark" : "light";
  return {
    mode, background, text: read("--st-text-color"), font: read("--st-font"),
    depths: DEPTHS[mode], inks: INKS[mode], ...PALETTE[mode],
  };
}

// A canvas of the given height in CSS pixels, cleared, sharp on any screen.
function cleared(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + "px";
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  g.clearRect(0, 0, width, height);
  return g;
}

// The parts of a drawing by their class; `canvas` by its tag.
function partsOf(parent, name) {
  const root = parent.querySelector("." + name);
  const part = (css) => root.querySelector(css);
  return { root, part, canvas: part("canvas"), tip: part(".tip"), live: part(".live") };
}

// A straight line, a circle, and strokes through a rectangle `step` pixels apart.
function line(g, x0, y0, x1, y1, alpha) {
  g.globalAlpha = alpha;
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
  g.globalAlpha = 1;
}

function dot(g, x, y, radius) {
  g.beginPath();
  g.arc(x, y, radius, 0, 2 * Math.PI);
  return g;
}

function hatch(g, x, y, width, height, step, alpha) {
  g.save();
  g.beginPath();
  g.rect(x, y, width, height);
  g.clip();
  for (let at = x - height; at < x + width; at += step) {
    line(g, at, y + height, at + height, y, alpha);
  }
  g.restore();
}

// The action of a key, where it has one; without the keys that browsers and systems use.
function onKeys(element, actions) {
  element.onkeydown = (event) => {
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  };
}

// Text of a data set goes into textContent and nowhere else.
function showTip(tip, words, x, y, width) {
  tip.textContent = words;
  tip.hidden = !words;
  if (!words) return;
  tip.style.left = Math.max(Math.min(x + 14, width - tip.offsetWidth - 4), 0) + "px";
  tip.style.top = y + 16 + "px";
}

// A drawing that leaves its time on the element, and waits until there is room for it.
function timed(root, canvas, draw) {
  return () => {
    if (!canvas.clientWidth) return;
    const began = performance.now();
    draw();
    root.dataset.drawMs = (performance.now() - began).toFixed(1);
  };
}

// The theme of a page can change while nothing else does: then draw again.
function onThemeChange(element, draw) {
  let last = themeOf(element).background;
  return setInterval(() => {
    const now = themeOf(element).background;
    if (now !== last) {
      last = now;
      draw();
    }
  }, 1000);
}

// Draw now, and again when the canvas changes its size or the theme changes; how to stop that.
// A component is called anew for each change of its data: what an earlier call started ends here.
function keepDrawn(root, canvas, draw) {
  if (root.observer) root.observer.disconnect();
  clearInterval(root.theme);
  root.observer = new ResizeObserver(draw);
  root.observer.observe(canvas);
  root.theme = onThemeChange(root, draw);
  draw();
  return () => {
    root.observer.disconnect();
    clearInterval(root.theme);
  };
}
