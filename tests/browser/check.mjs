// Looks at a status page as people use it: node check.mjs CHROMIUM URL NAME FOLDER
// Each line of its output is a JSON object {what, ok, more}. `check.py` starts it, and reads them.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const [chromium, url, name, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const say = (what, ok, more = "") => console.log(JSON.stringify({ what: `${name}: ${what}`, ok, more }));

mkdirSync(folder, { recursive: true });
const browser = await puppeteer.launch({
  executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"], userDataDir: `${folder}/profile`,
});

async function open(width, scheme, script = true) {
  const page = await browser.newPage();
  page.complaints = [];
  page.on("console", (message) => page.complaints.push(message.text()));
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  await page.setJavaScriptEnabled(script);
  await page.setViewport({ width, height: 900, isMobile: width < 600, hasTouch: width < 600 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(url, { waitUntil: "load" });
  return page;
}

for (const width of [390, 1280]) {
  for (const scheme of ["light", "dark"]) {
    const page = await open(width, scheme);
    await page.evaluate(axe);
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations", "incomplete"] }));
    const list = (kind) => found[kind].map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.target).join(" ")}`);
    say(`axe, ${width} px, ${scheme}`, found.violations.length === 0,
      [`${found.passes.length} rules passed`, ...list("violations"), ...list("incomplete").map((each) => `undecided: ${each}`)].join("; "));
    const overflow = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
    say(`nothing is wider than the screen, ${width} px`, overflow <= 0, `${overflow} px`);
    await page.screenshot({ path: `${folder}/${name}-${width}-${scheme}.png`, fullPage: true });
    say(`no message on the console, ${width} px, ${scheme}`, page.complaints.length === 0, page.complaints.join("; "));
    await page.close();
  }
}

// Without a script all words are there, and a link reloads.
const plain = await open(1280, "light", false);
const words = await plain.$eval("main", (main) => main.textContent);
say("without a script the page says the same", words.includes("Lag") && words.includes("What to do"));
await Promise.all([plain.waitForNavigation(), plain.click("footer a")]);
say("without a script a link reloads", plain.url() === url, plain.url());
await plain.close();

// With keys: everything that can be used is reached, in the order of the page.
const page = await open(1280, "light");
const wide = await page.$$eval(".wide:not(:empty)", (parts) => parts.map((part) => part.id));
const wanted = [...wide, "pause", "Reload", "JSON", "Metrics"];
const reached = [];
for (const _ of wanted) {
  await page.keyboard.press("Tab");
  reached.push(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent));
}
say("keys reach everything in order", reached.join(" ") === wanted.join(" "), reached.join(" "));

// The script: the page gets new, the focus stays, and the state is spoken only when it changes.
await page.focus("#pause");
const before = await page.$eval("#age", (age) => age.textContent);
await page.evaluate(() => {
  window.spoken = 0;
  new MutationObserver(() => window.spoken++).observe(document.getElementById("state"), { childList: true, subtree: true });
});
await page.waitForFunction((old) => document.getElementById("age").textContent !== old, { timeout: 15000 }, before);
say("the page gets new by itself", true);
say("the focus stays", await page.evaluate(() => document.activeElement.id === "pause"));
say("a state that stays is not spoken again", (await page.evaluate(() => window.spoken)) === 0);
await page.keyboard.press("Enter");
say("a key pauses the page", (await page.$eval("#pause", (button) => button.ariaPressed)) === "true");
const paused = await page.$eval("#age", (age) => age.textContent);
await new Promise((done) => setTimeout(done, 6000));
say("a page that pauses stays as it is", (await page.$eval("#age", (age) => age.textContent)) === paused);
await page.keyboard.press("Enter");

// A daemon that is gone is said, and what the page said last stays.
await page.setOfflineMode(true);
await page.waitForFunction(() => document.getElementById("trouble").textContent !== "", { timeout: 15000 });
say("a daemon that is gone is said", (await page.$eval("main", (main) => main.textContent)).includes("Lag"));
await page.setOfflineMode(false);
await page.waitForFunction(() => document.getElementById("trouble").textContent === "", { timeout: 15000 });
say("and so is its return", true);
await browser.close();
