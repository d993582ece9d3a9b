// Holds what people read, docs/metrics.md, docs/grafana/skein.json and
// deploy/prometheus/alerts.yaml, against what is exposed.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/test_util.h"
#include "coordinator/metrics/load_for_tests.h"
#include "coordinator/metrics/scrape_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Names = std::set<std::string>;

// What the dashboard does not show, and why.
const std::map<std::string, std::string>& NotShown() {
  static const std::map<std::string, std::string> not_shown = {
      {"skein_replica_steps_total", "steps that decode alone tell more, and have panels"}};
  return not_shown;
}

std::string Read(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, 1 << 20);
  SKEIN_EXPECT_OK(text.status());
  return text.ok() ? *text : "";
}

const Scrape& Exposed() {
  static const Scrape scrape = ReadScrape(ScriptedMetrics()->Text());
  return scrape;
}

// The family that a name of an expression belongs to; "": none.
std::string FamilyOf(const std::string& name) {
  const auto& families = Exposed().families;
  const auto found = families.find(name);
  if (found != families.end()) return found->second.type == "histogram" ? "" : name;
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string family = name.substr(0, name.size() - suffix.size());
    const auto of = families.find(family);
    if (of != families.end() && of->second.type == "histogram") return family;
  }
  return "";
}

Names Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  Names names;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    names.insert((*it)[it->size() > 1 ? 1 : 0]);
  }
  return names;
}

// Every panel's queries: {"title", "expr", "legend"}.
struct Query {
  std::string title, expr, legend;
};
std::vector<Query> Queries(const json& dashboard) {
  std::vector<Query> queries;
  for (const json& panel : dashboard.at("panels")) {
    for (const json& target : panel.value("targets", json::array())) {
      queries.push_back({panel.at("title"), target.at("expr"), target.at("legendFormat")});
    }
  }
  return queries;
}

class DashboardTest : public ::testing::Test {
 protected:
  const json dashboard_ = json::parse(Read("docs/grafana/skein.json"));
  const std::vector<Query> queries_ = Queries(dashboard_);
};

TEST_F(DashboardTest, ItsNamesAreExposed) {
  ASSERT_GT(queries_.size(), 30u);
  for (const Query& query : queries_) {
    const Names names = Matches(query.expr, "skein_[a-z0-9_]+");
    EXPECT_FALSE(names.empty()) << query.title;
    for (const std::string& name : names)
      EXPECT_NE(FamilyOf(name), "") << query.title << ": " << name;
  }
}

TEST_F(DashboardTest, WhatIsExposedIsShownOrHasAReason) {
  Names shown;
  for (const std::string& name : Matches(dashboard_.dump(), "skein_[a-z0-9_]+")) {
    shown.insert(FamilyOf(name));
  }
  for (const auto& [name, family] : Exposed().families) {
    EXPECT_NE(shown.contains(name), NotShown().contains(name)) << name;
  }
  for (const auto& [name, why] : NotShown()) {
    EXPECT_TRUE(Exposed().families.contains(name)) << name;
    EXPECT_NE(why, "");
  }
}

// A label that no metric has groups everything into one line, without a word.
TEST_F(DashboardTest, ItsLabelsAreTheMetrics) {
  for (const Query& query : queries_) {
    Names known = {"instance"};
    bool has_buckets = false;
    for (const std::string& name : Matches(query.expr, "skein_[a-z0-9_]+")) {
      const ScrapedFamily& family = Exposed().families.at(FamilyOf(name));
      known.insert(family.labels.begin(), family.labels.end());
      has_buckets |= name.ends_with("_bucket");
    }
    if (has_buckets) known.insert("le");
    Names grouped;
    for (const std::string& list : Matches(query.expr, "by \\(([^)]*)\\)")) {
      for (const absl::string_view label : absl::StrSplit(list, ',')) {
        grouped.emplace(absl::StripAsciiWhitespace(label));
      }
    }
    for (const std::string& label : grouped) {
      EXPECT_TRUE(known.contains(label)) << query.title << ": " << label;
    }
    // What a legend names, the query must keep.
    for (const std::string& label : Matches(query.legend, "\\{\\{([a-z_]+)\\}\\}")) {
      EXPECT_TRUE(grouped.contains(label)) << query.title << ": " << label;
    }
    for (const std::string& label : Matches(query.expr, "[{,]([a-z_]+)=~?\"")) {
      EXPECT_TRUE(known.contains(label)) << query.title << ": " << label;
    }
  }
}

