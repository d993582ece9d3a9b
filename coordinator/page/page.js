"use strict";
// Shows /v1/status, asked every second. Names and texts come from hosts, models and strangers: they go
// into the page as text, never as markup.

const kPeriodMs = 1000;
const kPatienceMs = 5000;
const kMostCells = 64; // ranks that a plan's picture has
const kActivities = ["compute", "transfer", "bubble", "wait"];
const byId = (id) => document.getElementById(id);

// ---- Elements ----

// `attributes`: "class", "title", ...; children: elements, or what becomes text.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}
const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Changes an element where what it shows has changed alone, so that scrolling and selections stay.
const shown = new WeakMap();
function show(element, what, make) {
  const now = JSON.stringify(what);
  if (shown.get(element) === now) return;
  shown.set(element, now);
  element.replaceChildren(...make());
}

// ---- Words for people ----

const num = (value) => Number(value ?? 0); // 64-bit numbers come as texts
function count(value) {
  const digits = Math.abs(value) < 10 && value % 1 !== 0 ? 1 : 0;
  return new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(value);
}
function seconds(value) {
  const digits = (number) => Number(number.toPrecision(3)).toString();
  if (!(value > 0)) return "0 s";
  if (value < 1e-3) return `${digits(value * 1e6)} µs`;
  return value < 1 ? `${digits(value * 1e3)} ms` : `${digits(value)} s`;
}
function span(value) {
  const whole = Math.floor(value);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const hours = Math.floor(whole / 3600);
  if (hours < 48) return `${hours} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; ++unit) value /= 1024;
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}
const percent = (share) => `${Math.round(100 * share)}%`;
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const sum = (list, of) => list.reduce((total, item) => total + num(of(item)), 0);
const stateKind = (state) =>
  ["ready", "serving"].includes(state) ? "good" : state === "lost" ? "bad" : "busy";

// ---- Asking ----

let key = sessionStorage.getItem("skein-key") ?? "";

function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  return fetch(path, {
    cache: "no-store", credentials: "omit", redirect: "error",
    signal: AbortSignal.timeout(kPatienceMs), ...options, headers,
  });
}

// What an answer that is no success says.
async function whyNot(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the coordinator answered ${response.status}`;
  }
}

function setKey(to) {
  key = to;
  if (key) sessionStorage.setItem("skein-key", key);
  else sessionStorage.removeItem("skein-key");
  byId("forget").hidden = !key;
}
byId("forget").hidden = !key;
byId("forget").addEventListener("click", () => { setKey(""); look(); });
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(byId("key").value.trim());
  byId("key").value = "";
  look();
});

// ---- Figures of all ----

const rates = []; // tokens a second, the newest last
let rated = 0;

function spark() {
  const most = Math.max(1, ...rates);
  const path = rates.map((rate, i) => `${i ? "L" : "M"}${120 - rates.length + i} ${28 - (26 * rate) / most}`);
  return svg("svg", { class: "spark", viewBox: "0 0 120 30", preserveAspectRatio: "none",
    role: "img", "aria-label": `Tokens a second over the last two minutes, at most ${count(most)}` },
    svg("path", { d: path.join("") }));
}

function tile(term, value, small = "", extra = []) {
  return html("div", extra.length ? { class: "wide" } : {}, html("dt", {}, term),
    html("dd", {}, value, ...(small ? [html("small", {}, small)] : []), ...extra));
}

function showTiles(status) {
  const live = (status.jobs ?? []).filter((job) => job.over_seconds === undefined);
  const replicas = live.flatMap((job) => job.replicas ?? []);
  const load = (field) => sum(replicas, (replica) => replica.load?.[field]);
  const rate = sum(replicas, (replica) => replica.tokens_per_second);
  if (Date.now() - rated > kPeriodMs / 2) {
    rates.push(rate);
    if (rates.length > 120) rates.shift();
    rated = Date.now();
  }
  const latency = (term, of) => tile(term,
    num(of?.count) ? seconds(of.p50_seconds) : "–",
    num(of?.count) ? `99% within ${seconds(of.p99_seconds)}` : "nothing in the last minute");
  const pages = load("total_pages");
  const looked = load("prompt_tokens");
  byId("tiles").replaceChildren(
    tile("Tokens a second", count(rate), `${count(sum(replicas, (r) => r.tokens_total))} so far by these jobs`, [spark()]),
    tile("Requests", count(num(status.running_requests)), `running; ${count(num(status.queued_requests))} queued, ` +
      `${count(num(status.migrations))} moved`),
    latency("First token", status.latencies?.first_token),
    latency("Between tokens", status.latencies?.inter_token),
    tile("KV pages in use", pages ? percent(load("used_pages") / pages) : "–",
      `${count(load("used_pages"))} used, ${count(load("cached_pages"))} cached of ${count(pages)}`),
    tile("Prefix cache", looked ? percent(load("cached_tokens") / looked) : "–",
      `of ${count(looked)} prompt tokens`));
}

