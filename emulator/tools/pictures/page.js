"use strict";
// The pictures are drawn already: this lights cells, and tells what is known of them. A selection is
// {panel, row, col}, {lane}, {lane, register} or {byte}; a click or a search keeps one, also as the
// address of the page: page.html#a[3][2], #lane=5, #5:0 and #byte=160 are links to it.
const facts = JSON.parse(document.getElementById("facts").textContent);
const readout = document.getElementById("readout"), search = document.getElementById("search");
const buttons = [...document.querySelectorAll(".lanes button")];
const SVG = "http://www.w3.org/2000/svg";
let kept = null;

for (const [index, panel] of facts.panels.entries()) {
  panel.figure = document.getElementById("panel" + index);
  panel.svg = panel.figure.querySelector("svg");
  // A label stands in the middle of its cells, its foot a third of its size lower.
  panel.labels = [...panel.svg.querySelectorAll("[data-box] text")].map((text) => {
    const [tall, wide] = text.parentNode.dataset.box.split(" ").map(Number);
    const row = Math.round((text.getAttribute("y") - 4) / panel.h - tall / 2);
    const col = Math.round(text.getAttribute("x") / panel.w - wide / 2);
    return { text, row0: row, row1: row + tall - 1, col0: col, col1: col + wide - 1 };
  });
  if (panel.places) {
    const bytes = Uint8Array.from(atob(panel.places), (c) => c.charCodeAt(0));
    panel.places = Array.from({ length: bytes.length / 2 }, (_, i) => bytes[2 * i] | bytes[2 * i + 1] << 8);
  }
}

// --- where a cell is -----------------------------------------------------------------------------

// [{lane, register, low}] of the copies of an element in registers
function held(panel, row, col) {
  const first = (row * panel.cols + col) * panel.copies, perWord = panel.word / panel.width;
  return panel.places.slice(first, first + panel.copies).map((slot) => {
    const element = slot % panel.elements;
    return {
      lane: Math.floor(slot / panel.elements),
      register: Math.floor(element / perWord),
      low: (element % perWord) * panel.width + panel.shift,
    };
  });
}

const address = (panel, row, col) => panel.start + panel.places[row * panel.cols + col];
const isMemory = (panel) => panel.kind === "memory";

function lanesOf(panel, row, col) {
  if (panel.kind === "registers") return held(panel, row, col).map((x) => x.lane);
  return panel.kind === "rows" ? [panel.first + row] : [];
}

const bitRange = (low, bits) => (bits === 1 ? `bit ${low}` : `bits ${low + bits - 1}:${low}`);
const bytes = (first, last) => (first === last ? `byte ${first}` : `bytes ${first}-${last}`);
const span = (first, last) => (first === last ? `${first}` : `${first}-${last}`);

// Names of [row, col] places; neighbours in a row, or else in a column, as one range.
function namesOf(panel, places) {
  const names = [];
  for (let i = 0; i < places.length; ) {
    const [row, col] = places[i];
    const along = (across, down) => {
      let n = 1;
      while (places[i + n]?.[0] === row + n * down && places[i + n][1] === col + n * across) n++;
      return n;
    };
    const right = along(1, 0), below = right > 1 ? 1 : along(0, 1);
    names.push(nameOf(panel, span(row, row + below - 1), span(col, col + right - 1)));
    i += right * below;
  }
  return names.join(" ");
}

function nameOf(panel, row, col) {
  const group = panel.several ? `[${panel.group}]` : "";
  return `${panel.name}${group}[${row}][${col}]`;
}

function whereIs(panel, row, col) {
  if (panel.kind === "registers") {
    // Copies are in several registers of a lane, or in lanes of several warps.
    const found = held(panel, row, col), { low } = found[0];
    const [lanes, registers] = ["lane", "register"].map((x) => [...new Set(found.map((y) => y[x]))]);
    return `lane${lanes[1] === undefined ? "" : "s"} ${lanes.join(" and ")}, ` +
      `register ${registers.join(" and ")}, ${bitRange(low, panel.bits)}`;
  }
  if (panel.kind === "rows") {
    const low = col * panel.bits, last = low + panel.bits - 1;
    const part = panel.bits % 8 ? ` (bits ${last}:${low} of the row)` : "";
    return `${bytes(low >> 3, last >> 3)} after the address of lane ${panel.first + row}${part}`;
  }
  const byte = address(panel, row, col), size = Math.max(1, panel.bits / 8);
  const along = panel.axes[0] === "k" ? row : col;
  const part = panel.bits < 8 ? `, bit ${(along * panel.bits) % 8}` : "";
  return `${bytes(byte, byte + size - 1)} (0x${byte.toString(16)})${part}, bank ${(byte >> 2) % 32}`;
}

