// Prometheus' text format as tests read it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace skein::coordinator {

struct ScrapedFamily {
  std::string type;
  std::string help;
  std::set<std::string> labels;  // names, without a histogram's "le"
};

struct Scrape {
  std::map<std::string, std::string> values;      // by series: `skein_jobs{state="serving"}`
  std::map<std::string, ScrapedFamily> families;  // by name

  // "" where there is none.
  std::string operator[](const std::string& series) const {
    const auto found = values.find(series);
    return found == values.end() ? "" : found->second;
  }
};

// Values in labels must hold no comma and no brace. What is no line of the format is a series with
// the value "malformed".
inline Scrape ReadScrape(const std::string& text) {
  Scrape scrape;
  std::string family;  // whose lines these are
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "# ")) {
      const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
      family = words.size() == 3 ? words[1] : "malformed";
      ScrapedFamily& of = scrape.families[family];
      if (words.front() == "HELP") of.help = words.back();
      if (words.front() == "TYPE") of.type = words.back();
      continue;
    }
    const size_t space = line.rfind(' ');
    const std::string series(line.substr(0, space));
    const bool well_formed = space != absl::string_view::npos && series.starts_with(family);
    scrape.values[series] = well_formed ? std::string(line.substr(space + 1)) : "malformed";
    const size_t brace = series.find('{');
    if (brace == std::string::npos) continue;
    for (const absl::string_view label :
         absl::StrSplit(series.substr(brace + 1, series.size() - brace - 2), ',')) {
      const std::string name(label.substr(0, label.find('=')));
      if (name != "le") scrape.families[family].labels.insert(name);
    }
  }
  return scrape;
}

}  // namespace skein::coordinator