// ---- Jobs ----

// Shares of each activity; nothing where nothing was told.
function shares(rank) {
  const of = rank.recent_times;
  const times = of && [of.compute_seconds, of.transfer_seconds, of.bubble_seconds, of.waiting_seconds];
  const whole = times ? sum(times, (time) => time) : 0;
  return whole > 0 ? times.map((time) => time / whole) : null;
}
const sharesText = (of) => kActivities.map((name, i) => `${name} ${percent(of[i])}`).join(", ");

function cell(rank, part, x, y) {
  const kind = rank ? stateKind(rank.state) : "bad";
  const of = rank && shares(rank);
  const name = `rank ${part.rank}`;
  const where = rank?.host ?? "not attached";
  const parts = [
    svg("title", {}, `${name} on ${where}: ${rank?.state ?? "not attached"}; layers ` +
      `${part.layers_begin} to ${num(part.layers_end) - 1}${of ? `; ${sharesText(of)}` : ""}`),
    svg("rect", { class: `box ${kind}`, x, y, width: 148, height: 54, rx: 4 }),
    svg("text", { x: x + 8, y: y + 16 }, `${name} · ${rank?.state ?? "not attached"}`),
    svg("text", { class: "small", x: x + 8, y: y + 31 }, shorten(where, 24)),
  ];
  let from = x + 8;
  (of ?? []).forEach((share, i) => {
    parts.push(svg("rect", { class: kActivities[i], x: from, y: y + 39, width: 132 * share, height: 7 }));
    from += 132 * share;
  });
  return svg("g", {}, ...parts);
}

// Replicas below each other; stages from left to right, shards of a stage below each other.
function planPicture(job) {
  const { tp_size: shards, pp_size: stages, dp_size: replicas } = job.plan.layout;
  const ranks = new Map((job.ranks ?? []).map((rank) => [rank.rank, rank]));
  const fits = Math.max(1, Math.floor(kMostCells / (shards * stages)));
  const drawn = Math.min(replicas, fits);
  const [stepX, stepY] = [176, 62];
  const height = shards * stepY + 40;
  const parts = [];
  for (const part of job.plan.ranks ?? []) {
    if (part.dp_rank >= drawn) continue;
    const top = part.dp_rank * (height + 10);
    const [x, y] = [16 + part.pp_rank * stepX, top + 32 + part.tp_rank * stepY];
    if (part.pp_rank === 0 && part.tp_rank === 0) {
      parts.push(svg("rect", { class: "replica", x: 1, y: top + 1, width: stages * stepX + 4, height, rx: 6 }));
    }
    if (part.tp_rank === 0) {
      const last = num(part.layers_end) - 1;
      const stage = stages > 1 ? `stage ${part.pp_rank}` : `replica ${part.dp_rank}`;
      parts.push(svg("text", { class: "small", x, y: top + 20 },
        `${stages > 1 && part.pp_rank === 0 ? `replica ${part.dp_rank}, ` : ""}${stage}: layers ${part.layers_begin}–${last}`));
    }
    if (part.pp_rank > 0) {
      parts.push(svg("path", { class: "link", d: `M${x - stepX + 148} ${y + 27}h${stepX - 148}` }));
    }
    parts.push(cell(ranks.get(part.rank), part, x, y));
  }
  const [width, total] = [stages * stepX + 8, drawn * (height + 10)];
  const picture = svg("svg", { class: "plan", width, height: total, viewBox: `0 0 ${width} ${total}`, role: "img",
    "aria-label": `Plan of job ${job.job_id}: ${replicas} replicas of ${stages} stages of ${shards} shards; the table below has its ranks` },
    ...parts);
  const left = (replicas - drawn) * stages * shards;
  return left ? [picture, html("p", { class: "quiet" }, `${left} more ranks are in the table.`)] : [picture];
}

function meter(of) {
  const parts = of.map((share, i) => {
    const part = html("span", { class: kActivities[i] });
    part.style.width = `${100 * share}%`;
    return part;
  });
  return html("span", { class: "meter", role: "img", "aria-label": sharesText(of) }, ...parts);
}

const row = (tag, cells) => html("tr", {}, ...cells.map((text) => html(tag, tag === "th" ? { scope: "col" } : {}, text)));
const table = (heads, rows) => html("table", {}, html("thead", {}, row("th", heads)),
  html("tbody", {}, ...rows.map((cells) => row("td", cells))));