// --- what belongs together -----------------------------------------------------------------------

const cell = (row, col) => ({ row0: row, row1: row, col0: col, col1: col });

// First and last index along an axis of `other` that meet index i of `panel` along its own axis.
function meet(panel, axis, i, other, otherAxis) {
  const size = axis ? panel.cols : panel.rows, grain = panel.grain[axis];
  const otherSize = otherAxis ? other.cols : other.rows, otherGrain = other.grain[otherAxis];
  const from = Math.floor(i / grain) * grain / size, to = from + grain / size;
  const first = Math.floor(from * otherSize / otherGrain) * otherGrain;
  return [first, Math.max(first + otherGrain, Math.ceil(to * otherSize / otherGrain) * otherGrain) - 1];
}

// {row0, row1, col0, col1} of another panel of the same product; null where they do not meet.
function related(panel, row, col, other) {
  if (other === panel || other.section !== panel.section) return null;
  if (other.name === panel.name) return other.group === panel.group ? cell(row, col) : null;
  const ends = [[0, other.rows - 1], [0, other.cols - 1]];
  other.axes.forEach((name, otherAxis) => {
    const axis = panel.axes.indexOf(name);
    if (axis >= 0) ends[otherAxis] = meet(panel, axis, axis ? col : row, other, otherAxis);
  });
  return { row0: ends[0][0], row1: ends[0][1], col0: ends[1][0], col1: ends[1][1] };
}

function unitsText(starts) {
  const units = [...new Set(starts)].sort((x, y) => x - y), more = units.length - 8;
  return `16 bytes each at ${units.slice(0, 8).join(", ")}` + (more > 0 ? ` and ${more} more places` : "");
}

function lanesText(lanes) {
  const text = runs(lanes);
  return (/\D/.test(text) ? "lanes " : "lane ") + text;
}

function* cellsIn({ row0, row1, col0, col1 }) {
  for (let row = row0; row <= row1; row++) for (let col = col0; col <= col1; col++) yield [row, col];
}

function runs(numbers) {
  const sorted = [...new Set(numbers)].sort((x, y) => x - y), out = [];
  for (const n of sorted) {
    if (out.length && out[out.length - 1][1] === n - 1) out[out.length - 1][1] = n;
    else out.push([n, n]);
  }
  return out.map(([first, last]) => span(first, last)).join(", ");
}

// --- light ---------------------------------------------------------------------------------------

const box = (panel, { row0, row1, col0, col1 }) =>
  `M${facts.left + col0 * panel.w} ${facts.above + row0 * panel.h}` +
  `h${(col1 - col0 + 1) * panel.w}v${(row1 - row0 + 1) * panel.h}H${facts.left + col0 * panel.w}z`;

// The part of a box that lies in another one; null where they do not meet.
function common(x, y) {
  const row0 = Math.max(x.row0, y.row0), row1 = Math.min(x.row1, y.row1);
  const col0 = Math.max(x.col0, y.col0), col1 = Math.min(x.col1, y.col1);
  return row0 <= row1 && col0 <= col1 ? { row0, row1, col0, col1 } : null;
}

const cellCount = ({ row0, row1, col0, col1 }) => (row1 - row0 + 1) * (col1 - col0 + 1);

// The labels that a cell can have by itself, in a box of several, the fullest first.
function ownLabels(panel, row, col) {
  if (isMemory(panel)) return [`${address(panel, row, col)}`];
  if (panel.kind === "rows") return [`p${panel.first + row}`];
  const { lane, register } = held(panel, row, col)[0];
  return [`${lane}:${register}`, `${lane}`];
}

const OWN_SIZE = 9, textWidth = (text) => text.length * OWN_SIZE * 0.61 + 1;
const fitsAcross = (panel, text) => textWidth(text) <= panel.w && OWN_SIZE <= panel.h;
const fitsUpward = (panel, text) => textWidth(text) <= panel.h && OWN_SIZE <= panel.w;

