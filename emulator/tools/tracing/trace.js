"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const $ = (name) => document.getElementById(name);
const { warps, mbarriers, statements, registers, files } = facts;
const ROW = 20, TOP = 18;
const ends = warps.map((w) => (w.times.length ? w.times[w.times.length - 1] + 1 : 0));
const total = Math.max(1, ...ends, ...warps.flatMap((w) => w.groups.map((g) => g[2])));
let scale = Math.min(24, Math.max(1, 2000 / total)), chosen = null, lane = 0;

const FONT = "11px ui-monospace, Menlo, Consolas, monospace";
const labels = [...warps.map((w) => `${w.block} warp ${w.number}`),
  ...mbarriers.map((m) => `${m.block} ${m.name}`)];
let LABEL = 0; // pixels of the longest label, at most two fifths of the timeline
function measure() {
  const g = $("canvas").getContext("2d");
  g.font = FONT;
  const wide = Math.max(...labels.map((x) => g.measureText(x).width));
  LABEL = Math.min(Math.ceil(wide) + 12, Math.floor($("scroll").clientWidth * 0.4));
}

// --- words of lanes ---

const typeBits = (type) => (type === "pred" ? 1 : +(/\d+/.exec(type) || [32])[0]);
function unpack(text, bits) {
  if (text[0] === "=") {
    const raw = Uint8Array.from(atob(text.slice(1)), (x) => x.charCodeAt(0)), view = new DataView(raw.buffer);
    const size = bits > 32 ? 8 : 4;
    return Array.from({ length: raw.length / size }, (_, i) =>
      size === 8 ? view.getBigUint64(8 * i, true) : BigInt(view.getUint32(4 * i, true)));
  }
  const [start, step] = text.split("+").map((x) => BigInt("0x" + x));
  const mask = (1n << BigInt(bits)) - 1n;
  return Array.from({ length: 32 }, (_, i) => (step === undefined ? start : (start + BigInt(i) * step) & mask));
}
function half(code) {
  const sign = code >> 15 ? -1 : 1, exponent = (code >> 10) & 31, part = code & 1023;
  if (exponent === 31) return part ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + part / 1024) * 2 ** (exponent - 15) : part * 2 ** -24);
}
const short = (x) => (Number.isInteger(x) ? String(x) : String(+x.toPrecision(6)));
function show(word, type) {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, BigInt.asUintN(64, word), true);
  if (type === "pred") return word ? "true" : "false";
  if (type === "f32") return short(view.getFloat32(0, true));
  if (type === "f64") return short(view.getFloat64(0, true));
  if (type === "f16") return short(half(Number(word)));
  if (type[0] === "s") return String(BigInt.asIntN(typeBits(type), word));
  return type[0] === "u" || word < 65536n ? String(word) : "0x" + word.toString(16);
}

// --- source ---

const byLine = new Map(); // "file:line" -> the statements
statements.forEach((s, pc) => s.lines.forEach(([file, n]) => {
  const key = file + ":" + n;
  byLine.set(key, [...(byLine.get(key) || []), pc]);
}));
for (const name of Object.keys(files)) $("file").add(new Option(name === "ptx" ? "PTX" : name, name));
let rows = [];
function showFile() {
  const { lines, heat, findings } = files[$("file").value];
  const most = Math.max(1, ...Object.values(heat));
  const table = document.createElement("table");
  rows = lines.map((text, i) => {
    const row = table.insertRow(), count = heat[i + 1] || 0;
    row.insertCell().textContent = i + 1;
    const cell = row.insertCell();
    cell.textContent = count ? count.toLocaleString("en") : "";
    cell.style.background = count ? `rgba(var(--hot), ${(0.08 + 0.6 * Math.log1p(count) / Math.log1p(most)).toFixed(2)})` : "";
    row.insertCell().textContent = text;
    if (findings[i + 1]) { row.className = "bad"; row.title = findings[i + 1]; }
    if (count) { row.classList.add("run"); row.addEventListener("click", () => goLine(i + 1)); }
    return row;
  });
  $("source").replaceChildren(table);
  markLine();
}
function goLine(number) { // the next execution of the line by the chosen warp, or by any
  const pcs = new Set(byLine.get($("file").value + ":" + number));
  const order = chosen ? [chosen.warp, ...warps.keys()] : [...warps.keys()];
  for (const w of order) {
    const from = chosen && chosen.warp === w ? chosen.index + 1 : 0;
    const all = warps[w].pcs;
    for (const start of [from, 0]) {
      for (let i = start; i < all.length; i++) if (pcs.has(all[i])) return choose(w, i);
    }
  }
}
function markLine() {
  rows.forEach((row) => row.classList.remove("here"));
  if (!chosen) return;
  const file = $("file").value;
  for (const [name, number] of statements[warps[chosen.warp].pcs[chosen.index]].lines) {
    const row = name === file && rows[number - 1];
    if (row) { row.classList.add("here"); row.scrollIntoView({ block: "nearest" }); break; }
  }
}

