#include "coordinator/journal/journal.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/test_util.h"

namespace skein::coordinator {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  std::unique_ptr<Journal> Open(int64_t max_bytes = 1 << 30) {
    auto journal = Journal::Open({.folder = folder_, .max_bytes = max_bytes});
    EXPECT_THAT(journal, IsOk());
    return journal.ok() ? *std::move(journal) : nullptr;
  }
  // Returns when it is written, or cannot be.
  static bool Append(Journal& journal, int64_t answer, const std::string& head,
                     std::vector<std::string> records) {
    std::atomic<bool> was_kept = false;
    journal.Append(answer, head, std::move(records), [&](bool kept) { was_kept = kept; });
    journal.Flush();
    return was_kept;
  }

  const std::string folder_ = ::testing::TempDir() + "/journal";
};

TEST_F(JournalTest, AnotherProcessFindsWhatWasKeptInTheOrderInWhichItBegan) {
  {
    const auto journal = Open();
    EXPECT_THAT(journal->TakeLeft(), IsEmpty());
    const int64_t first = journal->NextAnswer();
    const int64_t second = journal->NextAnswer();
    const std::string zeros("a\0b", 3);
    EXPECT_TRUE(Append(*journal, first, "first", {"1", zeros}));
    EXPECT_TRUE(Append(*journal, second, "second", {"x"}));
    EXPECT_TRUE(Append(*journal, first, "", {"3"}));
  }
  auto journal = Open();
  std::vector<Journal::Left> left = journal->TakeLeft();
  ASSERT_EQ(left.size(), 2);
  EXPECT_EQ(left[0].head, "first");
  EXPECT_THAT(left[0].records, ElementsAre("1", std::string("a\0b", 3), "3"));
  EXPECT_EQ(left[1].head, "second");
  EXPECT_THAT(left[1].records, ElementsAre("x"));
  EXPECT_GT(journal->NextAnswer(), left[1].answer);
  EXPECT_LT(absl::Now() - journal->last_alive(), absl::Seconds(5));
  // It goes on where it stood, and what is removed is gone.
  EXPECT_TRUE(Append(*journal, left[0].answer, "", {"4"}));
  journal->Remove(left[1].answer);
  journal.reset();
  journal = Open();
  left = journal->TakeLeft();
  ASSERT_EQ(left.size(), 1);
  EXPECT_EQ(left[0].records.size(), 4);
  EXPECT_EQ(left[0].records.back(), "4");
}

// What was told as kept, by a process that is killed while it writes: nothing of it is missing, and
// nothing is there twice.
TEST_F(JournalTest, AKilledProcessLosesNothingThatWasTold) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto journal = Open();
    for (int32_t i = 0;; ++i) {
      for (int64_t answer = 1; answer <= 3; ++answer) {
        journal->Append(answer, i == 0 ? "head" : "", {absl::StrCat(i)}, [&ends, i](bool kept) {
          if (kept && write(ends[1], &i, sizeof(i)) != sizeof(i)) _exit(1);
        });
      }
      usleep(200);
    }
  }
  close(ends[1]);
  std::map<int32_t, int> told;
  int32_t number = 0;
  while (read(ends[0], &number, sizeof(number)) == sizeof(number) && ++told[number] > 0) {
    if (told.size() > 300) kill(child, SIGKILL);  // and what is in the pipe was told, too
  }
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_GT(told.size(), 300);
  const auto journal = Open();
  const std::vector<Journal::Left> left = journal->TakeLeft();
  ASSERT_EQ(left.size(), 3);
  for (const Journal::Left& of : left) {
    EXPECT_EQ(of.head, "head");
    for (size_t i = 0; i < of.records.size(); ++i) EXPECT_EQ(of.records[i], absl::StrCat(i));
    EXPECT_GE(of.records.size(), told.size() - 1);  // the last one may be of another answer
  }
  for (const auto& [record, count] : told) EXPECT_LE(count, 3) << record;
}

// At the very moment of the word.
TEST_F(JournalTest, WhatIsToldAsKeptIsOnDisk) {
  const auto journal = Open();
  const std::string copy = folder_ + "-copy";
  for (int i = 1; i <= 3; ++i) {
    std::vector<Journal::Left> left;
    journal->Append(1, i == 1 ? "head" : "", {absl::StrCat(i)}, [&](bool kept) {
      EXPECT_TRUE(kept);
      fs::remove_all(copy);
      fs::copy(folder_, copy);
      left = Journal::Open({.folder = copy}).value()->TakeLeft();
    });
    journal->Flush();
    ASSERT_EQ(left.size(), 1);
    EXPECT_EQ(left[0].records.size(), i);
  }
}

