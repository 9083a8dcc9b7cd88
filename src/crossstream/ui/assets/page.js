"use strict";
// The page of a crossstream application. Everything it shows comes from /api; it never writes anything.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const PHASES = ["plan", "run", "publish", "commit", "batch"];
const MOST = 10;

function make(tag, attributes = {}, ...children) {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.append(...children);
  return one;
}
function draw(tag, attributes = {}, ...children) {
  const one = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.append(...children);
  return one;
}

// What the page shows once: asked for again until there is an answer, for the server may be busy, or the state not there yet.
const waiting = new Map();
function loaded(path) {
  if (!waiting.has(path)) waiting.set(path, persistently(path).finally(() => waiting.delete(path)));
  return waiting.get(path);
}
async function persistently(path) {
  for (let pause = 250; ; pause = Math.min(2 * pause, 5000)) {
    try { const answer = await fetch(path); if (answer.ok) return await answer.json(); } catch { /* no connection */ }
    await new Promise((done) => setTimeout(done, pause));
  }
}

// -- numbers as text

const whole = new Intl.NumberFormat("en");
function short(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  for (const [least, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= least) return (number / (letter === "k" ? 1e3 : least)).toPrecision(3) + " " + letter;
  return size < 10 && !Number.isInteger(number) ? number.toFixed(1) : whole.format(Math.round(number));
}
function bytes(number) {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (number >= size) return (number / size).toPrecision(3) + " " + unit;
  return number + " B";
}
function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return "-" + span(-seconds);
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 120) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h";
  return whole.format(Math.round(seconds / 86400)) + " days";
}
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
function moment(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  const [day, time] = date.toISOString().replace("Z", "").split("T");
  return day === new Date().toISOString().slice(0, 10) ? `${time} UTC` : `${day} ${time.slice(0, 8)}`;
}

// -- tables

const LETTERS = 40;
const middle = (name) => (name.length <= LETTERS ? name : `${name.slice(0, 22)}…${name.slice(-17)}`);