// Labels for cells, all of one kind: the fullest that there is room for in each of them.
function labelOwn(panel, cells) {
  const texts = cells.map((at) => ownLabels(panel, ...at));
  const levels = texts.length ? [...texts[0].keys()] : [];
  for (const fits of [fitsAcross, fitsUpward]) {
    const level = levels.find((i) => texts.every((own) => fits(panel, own[i])));
    if (level === undefined) continue;
    cells.forEach(([row, col], i) => {
      const x = facts.left + (col + 0.5) * panel.w, y = facts.above + (row + 0.5) * panel.h;
      const text = document.createElementNS(SVG, "text");
      text.setAttribute("class", "own");
      text.setAttribute("font-size", OWN_SIZE);
      text.setAttribute("x", x);
      text.setAttribute("y", y + OWN_SIZE * 0.35);
      if (fits === fitsUpward) text.setAttribute("transform", `rotate(-90,${x},${y})`);
      text.textContent = texts[i][level];
      panel.svg.append(text);
    });
    return;
  }
}

// A label of several cells, some of which are lit, would be cut: these get labels of their own.
function relabel(panel, areas) {
  const cells = [];
  for (const label of panel.labels) {
    const parts = areas ? areas.map((area) => common(label, area)).filter(Boolean) : [];
    const lit = parts.reduce((sum, part) => sum + cellCount(part), 0);
    const cut = lit > 0 && lit < cellCount(label);
    label.text.style.visibility = cut ? "hidden" : "";
    if (cut) parts.forEach((part) => cells.push(...cellsIn(part)));
  }
  return cells;
}

// Veils all but `areas` of a panel, and frames those of `marks`.
function light(panel, areas, marks) {
  panel.svg.querySelectorAll(".veil, .mark, .own").forEach((x) => x.remove());
  const cut = relabel(panel, areas);
  panel.svg.dataset.lit = areas.length;
  if (!areas) return;
  const add = (kind, d) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", kind);
    path.setAttribute("d", d);
    panel.svg.append(path);
  };
  const whole = box(panel, { row0: 0, row1: panel.rows - 1, col0: 0, col1: panel.cols - 1 });
  add("veil", whole + areas.map((x) => box(panel, x)).join(""));
  for (const kind of ["mark light", "mark"]) {
    if (marks.length) add(kind, marks.map((x) => box(panel, x)).join(""));
  }
  labelOwn(panel, cut);
}

function whole(lines) {
  readout.replaceChildren();
  lines.forEach((line, i) => {
    const part = document.createElement(i ? "span" : "b");
    part.textContent = (i ? "\n" : "") + line;
    readout.append(part);
  });
}

function showElement({ panel, row, col }) {
  const lines = [`${nameOf(panel, row, col)}: ${whereIs(panel, row, col)}`];
  const lanes = new Set(lanesOf(panel, row, col));
  for (const other of facts.panels) {
    const area = other === panel ? cell(row, col) : related(panel, row, col, other);
    light(other, area ? [area] : [], area ? [area] : []);
    if (!area || other === panel || (other.figure.hidden && other.name !== panel.name)) continue;
    const cells = [...cellsIn(area)];
    const name = nameOf(other, span(area.row0, area.row1), span(area.col0, area.col1));
    const where = isMemory(other)
      ? unitsText(cells.map(([r, c]) => address(other, r, c) >> 4 << 4))
      : lanesText(cells.flatMap(([r, c]) => lanesOf(other, r, c)));
    if (cells.length === 1) lines.push(`${nameOf(other, ...cells[0])}: ${whereIs(other, ...cells[0])}`);
    else lines.push(`${name}: ${where}`);
  }
  return [lines, lanes];
}

// Everything that `test` picks; each line lists the elements of a panel in sight by `key`.
function showAll(test, key, title) {
  const lines = [title];
  for (const panel of facts.panels) {
    const areas = [], listed = new Map();
    for (const [row, col] of cellsIn({ row0: 0, row1: panel.rows - 1, col0: 0, col1: panel.cols - 1 })) {
      if (!test(panel, row, col)) continue;
      areas.push(cell(row, col));
      for (const name of key(panel, row, col)) {
        if (!listed.has(name)) listed.set(name, []);
        listed.get(name).push([row, col]);
      }
    }
    light(panel, areas, []);
    if (!listed.size || panel.figure.hidden) continue;
    const sorted = [...listed].sort((x, y) => x[0].localeCompare(y[0], "en", { numeric: true }));
    lines.push(sorted.map(([name, places]) => `${name} = ${namesOf(panel, places)}`).join(", "));
  }
  return lines;
}

