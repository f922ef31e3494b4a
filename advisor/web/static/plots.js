// Draws the figures of a page in the colours of the page; without it the tables beside them say the same.
"use strict";
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  function colours() {
    const style = getComputedStyle(document.documentElement);
    return { text: style.getPropertyValue("--text").trim(), line: style.getPropertyValue("--line").trim() };
  }
  // a title in lines that fit: plotly cuts what is wider than the plot
  function wrapped(text, characters) {
    const lines = [""];
    for (const word of text.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + word.length >= characters) lines.push("");
      lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
    }
    return lines;
  }
  function draw() {
    const { text, line } = colours();
    for (const data of document.querySelectorAll("script.figure")) {
      const figure = JSON.parse(data.textContent);
      const layout = Object.assign({}, figure.layout, { font: { color: text, family: "system-ui, sans-serif", size: 12 }, autosize: true, height: 350 });
      const box = data.previousElementSibling;
      const title = wrapped((layout.title && layout.title.text) || "", Math.max(20, Math.floor(box.clientWidth / 9)));
      layout.title = Object.assign({}, layout.title, { text: title.join("<br>"), font: { size: 15 } });
      const narrow = box.clientWidth < 500;
      const below = layout.xaxis && layout.xaxis.title ? 40 : 0;
      layout.margin = Object.assign({}, layout.margin, { b: 48 + below, t: 32 + 20 * title.length });
      if (narrow && layout.margin.l > 120) layout.margin.l = 60;
      layout.legend = Object.assign({}, layout.legend, { y: narrow && below ? -0.4 : -0.28, yanchor: "top", traceorder: "normal" });
      for (const axis of ["xaxis", "yaxis"]) {
        layout[axis] = Object.assign({ gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true }, layout[axis]);
      }
      Plotly.react(box, figure.data, layout, { displayModeBar: false, responsive: true });
    }
  }
  draw();
  document.addEventListener("figures", draw);
  dark.addEventListener("change", draw);
})();
