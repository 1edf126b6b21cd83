// The fold: rows one below the other, their shared pieces merge, the tree is laid out as a strip.
// Every position is a function of the time since Play: a frame needs no memory of the one before.

const REST = "rgba(128, 128, 128, 0.35)";
const HATCHED = "repeating-linear-gradient(135deg, currentColor 0 1px, transparent 1px 5px)";
const GUTTER = 58;
const ROWS_HEIGHT = 300;
const STRIP = 20;
const STRIP_GAP = 5;
const LABEL = 30; // above the strip

// Milliseconds: when copies set out, how long they slide, and the same for the way to the strip.
const SPREAD = { depth: 450, place: 250, copy: 350 };
const SLIDE = 800;
const PACK_AT = 2050;
const PACK_SPREAD = 750;
const PACK = 750;
const PAD_AT = 3450;
const ENDS = 4000;

const part = (time, from, long) => Math.min(Math.max((time - from) / long, 0), 1);
const eased = (p) => (p < 0.5 ? 4 * p ** 3 : 1 - (2 - 2 * p) ** 3 / 2);
const between = (a, b, p) => a + (b - a) * p;

export default function (component) {
  const { data, parentElement } = component;
  const { root, part: find, canvas, tip, live } = partsOf(parentElement, "fold");
  const [play, skip] = [find(".play"), find(".skip")];
  const { nodes, rows } = data;

  const deepest = Math.max(...nodes.map((node) => node.depth), 1);
  const copies = rows.flatMap((row, place) => row.nodes.map((k) => {
    const node = nodes[k];
    const nth = place - node.first;
    const late = node.rows > 1 ? nth / (node.rows - 1) : 0;
    const leaves = SPREAD.depth * (node.depth / deepest)
      + SPREAD.place * (node.first / rows.length) + SPREAD.copy * late;
    return { k, place, nth, lands: leaves + SLIDE, leaves };
  })).sort((a, b) => b.nth - a.nth); // the copy that stays is drawn last
  const end = data.whole ? data.cap : data.tokens;
  const lines = Math.ceil(end / data.line);
  const pitch = Math.min(Math.max(Math.floor(ROWS_HEIGHT / rows.length), 10), 22);
  const bar = pitch - 3;
  const stripTop = rows.length * pitch + LABEL;
  const height = stripTop + lines * (STRIP + STRIP_GAP);
  const segments = nodes.flatMap((node, k) => cut(node.start, node.start + node.length)
    .map((piece) => ({ ...piece, k })));

  const key = [data.cap, data.before, data.after, rows.map((row) => row.row)].join();
  if (!root.fold || root.fold.key !== key) root.fold = { key, phase: "before", begun: 0 };
  const state = root.fold;

  // A range of packed tokens, cut where a line of the strip ends.
  function cut(from, to) {
    const pieces = [];
    for (let at = from; at < to;) {
      const line = Math.floor(at / data.line);
      const stop = Math.min(to, (line + 1) * data.line);
      pieces.push({ from: at, to: stop, line });
      at = stop;
    }
    return pieces;
  }

  find(".key").replaceChildren(...[
    ["var(--blue)", "shared by rows, computed once"],
    ["var(--orange)", "the same prefix, computed again"],
    ["var(--sky)", "of one row alone"],
    ...(data.whole && data.treeTokens > data.tokens ? [[REST, "rows not shown"]] : []),
    ...(data.whole ? [[HATCHED, "padding"]] : []),
  ].map(([color, name]) => {
    const entry = document.createElement("span");
    const patch = document.createElement("i");
    patch.style.background = color;
    entry.append(patch, name);
    return entry;
  }));

  const rowTop = (place) => place * pitch + 1;
  const treeTop = (k) => rowTop(nodes[k].first + (nodes[k].rows - 1) / 2);
  const lineTop = (line) => stripTop + line * (STRIP + STRIP_GAP);
  const time = () => (state.phase === "before" ? 0
    : state.phase === "after" ? ENDS : Math.min(performance.now() - state.begun, ENDS));

  function tokensAt(now) {
    return copies.reduce((left, copy) => (
      copy.nth && now >= copy.lands ? left - nodes[copy.k].length : left), data.rowTokens);
  }

  const draw = timed(root, canvas, () => {
    const now = time();
    const theme = themeOf(root);
    const g = cleared(canvas, height);
    const scale = (canvas.clientWidth - GUTTER - 1) / data.line;
    const at = (token) => GUTTER + token * scale;
    const block = (color, alpha, token, top, long, high) => {
      g.globalAlpha = alpha;
      g.fillStyle = color;
      g.fillRect(at(token), top, Math.max(long * scale - (long * scale > 4 ? 1 : 0), 0.5), high);
    };
    drawNames(g, theme, at);
    if (now > 0) {
      copies.forEach(({ k, place }) => {
        block(theme.text, 0.07, nodes[k].depth, rowTop(place), nodes[k].length, bar);
      });
    }
    drawBranches(g, theme, at, now);
    for (const { k, place, nth, leaves } of copies) {
      const slid = eased(part(now, leaves, SLIDE));
      if (nth && slid === 1) continue;
      const color = nth ? theme.orange : nodes[k].rows > 1 ? theme.blue : theme.sky;
      // What has gone to the strip leaves a shade of the tree behind.
      const left = part(now, packsAt(nodes[k].start), PACK);
      block(color, between(1, 0.25, left), nodes[k].depth,
        between(rowTop(place), treeTop(k), slid), nodes[k].length, bar);
    }
    drawRest(g, theme, at, scale, part(now, PAD_AT, ENDS - PAD_AT));
    for (const { k, from, to, line } of segments) {
      const moved = eased(part(now, packsAt(from), PACK));
      if (!moved) continue;
      const node = nodes[k];
      block(node.rows > 1 ? theme.blue : theme.sky, 1,
        between(node.depth + from - node.start, from - line * data.line, moved),
        between(treeTop(k), lineTop(line), moved), to - from, between(bar, STRIP, moved));
    }
    g.globalAlpha = 1;
    tell(now);
    root.dataset.theme = theme.mode;
  });

  const packsAt = (token) => PACK_AT + PACK_SPREAD * (token / Math.max(data.tokens, 1));

  function drawNames(g, theme, at) {
    g.fillStyle = theme.text;
    g.font = `11px ${theme.font}`;
    g.textBaseline = "middle";
    g.globalAlpha = 0.75;
    rows.forEach((row, place) => {
      g.fillText(`row ${row.row}`, 0, rowTop(place) + bar / 2);
    });
    g.fillText(data.whole ? `one tree, room for ${counted(data.cap)} tokens` : "one tree",
      GUTTER, stripTop - 11);
    g.strokeStyle = theme.text;
    for (const { from, to, line } of cut(0, end)) {
      g.globalAlpha = 0.75;
      g.fillText(counted(from), 0, lineTop(line) + STRIP / 2);
      g.globalAlpha = 0.22;
      g.strokeRect(at(0) - 0.5, lineTop(line) - 0.5, at(to - from) - at(0) + 1, STRIP + 1);
    }
  }

  // From the end of a piece to what follows it, once both stand in the tree.
  function drawBranches(g, theme, at, now) {
    g.strokeStyle = theme.text;
    g.globalAlpha = 0.4 * part(now, SLIDE, SLIDE);
    g.beginPath();
    nodes.forEach((node, k) => {
      if (node.parent < 0) return;
      const x = Math.round(at(node.depth)) - 0.5;
      g.moveTo(x, treeTop(node.parent) + bar / 2);
      g.lineTo(x, treeTop(k) + bar / 2);
    });
    g.stroke();
  }

  // Rows that are not shown are a plain shade, padding is hatched.
  function drawRest(g, theme, at, scale, seen) {
    if (!data.whole || !seen) return;
    g.fillStyle = g.strokeStyle = theme.text;
    g.lineWidth = 1;
    for (const { from, to, line } of cut(data.tokens, data.treeTokens)) {
      g.globalAlpha = 0.18 * seen;
      g.fillRect(at(from - line * data.line), lineTop(line), (to - from) * scale, STRIP);
    }
    for (const { from, to, line } of cut(data.treeTokens, data.cap)) {
      const [x, y, long] = [at(from - line * data.line), lineTop(line), (to - from) * scale];
      hatch(g, x, y, long, STRIP, 7, 0.45 * seen);
    }
  }

  function tell(now) {
    const tokens = tokensAt(now);
    const { phase } = state;
    const fewer = Math.round(100 * (1 - data.tokens / data.rowTokens));
    find(".count b").textContent = counted(tokens);
    find(".count span").textContent = phase === "before"
      ? `tokens in ${counted(rows.length)} rows`
      : phase === "after" ? `tokens as a tree, from ${counted(data.rowTokens)}: ${fewer}% fewer`
        : "tokens";
    canvas.setAttribute("aria-label", phase === "after" ? data.after : data.before);
    play.textContent = phase === "before" ? "Play" : "Replay";
    skip.setAttribute("aria-disabled", phase === "after");
    root.dataset.phase = phase;
    root.dataset.tokens = tokens;
  }

  function enter(phase) {
    state.phase = phase;
    state.begun = performance.now();
    cancelAnimationFrame(root.frame);
    tip.hidden = true;
    live.textContent = phase === "after" ? data.after : "";
    if (phase === "playing") step();
    else draw();
  }

  function step() {
    if (performance.now() - state.begun >= ENDS) {
      enter("after");
      return;
    }
    draw();
    root.frame = requestAnimationFrame(step);
  }

  function nodeAt(x, y) {
    const token = Math.floor(((x - GUTTER) * data.line) / (canvas.clientWidth - GUTTER - 1));
    if (token < 0) return -1;
    const place = Math.floor(y / pitch);
    if (place < rows.length) {
      return rows[place].nodes.find((k) => token < nodes[k].depth + nodes[k].length) ?? -1;
    }
    const line = Math.floor((y - stripTop) / (STRIP + STRIP_GAP));
    if (state.phase !== "after" || line < 0 || token >= data.line) return -1;
    const packed = line * data.line + token;
    return nodes.findIndex(({ start, length }) => start <= packed && packed < start + length);
  }

  function words(k) {
    if (k < 0) return "";
    const node = nodes[k];
    return `${many(node.length, "token")} from token ${counted(node.depth)} on · `
      + many(node.rows, "row")
      + (node.text ? "\n" + node.text : "");
  }

  play.onclick = () => {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    enter(still ? "after" : "playing");
  };
  skip.onclick = () => { if (state.phase !== "after") enter("after"); };
  canvas.onpointermove = (event) => {
    if (state.phase === "playing") return;
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    showTip(tip, words(nodeAt(x, y)), x, y + canvas.offsetTop, canvas.clientWidth);
  };
  canvas.onpointerleave = () => { tip.hidden = true; };

  cancelAnimationFrame(root.frame);
  const stop = keepDrawn(root, canvas, draw);
  if (state.phase === "playing") step();
  return () => {
    stop();
    cancelAnimationFrame(root.frame);
  };
}