function rankTable(job) {
  return table(["Rank", "Host", "State", "Heard", "Read", "Time", "Compute", "Transfer", "Bubble", "Wait"],
    (job.ranks ?? []).map((rank) => {
      const of = shares(rank);
      return [rank.rank, `${rank.host} (pid ${rank.pid})`, rank.state, `${seconds(rank.heartbeat_age_seconds)} ago`,
        bytes(num(rank.bytes_read)), of ? meter(of) : "–", ...kActivities.map((_, i) => (of ? percent(of[i]) : "–"))];
    }));
}

function replicaTable(job) {
  return table(["Replica", "Tokens/s", "Running", "Waiting", "Pages used", "cached", "of", "Decode step", "Predicted",
    "Prompt step", "Predicted", "Preempted"],
    (job.replicas ?? []).map((replica) => {
      const load = replica.load ?? {};
      const times = (step) => (step ? [seconds(step.measured_seconds), seconds(step.predicted_seconds)] : ["–", "–"]);
      return [replica.replica, count(replica.tokens_per_second), count(num(load.running)), count(num(load.waiting)),
        count(num(load.used_pages)), count(num(load.cached_pages)), count(num(load.total_pages)),
        ...times(replica.decode), ...times(replica.prompt),
        count(num(load.preemptions_swapped) + num(load.preemptions_recomputed))];
    }));
}

const scroller = (label) => html("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label });

// The places of a job, which stay as long as it does.
class JobCard {
  constructor(id) {
    this.title = html("h3");
    this.line = html("p", { class: "quiet" });
    this.plan = scroller(`Plan of job ${id}`);
    this.ranks = scroller(`Ranks of job ${id}`);
    this.replicas = scroller(`Replicas of job ${id}`);
    this.machines = scroller(`Machines of job ${id}`);
    const legend = html("ul", { class: "legend", "aria-label": "Where ranks' time went in the last ten seconds" },
      ...[["compute", "compute"], ["transfer", "transfer to others"], ["bubble", "bubble: waits for others in a step"],
        ["wait", "waits for the next order"]].map(([kind, text]) => html("li", {}, html("i", { class: kind }), text)));
    this.root = html("article", { class: "card" }, this.title, this.line,
      html("div", { class: "pictures" }, this.plan, this.machines), legend, this.ranks, this.replicas);
    this.picture = null; // of this plan, as text
  }

  update(job) {
    show(this.title, [job.job_id, job.state], () => [`Job ${job.job_id} `, html("span", { class: `pill ${stateKind(job.state)}` }, job.state)]);
    const layout = job.plan?.layout;
    const line = layout
      ? `tp=${layout.tp_size}, pp=${layout.pp_size}, dp=${layout.dp_size} on ${count(job.size)} ranks`
      : `${(job.ranks ?? []).length} of ${count(job.size)} ranks have attached`;
    show(this.line, line, () => [line]);
    show(this.plan, [job.plan?.ranks, job.ranks], () => (job.plan ? planPicture(job) : []));
    show(this.ranks, job.ranks, () => [rankTable(job)]);
    show(this.replicas, job.replicas, () => ((job.replicas ?? []).length ? [replicaTable(job)] : []));
    this.loadPicture(job);
  }

  async loadPicture(job) {
    const wanted = job.plan ? JSON.stringify(job.plan) : null;
    if (!wanted || this.picture === wanted) return;
    this.picture = wanted;
    try {
      const response = await ask(`/v1/picture?job=${encodeURIComponent(job.job_id)}`);
      if (!response.ok) return;
      // As an image it runs nothing and reaches nothing.
      const image = html("img", { alt: `Hosts of job ${job.job_id} with their ranks, and what connects them` });
      image.addEventListener("load", () => URL.revokeObjectURL(image.src));
      image.src = URL.createObjectURL(await response.blob());
      this.machines.replaceChildren(image);
    } catch {
      this.picture = null; // with the next status
    }
  }
}

const cards = new Map();

function showJobs(jobs) {
  const live = jobs.filter((job) => job.over_seconds === undefined);
  const ids = new Set(live.map((job) => job.job_id));
  for (const [id, card] of cards) {
    if (ids.has(id)) continue;
    card.root.remove();
    cards.delete(id);
  }
  for (const job of live) {
    if (!cards.has(job.job_id)) {
      cards.set(job.job_id, new JobCard(job.job_id));
      byId("jobs").append(cards.get(job.job_id).root);
    }
    cards.get(job.job_id).update(job);
  }
  byId("no-jobs").hidden = live.length > 0;
  const over = jobs.filter((job) => job.over_seconds !== undefined);
  const told = over.map((job) => [job.job_id, job.state, job.detail, span(job.over_seconds)]);
  show(byId("faults"), told, () => (told.length
    ? told.map(([id, state, detail, ago]) => html("li", { class: state },
      html("strong", {}, `Job ${id}: ${state} ${ago} ago`), html("div", {}, detail)))
    : [html("li", {}, "None.")]));
}

// ---- The loop ----

let timer = 0;
let round = 0;
let heard = 0; // when the coordinator last answered

function showState(text, kind) {
  const state = byId("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = `pill ${kind}`;
}
function showAlert(text) {
  const alert = byId("alert");
  alert.hidden = !text;
  if (alert.textContent !== text) alert.textContent = text;
}

function showStatus(status) {
  const text = status.draining ? "draining" : status.serving ? "serving" : "no replica serves";
  showState(text, status.draining ? "busy" : status.serving ? "good" : "bad");
  byId("model").textContent = status.model_name;
  document.title = `${status.model_name} · Skein`;
  byId("about").textContent = `Skein ${status.version}, up ${span(status.uptime_seconds)}`;
  showTiles(status);
  showJobs(status.jobs ?? []);
}

async function look() {
  clearTimeout(timer);
  const mine = ++round;
  let wait = kPeriodMs;
  try {
    const response = await ask("/v1/status");
    const status = response.ok ? await response.json() : null;
    const why = status ? "" : await whyNot(response);
    if (mine !== round) return;
    byId("key-form").hidden = response.status !== 401;
    if (response.status === 401) {
      showState("asks for a key", "busy");
      showAlert(key ? "The coordinator does not know this key." : "");
      return;
    }
    heard = Date.now();
    showAlert(why);
    if (status) {
      showStatus(status);
      if (!byId("served").options.length) listModels();
      byId("heard").textContent = `Asked every second; last at ${new Date().toLocaleTimeString()}.`;
    }
  } catch (error) {
    if (mine !== round) return;
    wait = 2 * kPeriodMs;
    showState("not reached", "bad");
    const since = heard ? ` since ${span((Date.now() - heard) / 1000)}` : "";
    showAlert(`The coordinator does not answer${since}; trying again. What is shown is old.`);
    if (!(error instanceof TypeError || error instanceof DOMException)) console.error(error);
  }
  if (!document.hidden) timer = setTimeout(look, wait);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });

async function listModels() {
  const response = await ask("/v1/models").catch(() => null);
  if (!response?.ok) return;
  const { data } = await response.json();
  byId("served").replaceChildren(...data.map((model) => html("option", { value: model.id }, model.id)));
}

// ---- A prompt ----

let trial = null; // aborts the answer that streams

// The data of server-sent events, as they come.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const events = buffer.split("\n\n");
    buffer = events.pop();
    for (const event of events) {
      for (const line of event.split("\n")) {
        if (line.startsWith("data: ")) yield line.slice(6);
      }
    }
  }
}

