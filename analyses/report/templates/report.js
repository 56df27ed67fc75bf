"use strict";
(() => {
  // The words of a mark at the pointer, at once; without this script the browser shows them after a moment.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  const wordsOf = (mark) => {
    const title = mark.querySelector("title");
    if (title) {
      mark.dataset.words = title.textContent;
      title.remove();
    }
    return mark.dataset.words;
  };

  const show = (event) => {
    const mark = event.target.closest && event.target.closest(".hover > *");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = wordsOf(mark);
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const top = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  document.addEventListener("pointermove", show, { passive: true });
  document.addEventListener("pointerdown", show, { passive: true });
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
})();
