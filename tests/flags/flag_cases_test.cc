#include "tests/flags/flag_cases.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/help.h"

namespace skein::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParseHelpTest, FindsLongNamesAndSubcommands) {
  const Help help = ParseHelp(R"(What it does; --not-this.
Usage: program [OPTIONS] [SUBCOMMAND]

Options:
  -h,--help                   Print this help message and exit
  -t,     --temperature FLOAT  As newer libraries print it
  --overlap,--no-overlap{false}
                              --not-this as a description that was broken
  --model TEXT REQUIRED       A model; see --not-this
  --hop DURATION=0            A value
[Option Group: input]
  [Exactly 1 of the following options is required]
  Options:
    -p,--prompt TEXT            The prompt itself
  -x                          A short name only

Subcommands:
  bench                       Measure
  serve                       And serve

The flags of another program are:
Usage: other [OPTIONS]
  --not-this INT
)");
  EXPECT_THAT(help.flags, ElementsAre("--help", "--temperature", "--overlap", "--no-overlap",
                                      "--model", "--hop", "--prompt"));
  EXPECT_THAT(help.subcommands, ElementsAre("bench", "serve"));
}

TEST(TableFaultsTest, NamesEachFlagThatTheTableMissesHasTwiceOrInvents) {
  const std::vector<Flag> flags = {{"", "--seed"}, {"bench serve", "--seed"}, {"", "--model"}};
  const auto nothing = [] {};
  EXPECT_THAT(TableFaults(flags, {{{"", "--seed"}, nothing},
                                  {{"", "--model"}, nothing},
                                  {{"bench serve", "--seed"}, nothing}}),
              IsEmpty());
  EXPECT_THAT(TableFaults(flags, {{{"", "--model"}, nothing},
                                  {{"", "--model"}, nothing},
                                  {{"", "--old"}, nothing},
                                  {{"bench serve", "--seed"}, nothing}}),
              ElementsAre("--seed has no case that shows its effect", "--model has 2 cases",
                          "--old has a case, and is no flag of the program"));
}

}  // namespace
}  // namespace skein::testing
