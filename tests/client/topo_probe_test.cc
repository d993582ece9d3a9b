// `skein topo --probe`, with the worker and the mpirun that it starts.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/skein_program.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// As after `. scripts/env.sh`; mpirun has a folder of its own.
constexpr char kSkein[] =
    "sh -c '. scripts/env.sh; export TMPDIR=$(mktemp -d /tmp/m.XXXXXX); export HOME=$TMPDIR; "
    "\"$@\"; status=$?; rm -r $TMPDIR; exit $status' - client/skein";

TEST(TopoProbeTest, WhatIsMeasuredIsShownWithItsSpread) {
  const Outcome shown = Skein("topo --probe", kSkein);
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.err, AllOf(HasSubstr("measuring "), HasSubstr("measured in ")));
  EXPECT_THAT(
      shown.out,
      AllOf(HasSubstr("\nbetween two cores: "),
            ContainsRegex("a core reads [0-9.]+ [GM]B/s.*, multiplies .*FLOP/s in .*,\n  "
                          "and a step costs .* \\(measured ±[0-9.e+-]+%\\)\n"),
            ContainsRegex("\n- reads of 1\\.0 MiB [0-9.]+ [GM]B/s, of 4\\.0 MiB "),
            HasSubstr("\nexchanges of ranks\n"), HasSubstr("\n  send_to_awake  2 ranks: 1.0 KiB "),
            ContainsRegex("  all_reduce     2 ranks: 1.0 KiB [0-9.e+]+ [um]s, .*4.0 MiB "
                          "[0-9.e+]+ [um]s \\(measured")));
}

TEST(TopoProbeTest, PlansAreMadeOfTheJson) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/measured.json");
  const Outcome alone = Skein(absl::StrCat("topo --probe --np 1 --json >", file), kSkein);
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  const Outcome plan = Skein(absl::StrCat("plan --model synthetic:llama3-1b --topology ", file));
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, ContainsRegex("\nRates are measured ±[0-9.e+-]+%; links are modelled\n"));
}

// A probe of two ranks on cores may take 5 seconds; a busy host gets three times as long.
TEST(TopoProbeTest, AProbeIsShort) {
  const Outcome shown = Skein("topo --probe --np 2", kSkein);
  const std::string::size_type at = shown.err.find("measured in ");
  ASSERT_NE(at, std::string::npos) << shown.err;
  EXPECT_LT(std::stod(shown.err.substr(at + std::string("measured in ").size())), 15) << shown.err;
}

// Those of as many ranks on cores, by both commands.
TEST(TopoProbeTest, PlansOfThisHostAreMadeOfWhatWasKept) {
  const std::string here =
      absl::StrCat("env CUDA_VISIBLE_DEVICES= XDG_CACHE_HOME=", ::testing::TempDir(), "/cache ");
  const std::string skein = here + "client/skein";
  const auto plan = [&](int ranks) {
    return Skein(absl::StrCat("plan --model synthetic:llama3-1b --ranks ", ranks), skein).out;
  };
  const auto figures = [](const std::string& topo) {  // what is free is not one of them
    return topo.substr(std::min(topo.find("\n\n"), topo.size()));
  };
  constexpr char kMeasured[] = "predicted, by figures that were measured ";
  EXPECT_THAT(plan(2), Not(HasSubstr(kMeasured)));
  EXPECT_THAT(Skein("topo", skein).out, Not(HasSubstr("\na core reads ")));
  const Outcome probed = Skein("topo --probe", here + kSkein);
  EXPECT_EQ(probed.exit_code, 0) << probed.err;
  EXPECT_THAT(plan(2), HasSubstr(kMeasured));
  EXPECT_THAT(plan(3), Not(HasSubstr(kMeasured)));
  EXPECT_THAT(probed.out, HasSubstr("\n\na core reads "));
  EXPECT_EQ(figures(Skein("topo", skein).out), figures(probed.out));
}

TEST(TopoProbeTest, WhatCannotBeMeasuredSaysWhy) {
  const Outcome failed = Skein("topo --probe --np 1 --worker=/bin/false", kSkein);
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_EQ(failed.out, "");
  EXPECT_THAT(failed.err, AllOf(HasSubstr("this host was not measured: mpirun has ended with "
                                          "status 1, see above"),
                                EndsWith(" is tested with\n")));
  const Outcome silent = Skein("topo --probe --np 1 --worker=/bin/true", kSkein);
  EXPECT_EQ(silent.exit_code, 1);
  EXPECT_THAT(silent.err, HasSubstr("skein: what /bin/true probe printed: "));
  const Outcome bare =
      Skein("topo --probe --worker=/bin/true", "/usr/bin/env PATH=/nowhere client/skein");
  EXPECT_EQ(bare.exit_code, 1);
  EXPECT_THAT(bare.err,
              HasSubstr("cannot run mpirun; it is Open MPI's, and must be in PATH: No such file"));
}

}  // namespace
}  // namespace skein::client