function requestOf() {
  const chat = byId("form").value === "chat";
  const prompt = byId("prompt").value;
  const body = { model: byId("served").value || undefined, max_tokens: Number(byId("most").value), stream: true,
    stream_options: { include_usage: true } };
  if (byId("temperature").value !== "") body.temperature = Number(byId("temperature").value);
  if (chat) body.messages = [{ role: "user", content: prompt }];
  else body.prompt = prompt;
  return { path: chat ? "/v1/chat/completions" : "/v1/completions", body };
}

async function stream(path, body) {
  const answer = byId("answer");
  const began = performance.now();
  let first = 0;
  let reason = "";
  let tokens = 0;
  const response = await ask(path, { method: "POST", signal: trial.signal,
    headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await whyNot(response));
  for await (const data of eventsOf(response)) {
    if (data === "[DONE]") break;
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? "";
    if (text) {
      first ||= performance.now();
      answer.append(text);
      answer.scrollTop = answer.scrollHeight;
    }
    reason = choice?.finish_reason ?? reason;
    tokens = event.usage?.completion_tokens ?? tokens;
  }
  const took = (performance.now() - began) / 1000;
  const begun = first ? `, the first after ${seconds((first - began) / 1000)}` : "";
  return `${count(tokens)} tokens in ${seconds(took)}${begun}; end: ${reason || "none"}`;
}

byId("try").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (trial) return;
  trial = new AbortController();
  byId("send").disabled = true;
  byId("stop").disabled = false;
  byId("answer").textContent = "";
  byId("end").textContent = "Asking …";
  try {
    const { path, body } = requestOf();
    byId("end").textContent = await stream(path, body);
  } catch (error) {
    byId("end").textContent = trial.signal.aborted ? "Stopped." : `Failed: ${error.message}`;
  }
  trial = null;
  byId("send").disabled = false;
  byId("stop").disabled = true;
});
byId("stop").addEventListener("click", () => trial?.abort());

look();