TEST_F(DashboardTest, CountersAreSeenAsRatesAndPanelsApart) {
  for (const Query& query : queries_) {
    for (const std::string& name : Matches(query.expr, "skein_[a-z0-9_]+")) {
      const bool counts = Exposed().families.at(FamilyOf(name)).type != "gauge";
      EXPECT_EQ(query.expr.find("rate(" + name + "{") != std::string::npos, counts)
          << query.title << ": " << name;
    }
  }
  std::set<int> ids;
  for (const json& panel : dashboard_.at("panels")) {
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << panel.at("title");
  }
}

// ---- deploy/prometheus/alerts.yaml ----

// An alert on what is not exposed never fires.
TEST(AlertsTest, TheirNamesAndLabelsAreExposed) {
  const std::string rules = Read("deploy/prometheus/alerts.yaml");
  const Names names = Matches(rules, "\\bskein_[a-z0-9_]+");
  EXPECT_GE(names.size(), 8u);
  Names known = {"instance", "le", "job", "severity"};
  for (const std::string& name : names) {
    ASSERT_NE(FamilyOf(name), "") << name;
    const ScrapedFamily& family = Exposed().families.at(FamilyOf(name));
    known.insert(family.labels.begin(), family.labels.end());
    const bool counts = family.type != "gauge";
    EXPECT_EQ(Matches(rules, "(rate|increase)\\(" + name + "[{\\[]").empty(), !counts) << name;
    // Of each selector of it.
    for (const std::string& label : Matches(rules, name + "\\{([a-z_]+)[!=]")) {
      EXPECT_TRUE(std::count(family.labels.begin(), family.labels.end(), label)) << name << label;
    }
  }
  for (const std::string& list : Matches(rules, "by \\(([^)]*)\\)")) {
    for (const absl::string_view label : absl::StrSplit(list, ',')) {
      EXPECT_TRUE(known.contains(std::string(absl::StripAsciiWhitespace(label)))) << label;
    }
  }
  for (const std::string& label : Matches(rules, "\\$labels\\.([a-z_]+)")) {
    EXPECT_TRUE(known.contains(label)) << label;
  }
}

// A value that a label never has makes an alert as quiet.
TEST(AlertsTest, TheirValuesAreExposed) {
  const std::string rules = Read("deploy/prometheus/alerts.yaml");
  const std::string text = ScriptedMetrics()->Text();
  for (const std::string& selector : Matches(rules, "(skein_[a-z0-9_]+\\{[a-z_]+=\"[^\"]+\")")) {
    const size_t brace = selector.find('{');
    const std::string sample = selector.substr(0, brace) + "{[^\n]*" + selector.substr(brace + 1);
    EXPECT_TRUE(std::regex_search(text, std::regex(absl::StrReplaceAll(sample, {{"{", "\\{"}}))))
        << selector;
  }
}

// ---- docs/metrics.md ----

// The table's rows, by name: "type | labels | meaning".
std::map<std::string, std::string> Rows(const std::string& page) {
  std::map<std::string, std::string> rows;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!std::string(line).starts_with("| `skein_")) continue;
    std::vector<std::string> cells = absl::StrSplit(line, " | ");
    const std::string name = cells.front().substr(3, cells.front().size() - 4);
    cells.erase(cells.begin());
    std::string row = absl::StrJoin(cells, " | ");
    row.erase(row.find_last_not_of(" |") + 1);
    EXPECT_TRUE(rows.emplace(name, row).second) << name << " stands there twice";
  }
  return rows;
}

TEST(MetricsPageTest, ItsTableIsWhatIsExposed) {
  std::map<std::string, std::string> exposed;
  for (const auto& [name, family] : Exposed().families) {
    const std::string labels = absl::StrJoin(family.labels, ", ", [](auto* out, const auto& label) {
      absl::StrAppend(out, "`", label, "`");
    });
    exposed[name] = absl::StrCat(family.type, " | ", labels, " | ", family.help);
  }
  EXPECT_EQ(Rows(Read("docs/metrics.md")), exposed);
}

TEST(MetricsPageTest, NamesHaveTheirUnitsAndCountersTheirEnding) {
  for (const auto& [name, family] : Exposed().families) {
    EXPECT_EQ(name.ends_with("_total"), family.type == "counter") << name;
    EXPECT_NE(family.help, "") << name;
    EXPECT_TRUE(name.starts_with("skein_")) << name;
  }
}

}  // namespace
}  // namespace skein::coordinator
