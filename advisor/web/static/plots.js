// Draws the figures of a page in the colours of the page; without it the tables beside them say the same.
"use strict";
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function colours() {
    const style = getComputedStyle(document.documentElement);
    return { text: style.getPropertyValue("--text").trim(), line: style.getPropertyValue("--line").trim() };
  }
  function draw() {
    const { text, line } = colours();
    for (const data of document.querySelectorAll("script.figure")) {
      const figure = JSON.parse(data.textContent);
      const layout = Object.assign({}, figure.layout, { font: { color: text, family: "system-ui, sans-serif", size: 12 }, autosize: true, height: 350 });
      layout.margin = Object.assign({}, layout.margin, { b: 48, t: 52 });
      layout.legend = Object.assign({}, layout.legend, { y: -0.28, yanchor: "top" });
      for (const axis of ["xaxis", "yaxis"]) {
        layout[axis] = Object.assign({ gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true }, layout[axis]);
      }
      Plotly.react(data.previousElementSibling, figure.data, layout, { displayModeBar: false, responsive: true });
    }
  }
  draw();
  dark.addEventListener("change", draw);
})();
