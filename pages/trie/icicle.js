// The icicle: marks as elements, so that text is cut where a mark ends and keys walk the tree.

const HEIGHT = 440;
const GAP = 1;
const LINE = 15;
const TEXT_FROM = 14; // pixels of height from which a mark shows text

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const { root, part, tip } = partsOf(parentElement, "icicle");
  const box = part(".marks");
  box.setAttribute("aria-label", data.label);
  const began = performance.now();
  let theme = themeOf(root);
  const hadFocus = box.contains(box.getRootNode().activeElement);

  const marks = data.marks.map((mark) => ({ ...mark, inside: [], level: 0, top: 0, height: HEIGHT }));
  marks.forEach((mark, i) => { if (i) marks[mark.in].inside.push(i); });
  // Parents come before children: one pass lays everything out.
  marks.forEach((mark) => {
    let top = mark.top;
    for (const i of mark.inside) {
      const child = marks[i];
      child.level = mark.level + 1;
      child.top = top;
      child.height = (mark.height * child.tokens) / mark.tokens;
      top += child.height;
    }
  });
  const deepest = Math.max(...marks.map((mark) => mark.level)) + 1;
  const columns = Math.max(deepest, 4);

  const elements = marks.map((mark, i) => {
    const element = document.createElement("div");
    element.className = "mark" + (mark.folded ? " fold" : "") + (mark.path ? " path" : "")
      + (mark.node === data.chosen && mark.node >= 0 ? " chosen" : "");
    const height = Math.max(mark.height - GAP, 1);
    const lines = Math.max(Math.floor((height - 2) / LINE), 1);
    Object.assign(element.style, {
      left: (100 * mark.level) / columns + "%", width: `calc(${100 / columns}% - ${GAP}px)`,
      top: mark.top + "px", height: height + "px",
    });
    paint(element, mark);
    if (height >= TEXT_FROM) {
      // Whole lines only: a line cut through its middle cannot be read.
      const inner = document.createElement("div");
      const lineHeight = Math.min(height - 2, LINE) + "px";
      Object.assign(inner.style, { maxHeight: lines * LINE + "px", overflow: "hidden", lineHeight });
      inner.textContent = label(mark);
      element.append(inner);
    }
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", mark.level + 1);
    element.setAttribute("aria-label", words(mark));
    element.setAttribute("aria-selected", mark.node === data.chosen && !mark.folded);
    element.tabIndex = i === 0 ? 0 : -1;
    element.onclick = () => open(i);
    element.onpointermove = (event) => tell(mark, event.clientX, event.clientY);
    element.onfocus = () => {
      if (!element.matches(":focus-visible")) return;
      const at = element.getBoundingClientRect();
      tell(mark, at.left, at.top + 8);
    };
    element.onblur = () => { tip.hidden = true; };
    return element;
  });
  box.replaceChildren(...elements);
  box.onpointerleave = () => { tip.hidden = true; };
  elements.forEach((element, i) => {
    const beside = i ? marks[marks[i].in].inside : [0];
    const place = beside.indexOf(i);
    onKeys(element, {
      ArrowRight: () => focus(marks[i].inside[0]), ArrowLeft: () => focus(i ? marks[i].in : -1),
      ArrowDown: () => focus(beside[place + 1]), ArrowUp: () => focus(beside[place - 1]),
      Enter: () => open(i), " ": () => open(i), Backspace: () => open(0),
    });
  });
  if (hadFocus) elements[0].focus({ preventScroll: true });
  tip.hidden = true;
  clearInterval(root.theme);
  root.theme = onThemeChange(root, () => {
    theme = themeOf(root);
    root.dataset.theme = theme.mode;
    elements.forEach((element, i) => paint(element, marks[i]));
  });
  root.dataset.theme = theme.mode;
  root.dataset.drawMs = (performance.now() - began).toFixed(1);
  root.dataset.chosen = data.chosen;
  return () => clearInterval(root.theme);

  function focus(i) {
    if (i === undefined || i < 0) return;
    elements.forEach((element, n) => { element.tabIndex = n === i ? 0 : -1; });
    elements[i].focus({ preventScroll: true });
  }

  // The leftmost mark leads up, a fold to its parent, any other mark into itself.
  function open(i) {
    const mark = marks[i];
    if (i === 0) {
      if (data.up > -2) setTriggerValue("picked", data.up);
      return;
    }
    const target = mark.folded ? marks[mark.in].node : mark.node;
    if (target !== data.chosen) setTriggerValue("picked", target);
  }

  function paint(element, mark) {
    if (mark.folded || mark.node < 0) {
      element.style.background = theme.mode === "dark" ? "#2c353c" : "#dedbd0";
      element.style.color = theme.text;
      return;
    }
    const step = Math.min(mark.level - (data.root < 0 ? 1 : 0), theme.depths.length - 1);
    element.style.background = theme.depths[step];
    element.style.color = theme.inks[step];
  }

  function label(mark) {
    if (mark.folded) return `+${counted(mark.folded)} branches`;
    if (mark.node < 0) return `the whole tree\n${counted(mark.tokens)} tokens`;
    return mark.text || " ";
  }

  function words(mark) {
    if (mark.folded) {
      return `${counted(mark.folded)} smaller branches, ${counted(mark.tokens)} tokens together`;
    }
    if (mark.node < 0) return `The whole tree: ${counted(mark.tokens)} tokens`;
    return `${many(mark.own, "token")} at depth ${counted(mark.depth)} · `
      + `${many(mark.rows, "row")} · ${many((mark.rows - 1) * mark.own, "token")} saved · `
      + `${counted(mark.tokens)} in and below`
      + (mark.closed ? ` · ${counted(mark.closed)} nodes below are not drawn: click` : "");
  }

  function tell(mark, x, y) {
    const frame = root.getBoundingClientRect();
    showTip(tip, words(mark) + (mark.text ? "\n" + mark.text : ""),
      x - frame.left, y - frame.top, frame.width);
  }
}