function showLane({ lane, register }) {
  const one = register !== undefined;
  const fits = (panel, x) => x.lane === lane && (!one || x.register === register);
  const test = (panel, row, col) => panel.kind === "registers"
    ? held(panel, row, col).some((x) => fits(panel, x)) : !one && lanesOf(panel, row, col).includes(lane);
  const key = (panel, row, col) => panel.kind === "registers"
    ? held(panel, row, col).filter((x) => fits(panel, x)).map((x) => `${panel.name} ${lane}:${x.register}`)
    : [`row at ${panel.name} of lane ${lane}`];
  return [showAll(test, key, `lane ${lane}` + (one ? `, register ${register}` : "")), new Set([lane])];
}

function showByte({ byte }) {
  const test = (panel, row, col) => isMemory(panel) && address(panel, row, col) <= byte &&
    byte < address(panel, row, col) + Math.max(1, panel.bits / 8);
  return [showAll(test, () => [`byte ${byte}`], `byte ${byte} of shared memory`), new Set()];
}

function show(selection) {
  document.documentElement.dataset.selection = selection ? textOf(selection) : "";
  readout.classList.toggle("picked", Boolean(selection));
  let lines = [facts.help], lanes = new Set();
  if (!selection) facts.panels.forEach((panel) => light(panel, "", []));
  else if (selection.panel) [lines, lanes] = showElement(selection);
  else [lines, lanes] = selection.byte === undefined ? showLane(selection) : showByte(selection);
  whole(lines);
  buttons.forEach((button, lane) => button.setAttribute("aria-pressed", lanes.has(lane)));
}

// --- choosing ------------------------------------------------------------------------------------

function textOf(selection) {
  if (selection.panel) return nameOf(selection.panel, selection.row, selection.col);
  if (selection.byte !== undefined) return `byte=${selection.byte}`;
  return selection.register === undefined ? `lane=${selection.lane}` : `${selection.lane}:${selection.register}`;
}

// The selection that a text names; throws an Error with a message for people.
function find(text) {
  const given = text.trim().toLowerCase();
  let match = given.match(/^(?:lane|thread|t)\s*[=:]?\s*(\d+)$/) ?? given.match(/^(\d+)\s*:\s*(\d+)$/);
  if (match) {
    const [lane, register] = match.slice(1).map(Number);
    if (lane >= facts.lanes) throw Error(`there is no lane ${lane}: lanes are 0-${facts.lanes - 1}`);
    const found = match[2] === undefined ? { lane } : { lane, register };
    const top = Math.max(...facts.panels.map((x) => (x.kind === "registers" ? x.registers : 0)));
    if (register >= top) throw Error(`there is no register ${register}: registers are 0-${top - 1}`);
    return found;
  }
  match = given.match(/^(?:byte\s*[=:]?\s*)?(0x[0-9a-f]+)$/) ?? given.match(/^byte\s*[=:]?\s*(\d+)$/);
  if (match) {
    if (!facts.panels.some(isMemory)) throw Error("nothing here is in shared memory");
    return { byte: Number(match[1]) };
  }
  match = given.match(/^([a-z_]+)\W+(\d+)\W+(\d+)(?:\W+(\d+))?\W*$/);
  if (!match) throw Error(`"${text}" is neither an element such as a[3][2] nor ${facts.also}`);
  const [name, ...rest] = match.slice(1).filter((x) => x !== undefined);
  const panels = facts.panels.filter((x) => x.name === name || x.also.includes(name));
  if (!panels.length) throw Error(`there is no ${name}: operands are ${[...new Set(facts.panels.map((x) => x.name))].join(", ")}`);
  const numbers = rest.map(Number), col = numbers.pop(), row = numbers.pop();
  const grouped = panels.filter((x) => x.group === (numbers[0] ?? x.group));
  const panel = grouped.find((x) => !x.figure.hidden) ?? grouped[0];
  if (!panel || row >= panel.rows || col >= panel.cols) {
    const { rows, cols } = panels[0], groups = Math.max(...panels.map((x) => x.group));
    throw Error(`${name} is ${rows} × ${cols}: rows 0-${rows - 1}, columns 0-${cols - 1}` +
      (groups ? `; write ${name}[which][row][column], which is 0-${groups}` : ""));
  }
  return { panel, row, col };
}