function table(place, head, rows, { most = MOST, none = "" } = {}) {
  const key = JSON.stringify([head, rows.map((row) => row.map((cell) => (cell instanceof Node ? cell.textContent + cell.value : cell)))]);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  if (!rows.length) { place.replaceChildren(...(none ? [make("p", { class: "quiet" }, none)] : [])); return; }
  const numbers = head.map((name) => name.startsWith("#"));
  const cell = (tag, value, index) => {
    const one = make(tag, numbers[index] ? { class: "n" } : {}, numbers[index] ? value : middle(value));
    if (!index || value.length > LETTERS) one.title = value;
    return one;
  };
  const body = rows.slice(0, most).map((row) => make("tr", {}, ...row.map((value, index) => cell("td", value, index))));
  const titles = make("tr", {}, ...head.map((name, index) => cell("th", name.replace(/^#/, ""), index)));
  place.replaceChildren(make("table", {}, make("thead", {}, titles), make("tbody", {}, ...body)));
  if (rows.length > most) place.append(make("p", { class: "more" }, `and ${rows.length - most} more`));
}

// -- plots: time goes right, from 0 up

let ring = "minutes";
const course = { time: [], lag: [], read: [], written: [], batch: [], age: [] };
const LENGTH = { minutes: 1800, hours: 86400 };

function plot(place, fields, format) {
  const width = Math.max(120, place.clientWidth), height = 92, left = 44, bottom = 14;
  const now = Date.now() / 1000, begin = course.time.length ? course.time[0] : now;
  const length = Math.min(LENGTH[ring], Math.max(now - begin, ring === "minutes" ? 120 : 3600)), from = now - length;
  let top = 0;
  for (const field of fields) for (const value of course[field]) if (value > top) top = value;
  top = top || 1;
  const x = (time) => left + ((time - from) / length) * (width - left);
  const y = (value) => 6 + (1 - value / top) * (height - bottom - 6);
  const parts = [
    draw("line", { class: "axis", x1: left, x2: width, y1: height - bottom, y2: height - bottom }),
    draw("line", { class: "axis", x1: left, x2: width, y1: 6, y2: 6 }),
    label(format(top), left - 5, 10, "end"), label("0", left - 5, height - bottom + 3, "end"),
    label(span(-length), left, height - 2, "start"), label("now", width, height - 2, "end"),
  ];
  const gap = ring === "minutes" ? 30 : 400;
  fields.forEach((field, index) => {
    let path = "", last = -Infinity;
    course.time.forEach((time, at) => {
      const value = course[field][at];
      if (value === null || time < from) return;
      path += `${time - last > gap ? "M" : "L"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      if (time - last > gap) path += "h.1";
      last = time;
    });
    parts.push(draw("path", { class: `curve c${index + 1}`, d: path }));
  });
  const svg = draw("svg", { role: "img", "aria-label": `course of ${fields.join(" and ")}` }, ...parts);
  const tip = place.querySelector(".tip");
  place.replaceChildren(svg, ...(tip ? [tip] : []));
  place.at = (offset) => {
    const time = from + ((offset - left) / (width - left)) * length;
    let best = -1;
    course.time.forEach((one, index) => {
      if (course[fields[0]][index] !== null && (best < 0 || Math.abs(one - time) < Math.abs(course.time[best] - time))) best = index;
    });
    return best < 0 ? "" : `${clock(course.time[best])}  ${fields.map((field) => (fields.length > 1 ? field + " " : "") + format(course[field][best] ?? NaN)).join(", ")}`;
  };
}
function label(text, x, y, anchor) { return draw("text", { x, y, "text-anchor": anchor }, text); }

function hover(place) {
  place.addEventListener("pointermove", (event) => {
    const offset = event.clientX - place.getBoundingClientRect().left;
    const text = place.at ? place.at(offset) : "";
    let tip = place.querySelector(".tip");
    if (!text) { if (tip) tip.remove(); return; }
    if (!tip) place.append((tip = make("span", { class: "tip" })));
    tip.textContent = text;
    tip.style.left = Math.max(0, Math.min(offset + 10, place.clientWidth - tip.offsetWidth)) + "px";
  });
  place.addEventListener("pointerleave", () => { const tip = place.querySelector(".tip"); if (tip) tip.remove(); });
}
const PLOTS = [["plot-lag", ["lag"], short], ["plot-age", ["age"], span], ["plot-rate", ["read", "written"], short], ["plot-batch", ["batch"], (ms) => span(ms / 1000)]];
function plots() { for (const [id, fields, format] of PLOTS) plot($(id), fields, format); }

async function loadCourse() {
  const wanted = ring, answer = await loaded(`/api/history?span=${wanted}`);
  if (wanted === ring) { Object.assign(course, answer); plots(); }
}

// -- the last batches by phase

function phases(recent) {
  const place = $("phases"), width = Math.max(120, place.clientWidth), height = 92, left = 44, bottom = 14;
  const top = Math.max(1, ...recent.map((one) => one.seconds * 1000));
  const step = (width - left) / Math.max(12, recent.length);
  const parts = [
    draw("line", { class: "axis", x1: left, x2: width, y1: height - bottom, y2: height - bottom }),
    label(span(top / 1000), left - 5, 10, "end"), label("0", left - 5, height - bottom + 3, "end"),
  ];
  recent.forEach((one, index) => {
    let y = height - bottom;
    PHASES.forEach((phase, color) => {
      const high = ((one.phases[phase] || 0) / top) * (height - bottom - 6);
      if (high < 0.2) return;
      parts.push(draw("rect", { class: `f${color + 1}`, x: left + index * step + 0.5, y: y - high, width: Math.max(1, step - 1.5), height: high }));
      y -= high;
    });
  });
  if (recent.length) {
    parts.push(label(`batch ${recent[0].batch}`, left, height - 2, "start"));
    if (recent.length > 6) parts.push(label(String(recent[recent.length - 1].batch), left + recent.length * step, height - 2, "end"));
  }
  const tip = place.querySelector(".tip");
  place.replaceChildren(draw("svg", { role: "img", "aria-label": "time of the last batches by phase" }, ...parts), ...(tip ? [tip] : []));
  place.at = (offset) => {
    const one = recent[Math.floor((offset - left) / step)];
    if (!one) return "";
    const named = PHASES.filter((phase) => one.phases[phase] !== undefined).map((phase) => `${phase} ${span(one.phases[phase] / 1000)}`);
    return `batch ${one.batch}: ${short(one.rows)} records, ${named.join(", ")}`;
  };
  const used = PHASES.map((phase, color) => [phase, color]).filter(([phase]) => recent.some((one) => one.phases[phase] !== undefined));
  if ($("legend").dataset.key !== String(used)) {
    $("legend").dataset.key = String(used);
    $("legend").replaceChildren(...used.map(([phase, color]) => make("span", {}, draw("svg", { viewBox: "0 0 8 8" }, draw("rect", { class: `f${color + 1}`, width: 8, height: 8 })), phase)));
  }
}

// -- an observation

let seen = null, before = null, arrived = 0;

function ratesSince() {
  if (!before || seen.time <= before.time) return { read: 0, written: 0, in: {}, out: {} };
  const elapsed = seen.time - before.time;
  const each = (now, then) => Object.fromEntries(Object.entries(now).map(([name, number]) => [name, Math.max(0, number - (then[name] || 0)) / elapsed]));
  return { read: Math.max(0, seen.read - before.read) / elapsed, written: Math.max(0, seen.written - before.written) / elapsed, in: each(seen.rows_in, before.rows_in), out: each(seen.rows_out, before.rows_out) };
}
const window10 = [];

function show() {
  const lag = Object.entries(seen.lag).flatMap(([topic, partitions]) => Object.entries(partitions).map(([partition, number]) => [topic, partition, number]));
  const total = lag.reduce((sum, one) => sum + one[2], 0);
  const known = lag.length > 0;
  $("application").textContent = seen.application;
  document.title = `${seen.application} · crossstream`;
  $("status").textContent = seen.status === "unseen" ? "not seen running" : seen.status;
  $("status").dataset.is = seen.status;
  const last = seen.last;
  $("running").textContent = seen.running
    ? `batch ${seen.running.batch} running: ${short(seen.running.records)} records, ${span(seen.time - seen.running.since)}`
    : last ? `batch ${last.batch} committed ${span(Date.now() / 1000 - last.time)} ago` : "no batch yet";
  $("seen").textContent = seen.from_folder ? "Read from the state folder." : "";

  $("lag").textContent = known ? short(total) : "–";
  lag.sort((one, other) => other[2] - one[2]);
  const most = lag.length ? lag[0][2] : 0;
  table($("lag-partitions"), ["topic", "partition", "#waiting"], lag.map(([topic, partition, number]) => [topic, partition, whole.format(number)]), { most: 6, none: seen.from_folder ? "not known from the state alone" : "no partition is read yet" });
  $("lag").classList.toggle("bad", most > 0 && seen.status === "failed");

  const results = Object.entries(seen.newest_written);
  const newest = results.length ? Math.max(...results.map((one) => one[1])) : null;
  $("age").textContent = newest === null ? "–" : span(seen.time - newest / 1000);
  $("age-note").textContent = newest === null ? "no result yet" : `its time is ${moment(newest)}`;
  results.sort((one, other) => one[1] - other[1]);
  table($("results"), ["sink", "#age"], results.map(([sink, ms]) => [sink, span(seen.time - ms / 1000)]), { most: 6 });

  window10.push(seen);
  while (window10.length > 2 && window10[0].time < seen.time - 10) window10.shift();
  const oldest = window10[0];
  before = oldest === seen ? null : oldest;
  const rates = ratesSince();
  $("rate-in").textContent = before ? short(rates.read) : "–";
  $("rate-out").textContent = before ? short(rates.written) : "–";
  $("totals").textContent = `${whole.format(seen.read)} in, ${whole.format(seen.written)} out ${seen.from_folder && !seen.started ? "by the offsets" : "since the start"}`;

  $("batch-time").textContent = last ? span(last.seconds) : "–";
  $("batch-note").textContent = last ? `batch ${last.batch}, ${short(last.rows)} records; ${whole.format(seen.batches)} batches` : "no batch yet";
  phases(seen.recent);

  const dropped = Object.entries(seen.dropped).flatMap(([operator, reasons]) => Object.entries(reasons).map(([reason, number]) => [operator || "topics", reason, number]));
  dropped.sort((one, other) => other[2] - one[2]);
  table($("dropped"), ["dropped by", "reason", "#records"], dropped.map(([operator, reason, number]) => [operator, reason, whole.format(number)]), { none: "nothing was dropped" });
  const joins = Object.entries(seen.unmatched).map(([join, number]) => [join, number, seen.matched[join] || 0, seen.fan_out[join]]);
  joins.sort((one, other) => other[1] - one[1]);
  table($("unmatched"), ["join", "#unmatched", "#matched", "#fan-out"], joins.map(([join, no, yes, most]) => [join, whole.format(no), whole.format(yes), most === undefined ? "–" : whole.format(most)]));

  const stores = Object.keys(seen.state_rows).map((name) => [name, seen.state_rows[name], seen.state_bytes[name], seen.skew[name]]);
  stores.sort((one, other) => other[2] - one[2]);
  table($("state"), ["store", "#rows on disk", "#bytes", "#skew"], stores.map(([name, rows, size, skew]) => [name, whole.format(rows), bytes(size), skew === undefined ? "–" : skew.toFixed(2)]), { most: 14, none: "no state yet" });

  const times = Object.entries(seen.newest_read).sort((one, other) => one[1] - other[1]);
  table($("times"), ["input", "#stream time", "#behind"], times.map(([name, ms]) => [name, moment(ms), span(seen.time - ms / 1000)]), { most: 14, none: "no record read yet" });
  const waits = Object.entries(seen.waiting || {}).sort((one, other) => other[1] - one[1]);
  table($("waits"), ["waits for source partitions", "#rows"], waits.map(([operator, rows]) => [operator, whole.format(rows)]));
  $("dead").textContent = whole.format(seen.dead_letters);
  const stands = Object.entries(seen.stands || {});
  table($("stands"), ["transactions", "batch ends behind", "log", "#behind"], stands.map(([topic, one]) => [topic, one.transaction || "–", one.lsn || "–", one.time === null ? "–" : span(seen.time - one.time / 1000)]));
  const texts = [...seen.errors.map((text) => ["bad", text]), ...(seen.waits || []).map((text) => ["warning", text]), ...seen.warnings.map((text) => ["warning", text])];
  if ($("errors").dataset.key !== String(texts)) {
    $("errors").dataset.key = String(texts);
    $("errors").replaceChildren(...(texts.length ? texts.map(([kind, text]) => make("pre", { class: kind }, text)) : [make("p", { class: "quiet" }, "no errors, no warnings")]));
  }
  numbersOfGraph(rates, lag);
  if (seen.running || last) refreshBatches(last ? last.batch : -1);
}

function append() {
  if (ring !== "minutes" || !before) return plots();
  const slot = Math.floor(seen.time / 2);
  if (course.time.length && Math.floor(course.time[course.time.length - 1] / 2) >= slot) return;
  const lag = Object.values(seen.lag).reduce((sum, one) => sum + Object.values(one).reduce((a, b) => a + b, 0), 0);
  const newest = Object.values(seen.newest_written);
  const step = window10[Math.max(0, window10.length - 3)], elapsed = seen.time - step.time || 1;
  const isNew = seen.last && (!step.last || step.last.batch !== seen.last.batch);
  course.time.push(seen.time);
  course.lag.push(lag);
  course.read.push(Math.max(0, seen.read - step.read) / elapsed);
  course.written.push(Math.max(0, seen.written - step.written) / elapsed);
  course.batch.push(isNew ? seen.last.seconds * 1000 : null);
  course.age.push(newest.length ? seen.time - Math.max(...newest) / 1000 : null);
  while (course.time.length && course.time[0] < seen.time - LENGTH.minutes) for (const column of Object.values(course)) column.shift();
  plots();
}

let stream = null;
const still = new URLSearchParams(location.search).has("still"); // one look, for a picture of the page
async function look() { seen = await loaded("/api/observation"); show(); await loadCourse(); const end = course.time.length - 1; $("rate-in").textContent = short(course.read[end]); $("rate-out").textContent = short(course.written[end]); }
function listen() {
  if (still) return void look();
  if (stream) return;
  stream = new EventSource("/api/events");
  stream.onmessage = (event) => { seen = JSON.parse(event.data); arrived = Date.now(); problem(""); show(); append(); };
}
function quiet() { if (stream) { stream.close(); stream = null; } }
function problem(text) { $("problem").textContent = text; $("problem").hidden = !text; }
setInterval(() => {
  if (stream && arrived && Date.now() - arrived > 6000) problem(`No news for ${span((Date.now() - arrived) / 1000)}: the process has ended, or does not answer.`);
}, 2000);
document.addEventListener("visibilitychange", () => { if (document.hidden) quiet(); else { arrived = Date.now(); listen(); loadCourse(); } });

// -- the topology

let drawing = null, zoom = 1;
const shapes = new Map();

async function loadGraph() {
  drawing = await loaded("/api/graph");
  const place = $("graph");
  if (!drawing) { place.replaceChildren(make("p", { class: "quiet" }, "The state folder has no drawing. An application that runs with the page writes it there.")); return; }
  const { box_width: w, box_height: h } = drawing;
  const arrows = drawing.lines.flatMap((line) => [
    draw("path", { class: line.rekeys ? "arrow rekeys" : "arrow", d: line.path, "marker-end": "url(#head)" }),
    ...(line.label && line.label !== "right" ? [draw("text", { class: "quiet label", x: line.x + 4, y: line.y }, line.label)] : []),
  ]);
  const boxes = drawing.shapes.map((shape) => {
    const middle = shape.x + w / 2, group = draw("g", { class: shape.look, tabindex: 0 });
    group.append(draw("rect", { class: "box", x: shape.x, y: shape.y, width: w, height: h, rx: shape.look === "join" ? 24 : shape.look === "topic" ? 0 : 7 }));
    const text = (y, kind, value) => draw("text", { x: middle, y: shape.y + y, "text-anchor": "middle", class: kind }, value);
    const lines = [text(18, "", shape.title), text(34, "quiet", ""), text(49, "quiet", "")];
    const title = draw("title", {}, shape.name);
    group.append(title, ...lines);
    group.setAttribute("aria-label", shape.name);
    if (shape.stores.length) {
      group.classList.add("store");
      const open = () => openStore(shape.stores[0]);
      group.addEventListener("click", open);
      group.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    }
    shapes.set(shape, { group, lines, title });
    return group;
  });
  const marker = draw("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, draw("path", { class: "head", d: "M0 0L8 4L0 8z" }));
  place.replaceChildren(draw("svg", { viewBox: `0 0 ${drawing.width} ${drawing.height}` }, draw("defs", {}, marker), ...arrows, ...boxes));
  fit();
  place.scrollLeft = (place.scrollWidth - place.clientWidth) / 2;
  if (seen) show();
}
function resize() {
  const svg = $("graph").querySelector("svg");
  if (svg) { svg.setAttribute("width", drawing.width * zoom); svg.setAttribute("height", drawing.height * zoom); }
}
function fit(least = 0.8) { if (drawing) { zoom = Math.max(least, Math.min(1.15, ($("graph").clientWidth - 20) / drawing.width)); resize(); } }

function numbersOfGraph(rates, lag) {
  const waiting = new Map();
  for (const [topic, , number] of lag) waiting.set(topic, (waiting.get(topic) || 0) + number);
  const droppedBy = (name) => Object.values(seen.dropped[name] || {}).reduce((sum, one) => sum + one, 0);
  for (const [shape, { group, lines, title }] of shapes) {
    const name = shape.name, set = (line, text, kind = "quiet") => { if (line.textContent !== text) line.textContent = text; line.setAttribute("class", kind); };
    if (shape.look === "topic") {
      const number = waiting.get(name);
      const written = shape.sinks.reduce((sum, sink) => sum + (seen.rows_out[sink] || 0), 0);
      const speed = shape.sinks.reduce((sum, sink) => sum + (rates.out[sink] || 0), 0);
      set(lines[1], number === undefined ? "" : `${short(number)} waiting`);
      set(lines[2], !written ? "" : speed ? `${short(speed)}/s written` : `${short(written)} written`);
      continue;
    }
    const come = seen.rows_in[name], went = seen.rows_out[name], dropped = droppedBy(name);
    const flows = (rates.in[name] || 0) + (rates.out[name] || 0) > 0;
    const one = (number, rate, word) => (number === undefined ? "" : flows ? `${short(rate)}/s ${word}` : `${short(number)} ${word}`);
    set(lines[1], [one(come, rates.in[name], "in"), one(went, rates.out[name], "out")].filter(Boolean).join(", "));
    const stored = shape.stores.map((store) => seen.state_rows[store]).filter((rows) => rows !== undefined);
    if (dropped) set(lines[2], `${short(dropped)} dropped`, "bad");
    else if (seen.unmatched[name]) set(lines[2], `${short(seen.unmatched[name])} unmatched`);
    else set(lines[2], stored.length ? `${short(stored.reduce((sum, rows) => sum + rows, 0))} rows` : "");
    const details = [name, come === undefined ? "" : `${whole.format(come)} in`, went === undefined ? "" : `${whole.format(went)} out`, dropped ? `${whole.format(dropped)} dropped` : "", ...shape.stores.map((store) => `store ${store}`), shape.note || ""].filter(Boolean).join("\n");
    if (title.textContent !== details) title.textContent = details;
    group.setAttribute("aria-label", details.replaceAll("\n", ", "));
  }
}

// -- the store browser

let batches = [], stores = [], known = -2;
async function loadStores() {
  const answer = await loaded("/api/stores");
  if (String(answer.stores.map((one) => one.name)) !== String(stores.map((one) => one.name))) {
    stores = answer.stores;
    $("store").replaceChildren(...stores.map((one) => make("option", { value: one.name }, one.name)));
    if (!stores.length) $("store").append(make("option", { value: "" }, "no queryable stores"));
  }
  batches = answer.batches;
  const chosen = $("as-of").value;
  $("as-of").replaceChildren(make("option", { value: "" }, "newest"), ...batches.slice(-200).reverse().map((one) => make("option", { value: one }, one)));
  $("as-of").value = batches.includes(Number(chosen)) && chosen !== "" ? chosen : "";
}
let due = 0;
function refreshBatches(batch) {
  if (batch !== known && Date.now() > due && document.activeElement !== $("as-of")) { known = batch; due = Date.now() + 5000; loadStores(); }
}
function operation() {
  const chosen = $("operation").value;
  $("key-label").hidden = chosen === "all";
  $("to-label").hidden = chosen !== "range";
  $("key-label").firstChild.textContent = { get: "Key ", range: "From ", prefix: "Prefix ", all: "Key " }[chosen];
  $("changes").hidden = $("ask-why").hidden = chosen !== "get";
}
async function ask(path, values, place = $("answer")) {
  const answer = await fetch(`${path}?${new URLSearchParams(values)}`);
  const content = await answer.json();
  if (answer.ok) return content;
  place.replaceChildren(make("p", { class: "bad" }, `${content.what} (${content.code})`), make("p", { class: "quiet" }, content.next || ""));
  return null;
}
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1).replace(/\n\s*/g, " "));
function cut(value) { const whole = text(value); return whole.length > 4000 ? whole.slice(0, 4000) + " …" : whole; }
function columns(rows) {
  if (!rows.length || !rows.every(([, value]) => value && typeof value === "object" && !Array.isArray(value))) return null;
  const names = [...new Set(rows.flatMap(([, value]) => Object.keys(value)))];
  return names.length <= 12 ? names : null;
}
async function showRows() {
  $("why").replaceChildren();
  const chosen = $("operation").value;
  const answer = await ask("/api/rows", { store: $("store").value, operation: chosen, key: chosen === "all" ? "" : $("key").value, to: $("to").value, as_of: $("as-of").value });
  if (!answer) return;
  const names = columns(answer.rows);
  const head = make("tr", {}, make("th", {}, "key"), ...(names || ["value"]).map((name) => make("th", {}, name)));
  const body = answer.rows.map(([key, value]) => {
    const cells = names ? names.map((name) => (name in value ? cut(value[name]) : "")) : [cut(value)];
    const row = make("tr", { class: "link", tabindex: 0, title: "why it is so, and how it changed" }, make("td", {}, cut(key)), ...cells.map((cell) => make("td", {}, cell)));
    const open = () => {
      const [own, ...times] = byTime() ? key : [key];
      $("operation").value = "get";
      operation();
      $("key").value = typeof own === "string" ? own : JSON.stringify(own);
      showChanges();
      showWhy(times);
    };
    row.addEventListener("click", open);
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    return row;
  });
  $("answer").replaceChildren(body.length ? make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)) : make("p", { class: "quiet" }, "no rows"), ...(answer.more ? [make("p", { class: "more" }, "there are more rows: ask for a key, or a smaller range")] : []));
}
async function showChanges() {
  const answer = await ask("/api/changes", { store: $("store").value, key: $("key").value });
  if (!answer) return;
  const body = answer.changes.map((one) => make("tr", {}, make("td", {}, String(one.batch)), make("td", {}, moment(one.time * 1000)),
    make("td", {}, one.rows.length ? one.rows.map(([key, value]) => (one.rows.length > 1 ? `${text(key)}: ` : "") + cut(value)).join("\n") : "no row")));
  const range = answer.batches.length ? `Kept are batches ${answer.batches[0]} to ${answer.batches[1]}; a line for each that changed the row of ${$("key").value}.` : "no batch is kept";
  $("answer").replaceChildren(make("p", { class: "quiet" }, range), make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "batch"), make("th", {}, "committed"), make("th", {}, "row"))), make("tbody", {}, ...body)));
}
function byTime() { const one = stores.find((store) => store.name === $("store").value); return one !== undefined && one.by_time; }

// -- why a row is what it is

let question = 0;
async function showWhy(times = []) {
  const place = $("why"), mine = (question += 1);
  place.replaceChildren(make("p", { class: "quiet" }, "looking for the records of this row in the topics …"));
  const answer = await ask("/api/why", { store: $("store").value, key: $("key").value, place: times.join(","), as_of: $("as-of").value }, place);
  if (!answer || mine !== question) return;
  const key = [$("key").value, ...times].join(" ");
  const many = answer.records === 1 ? "1 record" : `${whole.format(answer.records)} records`;
  const head = answer.value === null ? `no row ${key}` : `${key} = ${cut(answer.value)}`;
  const said = [...(answer.ended ? [`It ended: ${answer.ended}`] : []), ...answer.notes];
  const made = answer.value === null ? "" : answer.exact ? `made by ${many}; without any of them it is another row` : `not exact: ${many}`;
  place.replaceChildren(make("h3", {}, `Why ${head}`), make("p", { class: "quiet" }, [made, `after batch ${answer.batch}`].filter(Boolean).join(", ")),
    ...said.map((one) => make("p", { class: "warning" }, one)), make("ul", {}, step(answer.step, new Set())));
}
function step(one, before) {
  const line = one.line ? one.line.split("/").slice(-1)[0] : "";
  const item = make("li", {}, make("b", {}, one.operator), make("span", { class: "kind" }, one.kind), make("span", { class: "quiet", title: one.line || "" }, line));
  if (before.has(one.operator)) { item.append(make("span", { class: "quiet" }, " see above")); return item; }
  before.add(one.operator);
  if (one.note) item.append(make("span", { class: "warning" }, ` ${one.note}`));
  const below = one.records.map((record) => make("li", { class: "record" }, make("code", {}, `${text(record.key)} = ${cut(record.value)}`),
    make("div", { class: "quiet" }, [`${record.topic}, partition ${record.partition}, offset ${whole.format(record.offset)}`, moment(record.timestamp), record.batch === null ? "" : `batch ${record.batch}`].filter(Boolean).join(" · "))));
  if (one.count > one.records.length) below.push(make("li", { class: "more" }, `and ${whole.format(one.count - one.records.length)} more records`));
  if (!one.records.length) for (const [key, value] of one.rows) item.append(make("div", {}, make("span", { class: "quiet" }, "gives "), make("code", {}, `${text(key)} = ${cut(value)}`)));
  below.push(...one.inputs.map((input) => step(input, before)));
  if (below.length) item.append(make("ul", {}, ...below));
  return item;
}
function openStore(name) {
  if (![...$("store").options].some((one) => one.value === name)) return;
  $("store").value = name;
  $("operation").value = "all";
  operation();
  location.hash = "stores";
  showRows();
}

// -- keys and choices

function theme(chosen) { if (chosen) document.documentElement.dataset.theme = chosen; }
function otherTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark ? "light" : "dark");
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
}
try { theme(localStorage.getItem("theme")); } catch { /* not kept */ }
$("theme").addEventListener("click", otherTheme);
for (const button of document.querySelectorAll("[data-span]")) button.addEventListener("click", () => {
  ring = button.dataset.span;
  for (const one of document.querySelectorAll("[data-span]")) one.setAttribute("aria-pressed", one === button);
  loadCourse();
});
setInterval(() => { if (ring === "hours" && !document.hidden) loadCourse(); }, 60000);
$("zoom-in").addEventListener("click", () => { zoom *= 1.2; resize(); });
$("zoom-out").addEventListener("click", () => { zoom /= 1.2; resize(); });
$("zoom-fit").addEventListener("click", () => fit(0.1));
$("operation").addEventListener("change", operation);
$("query").addEventListener("submit", (event) => { event.preventDefault(); showRows(); });
$("changes").addEventListener("click", () => { $("why").replaceChildren(); showChanges(); });
$("ask-why").addEventListener("click", () => showWhy());
for (const place of ["phases", ...PLOTS.map((one) => one[0])]) hover($(place));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const section = { 1: "numbers", 2: "topology", 3: "stores" }[event.key];
  if (section) { location.hash = section; $(section).focus({ preventScroll: true }); }
  else if (event.key === "/") { event.preventDefault(); location.hash = "stores"; if ($("key-label").hidden) { $("operation").value = "get"; operation(); } $("key").focus(); }
  else if (event.key === "t") otherTheme();
});
let waits = 0;
addEventListener("resize", () => { clearTimeout(waits); waits = setTimeout(() => { if (seen) phases(seen.recent); plots(); }, 150); });
operation();
listen();
loadCourse();
loadGraph();
loadStores();
