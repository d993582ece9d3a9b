#include "base/flags/flags.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Values {
  int32_t count = 7;
  int64_t size = 0;
  uint64_t seed = 0;
  double share = 0;
  float any = 0;
  std::string text = "none";
  std::string path;
  std::string address = "127.0.0.1:50051";
  absl::Duration wait = absl::Seconds(3);
  std::optional<absl::Duration> limit;
  std::string log_level = "info";
};

// `said` is what went to standard error.
std::optional<int> Parse(std::vector<const char*> arguments, Values& values, std::string& said,
                         bool required = false) {
  CLI::App app;
  app.name("program");
  app.add_option("--count", values.count, "")->check(InRange<int32_t>(1, 9));
  app.add_option("--size", values.size, "")->check(InRange<int64_t>(0));
  app.add_option("--seed", values.seed, "")->check(InRange<uint64_t>());
  app.add_option("--share", values.share, "")->check(InRange(0.0, 1.0));
  app.add_option("--any", values.any, "")->check(InRange<float>());
  app.add_option("--text", values.text, "")->required(required);
  app.add_option("--path", values.path, "")->check(NotEmpty());
  AddAddress(app, "--address", values.address, "");
  AddDuration(app, "--wait", values.wait, "", absl::Seconds(1));
  AddDuration(app, "--limit", values.limit, "");
  AddLogLevel(app, values.log_level);
  arguments.insert(arguments.begin(), "path/to/program");
  testing::internal::CaptureStderr();
  const auto code = ParseCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
  said = testing::internal::GetCapturedStderr();
  return code;
}

TEST(FlagsTest, TakeWhatIsInRange) {
  Values values;
  std::string said;
  EXPECT_EQ(Parse({"--count=9", "--size", "9223372036854775807", "--seed=18446744073709551615",
                   "--share", "1", "--any=-1e30", "--address=[::1]:7", "--wait", "1m30s",
                   "--limit=0", "--text", "-x"},
                  values, said),
            std::nullopt);
  EXPECT_EQ(said, "");
  EXPECT_EQ(values.count, 9);
  EXPECT_EQ(values.size, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(values.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(values.share, 1);
  EXPECT_EQ(values.any, -1e30f);
  EXPECT_EQ(values.address, "[::1]:7");
  EXPECT_EQ(values.wait, absl::Seconds(90));
  EXPECT_EQ(values.limit, absl::ZeroDuration());
  EXPECT_EQ(values.text, "-x");
}

TEST(FlagsTest, AnEmptyValueIsNotTheNextFlag) {
  Values values;
  std::string said;
  EXPECT_EQ(Parse({"--text=", "--count=2"}, values, said), std::nullopt) << said;
  EXPECT_EQ(values.text, "");
  EXPECT_EQ(values.count, 2);
  EXPECT_EQ(Parse({"--size=", "--count=2"}, values, said), kExitUsage);
  EXPECT_THAT(said, HasSubstr("--size: must be a whole number of at least 0, not ''"));
}

TEST(FlagsTest, RefusalsNameFlagValueAndRange) {
  struct Case {
    const char* argument;
    const char* says;
  };
  const Case cases[] = {
      {"--count=0", "--count: must be a whole number in [1, 9], not '0'"},
      {"--count=10", "--count: must be a whole number in [1, 9], not '10'"},
      {"--count=2.5", "--count: must be a whole number in [1, 9], not '2.5'"},
      {"--count=99999999999", "in [1, 9], not '99999999999'"},
      {"--size=-1", "--size: must be a whole number of at least 0, not '-1'"},
      {"--size=many", "--size: must be a whole number of at least 0, not 'many'"},
      {"--seed=-1", "--seed: must be a whole number of at least 0, not '-1'"},
      {"--share=1.01", "--share: must be a number in [0, 1], not '1.01'"},
      {"--share=nan", "--share: must be a number in [0, 1], not 'nan'"},
      {"--any=warm", "--any: must be a number, not 'warm'"},
      {"--address=here", "--address: 'here' is not HOST:PORT with a port from 1 to 65535"},
      {"--address=here:0", "--address: 'here:0' is not HOST:PORT"},
      {"--wait=0.5s", "--wait: must be a duration in [1s, 8760h], like 30s or 1m30s, not '0.5s'"},
      {"--wait=inf", "not 'inf'"},
      {"--limit=-1s", "--limit: must be a duration in [0, 8760h]"},
      {"--limit=soon", "not 'soon'"},
      {"--path=", "--path: must not be empty"},
      {"--log-level=loud",
       "--log-level: must be trace, debug, info, warning, error or off, not 'loud'"},
      {"--nonsense", "--nonsense"},
      {"extra", "extra"},
  };
  for (const Case& c : cases) {
    Values values;
    std::string said;
    EXPECT_EQ(Parse({c.argument}, values, said), kExitUsage) << c.argument;
    EXPECT_THAT(said, AllOf(StartsWith("program: "), HasSubstr(c.says), HasSubstr("--help")));
  }
}

TEST(FlagsTest, AMisspelledFlagIsNamedBesideTheMissingOne) {
  Values values;
  std::string said;
  EXPECT_EQ(Parse({"--txet=x"}, values, said, /*required=*/true), kExitUsage);
  EXPECT_THAT(said, AllOf(HasSubstr("--text is required"), HasSubstr("--txet=x")));
}

}  // namespace
}  // namespace skein
