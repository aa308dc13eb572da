// What pages do by themselves: lines as they are written, curves, the state of a run. Text is only ever text.
"use strict";

const MOST_LINES = 5000;
const CURVES_EVERY_MS = 3000;
const NOW_EVERY_MS = 2000;
// Of one frame, what drawing may take.
const DRAW_MS = 20;
// Colours are those of colours.css, for light and dark; dashes tell lines apart, too.
const NUM_COLOURS = 7;
const colourOf = (number) => getComputedStyle(document.documentElement).getPropertyValue(`--series-${number % NUM_COLOURS}`).trim();
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

function watchLog(log) {
  const form = document.getElementById("choose");
  const told = document.getElementById("told");
  const stick = document.getElementById("stick");
  const hasRanks = "ranks" in log.dataset;
  let source = null;

  function add(lines) {
    const added = document.createDocumentFragment();
    for (const [rank, ts, text] of lines) {
      const line = document.createElement("div");
      line.className = "line";
      line.title = ts;
      line.textContent = hasRanks ? `[${rank}] ${text}` : text;
      if (hasRanks) line.dataset.rank = rank % NUM_COLOURS;
      added.append(line);
    }
    log.append(added);
    while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
    if (stick.checked) log.scrollTop = log.scrollHeight;
  }

  // The id of the last event, from which a stream that was closed goes on.
  let last = "";
  let isOver = false;

  function say(text) { told.textContent = text; }

  function close() {
    if (source) source.close();
    source = null;
  }

  function open() {
    close();
    const asked = new URLSearchParams(new FormData(form));
    if (last) asked.set("last", last);
    const address = `${log.dataset.from}?${asked}`;
    const opened = new EventSource(address);
    // Of a connection that says before that it ends, nothing is said unless the next one fails, too.
    let isExpected = false;
    source = opened;
    opened.onopen = () => say("");
    opened.onmessage = (event) => { last = event.lastEventId; add(JSON.parse(event.data)); };
    // The server has as many streams as a browser has connections for; this one comes again.
    opened.addEventListener("turn", () => { isExpected = true; });
    opened.addEventListener("over", () => { isOver = true; close(); say("all lines are here"); });
    opened.addEventListener("late", (event) => {
      isExpected = true;
      say(`trying again: ${JSON.parse(event.data)}`);
    });
    opened.addEventListener("found", () => say(""));
    opened.addEventListener("lost", (event) => {
      isOver = true;
      close();
      say(`no more lines: ${JSON.parse(event.data)}`);
    });
    opened.onerror = async () => {
      if (opened.readyState !== EventSource.CLOSED) {
        if (!isExpected) say("connecting again");
        isExpected = false;
        return;
      }
      const why = await whyRefused(address);
      if (source !== opened) return;
      isOver = why.isOver;
      say(why.text);
    };
  }

  function openAnew() {
    log.replaceChildren();
    last = "";
    isOver = false;
    open();
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); openAnew(); });
  log.addEventListener("wheel", (event) => { if (event.deltaY < 0) stick.checked = false; });
  addEventListener("pagehide", close);
  // A tab that nobody sees leaves its connection to others.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!source && !isOver) open();
  });
  if (!document.hidden) open();
}

const ENDED = "no answer: has `launch ui` ended? Open the address that it prints.";
// Another server at the same port does not know this browser.
const isEnded = (answer) => !answer || answer.status === 403;

// An EventSource does not tell an answer's text. A run that is not there has no more lines.
async function whyRefused(address) {
  const ended = { text: ENDED, isOver: false };
  const stop = new AbortController();
  try {
    const answer = await fetch(address, { signal: stop.signal });
    if (isEnded(answer)) return ended;
    if (answer.ok) return { text: "the connection ended; Show reads the lines again", isOver: false };
    const isOver = answer.status === 404;
    return { text: `${isOver ? "no more lines: " : ""}${await answer.text()}`, isOver };
  } catch {
    return ended;
  } finally {
    stop.abort();
  }
}

// uPlot wants one list of places for all series of a chart, in order; of a step that was made again the
// last value counts.
function aligned(series) {
  const places = [...new Set(series.flatMap((each) => each.at))].sort((a, b) => a - b);
  const index = new Map(places.map((place, at) => [place, at]));
  return [places, ...series.map((each) => {
    const row = new Array(places.length).fill(undefined);
    each.at.forEach((place, at) => { row[index.get(place)] = each.values[at]; });
    widenGaps(row);
    return row;
  })];
}

// A gap (null) reaches from the number before it to the one after it, over places of other series (undefined).
function widenGaps(row) {
  for (let at = 0; at < row.length; at++) {
    if (row[at] !== null) continue;
    for (const way of [-1, 1]) {
      for (let next = at + way; next in row && row[next] === undefined; next += way) row[next] = null;
    }
  }
}