// As the disk has it when the host goes down in the middle.
TEST_F(JournalTest, ACopyOfItsFilesInTheMiddleIsWhole) {
  const auto journal = Open();
  ASSERT_TRUE(Append(*journal, 1, "head", {"1"}));
  ASSERT_TRUE(Append(*journal, 1, "", {"2", "3"}));
  const std::string copy = folder_ + "-copy";
  fs::remove_all(copy);
  fs::create_directory(copy);
  for (const char* file : {"/journal.sqlite", "/journal.sqlite-wal"}) {
    fs::copy_file(folder_ + file, copy + file);
  }
  ASSERT_TRUE(Append(*journal, 1, "", {"4"}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto copied, Journal::Open({.folder = copy}));
  const std::vector<Journal::Left> left = copied->TakeLeft();
  ASSERT_EQ(left.size(), 1);
  EXPECT_THAT(left[0].records, ElementsAre("1", "2", "3"));
}

TEST_F(JournalTest, AFolderHasOneOwnerWhoIsNamed) {
  const auto journal = Open();
  EXPECT_THAT(Journal::Open({.folder = folder_}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(folder_), HasSubstr(absl::StrCat("process ", getpid())))));
}

TEST_F(JournalTest, OnlyItsOwnerReadsIt) {
  const auto journal = Open();
  ASSERT_TRUE(Append(*journal, 1, "head", {"1"}));
  struct stat of;
  ASSERT_EQ(stat(folder_.c_str(), &of), 0);
  EXPECT_EQ(of.st_mode & 0777, 0700);
  int files = 0;
  for (const auto& file : fs::directory_iterator(folder_)) {
    ASSERT_EQ(stat(file.path().c_str(), &of), 0);
    EXPECT_EQ(of.st_mode & 0777, 0600) << file.path();
    ++files;
  }
  EXPECT_GE(files, 3);
}

TEST_F(JournalTest, WhatIsRemovedIsOverwritten) {
  {
    const auto journal = Open();
    ASSERT_TRUE(Append(*journal, 1, "a rather secret prompt", {"a rather secret answer"}));
    journal->Remove(1);
  }
  for (const auto& file : fs::directory_iterator(folder_)) {
    EXPECT_EQ(ReadFileOrEmpty(file.path()).find("secret"), std::string::npos) << file.path();
  }
}

// A database that may not grow stands for a disk that is full.
TEST_F(JournalTest, WhereTheDiskIsFullItGoesOnWithoutAndComesBack) {
  auto journal = Open(64 << 10);
  EXPECT_TRUE(Append(*journal, 1, "head", {"1"}));
  EXPECT_TRUE(Append(*journal, 2, "head", {"1"}));
  EXPECT_TRUE(journal->healthy());
  EXPECT_FALSE(Append(*journal, 1, "", {std::string(100 << 10, 'x')}));
  EXPECT_FALSE(journal->healthy());
  // There would be room for this, but not for what came before it.
  EXPECT_FALSE(Append(*journal, 1, "", {"3"}));
  EXPECT_TRUE(journal->healthy());
  EXPECT_TRUE(Append(*journal, 2, "", {"2"}));
  EXPECT_TRUE(Append(*journal, 3, "head", {"1"}));
  journal.reset();
  journal = Open();
  const std::vector<Journal::Left> left = journal->TakeLeft();
  ASSERT_EQ(left.size(), 2);  // what has a gap is of no use
  EXPECT_EQ(left[0].answer, 2);
  EXPECT_THAT(left[0].records, ElementsAre("1", "2"));
  EXPECT_EQ(left[1].answer, 3);
}

TEST_F(JournalTest, OtherFilesAreLeftAlone) {
  fs::create_directory(folder_);
  const std::string file = folder_ + "/journal.sqlite";
  SKEIN_ASSERT_OK(WriteFile(file, std::string(5000, 'x')));
  EXPECT_THAT(Journal::Open({.folder = folder_}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(file)));
  fs::remove(file);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &database), SQLITE_OK);
  sqlite3_exec(database, "PRAGMA user_version = 7; CREATE TABLE t (x)", nullptr, nullptr, nullptr);
  sqlite3_close(database);
  EXPECT_THAT(Journal::Open({.folder = folder_}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("version (7")));
  EXPECT_THAT(Journal::Open({.folder = folder_ + "/no/such"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_ + "/no/such")));
}

}  // namespace
}  // namespace skein::coordinator
