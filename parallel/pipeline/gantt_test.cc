#include "parallel/pipeline/gantt.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// "" when `text` is a well-formed document of the XML that an SVG needs: elements, attributes in
// double quotes, text, the predefined entities. Else what is wrong.
class XmlChecker {
 public:
  explicit XmlChecker(std::string_view text) : rest_(text) {}

  std::string Check() {
    std::vector<std::string> open;
    bool root = false;
    while (!rest_.empty()) {
      if (rest_.front() != '<') {
        const std::string_view text = rest_.substr(0, rest_.find('<'));
        if (!GoodText(text)) return "bad text: " + std::string(text);
        if (open.empty() && !std::all_of(text.begin(), text.end(), ::isspace))
          return "text outside";
        rest_.remove_prefix(text.size());
        continue;
      }
      rest_.remove_prefix(1);
      const bool closing = Take('/');
      const std::string name = Name();
      if (name.empty()) return "a tag without a name";
      if (closing) {
        if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
        if (!Take('>')) return "junk in </" + name;
        open.pop_back();
        continue;
      }
      if (open.empty() && root) return "a second root, " + name;
      root = true;
      if (!Attributes()) return "bad attributes of " + name;
      const bool empty = Take('/');
      if (!Take('>')) return "<" + name + " does not end";
      if (!empty) open.push_back(name);
    }
    if (!open.empty()) return open.back() + " is not closed";
    return root ? "" : "no root";
  }

 private:
  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string Name() {
    size_t size = 0;
    while (size < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[size])) ||
                                   rest_[size] == '-' || rest_[size] == ':')) {
      ++size;
    }
    const std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return name;
  }

  bool Attributes() {
    std::vector<std::string> seen;
    while (Take(' ')) {
      const std::string name = Name();
      if (name.empty() || std::count(seen.begin(), seen.end(), name) > 0) return false;
      seen.push_back(name);
      if (!Take('=') || !Take('"')) return false;
      const size_t end = rest_.find('"');
      if (end == std::string_view::npos || !GoodText(rest_.substr(0, end)) ||
          rest_.substr(0, end).find('<') != std::string_view::npos) {
        return false;
      }
      rest_.remove_prefix(end + 1);
    }
    return true;
  }

  static bool GoodText(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c < 0x20 && c != '\n' && c != '\t') return false;
      if (c != '&') continue;
      const std::string_view entity = text.substr(i, text.find(';', i) - i);
      if (entity != "&amp" && entity != "&lt" && entity != "&gt" && entity != "&quot") return false;
    }
    return true;
  }

  std::string_view rest_;
};

std::string XmlError(std::string_view text) { return XmlChecker(text).Check(); }

size_t Count(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

Timeline DecodeTimeline(int32_t stages, int32_t micro_batches, int32_t steps) {
  Costs costs;
  costs.compute = [](int32_t, MicroBatchId) { return absl::Milliseconds(2); };
  costs.sample = absl::Microseconds(100);
  costs.hop = costs.token_hop = absl::Microseconds(50);
  auto timeline = Simulate(Decode(stages, micro_batches, steps), costs);
  EXPECT_THAT(timeline, IsOk());
  return *std::move(timeline);
}

TEST(XmlChecker, FindsWhatIsWrong) {
  EXPECT_EQ(XmlError("<a b=\"1\"><c/>x &amp; y</a>\n"), "");
  for (const char* bad : {"", "x", "<a>", "</a>", "<a></b>", "<a/><b/>", "<a b=1/>", "<a b=\"1/>",
                          "<a>&</a>", "<a>&nbsp;</a>", "<a b=\"<\"/>", "<a b=\"1\" b=\"2\"/>",
                          "<a><b></a></b>", "<a>\x01</a>", "<a/>x", "< a/>"}) {
    EXPECT_NE(XmlError(bad), "") << bad;
  }
}

TEST(GanttSvg, HasABoxForEachInterval) {
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (const int32_t micro_batches : {1, stages, stages + 1, 17}) {
      for (const int32_t steps : {1, 3, 20}) {
        const Timeline timeline = DecodeTimeline(stages, micro_batches, steps);
        const std::string svg = GanttSvg(timeline, "bard");
        EXPECT_EQ(XmlError(svg), "");
        const size_t boxes = (stages + 1) * micro_batches * steps;  // the last stage samples
        EXPECT_EQ(timeline.intervals.size(), boxes);
        EXPECT_EQ(Count(svg, "<rect class=\"box"), boxes);
        EXPECT_EQ(Count(svg, "<rect class=\"box sample\""), micro_batches * steps);
        EXPECT_EQ(Count(svg, "<rect class=\"idle\""), stages);
        EXPECT_EQ(Count(svg, "<rect class=\"key\""), std::min(steps, 8));
        EXPECT_EQ(Count(svg, "<title>"), 1 + boxes);
      }
    }
  }
}

TEST(GanttSvg, TellsTimesAndBubble) {
  const Timeline timeline = DecodeTimeline(2, 1, 1);  // 2 ms, 50 us, 2 ms, 100 us
  const std::string svg = GanttSvg(timeline, "pp=2");
  EXPECT_THAT(svg, HasSubstr("<title>pp=2: 50.6% bubble</title>"));
  EXPECT_THAT(svg, HasSubstr(">stage 1, step 0, micro-batch 0: 2.050 to 4.050 ms<"));
  EXPECT_THAT(svg, HasSubstr(">stage 1, step 0, micro-batch 0, sampling: 4.050 to 4.150 ms<"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(svg, HasSubstr(">0.0</text>"));
  EXPECT_THAT(svg, HasSubstr(">4.0</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">4.5</text>")));
  EXPECT_EQ(svg, GanttSvg(timeline, "pp=2"));
}

TEST(GanttSvg, WritesNumbersOnlyWhereThereIsRoom) {
  EXPECT_EQ(Count(GanttSvg(DecodeTimeline(2, 3, 2), ""), "<text class=\"number\""), 12u);
  EXPECT_EQ(Count(GanttSvg(DecodeTimeline(2, 3, 200), ""), "<text class=\"number\""), 0u);
}

TEST(GanttSvg, TakesAnyTitle) {
  const std::string svg = GanttSvg(DecodeTimeline(1, 1, 1), "<a> & \"b\"\x01 100%");
  EXPECT_EQ(XmlError(svg), "");
  EXPECT_THAT(svg, HasSubstr("<title>&lt;a&gt; &amp; &quot;b&quot;  100%: 0.0% bubble</title>"));
}

TEST(GanttSvg, DrawsNothingToo) { EXPECT_EQ(XmlError(GanttSvg(Timeline(), "")), ""); }

}  // namespace
}  // namespace skein::schedule
