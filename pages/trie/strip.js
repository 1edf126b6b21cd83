// The packed strip: one tree on its own token axis, tracks below it, wheel and keys to zoom.

const NODES_HEIGHT = 150;
const SHORTEST = 12; // tokens in the closest view
const SETTLED_MS = 500;

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const { root, part, canvas, tip, live } = partsOf(parentElement, "strip");
  canvas.setAttribute("aria-label", data.label);

  const d = read(data, root);
  const bands = layOut(data);
  const height = bands[bands.length - 1].top + bands[bands.length - 1].height + 2;

  // The window that was moved here stays through reruns; one that comes from outside wins.
  const asked = String(data.window || [0, data.cap]);
  let [x0, x1] = data.window || [0, data.cap];
  const here = root.view && root.tree === data.tree_key;
  if (here && (asked === root.asked || asked === root.sent)) [x0, x1] = root.view;
  root.asked = asked;
  root.tree = data.tree_key;

  function viewed() {
    const width = canvas.clientWidth;
    const scale = (width - GUTTER) / (x1 - x0);
    return {
      x0, x1, width, scale,
      at: (token) => GUTTER + (token - x0) * scale,
      token: (x) => x0 + (x - GUTTER) / scale,
    };
  }

  const draw = timed(root, canvas, () => {
    const g = cleared(canvas, height);
    const v = viewed();
    const theme = themeOf(root);
    g.font = "11.5px " + theme.font;
    drawAxis(g, v, d, theme);
    for (const band of bands) {
      band.draw(g, v, d, theme, band);
      drawName(g, theme, band);
    }
    drawPadding(g, v, d, theme, bands[0].top + bands[0].height);
    if (root.byKey) {
      g.fillStyle = theme.text;
      g.fillRect((GUTTER + v.width) / 2, AXIS, 1, height - AXIS);
    }
    root.dataset.nodes = d.count;
    root.dataset.window = Math.round(x0) + "," + Math.round(x1);
  });

  // The node and the token at a pixel; above a token's own lane, its ancestor in that lane.
  function at(px, py) {
    const token = Math.floor(viewed().token(px));
    if (px < GUTTER || token < 0 || token >= d.used) return null;
    const own = d.firstIn(token);
    const lane = Math.floor(((py - bands[0].top) / NODES_HEIGHT) * d.lanes);
    if (lane < 0 || lane >= d.laneOf(own)) return { node: own, token };
    for (let i = own; i >= 0; i--) {
      if (d.laneOf(i) === lane && d.reach[i] > token) return { node: i, token: -1 };
    }
    return { node: own, token };
  }

  function words(found) {
    if (!found) return "";
    const i = found.node;
    const own = d.end[i] - d.start[i];
    const text = data.tips[String(i)];
    const word = found.token >= 0 && d.words && d.words[found.token - d.wordsFrom];
    return (found.token >= 0 ? `token ${counted(found.token)}${word ? ` “${word}”` : ""} · ` : "")
      + `node of ${many(own, "token")} at depth ${counted(d.depth[i])} · `
      + `${many(d.rows[i], "row")} · ${many((d.rows[i] - 1) * own, "token")} saved`
      + (text ? "\n" + text : "");
  }

  function move(a, b) {
    const span = Math.min(Math.max(b - a, SHORTEST), data.cap);
    const from = Math.min(Math.max(a, 0), data.cap - span);
    if (from === x0 && from + span === x1) return;
    x0 = from;
    x1 = from + span;
    root.view = [x0, x1];
    draw();
    clearTimeout(root.settled);
    root.settled = setTimeout(() => {
      const sent = [Math.floor(x0), Math.ceil(x1)];
      root.sent = String(sent);
      setTriggerValue("moved", sent);
    }, SETTLED_MS);
  }

  function zoom(factor, px) {
    const center = viewed().token(px);
    move(center - (center - x0) * factor, center + (x1 - center) * factor);
  }

  function pick(found) {
    setTriggerValue("picked", found ? [found.node, found.token] : [-1, -1]);
  }

  const middle = () => (GUTTER + canvas.clientWidth) / 2;
  function byKey(action) {
    root.byKey = true;
    action();
    draw();
    live.textContent = words(at(middle(), height)) || "padding";
  }

  let drag = null;
  canvas.onwheel = (event) => {
    // A page that is being scrolled goes on scrolling when the strip comes under the pointer.
    const all = x1 - x0 >= data.cap;
    if (!event.ctrlKey && (root.scrolling || (all && event.deltaY > 0))) return;
    event.preventDefault();
    event.stopPropagation();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.max(event.offsetX, GUTTER));
  };
  const scrolls = () => {
    root.scrolling = true;
    clearTimeout(root.rested);
    root.rested = setTimeout(() => { root.scrolling = false; }, 300);
  };
  if (root.scrolls) window.removeEventListener("wheel", root.scrolls);
  root.scrolls = scrolls;
  window.addEventListener("wheel", scrolls, { passive: true });

  canvas.onpointerdown = (event) => {
    root.byKey = false;
    drag = { x: event.offsetX, from: [x0, x1], moved: false };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (!drag) {
      const text = words(at(event.offsetX, event.offsetY));
      return showTip(tip, text, event.offsetX, event.offsetY, canvas.clientWidth);
    }
    if (Math.abs(drag.x - event.offsetX) > 3) drag.moved = true;
    const shift = (drag.x - event.offsetX) / viewed().scale;
    if (drag.moved) move(drag.from[0] + shift, drag.from[1] + shift);
  };
  canvas.onpointerup = (event) => {
    const still = drag && !drag.moved;
    drag = null;
    if (still) pick(at(event.offsetX, event.offsetY));
  };
  canvas.onpointerleave = () => { tip.hidden = true; };
  canvas.onblur = () => { root.byKey = false; draw(); };
  const pan = (share) => move(x0 + (x1 - x0) * share, x1 + (x1 - x0) * share);
  const near = () => zoom(0.8, middle());
  const far = () => zoom(1.25, middle());
  const all = () => move(0, data.cap);
  const left = () => pan(-1 / 8);
  const right = () => pan(1 / 8);
  const keys = {
    "+": near, "=": near, w: near, "-": far, s: far, 0: all, Home: all,
    ArrowLeft: left, a: left, ArrowRight: right, d: right,
    Enter: () => pick(at(middle(), height)),
  };
  for (const [key, action] of Object.entries(keys)) keys[key] = () => byKey(action);
  onKeys(canvas, keys);
  part(".near").onclick = near;
  part(".far").onclick = far;
  part(".all").onclick = all;
  part(".chosen").hidden = data.node < 0;
  part(".chosen").onclick = () => {
    const [a, b] = [d.start[data.node], d.reach[data.node]];
    move(a - (b - a) * 0.03, b + (b - a) * 0.03);
  };

  const stop = keepDrawn(root, canvas, draw);
  return () => {
    stop();
    clearTimeout(root.settled);
    window.removeEventListener("wheel", root.scrolls);
  };
}

