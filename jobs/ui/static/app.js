// What pages do by themselves: lines as they are written, curves, the state of a run. Text is only ever text.
"use strict";

const MOST_LINES = 5000;
const CURVES_EVERY_MS = 3000;
const NOW_EVERY_MS = 2000;
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

  function open() {
    if (source) source.close();
    log.replaceChildren();
    const asked = new URLSearchParams(new FormData(form));
    source = new EventSource(`${log.dataset.from}?${asked}`);
    source.onopen = () => { told.textContent = ""; };
    source.onmessage = (event) => add(JSON.parse(event.data));
    source.addEventListener("over", () => { source.close(); told.textContent = "all lines are here"; });
    source.addEventListener("lost", (event) => {
      source.close();
      told.textContent = `no more lines: ${JSON.parse(event.data)}`;
    });
    source.onerror = () => {
      told.textContent = source.readyState === EventSource.CLOSED
        ? "no answer: has `launch ui` ended? Open the address that it prints." : "connecting again";
    };
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); open(); });
  log.addEventListener("wheel", (event) => { if (event.deltaY < 0) stick.checked = false; });
  addEventListener("pagehide", () => { if (source) source.close(); });
  open();
}

// uPlot wants one list of places for all series of a chart.
function aligned(series) {
  if (series.length === 1) return [series[0].at, series[0].values];
  const places = [...new Set(series.flatMap((each) => each.at))].sort((a, b) => a - b);
  const index = new Map(places.map((place, at) => [place, at]));
  const values = series.map((each) => {
    const row = new Array(places.length).fill(undefined);
    each.at.forEach((place, at) => { row[index.get(place)] = each.values[at]; });
    return row;
  });
  return [places, ...values];
}

function drawChart(chart, width, colour) {
  const box = document.createElement("figure");
  box.className = "chart";
  const about = document.createElement("figcaption");
  about.textContent = chart.title;
  const last = chart.series.map((each) => {
    const value = each.values.findLast((one) => one !== null);
    return `${chart.series.length > 1 ? `${each.name}: ` : ""}${value === undefined ? "" : Number(value.toPrecision(4))}`;
  });
  const plot = document.createElement("div");
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", `${chart.title} by ${chart.axis}; last ${last.join(", ")}`);
  box.append(about, plot);
  const axis = {
    stroke: colour, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" },
    values: (_, places) => places.map((each) => String(Number(each.toPrecision(6)))),
  };
  const drawn = new uPlot({
    width, height: 220,
    scales: { x: { time: false } },
    axes: [{ ...axis, label: chart.axis, labelSize: 18 }, { ...axis, size: 64 }],
    legend: { show: chart.series.length > 1 },
    cursor: { sync: { key: "curves" } },
    series: [{ label: chart.axis }, ...chart.series.map((each, number) => ({
      label: each.name, stroke: () => colourOf(number), width: 2, spanGaps: true,
      dash: DASHES[Math.floor(number / NUM_COLOURS) % DASHES.length],
      points: { show: each.at.length === 1 },
    }))],
  }, aligned(chart.series), plot);
  return { box, drawn, size: chart.series.length };
}

function watchCharts(place) {
  const charts = new Map();
  // A chart is drawn once it comes near to what is seen: hundreds of them cost nothing before.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const found = entry.isIntersecting && charts.get(entry.target.dataset.title);
      if (found && !found.drawn) show(found);
    }
  }, { rootMargin: "300px" });

  function show(found) {
    const colour = getComputedStyle(place).color;
    const made = drawChart(found.chart, Math.max(260, found.box.clientWidth - 8), colour);
    found.box.replaceChildren(...made.box.childNodes);
    found.drawn = made;
  }

  function update(told) {
    if (told.length && !charts.size) place.replaceChildren();
    for (const chart of told) {
      const found = charts.get(chart.title);
      if (!found) {
        const box = document.createElement("figure");
        box.className = "chart";
        box.dataset.title = chart.title;
        place.append(box);
        charts.set(chart.title, { chart, box, drawn: null });
        seen.observe(box);
      } else {
        found.chart = chart;
        if (found.drawn && found.drawn.size === chart.series.length) {
          found.drawn.drawn.setData(aligned(chart.series));
        }
      }
    }
  }

  async function read() {
    const answer = await fetch(place.dataset.from, { headers: { accept: "application/json" } }).catch(() => null);
    if (answer && answer.ok) update(await answer.json());
    const isGone = answer && answer.status === 404;
    if ("live" in place.dataset && !isGone) setTimeout(read, CURVES_EVERY_MS);
  }
  read();
}

// The state of a run that is on, again and again; a page that is not looked at asks for nothing.
function watchNow() {
  const now = document.getElementById("now");
  if (!now || !now.dataset.again) return;
  setTimeout(async () => {
    if (!document.hidden) {
      const answer = await fetch(now.dataset.again).catch(() => null);
      if (answer && answer.status === 404) return;
      if (answer && answer.ok) {
        const made = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("now");
        if (made) now.replaceWith(made);
        if (made && !made.dataset.again) {
          for (const place of document.querySelectorAll("[data-live]")) delete place.dataset.live;
        }
      }
    }
    watchNow();
  }, NOW_EVERY_MS);
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
watchKeys();
