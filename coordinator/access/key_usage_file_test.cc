#include "coordinator/access/key_usage_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/test_util.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

class KeyUsageFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  std::unique_ptr<KeyUsageFile> Open(KeyUsage& usage) {
    return KeyUsageFile::Open(path_, &usage).value();
  }
  // By how much it would go over a limit of nothing.
  static int64_t Tokens(KeyUsage& usage, const std::string& name) {
    return usage.AddPrompt(name, {.tokens_per_minute = 0}, 1)->wanted - 1;
  }

  const std::string path_ = ::testing::TempDir() + "/usage.db";
  SimulatedClock clock_{absl::FromUnixSeconds(1000)};
};

TEST_F(KeyUsageFileTest, ARestartDoesNotForget) {
  for (int i = 1; i <= 3; ++i) {
    KeyUsage usage(&clock_);
    const std::unique_ptr<KeyUsageFile> file = Open(usage);
    EXPECT_EQ(Tokens(usage, "a"), 10 * (i - 1));
    usage.AddAnswer("a", 10);
    clock_.Advance(absl::Seconds(1));
  }
  clock_.Advance(absl::Seconds(58));  // the first second has passed
  KeyUsage usage(&clock_);
  const std::unique_ptr<KeyUsageFile> file = Open(usage);
  EXPECT_EQ(Tokens(usage, "a"), 20);
  EXPECT_EQ(Tokens(usage, "b"), 0);
}

TEST_F(KeyUsageFileTest, AKilledProcessLosesASecondAtMost) {
  const pid_t child = fork();
  if (child == 0) {
    KeyUsage usage(&clock_);
    const std::unique_ptr<KeyUsageFile> file = Open(usage);
    usage.AddAnswer("a", 7);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    _exit(0);  // nothing is destroyed
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  KeyUsage usage(&clock_);
  const std::unique_ptr<KeyUsageFile> file = Open(usage);
  EXPECT_EQ(Tokens(usage, "a"), 7);
}

TEST_F(KeyUsageFileTest, WhatIsOldIsTakenOutOfTheDatabase) {
  KeyUsage usage(&clock_);
  std::unique_ptr<KeyUsageFile> file = Open(usage);
  usage.AddAnswer("a", 1);
  SKEIN_ASSERT_OK(file->Write());
  clock_.Advance(absl::Seconds(100));
  usage.AddAnswer("b", 2);
  SKEIN_ASSERT_OK(file->Write());
  clock_.Advance(-absl::Seconds(100));  // what is there counts again
  file.reset();
  KeyUsage other(&clock_);
  const std::unique_ptr<KeyUsageFile> again = Open(other);
  EXPECT_EQ(Tokens(other, "a"), 0);
}

TEST_F(KeyUsageFileTest, OneProcessHasIt) {
  KeyUsage usage(&clock_);
  const std::unique_ptr<KeyUsageFile> file = Open(usage);
  EXPECT_THAT(KeyUsageFile::Open(path_, &usage).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("usage.db: cannot use the database: database is locked; does")));
}

TEST_F(KeyUsageFileTest, WhatIsNoSuchDatabaseStaysAsItIs) {
  KeyUsage usage(&clock_);
  const std::string text(200, 'x');
  SKEIN_ASSERT_OK(WriteFile(path_, text));
  EXPECT_THAT(KeyUsageFile::Open(path_, &usage).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(path_)));
  EXPECT_EQ(ReadFileOrEmpty(path_), text);
  EXPECT_THAT(KeyUsageFile::Open("/nowhere/usage.db", &usage).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("/nowhere/usage.db: cannot open")));
}

}  // namespace
}  // namespace skein::coordinator
