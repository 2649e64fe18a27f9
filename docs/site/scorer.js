// Order of search results: pages for users, then the reference, then pages for developers.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (page.startsWith("project/") || ["changelog", "contributing", "security"].includes(page)) return score - 30;
    return page.startsWith("reference/") ? score - 4 : score;
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
