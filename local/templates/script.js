"use strict";
// The page is made by the server. This script sends its forms, and puts in what the server sends when something has changed.

const say = (text) => { document.getElementById("status").textContent = text; };
const send = document.querySelector("form[action='/local/send']");

let edited = false;
send.addEventListener("input", () => { edited = true; });

let live;
function watch() {
  live?.close();
  live = new EventSource("/local/live" + location.search);
  live.onmessage = (event) => {
    const { form, ...parts } = JSON.parse(event.data);
    // What was sent last, unless somebody writes something else.
    if (form && !edited) for (const [name, value] of Object.entries(form)) send.elements[name].value = value;
    for (const [id, html] of Object.entries(parts)) waiting.set(id, html);
    tick();
  };
  live.onopen = () => say("");
  live.onerror = () => say("The local cloud does not answer: is it running?");
}

// Parts that wait: nothing changes under a finger.
const waiting = new Map();
let pressed = 0;
addEventListener("pointerdown", () => { pressed = Date.now(); });
for (const over of ["pointerup", "pointercancel"]) addEventListener(over, () => { pressed = 0; });

// Replaces parts; the focus, what is open, and what was typed stay.
function replace() {
  if (Date.now() - pressed < 2000) return;
  for (const [id, html] of waiting) {
    const part = document.getElementById(id);
    const active = part.contains(document.activeElement) ? document.activeElement : undefined;
    const caret = active?.matches("input") ? [active.selectionStart, active.selectionEnd] : undefined;
    waiting.delete(id);
    const open = [...part.querySelectorAll("details[open]")].map((details) => details.id);
    const typed = new Map([...part.querySelectorAll("input[id]")].map((input) => [input.id, input.value]));
    part.innerHTML = html;
    open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    typed.forEach((value, id) => { const input = document.getElementById(id); if (input) input.value = value; });
    const again = active?.id ? document.getElementById(active.id) : undefined;
    again?.focus();
    if (caret) again?.setSelectionRange(...caret);
  }
}

function span(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function tick() {
  replace();
  for (const time of document.querySelectorAll("[data-until]")) {
    const left = (Number(time.dataset.until) - Date.now()) / 1000;
    time.textContent = left > 0 ? `in ${span(left)}` : `${span(-left)} ago`;
  }
}

function show(timeline) {
  history.replaceState(null, "", location.pathname + "?timeline=" + timeline);
  watch();
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = new URLSearchParams(new FormData(event.target, event.submitter));
  try {
    const answer = await fetch(event.target.action, { method: "POST", body });
    const text = await answer.text();
    if (answer.status === 422) return say(text);
    const json = JSON.parse(text || "{}");
    if (!answer.ok) return say(json.message ?? `It answers ${answer.status}.`);
    say(json.message ?? "");
    if (json.key !== undefined) {
      send.elements.key.value = json.key;
      if (json.body) send.elements.body.value = json.body;
      show(json.timeline);
    }
  } catch {
    say("The local cloud does not answer: is it running?");
  }
});

send.elements.route.addEventListener("change", () => {
  const options = [...document.querySelectorAll("#routes option")];
  const option = options.find((option) => option.value === send.elements.route.value);
  if (option) send.elements.body.value = option.dataset.body;
});

setInterval(tick, 200);
watch();
