#include "base/bench/report.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_util.h"

namespace skein {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStdout;

using nlohmann::json;

constexpr Ceilings kCeilings = {.bytes_per_s = 100, .operations_per_s = 1000};

TEST(BenchReportTest, RowsAreHeldAgainstTheCeilingThatTakesLonger) {
  const struct {
    double bytes;
    double operations;
    Ceilings ceilings;
    Bound bound;
    double fraction;
  } kCases[] = {
      {50, 100, kCeilings, Bound::kBytes, 0.25},        // 0.5 s of reading
      {50, 1500, kCeilings, Bound::kOperations, 0.75},  // 1.5 s of products
      {50, 1500, {.bytes_per_s = 100}, Bound::kBytes, 0.25},
      {50, 1500, {.operations_per_s = 1000}, Bound::kOperations, 0.75},
      {50, 1500, {}, Bound::kNone, 0},
      {0, 0, kCeilings, Bound::kNone, 0},
  };
  for (const auto& c : kCases) {
    const BenchRow row = {
        .seconds = 2, .bytes = c.bytes, .operations = c.operations, .ceilings = c.ceilings};
    EXPECT_EQ(BoundOf(row), c.bound);
    EXPECT_DOUBLE_EQ(FractionOf(row), c.fraction);
  }
  EXPECT_EQ(FractionOf({.seconds = 2, .bytes = 50, .ceilings = kCeilings, .fraction = 0.4}), 0.4);
}

TEST(BenchReportTest, TheTableAndTheJsonSayTheSame) {
  CaptureStdout();
  BenchReport report("decode", "bard",
                     {.kind = "cpu", .device = "a \"CPU\"", .threads = 2, .ceilings = kCeilings});
  report.Begin();
  report.Note("loaded in 3 s", {{"load_seconds", 3}});
  report.Add({.name = "decode, batch 8",
              .fields = {{"batch", 8}},
              .seconds = 2e-3,
              .samples = 5,
              .tokens = 8,
              .bytes = 0.05,
              .operations = 1,
              .ceilings = kCeilings});
  report.Add({.name = "bare", .seconds = 1});
  const std::string table = GetCapturedStdout();
  EXPECT_THAT(table, AllOf(HasSubstr("bard on a \"CPU\", 2 threads; reads "), HasSubstr("tokens/s"),
                           HasSubstr("loaded in 3 s\n"), HasSubstr("2.000 ms     4000.0"),
                           HasSubstr(" 50.0%\n")));
  const json parsed = json::parse(report.ToJson());
  EXPECT_EQ(parsed["command"], "decode");
  EXPECT_EQ(parsed["machine"]["device"], "a \"CPU\"");
  EXPECT_EQ(parsed["machine"]["ceilings"]["bytes_per_s"], 100);
  EXPECT_EQ(parsed["load_seconds"], 3);
  ASSERT_EQ(parsed["rows"].size(), 2);
  const json& row = parsed["rows"][0];
  EXPECT_EQ(row["batch"], 8);
  EXPECT_EQ(row["tokens_per_s"], 4000);
  EXPECT_EQ(row["bound"], "operations");
  EXPECT_EQ(row["fraction"], 0.5);
  EXPECT_TRUE(parsed["rows"][1]["fraction"].is_null());
  EXPECT_TRUE(parsed["rows"][1]["ceilings"]["bytes_per_s"].is_null());
}

TEST(BenchReportTest, ARowBelowTheLeastFractionIsNamed) {
  BenchReport report("decode", "", {});
  CaptureStdout();
  report.Add({.name = "good", .seconds = 1, .bytes = 80, .ceilings = kCeilings});
  report.Add({.name = "bad", .seconds = 1, .bytes = 60, .ceilings = kCeilings});
  GetCapturedStdout();
  SKEIN_EXPECT_OK(report.CheckFractions(0.6));
  EXPECT_THAT(report.CheckFractions(0.7),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("bad reaches 60% of its ceiling, asked were 70%")));
}

TEST(BenchReportTest, Median) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median({2, 8}), 5);
}

}  // namespace
}  // namespace skein