// --- timeline ---

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const first = (list, x) => { // index of the first entry that is not below x
  let low = 0, high = list.length;
  while (low < high) { const mid = (low + high) >> 1; if (list[mid] < x) low = mid + 1; else high = mid; }
  return low;
};
function draw() {
  const box = $("scroll"), canvas = $("canvas"), ratio = devicePixelRatio || 1;
  measure();
  const full = TOP + ROW * labels.length + 8;
  $("time").style.height = full + 18 + "px"; // with the scroll bar; the style has the most
  const width = box.clientWidth, height = Math.max(box.clientHeight - 1, 40);
  $("wide").style.width = LABEL + total * scale + 40 + "px";
  $("wide").style.height = Math.max(full, height) + "px";
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.width = width + "px"; canvas.style.height = height + "px";
  const g = canvas.getContext("2d"), left = box.scrollLeft, up = box.scrollTop;
  const ink = css("--ink"), soft = css("--soft"), line = css("--line");
  const colours = facts.kinds.map((_, i) => css("--k" + i));
  const x = (t) => LABEL + t * scale - left, y = (row) => TOP + row * ROW - up;
  g.scale(ratio, ratio);
  g.font = FONT;
  g.textBaseline = "middle";
  const from = left / scale, to = (left + width) / scale;
  warps.forEach((w, row) => {
    const top = y(row);
    if (top < -ROW || top > height) return;
    g.fillStyle = line; g.fillRect(LABEL, top + ROW - 1, width, 1);
    const start = Math.max(0, first(w.times, from) - 1);
    for (let i = start; i < w.times.length && w.times[i] <= to; i++) {
      const t = w.times[i], next = w.times[i + 1];
      if (next > t + 1 || (next === undefined && w.waits[i])) {
        g.fillStyle = css("--waits");
        const until = next === undefined ? total : next;
        g.fillRect(x(t + 1), top + 4, (until - t - 1) * scale, ROW - 8);
        if ((until - t) * scale > 90 && w.waits[i]) {
          g.save(); g.beginPath(); g.rect(x(t + 1), top, (until - t - 1) * scale - 2, ROW); g.clip();
          g.fillStyle = ink; g.fillText(w.waits[i], Math.max(x(t + 1), LABEL) + 3, top + ROW / 2); g.restore();
        }
      }
      g.fillStyle = colours[statements[w.pcs[i]].kind];
      g.fillRect(x(t), top + 3, Math.max(1, scale - (scale > 3 ? 1 : 0)), ROW - 6);
    }
    g.strokeStyle = ink;
    for (const [, a, b] of w.groups) if (b >= from && a <= to) g.strokeRect(x(a) + 0.5, top + 1.5, (b - a) * scale - 1, ROW - 4);
  });
  mbarriers.forEach((m, n) => {
    const top = y(warps.length + n);
    if (top < -ROW || top > height) return;
    m.changes.forEach(([t, over, arrivals, bytes], i) => {
      const end = i + 1 < m.changes.length ? m.changes[i + 1][0] : total;
      if (end < from || t > to) return;
      g.fillStyle = over % 2 ? "#7d8fb3" : "#b3a27d";
      g.fillRect(x(t), top + 3, Math.max(1, (end - t) * scale - 1), ROW - 6);
      const text = `phase ${over}` + (arrivals || bytes ? `: ${arrivals} arrival${arrivals === 1 ? "" : "s"}` + (bytes ? `, ${bytes} bytes` : "") : "");
      if ((end - t) * scale > 8 * 6.7) {
        g.save(); g.beginPath(); g.rect(x(t), top, (end - t) * scale - 3, ROW); g.clip();
        g.fillStyle = "#111"; g.fillText(text, Math.max(x(t), LABEL) + 3, top + ROW / 2); g.restore();
      }
    });
  });
  if (chosen) {
    const t = warps[chosen.warp].times[chosen.index];
    g.strokeStyle = ink; g.lineWidth = 2;
    g.strokeRect(x(t) - 1, y(chosen.warp) + 1, Math.max(3, scale) + 2, ROW - 2);
    g.lineWidth = 1; g.globalAlpha = 0.4; g.beginPath(); g.moveTo(x(t) + 0.5, 0); g.lineTo(x(t) + 0.5, height); g.stroke();
    g.globalAlpha = 1;
  }
  g.fillStyle = css("--back"); g.fillRect(0, 0, LABEL, height); g.fillRect(0, 0, width, TOP);
  g.fillStyle = ink;
  labels.forEach((text, row) => {
    const top = y(row);
    if (top <= TOP - ROW || top >= height) return;
    g.save(); g.beginPath(); g.rect(0, top, LABEL - 4, ROW); g.clip();
    g.fillText(text, 6, top + ROW / 2);
    g.restore();
  });
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((n) => n * scale > 60) || 10000;
  g.fillStyle = soft;
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) if (x(t) > LABEL) g.fillText(t, x(t), TOP / 2);
}
function pick(event) {
  const box = $("canvas").getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top + $("scroll").scrollTop - TOP) / ROW);
  const t = (event.clientX - box.left + $("scroll").scrollLeft - LABEL) / scale;
  if (row < 0 || row >= warps.length) return;
  const list = warps[row].times, after = first(list, t + 1e-9);
  if (list.length) choose(row, Math.max(0, Math.min(list.length - 1, after - 1)));
}

