// How the search ranks pages: a page or heading whose title has the words comes before one that only mentions them,
// pages that explain before reference, results and the changelog.
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    const asked = new URLSearchParams(window.location.search).get("q") || "";
    const split = (text) => text.toLowerCase().split(/[^a-z0-9]+/).filter((word) => word.length > 2);
    const words = split(asked);
    const titled = split(title);
    const hits = words.filter((word) => titled.some((other) => other.startsWith(word.slice(0, Math.max(3, word.length - 1)))));
    const share = words.length ? hits.length / words.length : 0;
    // A short title that consists of the words says that the page is about them.
    const about = titled.length ? hits.length / titled.length : 0;
    const places = { start: 4, howto: 2, reference: -25, repository: -40, results: -5, development: -10 };
    return score + 40 * share + 15 * about + (places[docname.split("/")[0]] || 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
