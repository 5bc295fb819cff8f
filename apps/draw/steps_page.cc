#include "apps/draw/steps_page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/common/line_plot.h"
#include "apps/draw/slice_names.h"
#include "apps/draw/space_time.h"

namespace lockstep::apps {
namespace {

// The page, with marks for what differs: @TITLE@, @DATA@, @PICTURE@.
constexpr const char* kPage = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
  body { font: 16px/1.4 sans-serif; margin: 0 auto; padding: 12px; max-width: 1100px; color: #222; background: #fff; }
  h1 { font-size: 1.25em; margin: 0 0 8px; }
  .bar { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
  button { font-size: 1.1em; min-width: 44px; min-height: 44px; }
  #where { font-weight: bold; min-width: 8em; }
  .wide { overflow-x: auto; margin: 12px 0; }
  table { border-collapse: collapse; }
  th { font-weight: normal; color: #555; padding: 2px 6px; white-space: nowrap; }
  tbody th { position: sticky; left: 0; background: #fff; text-align: left; }
  td { border: 1px solid #bbb; padding: 3px; min-width: 44px; height: 30px; text-align: center; }
  td.all { background: #d7f2d9; }
  td.written { outline: 3px solid #222; outline-offset: -3px; }
  td.wrong { outline: 4px solid #d00000; outline-offset: -4px; }
  .chip { display: inline-block; min-width: 1.2em; margin: 1px; border-radius: 3px; color: #fff; font-size: .8em; }
  .twice { background: #d00000 !important; }
  #moves { margin: 0; padding-left: 1.3em; columns: 16em; }
  #fault { color: #d00000; }
  .note { color: #555; font-size: .9em; }
  svg { max-width: 100%; height: auto; }
  svg .round.other { opacity: .2; }
</style>
</head>
<body>
<h1>@TITLE@</h1>
<div class="bar">
  <button id="first" title="to the beginning (Home)">|&#x25C0;</button>
  <button id="back" title="one round back (arrow left)">&#x25C0;</button>
  <button id="next" title="one round on (arrow right)">&#x25B6;</button>
  <button id="last" title="to the end (End)">&#x25B6;|</button>
  <span id="where" aria-live="polite"></span>
</div>
<p id="fault"></p>
<div class="wide"><table><thead id="head"></thead><tbody id="ranks"></tbody></table></div>
<ul id="moves"></ul>
<p class="note">A row for each rank, a column for each piece of its buffer. The numbers in a cell are the ranks whose
values are in its sum; green: the sum of all. Framed: written in this round. Arrow keys step, too.</p>
<div class="wide">
@PICTURE@</div>
<script type="application/json" id="plan">
@DATA@
</script>
<script>
"use strict";
const plan = JSON.parse(document.getElementById("plan").textContent);
const byId = id => document.getElementById(id);
const pieces = plan.cuts.length - 1;
const rounds = plan.transfers.reduce((most, t) => Math.max(most, t.round + 1), 0);
const colour = rank => `hsl(${Math.round(360 * rank / plan.ranks)}, 60%, 38%)`;
const piecesOf = t => [...Array(pieces).keys()].filter(i => t.begin <= plan.cuts[i] && plan.cuts[i] < t.end);

// held[rank][piece][from]: how often the value of rank `from` is in the sum, after so many rounds. A round's
// transfers all read what was there before it.
function stateAfter(steps) {
  let held = Array.from({length: plan.ranks}, (_, rank) => Array.from({length: pieces}, () => {
    const sum = Array(plan.ranks).fill(0);
    sum[rank] = 1;
    return sum;
  }));
  for (let round = 0; round < steps; ++round) {
    const before = held;
    held = before.map(row => row.slice());
    for (const t of plan.transfers.filter(t => t.round === round))
      for (const i of piecesOf(t)) {
        const sent = before[t.from][i];
        held[t.to][i] = t.action === "add" ? held[t.to][i].map((times, from) => times + sent[from]) : sent;
      }
  }
  return held;
}

function show(steps) {
  step = Math.max(0, Math.min(rounds, steps));
  const round = step - 1;  // the one that has just been
  const now = plan.transfers.filter(t => t.round === round);
  const held = stateAfter(step);
  byId("where").textContent = step === 0 ? `start, ${rounds} rounds to go` : `round ${round}, ${step} of ${rounds}`;
  byId("ranks").replaceChildren(...held.map((row, rank) => {
    const line = document.createElement("tr");
    const name = document.createElement("th");
    name.textContent = `rank ${rank}`;
    line.append(name);
    row.forEach((sum, i) => {
      const cell = document.createElement("td");
      const inSum = sum.map((times, from) => ({times, from})).filter(part => part.times > 0);
      cell.dataset.sum = inSum.map(part => part.times > 1 ? `${part.from}x${part.times}` : part.from).join(" ");
      const all = inSum.length === plan.ranks && inSum.every(part => part.times === 1);
      if (all) cell.classList.add("all");
      if (all && plan.ranks > 8) cell.textContent = `all ${plan.ranks}`;
      else for (const {times, from} of inSum) {
        const chip = document.createElement("span");
        chip.className = times > 1 ? "chip twice" : "chip";
        chip.style.background = colour(from);
        chip.textContent = times > 1 ? `${from}\u00d7${times}` : from;
        cell.append(chip);
      }
      for (const t of now) if (t.to === rank && piecesOf(t).includes(i)) {
        cell.classList.add("written");
        if (t.wrong) cell.classList.add("wrong");
      }
      if (step === rounds && plan.violation && plan.violation.rank === rank) cell.classList.add("wrong");
      line.append(cell);
    });
    return line;
  }));
  byId("moves").replaceChildren(...now.map(t => {
    const item = document.createElement("li");
    item.textContent = `${t.from} \u2192 ${t.to}: ${t.action === "add" ? "adds" : "copies"} ${t.name}`;
    if (t.wrong) item.style.color = "#d00000";
    return item;
  }));
  for (const group of document.querySelectorAll("svg .round"))
    group.classList.toggle("other", step > 0 && Number(group.dataset.round) !== round);
  byId("first").disabled = byId("back").disabled = step === 0;
  byId("last").disabled = byId("next").disabled = step === rounds;
}

const head = document.createElement("tr");
head.append(document.createElement("th"));
for (let i = 0; i < pieces; ++i) {
  const name = document.createElement("th");
  name.textContent = plan.names[i];
  name.title = `elements [${plan.cuts[i]}, ${plan.cuts[i + 1]})`;
  head.append(name);
}
byId("head").append(head);
const picture = document.querySelector("svg");
picture.style.minWidth = `${0.72 * picture.width.baseVal.value}px`;  // smaller would be hard to read: then it scrolls
byId("fault").textContent = plan.violation ? `Wrong: ${plan.violation.what}` : "";

let step = 0;
const moves = {first: () => 0, back: () => step - 1, next: () => step + 1, last: () => rounds};
for (const [id, to] of Object.entries(moves)) byId(id).addEventListener("click", () => show(to()));
const keys = {Home: "first", ArrowLeft: "back", ArrowRight: "next", End: "last"};
addEventListener("keydown", event => {
  if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  show(moves[keys[event.key]]());
});
show(Number(location.hash.slice(1)) || 0);  // page.html#3 begins after three rounds
</script>
</body>
</html>
)page";

std::string data(const collective::Plan& plan, const std::optional<collective::Violation>& violation) {
  const SliceNames names(plan);
  nlohmann::ordered_json page{{"goal", name_of(plan.goal)}, {"root", plan.root},
                              {"ranks", plan.ranks},        {"count", plan.count},
                              {"cuts", names.cuts()},       {"names", nlohmann::json::array()}};
  for (size_t i = 0; i < names.pieces(); ++i)
    page["names"].push_back(names.name({names.cuts()[i], names.cuts()[i + 1]}));
  page["violation"] = nullptr;
  if (violation) page["violation"] = {{"what", violation->what}, {"rank", violation->rank}};
  page["transfers"] = nlohmann::json::array();
  for (size_t i = 0; i < plan.transfers.size(); ++i) {
    const collective::Transfer& t = plan.transfers[i];
    page["transfers"].push_back({{"round", t.round},
                                 {"from", t.source},
                                 {"to", t.destination},
                                 {"begin", t.slice.begin},
                                 {"end", t.slice.end},
                                 {"action", t.action == collective::Action::add ? "add" : "copy"},
                                 {"name", names.name(t.slice)}});
    if (violation && violation->transfer == static_cast<int>(i)) page["transfers"].back()["wrong"] = true;
  }
  return page.dump();  // holds no text of others: no "</script>"
}

}  // namespace

std::string steps_page(const collective::Plan& plan, const std::string& title,
                       const std::optional<collective::Violation>& violation) {
  std::string page = kPage;
  const auto fill = [&page](const std::string& mark, const std::string& text) {
    for (size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at + text.size()))
      page.replace(at, mark.size(), text);
  };
  fill("@PICTURE@", space_time_svg(plan, title, violation));
  fill("@DATA@", data(plan, violation));
  fill("@TITLE@", escaped(title));
  return page;
}

}  // namespace lockstep::apps
