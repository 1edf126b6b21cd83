// The slider of max_tokens_per_mb. A move is sent at once; more moves within PAUSE are sent as one.

const PAUSE = 60; // milliseconds: a page that redraws on every pixel of a drag would lag behind it
const FORGET = 3000; // an answer that takes longer is not waited for

const parts = new WeakMap();

export default function (component) {
  const { parentElement, data } = component;
  let part = parts.get(parentElement);
  if (!part) parts.set(parentElement, (part = created(parentElement)));
  part.send = (cap) => component.setTriggerValue("moved", cap);
  part.show(data);
}

function created(root) {
  const range = root.querySelector("#range");
  const number = root.querySelector("#number");
  let limits = null;
  let wanted = null; // where the hand is, until the server has drawn it
  let told = null;
  let toldAt = 0;
  let timer = 0;
  const part = { send: null, show };

  function show(data) {
    limits = data;
    root.querySelector(".cap").style.colorScheme = themeOf(range).mode; // the track's own colours
    range.min = data.low;
    range.max = data.high;
    range.step = number.step = data.step;
    number.min = data.step;
    root.querySelector(".low").textContent = counted(data.low);
    note(null);
    root.querySelector(".high").textContent = counted(data.high);
    const behind = wanted !== null && wanted !== data.cap && Date.now() - toldAt < FORGET;
    if (behind) return; // drawn for an earlier move: the thumb stays where the hand is
    wanted = null;
    set(data.cap);
  }

  function note(text) {
    root.querySelector(".step").textContent = text ?? `multiples of ${counted(limits.step)}`;
  }

  function set(cap) {
    range.value = cap;
    range.setAttribute("aria-valuetext", `${counted(cap)} tokens`);
    number.value = cap;
  }

  function move(cap) {
    wanted = cap;
    set(cap);
    if (timer) return;
    tell();
    timer = setTimeout(() => {
      timer = 0;
      if (wanted !== null && wanted !== told) tell();
    }, PAUSE);
  }

  function tell() {
    told = wanted;
    toldAt = Date.now();
    part.send(wanted);
  }

  range.addEventListener("input", () => move(Number(range.value)));
  number.addEventListener("change", () => {
    const typed = Number(number.value);
    const whole = number.value !== "" && Number.isInteger(typed) && typed > 0 && typed < 2 ** 31;
    note(whole ? null : "write a whole number of tokens");
    if (whole) move(typed);
    else number.value = limits.cap;
  });
  return part;
}
