// Keeps the page new without a reload: focus, selection and scrolling stay, because only the parts that differ change.
// The part with role="status" changes only when the state does, so that a screen reader speaks only then.
"use strict";
const EVERY_MS = 5000;
const pause = document.getElementById("pause");
const age = document.getElementById("age");
let isPaused = false;

async function refresh() {
  if (isPaused || document.hidden) return;
  try {
    const answer = await fetch(location.href, { signal: AbortSignal.timeout(EVERY_MS) });
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-part]")) {
      const now = fresh.getElementById(part.id);
      if (now !== null && now.innerHTML !== part.innerHTML) part.innerHTML = now.innerHTML;
    }
    say(`As of ${new Date().toLocaleTimeString()}.`, "");
  } catch {
    say(age.textContent, "The daemon does not answer.");
  }
}

function say(time, trouble) {
  age.textContent = time;
  const place = document.getElementById("trouble");
  if (place.textContent !== trouble) place.textContent = trouble;
}

pause.hidden = false;
pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  refresh();
});
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, EVERY_MS);