// Where the numbers are that no line leads to.
function alone(row) {
  const found = [];
  let [num, last] = [0, 0];
  for (let at = 0; at <= row.length; at++) {
    if (at === row.length || row[at] === null) {
      if (num === 1) found.push(last);
      num = 0;
    } else if (row[at] !== undefined) {
      num += 1;
      last = at;
    }
  }
  return found;
}

// A chart in words: its title, and the last value of each line.
function chartInWords(chart) {
  const last = chart.series.map((each) => {
    const value = each.values.findLast((one) => one !== null);
    return `${chart.series.length > 1 ? `${each.name}: ` : ""}${value === undefined ? "" : Number(value.toPrecision(4))}`;
  });
  return `${chart.title} by ${chart.axis}; last ${last.join(", ")}`;
}

function drawChart(chart, box, width) {
  const about = document.createElement("figcaption");
  about.textContent = chart.title;
  const plot = document.createElement("div");
  plot.setAttribute("role", "img");
  box.replaceChildren(about, plot);
  const axis = {
    stroke: () => getComputedStyle(box).color, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" },
    values: (_, places) => places.map((each) => String(Number(each.toPrecision(12)))),
  };
  return new uPlot({
    width, height: 220,
    scales: { x: { time: false } },
    axes: [{ ...axis, label: chart.axis, labelSize: 18 }, { ...axis, size: 64 }],
    legend: { show: chart.series.length > 1 },
    cursor: { sync: { key: "curves" } },
    series: [{ label: chart.axis }, ...chart.series.map((each, number) => ({
      label: each.name, stroke: () => colourOf(number), width: 2,
      dash: DASHES[Math.floor(number / NUM_COLOURS) % DASHES.length],
      points: { show: () => false, filter: (drawn, at) => alone(drawn.data[at]) },
    }))],
  }, aligned(chart.series), plot);
}

function watchCharts(place) {
  const charts = new Map();
  const due = new Set();
  let timer = null;
  let isAsking = false;
  let isWhole = true;
  const widthOf = () => Math.max(260, place.firstElementChild.clientWidth - 8);

  // A chart is asked for and drawn once it comes near to what is seen: hundreds cost nothing before.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const found = charts.get(entry.target.dataset.title);
      found.isNear = entry.isIntersecting;
      found.wasNear ||= found.isNear;
    }
    if (entries.some((entry) => entry.isIntersecting)) ask();
  }, { rootMargin: "300px" });

  function draw() {
    const begun = performance.now();
    // Asked once, before anything changes: each time later the browser would lay the page out anew.
    const width = widthOf();
    for (const found of due) {
      due.delete(found);
      if (found.drawn && found.size === found.chart.series.length) found.drawn.setData(aligned(found.chart.series));
      else found.drawn = drawChart(found.chart, found.box, width);
      found.box.lastElementChild.setAttribute("aria-label", chartInWords(found.chart));
      found.size = found.chart.series.length;
      if (performance.now() - begun > DRAW_MS) break;
    }
    if (due.size) requestAnimationFrame(draw);
  }

  function update(told) {
    if (told.length && !charts.size) place.replaceChildren();
    for (const chart of told) {
      let found = charts.get(chart.title);
      if (!found) {
        const box = document.createElement("figure");
        box.className = "chart";
        box.dataset.title = chart.title;
        place.append(box);
        found = { box, version: "", isNear: false, wasNear: false, drawn: null };
        charts.set(chart.title, found);
        seen.observe(box);
      }
      if (chart.series) {
        Object.assign(found, { chart, version: chart.version });
        if (!due.size) requestAnimationFrame(draw);
        due.add(found);
      }
    }
  }

  // One request at a time; each names the charts in view with the versions that are drawn.
  async function ask() {
    if (isAsking) { isWhole = false; return; }
    isAsking = true;
    clearTimeout(timer);
    // One that was passed before it was drawn is drawn, too: who scrolls back finds it.
    const near = [...charts].filter(([, found]) => found.isNear || (found.wasNear && !found.version));
    isWhole = true;
    const asked = new URLSearchParams(near.map(([title, found]) => ["chart", `${found.version} ${title}`]));
    const address = `${place.dataset.from}${place.dataset.from.includes("?") ? "&" : "?"}${asked}`;
    const answer = await fetch(address, { headers: { accept: "application/json" } }).catch(() => null);
    const told = answer && answer.ok ? await answer.json().catch(() => null) : null;
    isAsking = false;
    if (isEnded(answer)) sayTrouble("curves", ENDED);
    else if (!answer.ok) sayTrouble("curves", await errorIn(answer));
    if (told) {
      sayTrouble("curves", "");
      update(told.charts);
      if (told.share < 1) place.dataset.read = told.share.toFixed(2);
      else if (place.dataset.read) becomeWhole();
    }
    if (answer && answer.status === 404) return;
    if (told && (told.share < 1 || !isWhole)) timer = setTimeout(askIfSeen, 50);
    else if (!told || "live" in place.dataset) timer = setTimeout(askIfSeen, CURVES_EVERY_MS);
  }

  function askIfSeen() { if (!document.hidden) ask(); }

  // Figures are of all that a run wrote: they come once it was read.
  function becomeWhole() {
    delete place.dataset.read;
    showNow();
  }

  // A turned phone, a smaller window.
  let drawnWidth = place.clientWidth;
  new ResizeObserver(() => {
    if (!charts.size || place.clientWidth === drawnWidth) return;
    drawnWidth = place.clientWidth;
    const width = widthOf();
    for (const found of charts.values()) if (found.drawn) found.drawn.setSize({ width, height: found.drawn.height });
  }).observe(place);
  document.addEventListener("visibilitychange", askIfSeen);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const found of charts.values()) if (found.drawn) found.drawn.redraw();
  });
  ask();
}