// Shows a panel instead of the alternatives to it.
function uncover(panel) {
  for (const other of facts.panels) {
    if (other.section === panel.section && other.area === panel.area) other.figure.hidden = other !== panel;
  }
  const choice = panel.figure.parentElement.querySelector("select");
  if (choice) choice.value = String(facts.panels.indexOf(panel));
}

function keep(selection) {
  kept = selection;
  if (selection?.panel) uncover(selection.panel);
  history.replaceState(null, "", selection ? "#" + textOf(selection) : location.pathname + location.search);
  show(selection);
}

function go(text) {
  search.setCustomValidity("");
  try {
    keep(text ? find(text) : null);
  } catch (error) {
    keep(null);
    whole([error.message]);
    readout.classList.add("picked");
  }
}

for (const panel of facts.panels) {
  const at = (event) => {
    const corner = panel.svg.getBoundingClientRect(), scale = corner.width / panel.svg.viewBox.baseVal.width;
    const row = Math.floor(((event.clientY - corner.top) / scale - facts.above) / panel.h);
    const col = Math.floor(((event.clientX - corner.left) / scale - facts.left) / panel.w);
    return row >= 0 && col >= 0 && row < panel.rows && col < panel.cols ? { panel, row, col } : null;
  };
  panel.svg.addEventListener("pointermove", (event) => show(at(event) ?? kept));
  panel.svg.addEventListener("pointerleave", () => show(kept));
  panel.svg.addEventListener("click", (event) => keep(at(event)));
  panel.svg.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const here = kept?.panel === panel ? kept : { row: -step[0], col: -step[1] };
    const within = (i, size) => Math.min(Math.max(i, 0), size - 1);
    keep({ panel, row: within(here.row + step[0], panel.rows), col: within(here.col + step[1], panel.cols) });
  });
}

buttons.forEach((button, lane) => {
  button.addEventListener("pointerenter", () => show({ lane }));
  button.addEventListener("pointerleave", () => show(kept));
  button.addEventListener("focus", () => show({ lane }));
  button.addEventListener("blur", () => show(kept));
  button.addEventListener("click", () => keep({ lane }));
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -32, ArrowDown: 32 }[event.key];
    const next = step && buttons[lane + step];
    if (!next) return;
    event.preventDefault();
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
});

// Makes the whole product visible at once, or gives it its own size again. Below each other, in a
// narrow window, the operands need to fit its width alone. A page opens so, unless it would be small.
const fit = document.getElementById("fit"), main = document.querySelector("main");
const SMALLEST = 0.6;

function scaleToFit() {
  main.style.zoom = "";
  const found = [...document.querySelectorAll(".product")];
  const edges = (side, pick) => pick(...found.flatMap((x) =>
    [...x.children].map((y) => y.getBoundingClientRect()).filter((y) => y.width).map((y) => y[side])));
  const width = edges("right", Math.max) - Math.min(...found.map((x) => x.getBoundingClientRect().left));
  const across = (innerWidth - 24) / width;
  if (getComputedStyle(found[0]).display !== "grid") return Math.min(1, across);
  const tall = edges("bottom", Math.max) - Math.min(...found.map((x) => x.getBoundingClientRect().top));
  return Math.min(1, across, (innerHeight - document.querySelector("header").offsetHeight - 24) / tall);
}

function setFit(fitted, least = 0) {
  const scale = fitted ? scaleToFit() : 1;
  fitted &&= scale >= least;
  main.style.zoom = fitted && scale < 1 ? scale : "";
  fit.setAttribute("aria-pressed", fitted);
}

fit.addEventListener("click", () => setFit(fit.getAttribute("aria-pressed") !== "true"));
setFit(true, SMALLEST);

document.querySelectorAll("select").forEach((choice) => {
  choice.addEventListener("change", () => {
    uncover(facts.panels[Number(choice.value)]);
    keep(null);
  });
});
document.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  go(search.value);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") keep(null);
});
const fromAddress = () => go(decodeURIComponent(location.hash.slice(1)));
window.addEventListener("hashchange", fromAddress);
fromAddress();
