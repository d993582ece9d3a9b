#include "base/log/log_file.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::HasSubstr;

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() {
    std::string folder = absl::StrCat(testing::TempDir(), "/log-XXXXXX");
    folder_ = mkdtemp(folder.data());
    path_ = folder_ + "/x.log";
  }
  ~LogFileTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<LogFile> Open(int64_t max_bytes, int files) {
    auto file = LogFile::Open(path_, max_bytes, files);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  static void Write(LogFile& file, const std::string& text) {
    EXPECT_EQ(write(file.DescriptorFor(text.size()), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
  std::string Read(const std::string& suffix = "") const { return ReadFileOrEmpty(path_ + suffix); }

  std::string folder_, path_;
};

TEST_F(LogFileTest, AppendsAndIsNotForEverybody) {
  WriteFile(path_, "before\n").IgnoreError();
  Write(*Open(1000, 3), "one\n");
  EXPECT_EQ(Read(), "before\none\n");
  std::filesystem::remove(path_);
  const mode_t mask = umask(0);
  Write(*Open(1000, 3), "two\n");
  umask(mask);
  struct stat made{};
  ASSERT_EQ(stat(path_.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0640u);
}

// No file is above the limit, no line is lost or cut, and the oldest ones go.
TEST_F(LogFileTest, IsPutByWhenItIsLarge) {
  const auto file = Open(8, 3);
  for (const char* const line : {"one\n", "two\n", "three\n", "4\n", "five\n", "six\n"}) {
    Write(*file, line);
  }
  EXPECT_EQ(Read(), "six\n");
  EXPECT_EQ(Read(".1"), "five\n");
  EXPECT_EQ(Read(".2"), "three\n4\n");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".3"));
}

TEST_F(LogFileTest, OneFileIsBegunAnew) {
  const auto file = Open(8, 1);
  Write(*file, "one\n");
  Write(*file, "two\n");
  Write(*file, "three\n");
  EXPECT_EQ(Read(), "three\n");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".1"));
}

TEST_F(LogFileTest, ALineLongerThanTheLimitStandsAlone) {
  const auto file = Open(8, 3);
  Write(*file, "one\n");
  Write(*file, "a long line\n");
  Write(*file, "two\n");
  EXPECT_EQ(Read(), "two\n");
  EXPECT_EQ(Read(".1"), "a long line\n");
  EXPECT_EQ(Read(".2"), "one\n");
}

// As logrotate(8) does, without a word.
TEST_F(LogFileTest, AFileThatWasMovedRemovedOrCutIsFollowed) {
  const auto file = Open(1000, 3);
  Write(*file, "one\n");
  ASSERT_EQ(rename(path_.c_str(), (path_ + ".moved").c_str()), 0);
  Write(*file, "two\n");
  EXPECT_EQ(Read(".moved"), "one\n");
  EXPECT_EQ(Read(), "two\n");
  std::filesystem::remove(path_);
  Write(*file, "three\n");
  EXPECT_EQ(Read(), "three\n");
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  Write(*file, "four\n");
  EXPECT_EQ(Read(), "four\n");
}

// Lines are not lost where no file can be made: the open one takes them.
TEST_F(LogFileTest, AFolderThatIsGoneLeavesTheOpenFile) {
  const auto file = Open(1000, 3);
  std::filesystem::remove_all(folder_);
  Write(*file, "one\n");
  EXPECT_FALSE(file->TakeTrouble().ok());
  Write(*file, "another\n");
  SKEIN_EXPECT_OK(file->TakeTrouble());
  std::filesystem::create_directory(folder_);
  Write(*file, "two\n");
  EXPECT_EQ(Read(), "two\n");
}

// The line that finds it is written where the others are.
TEST_F(LogFileTest, ARotationThatFailsIsToldOnceAndTriedAgain) {
  const auto file = Open(10, 2);
  std::filesystem::create_directories(path_ + ".1/full");
  Write(*file, "one line\n");
  SKEIN_EXPECT_OK(file->TakeTrouble());
  Write(*file, "another\n");
  EXPECT_THAT(std::string(file->TakeTrouble().message()), HasSubstr(path_));
  Write(*file, "a third\n");
  SKEIN_EXPECT_OK(file->TakeTrouble());
  EXPECT_EQ(Read(), "one line\nanother\na third\n");
}

TEST_F(LogFileTest, AnotherWriterAFolderAndAPipeAreRefused) {
  const auto file = Open(1000, 3);
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(LogFile::Open(pipe, 1000, 3).ok());
  EXPECT_THAT(LogFile::Open(path_, 1000, 3).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(path_)));
  EXPECT_FALSE(LogFile::Open(folder_, 1000, 3).ok());
  EXPECT_THAT(LogFile::Open("/dev/null", 1000, 3).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/dev/null")));
  EXPECT_FALSE(LogFile::Open(folder_ + "/none/x.log", 1000, 3).ok());
}

}  // namespace
}  // namespace skein