// What keeps parts of a page from being as they are now, until it is over.
const troubles = new Map();
function sayTrouble(part, text) {
  troubles.set(part, text);
  const all = [...new Set([...troubles.values()].filter((each) => each))].join(" ");
  const place = document.getElementById("trouble");
  if (place.textContent !== all) place.textContent = all;
}

// The words of an error that a page would show.
async function errorIn(answer) {
  const told = await answer.json().catch(() => ({}));
  return [told.error, told.hint && `hint: ${told.hint}`].filter((each) => each).join("; ");
}

// Make an element as another one is, node by node: focus, selection and scrolling stay.
function renew(old, made) {
  if (old.nodeName !== made.nodeName) { old.replaceWith(made); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...made.childNodes]];
  after.forEach((each, at) => { if (at < before.length) renew(before[at], each); else old.append(each); });
  for (const each of before.slice(after.length)) each.remove();
}

// Make parts of the page as they are now, those of an address; tells whether there is such a page.
async function renewParts(address, parts) {
  const answer = await fetch(address).catch(() => null);
  if (isEnded(answer)) {
    sayTrouble("now", ENDED);
    return true;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const error = page.querySelector("[role=alert]");
  sayTrouble("now", error ? error.textContent.trim().replace(/\s+/g, " ") : "");
  // What came of an action has a page of its own.
  if (parts.includes("doing") && !page.getElementById("doing")) {
    location.replace(answer.url);
    return false;
  }
  if (error) return answer.status !== 404;
  for (const part of parts) {
    const [old, made] = [document.getElementById(part), page.getElementById(part)];
    if (old && made) renew(old, made);
  }
  return true;
}

// The state and figures of runs as they are now; of runs that are over the rest of the page, too.
async function showNow() {
  const now = document.getElementById("now");
  const wasOn = "again" in now.dataset;
  const isThere = await renewParts(now.dataset.from, ["now"]);
  if (wasOn && !("again" in now.dataset)) {
    for (const place of document.querySelectorAll("[data-live]")) delete place.dataset.live;
    await renewParts(location.href, ["actions", "outputs", "tables"]);
  }
  return isThere;
}

// The state of runs that are on, again and again; a page that is not looked at asks for nothing.
function watchNow() {
  const now = document.getElementById("now");
  if (!now || !("again" in now.dataset)) return;
  setTimeout(async () => { if (document.hidden || await showNow()) watchNow(); }, NOW_EVERY_MS);
}

// For how long an action has been under way, again and again, until it is over.
function watchDoing() {
  if (!document.getElementById("doing")) return;
  setTimeout(async () => { if (document.hidden || await renewParts(location.href, ["doing"])) watchDoing(); }, NOW_EVERY_MS);
}

// Keys of lists: / goes to the first filter, j and k from run to run.
function watchKeys() {
  const rows = () => [...document.querySelectorAll("#runs tbody a")];
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "/") {
      const first = document.querySelector("form.filters input");
      if (first) { event.preventDefault(); first.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const links = rows();
      const at = links.indexOf(document.activeElement);
      const next = links[event.key === "j" ? at + 1 : Math.max(at - 1, 0)];
      if (next) next.focus();
    }
  });
}

const log = document.getElementById("log");
if (log) watchLog(log);
const charts = document.getElementById("charts");
if (charts) watchCharts(charts);
watchNow();
watchDoing();
watchKeys();
