// Redraws what the knobs would have brought while they are turned; without it the button "Show" does.
"use strict";
(function () {
  const form = document.getElementById("knobs");
  const outlook = document.getElementById("outlook");
  let timer = 0;
  let newest = 0;
  async function redraw() {
    const turn = ++newest;
    const query = new URLSearchParams(new FormData(form));
    const answer = await fetch(form.action + "?" + query, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== newest) return;
    const part = page.getElementById("outlook") || page.querySelector(".wrong");
    if (part.id) outlook.innerHTML = part.innerHTML;
    else outlook.replaceChildren(part);
    outlook.dataset.turn = String(turn);
    document.dispatchEvent(new Event("figures"));
  }
  form.addEventListener("input", function () {
    clearTimeout(timer);
    timer = setTimeout(redraw, 120);
  });
})();
