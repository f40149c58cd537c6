// Asks a built site's own search (the theme's worker, over its index) and prints the first pages of each answer.
// Usage: node site_search.js SITE < questions.json, a list of texts; prints a list of lists of addresses.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const folder = path.join(site, "assets/javascripts/workers");
const worker = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));
const questions = JSON.parse(fs.readFileSync(0, "utf8"));

let receive;
const answers = [];
globalThis.self = globalThis;
globalThis.addEventListener = (_, listener) => { receive = listener; };
globalThis.postMessage = (message) => { answers.push(message); };
vm.runInThisContext(fs.readFileSync(path.join(folder, worker), "utf8"));

const settle = async (count) => { while (answers.length < count) await new Promise((done) => setTimeout(done, 1)); };
(async () => {
  receive({ data: { type: 0, data: { config: index.config, docs: index.docs, options: { suggest: false } } } });
  await settle(1);
  const pages = [];
  for (const question of questions) {
    receive({ data: { type: 2, data: question } });
    await settle(pages.length + 2);
    pages.push(answers.at(-1).data.items.slice(0, 10).map((group) => group[0].location.split("#")[0]));
  }
  console.log(JSON.stringify(pages));
})();
