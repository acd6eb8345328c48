"use strict";
// Draws the episodes in #data. All text goes into the page as text nodes, never as markup.
const runs = JSON.parse(document.getElementById("data").textContent);
const KINDS = ["action", "object", "style", "tag"];
const minus = (a, b) => (a === null || b === null ? null : a.map((x, i) => x - (Array.isArray(b) ? b[i] : b)));
// name, what it says, the values of a turn (or null)
const QUANTITIES = [
  ["advantage", "advantage of the token", (t) => t.adv],
  ["paid", "added to the base advantage (gate × term)", (t) => minus(t.adv, t.base)],
  ["gap", "teacher gap, nats", (t) => minus(t.teacher, t.student)],
  ["student", "student log-prob, nats", (t) => t.student],
  ["gate", "gate, 0 to 1", (t) => t.gate],
];
let quantity = QUANTITIES[0];

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Controls, marks of direction and halves of a character become visible; line breaks and tabs stay.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\p{Cs}/gu;
const visible = (text) => text.replace(HIDDEN, (c) => "‹U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "›");
const shown = (x) => (x === null || x === undefined ? "none" : (x > 0 ? "+" : "") + x.toFixed(3));
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

function colour(value, top) {
  if (!top || !value) return "";
  const strength = (0.75 * Math.min(1, Math.abs(value) / top)).toFixed(3);
  return `rgba(var(--${value > 0 ? "above" : "below"}), ${strength})`;
}

// One scale for all panes: the 95th percentile of the absolute values in sight.
function scale() {
  const all = panes.flatMap((p) => p.episode.turns.flatMap((t) => quantity[2](t) || [])).map(Math.abs).sort((a, b) => a - b);
  return all.length ? all[Math.floor(0.95 * (all.length - 1))] : 0;
}

function tokenElement(turn, i, values, top) {
  const token = element("span", "token " + KINDS[turn.kinds[i]]);
  token.append(visible(turn.tokens[i]).replace(/\n/g, "⏎\n"));
  const said = [`“${visible(turn.tokens[i])}”, ${KINDS[turn.kinds[i]]}`];
  for (const [, what, of] of QUANTITIES) said.push(`${what} ${of(turn) ? shown(of(turn)[i]) : "none"}`);
  said.push(`base advantage ${shown(turn.base)}`);
  token.title = said.join("\n");
  token.tabIndex = -1;
  if (values) {
    token.style.backgroundColor = colour(values[i], top);
    token.append(element("span", "number", shown(values[i])));
  }
  const tell = () => { document.getElementById("token").textContent = said.join(" · "); };
  token.addEventListener("mouseenter", tell);
  token.addEventListener("focus", tell);
  return token;
}

// Tokens, mean and sum of the chosen quantity in each category.
function summary(turn, values) {
  const table = element("table");
  const head = element("tr");
  for (const name of ["category", "tokens", "mean", "sum"]) head.append(element("th", "", name));
  table.append(head);
  KINDS.forEach((kind, k) => {
    const own = values.filter((_, i) => turn.kinds[i] === k);
    if (!own.length) return;
    const row = element("tr");
    for (const text of [kind, own.length, shown(mean(own)), shown(mean(own) * own.length)]) row.append(element("td", "", text));
    table.append(row);
  });
  return table;
}

function folded(name, text) {
  const details = element("details");
  details.append(element("summary", "", name), element("div", "text", visible(text)));
  return details;
}

function turnElement(turn, number, top) {
  const values = quantity[2](turn);
  const section = element("section", "turn");
  const valid = turn.valid ? "" : ", not in the asked form";
  section.append(element("h3", "", `Turn ${number + 1}: ${visible(turn.action)}${valid}; base advantage ${shown(turn.base)}`));
  section.append(element("div", "text", visible(turn.observation)), folded("prompt", turn.prompt));
  const tokens = element("div", "tokens");
  turn.tokens.forEach((_, i) => tokens.append(tokenElement(turn, i, values, top)));
  if (tokens.firstChild) tokens.firstChild.tabIndex = 0;
  section.append(tokens, values ? summary(turn, values) : element("p", "", `not saved here: ${quantity[1]}`));
  return section;
}

class Pane {
  constructor(run) {
    this.run = run;
    this.index = 0;
    this.root = element("section", "pane");
    this.root.setAttribute("aria-label", visible(run.name));
    this.root.append(element("h2", "", visible(run.name)), element("p", "", visible(run.about)));
    this.select = element("select");
    this.select.setAttribute("aria-label", "episode of " + visible(run.name));
    run.episodes.forEach((e, i) => {
      const option = element("option", "", visible(`step ${e.step}, ${e.set}, ${e.type}, ${e.won ? "won" : "lost"}: ${e.task}`));
      option.value = i;
      this.select.append(option);
    });
    this.select.addEventListener("change", () => { this.index = Number(this.select.value); follow(this); draw(); });
    this.body = element("div", "episode");
    this.root.append(this.select, this.body);
  }
  get episode() { return this.run.episodes[this.index]; }
  go(index) {
    this.index = Math.max(0, Math.min(this.run.episodes.length - 1, index));
    this.select.value = this.index;
  }
  draw(top) {
    const e = this.episode;
    this.body.replaceChildren(element("p", "", visible(`${e.won ? "won" : "lost"}, return ${e.return}, ${e.turns.length} turns`)));
    e.turns.forEach((turn, i) => this.body.append(turnElement(turn, i, top)));
  }
}

// The other pane goes to the same task, step and set, where it has them.
function follow(moved) {
  for (const pane of panes) {
    if (pane === moved) continue;
    const e = moved.episode;
    const same = (x, keys) => keys.every((key) => x[key] === e[key]);
    for (const keys of [["task", "step", "set"], ["task", "set"], ["step", "set"]]) {
      const found = pane.run.episodes.findIndex((x) => same(x, keys));
      if (found >= 0) { pane.go(found); break; }
    }
  }
}

function draw() {
  const top = scale();
  for (const pane of panes) pane.draw(top);
  const known = panes.some((pane) => pane.episode.turns.some((turn) => quantity[2](turn) !== null));
  document.getElementById("scale").textContent = top ? `full colour at ±${top.toFixed(3)} (95th percentile in sight)`
    : known ? "all zero in sight" : "not saved for what is in sight";
}

function choose(index) {
  quantity = QUANTITIES[index];
  document.getElementById("quantity-" + quantity[0]).checked = true;
  draw();
}

QUANTITIES.forEach(([name, what], index) => {
  const label = element("label");
  const input = element("input");
  Object.assign(input, { type: "radio", name: "quantity", id: "quantity-" + name, checked: index === 0 });
  input.addEventListener("change", () => choose(index));
  label.append(input, " " + what + " ", element("kbd", "", String(index + 1)));
  document.getElementById("quantities").append(label);
});

const main = document.getElementById("panes");
const panes = runs.map((run) => new Pane(run));
panes.forEach((pane) => main.append(pane.root));
for (const name of ["marks", "values"]) {
  const box = document.getElementById(name);
  const set = () => document.body.classList.toggle(name, box.checked);
  box.addEventListener("change", set);
  set();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(event.target.tagName) && event.key.startsWith("Arrow")) return;
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step && event.target.classList.contains("token")) {
    const tokens = [...event.target.closest(".episode").querySelectorAll(".token")];
    const next = tokens[tokens.indexOf(event.target) + step];
    if (next) next.focus();
    event.preventDefault();
  } else if (step && event.target === document.body) {
    const first = document.querySelector(".episode .token");
    if (first) first.focus();
  } else if (event.target.tagName !== "SELECT") {
    const move = { n: 1, p: -1 }[event.key];
    if (move) { panes[0].go(panes[0].index + move); follow(panes[0]); draw(); }
    if (event.key >= "1" && event.key <= String(QUANTITIES.length)) choose(Number(event.key) - 1);
    if (event.key === "c") document.getElementById("marks").click();
    if (event.key === "v") document.getElementById("values").click();
  }
});

follow(panes[0]);
// What was added says most; where nothing was saved of it, the next that was.
const saved = ([, , of]) => panes.some((pane) => pane.episode.turns.some((turn) => of(turn) !== null));
choose([1, 2, 0, 3].find((index) => saved(QUANTITIES[index])) ?? 3);
