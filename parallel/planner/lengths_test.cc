#include "parallel/planner/lengths.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/test_util.h"
#include "parallel/planner/planner.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseLengthsTest, TakesALineEach) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto lengths, ParseLengths("12,3\r\n\n 400 , 50 \n"));
  EXPECT_THAT(lengths, ElementsAre(Lengths{12, 3}, Lengths{400, 50}));
}

TEST(ParseLengthsTest, NamesTheLineThatIsWrong) {
  for (const char* wrong : {"1,2\nprompt,answer\n", "1,2\n3\n", "1,2\n3,4,5\n", "1,2\n1.5,2\n",
                            "1,2\n0,1\n", "1,2\n1,-1\n", "1,2\n9223372036854775807,1\n"}) {
    EXPECT_THAT(ParseLengths(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2: '")))
        << wrong;
  }
  EXPECT_THAT(ParseLengths("\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no line")));
}

TEST(PlanForLengthsTest, TakesMeansAndTheLongestContext) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/lengths");
  ASSERT_TRUE(WriteFile(path, "100,50\n300,30\n2000,100\n").ok());
  Constraints constraints;
  ASSERT_TRUE(PlanForLengths(path, constraints).ok());
  EXPECT_EQ(constraints.goal.workload.prompt_tokens, 800);
  EXPECT_EQ(constraints.goal.workload.output_tokens, 60);
  EXPECT_EQ(constraints.context_length, 2100);
  constraints.context_length = 2101;
  ASSERT_TRUE(PlanForLengths(path, constraints).ok());
  EXPECT_EQ(constraints.context_length, 2101);
  constraints.context_length = 2099;
  EXPECT_THAT(PlanForLengths(path, constraints),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path), HasSubstr("has 2100 tokens of one request"))));
  EXPECT_THAT(PlanForLengths("/nowhere", constraints).message(), HasSubstr("cannot read"));
}

}  // namespace
}  // namespace skein::plan
