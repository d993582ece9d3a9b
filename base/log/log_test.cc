#include "base/log/log.h"

#include <unistd.h>

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/spdlog.h"

namespace skein {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogTest, LinesNameHostAndComponentAndRespectTheLevel) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  SKEIN_ASSERT_OK(InitLogging("rank 3 of 100%d", "info"));
  testing::internal::CaptureStderr();
  spdlog::debug("quiet");
  spdlog::info("loaded {} layers", 8);
  FlushLog();
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      lines,
      AllOf(HasSubstr(absl::StrCat(" I ", host.data(), " rank 3 of 100%d | loaded 8 layers\n")),
            Not(HasSubstr("quiet"))));
}

TEST(LogTest, AnUnknownLevelIsRefusedByName) {
  EXPECT_THAT(InitLogging("x", "loud"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'loud'")));
}

}  // namespace
}  // namespace skein
