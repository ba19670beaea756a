// Draws the figures of the page. A colour "$role" in a figure is the CSS variable "--role", read
// again whenever the colour scheme of the system changes.
"use strict";

(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const options = { displayModeBar: false, responsive: true };

  function painted(value) {
    if (typeof value === "string") {
      if (!value.startsWith("$")) return value;
      const style = getComputedStyle(document.documentElement);
      return style.getPropertyValue("--" + value.slice(1)).trim();
    }
    if (Array.isArray(value)) return value.map(painted);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, painted(part)]));
  }

  function draw() {
    const family = getComputedStyle(document.body).fontFamily;
    for (const [id, figure] of Object.entries(figures)) {
      const { data, layout } = painted(figure);
      Plotly.react(id, data, { ...layout, font: { ...layout.font, family } }, options);
    }
  }

  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