// --- the chosen statement ---

function valuesAt(warp, index) { // number of a register -> [words, written by this statement]
  const out = new Map();
  for (let i = 0; i <= index; i++) for (const [n, words] of warps[warp].written[i]) out.set(n, [words, i === index]);
  return out;
}
function element(name, text, parent, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  parent.append(made);
  return made;
}
function tableOf(parent, head) {
  const table = element("table", undefined, element("div", undefined, parent, "wide"));
  if (head) { const row = element("tr", undefined, table); head.forEach((x) => element("th", x, row)); }
  return table;
}
function choose(warp, index, keep) {
  chosen = { warp, index };
  const w = warps[warp], statement = statements[w.pcs[index]], moment = $("moment");
  moment.replaceChildren();
  const lines = statement.lines.map(([file, n]) => (file === "ptx" ? "PTX line" : file) + " " + n).join(", ");
  element("pre", `block ${w.block}, warp ${w.number}, step ${w.times[index]} · ${lines}\n${statement.text}`, moment);
  for (const text of new Set(statement.lines.map(([file, n]) => (files[file] || { findings: {} }).findings[n]))) {
    if (text) element("pre", text, moment, "finding");
  }
  if (w.waits[index]) element("pre", `then waits: ${w.waits[index]}`, moment);
  for (const [title, number] of w.pictures[index] || []) {
    element("h2", title, moment);
    element("div", undefined, moment, "wide").innerHTML = facts.pictures[number];
  }
  for (const [name, number] of Object.entries(w.tiles[index] || {})) {
    const tile = facts.tiles[number];
    if (!tile) { element("pre", `${name}: the page has no room for more tiles`, moment); continue; }
    element("h2", `${name}: ${tile.rows.length} × ${tile.rows[0].length} ${tile.type}, ${tile.place}`, moment);
    const table = tableOf(moment, ["", ...tile.rows[0].map((_, i) => String(i))]);
    tile.rows.forEach((row, i) => {
      const line = element("tr", undefined, table);
      [String(i), ...row].forEach((x) => element("td", x, line));
    });
  }
  element("h2", "registers behind the statement, in the lanes", moment);
  const found = [...valuesAt(warp, index)].sort((a, b) => b[1][1] - a[1][1] || a[0] - b[0]);
  const table = tableOf(moment, ["register", ...Array.from({ length: 32 }, (_, i) => String(i))]);
  for (const [number, [text, fresh]] of found) {
    const [name, type] = registers[number], row = element("tr", undefined, table, fresh ? "new" : "");
    element("td", `${name} .${type}`, row);
    const words = unpack(text, typeBits(type));
    const same = !text.includes("+") && text[0] !== "=";
    if (same) { const cell = element("td", show(words[0], type) + " in all lanes", row); cell.colSpan = 32; cell.style.textAlign = "left"; continue; }
    words.forEach((word, i) => element("td", show(word, type), row, (w.lanes[index] >>> i) & 1 ? "" : "off"));
  }
  if (!keep) history.replaceState(null, "", `#${warp}.${index}`);
  markLine();
  const t = w.times[index] * scale, box = $("scroll");
  if (t < box.scrollLeft || t > box.scrollLeft + box.clientWidth - LABEL - 40) box.scrollLeft = t - box.clientWidth / 3;
  draw();
}
function zoom(by) {
  const box = $("scroll"), middle = (box.scrollLeft + box.clientWidth / 2) / scale;
  scale = Math.min(60, Math.max(0.05, scale * by));
  draw();
  box.scrollLeft = middle * scale - box.clientWidth / 2;
}
function key(event) {
  if (!chosen || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
  let { warp, index } = chosen;
  if (event.key === "ArrowRight") index += 1;
  else if (event.key === "ArrowLeft") index -= 1;
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    warp += event.key === "ArrowDown" ? 1 : -1;
    if (!warps[warp]) return;
    index = Math.max(0, first(warps[warp].times, warps[chosen.warp].times[index] + 1) - 1);
  } else return;
  event.preventDefault();
  if (warps[warp].pcs[index] !== undefined) choose(warp, index);
}
$("file").addEventListener("change", showFile);
$("in").addEventListener("click", () => zoom(1.6));
$("out").addEventListener("click", () => zoom(1 / 1.6));
$("scroll").addEventListener("scroll", draw);
$("canvas").addEventListener("click", pick);
addEventListener("keydown", key);
addEventListener("resize", draw);
showFile();
draw();
const place = /^#(\d+)\.(\d+)$/.exec(location.hash);
if (place && warps[place[1]] && warps[place[1]].pcs[place[2]] !== undefined) choose(+place[1], +place[2], true);
else if (warps.length) choose(0, 0, true);