// The arrays of a tree are read once, however often the chosen node or the window changes.
function read(data, root) {
  if (root.arrays?.key !== data.tree_key) root.arrays = readArrays(data);
  const path = decode(data.path, Int32Array);
  const onPath = new Uint8Array(root.arrays.count);
  for (const i of path) onPath[i] = 1;
  return {
    ...root.arrays, path, onPath, cap: data.cap, node: data.node, token: data.token,
    words: data.words, wordsFrom: data.words_from,
  };
}

function readArrays(data) {
  const start = decode(data.start, Int32Array);
  const end = decode(data.end, Int32Array);
  const level = decode(data.level, Uint16Array);
  const count = start.length;
  const lanes = Math.min(level.reduce((a, b) => Math.max(a, b), 0) + 1, LANES);
  return {
    key: data.tree_key, start, end, level, count, lanes,
    reach: decode(data.reach, Int32Array),
    rows: decode(data.rows, Int32Array),
    depth: decode(data.depth, Int32Array),
    trained: data.trained === null ? null : decode(data.trained, Int32Array),
    used: count ? end[count - 1] : 0,
    laneOf: (i) => Math.min(level[i], lanes - 1),
    firstIn(token) {
      let low = 0, high = count - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (start[middle] <= token) low = middle; else high = middle - 1;
      }
      return low;
    },
  };
}

// The tracks from top to bottom. Rows stand on a logarithmic scale, depth on a linear one.
function layOut(data) {
  const root = (value, most) => Math.log(1 + value) / Math.log(1 + most);
  const bands = [{ name: "nodes", height: NODES_HEIGHT, draw: drawNodes }];
  const add = (name, height, draw, most) => bands.push({ name, height, draw, most });
  add("rows", 24, (g, v, d, theme, band) => drawProfile(
    g, v, d, theme, band, (i) => d.rows[i], data.most_rows, root), data.most_rows);
  add("depth", 24, (g, v, d, theme, band) => drawProfile(
    g, v, d, theme, band, (i, token) => d.depth[i] + token - d.start[i], data.most_depth,
    (value, most) => value / most), data.most_depth);
  if (data.trained !== null) add("trained", 9, drawTrained);
  if (data.row >= 0) add(`row ${data.row}`, 9, drawPath);
  add("tokens", 19, drawTokens);
  let top = AXIS;
  for (const band of bands) {
    band.top = top;
    top += band.height + 6;
  }
  return bands;
}
