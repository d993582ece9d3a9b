// Answers that outlive their clients.
#include "coordinator/service/kept_answers.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "coordinator/service/kept_answers_fixture.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

TEST_F(KeptAnswersTest, WhatIsToldIsKeptFirst) {
  const auto leader = process_->AddReplica();
  const auto reader = Begin("a", {Ask("hi")});
  process_->Output(1, "x");
  Read read;
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "x");
  EXPECT_EQ(read.events, 2);
  ASSERT_TRUE(read.accepted.has_value());
  EXPECT_EQ(read.accepted->request_id, "a");
  EXPECT_EQ(read.accepted->resume_window, kWindow);
  // A copy of what is on disk has all of it.
  const std::string copy = folder_ + "-copy";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(folder_, copy);
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto copied, Journal::Open({.folder = copy}));
  const std::vector<Journal::Left> left = copied->TakeLeft();
  ASSERT_EQ(left.size(), 1);
  EXPECT_EQ(left[0].records.size(), 2);
}

// While the journal's thread is busy with something else.
TEST_F(KeptAnswersTest, WhatIsNotKeptYetIsNotTold) {
  process_->AddReplica();
  const auto reader = Begin("a", {Ask("hi")});
  Read read;
  ReadOn(*reader, read);
  Mutex mutex;
  mutex.Lock();
  std::atomic<bool> busy = false;
  process_->journal->Append(99, "head", {"x"}, [&](bool) {
    busy = true;
    MutexLock lock(&mutex);
  });
  while (!busy) absl::SleepFor(absl::Milliseconds(1));
  process_->Output(1, "x");
  EXPECT_FALSE(reader->Next().event.has_value());
  mutex.Unlock();
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "x");
}

TEST_F(KeptAnswersTest, AClientThatComesBackGetsTheRestAndNothingTwice) {
  const auto leader = process_->AddReplica();
  auto reader = Begin("a", {Ask("hi")});
  process_->Output(1, "one ");
  Read read;
  ReadOn(*reader, read);
  process_->Output(1, "two ");  // on its way when the connection broke
  reader.reset();
  process_->Output(1, "three ");
  EXPECT_TRUE(leader->cancelled.empty());
  reader = Resume("a", read.events);
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "one two three ");
  EXPECT_FALSE(read.over);
  process_->Output(1, "!", serving::Finish::kEos);
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "one two three !");
  EXPECT_TRUE(read.over);
  EXPECT_EQ(read.why, absl::OkStatus());
  // And again, finished as it is, from anywhere.
  Read again;
  ReadOn(*Resume("a", 0), again);
  EXPECT_EQ(again.text, read.text);
  EXPECT_EQ(again.events, read.events);
  Read end;
  ReadOn(*Resume("a", read.events), end);
  EXPECT_EQ(end.events, 0);
  EXPECT_TRUE(end.over);
}

TEST_F(KeptAnswersTest, OneReaderAtATime) {
  process_->AddReplica();
  const auto first = Begin("a", {Ask("hi")});
  bool woken = false;
  const auto second = (*process_->kept.Find("a", {}))->Read(0, [&woken] { woken = true; }).value();
  Read read;
  ReadOn(*first, read);
  EXPECT_TRUE(read.over);
  EXPECT_TRUE(absl::IsAborted(read.why));
  process_->Output(1, "x");
  process_->journal->Flush();
  EXPECT_TRUE(woken);
  Read on;
  ReadOn(*second, on);
  EXPECT_EQ(on.text, "x");
}

TEST_F(KeptAnswersTest, NobodyElseHearsOfIt) {
  process_->AddReplica();
  const auto reader = Begin("a", {Ask("hi")}, "alice");
  EXPECT_THAT(process_->kept.Find("a", {.key = "alice"}), IsOk());
  for (const KeptAnswers::Asker& asker :
       std::vector<KeptAnswers::Asker>{{}, {.key = "bob"}, {.http = true, .key = "alice"}}) {
    EXPECT_THAT(process_->kept.Find("a", asker),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("another key")));
  }
  EXPECT_THAT(process_->kept.Find("b", {.key = "alice"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--resume-window")));
  EXPECT_THAT((*process_->kept.Find("a", {.key = "alice"}))->Read(99, [] {}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("99")));
}

TEST_F(KeptAnswersTest, WithoutItsClientItRunsForTheWindow) {
  const auto leader = process_->AddReplica();
  auto reader = Begin("a", {Ask("hi")});
  clock_.Advance(2 * kWindow);
  process_->kept.Tick();
  EXPECT_TRUE(leader->cancelled.empty());  // it reads
  reader.reset();
  clock_.Advance(kWindow - absl::Seconds(1));
  process_->kept.Tick();
  EXPECT_TRUE(leader->cancelled.empty());
  clock_.Advance(absl::Seconds(1));
  process_->kept.Tick();
  EXPECT_EQ(leader->cancelled, std::vector<uint64_t>{1});
  EXPECT_TRUE(absl::IsNotFound(process_->kept.Find("a", {}).status()));
  Restart();
  EXPECT_EQ(process_->dispatcher.counts().queued, 0);
}

TEST_F(KeptAnswersTest, ADiscardedOneEndsAtOnce) {
  const auto leader = process_->AddReplica();
  const auto reader = Begin("a", {Ask("hi")});
  process_->kept.Discard(*process_->kept.Find("a", {}));
  EXPECT_EQ(leader->cancelled, std::vector<uint64_t>{1});
  EXPECT_TRUE(absl::IsNotFound(process_->kept.Find("a", {}).status()));
  Restart();
  EXPECT_EQ(process_->dispatcher.counts().queued, 0);
}

// Before the second one is admitted.
TEST_F(KeptAnswersTest, APromptMayBeAnsweredAtOnce) {
  struct AtOnce final : RequestObserver {
    void OnAdmitted(int64_t /*prompt_tokens*/) override {
      if (++admitted == 1) process->Output(1, "x", serving::Finish::kEos);
    }
    Process* process = nullptr;
    int admitted = 0;
  } observer;
  observer.process = process_.get();
  process_->AddReplica();
  ModelRegistry models;
  SKEIN_ASSERT_OK(models.Add(Hosted(model_, process_->dispatcher, observer)));
  InferenceService service(&models, &clock_);
  KeptHead head;
  head.id = "a";
  const auto reader = process_->kept.Begin(&service, {Ask("hi"), Ask("ho")}, head, [] {}).value();
  Read read;
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "x");
  EXPECT_FALSE(read.over);
  process_->Output(2, "y", serving::Finish::kEos);
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "xy");
  EXPECT_TRUE(read.over);
}

TEST_F(KeptAnswersTest, WhereOnePromptFailsTheOthersEnd) {
  const auto leader = process_->AddReplica();
  const auto reader = Begin("a", {Ask("hi"), Ask("ho")});
  process_->Output(1, "", serving::Finish::kFailed);
  process_->kept.Tick();
  EXPECT_EQ(leader->cancelled, std::vector<uint64_t>{2});
  Read read;
  ReadOn(*reader, read);
  EXPECT_TRUE(read.over);
  EXPECT_TRUE(absl::IsInternal(read.why));
}

TEST_F(KeptAnswersTest, ARefusedPromptLeavesNothing) {
  process_->AddReplica();
  KeptHead head;
  head.id = "a";
  EXPECT_TRUE(absl::IsInvalidArgument(
      process_->kept.Begin(&process_->service, {Ask("hi"), Ask("")}, head, [] {}).status()));
  GenerateRequest wide = Ask("hi");
  wide.n = 9;
  EXPECT_TRUE(absl::IsFailedPrecondition(
      process_->kept.Begin(&process_->service, {Ask("hi"), wide}, head, [] {}).status()));
  EXPECT_EQ(process_->dispatcher.counts().running, 0);
  EXPECT_TRUE(absl::IsNotFound(process_->kept.Find("a", {}).status()));
}

TEST_F(KeptAnswersTest, TheOldestFinishedOnesMakeRoom) {
  process_.reset();
  max_bytes_ = 4000;
  Start();
  process_->AddReplica();
  int kept = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(process_->kept.CanKeep());
    Begin(absl::StrCat(i), {Ask("hi")});
    process_->Output(static_cast<uint64_t>(i) + 1, "all", serving::Finish::kEos);
    clock_.Advance(absl::Seconds(1));
  }
  for (int i = 0; i < 20; ++i) kept += process_->kept.Find(absl::StrCat(i), {}).ok();
  EXPECT_GT(kept, 1);
  EXPECT_LT(kept, 10);
  EXPECT_THAT(process_->kept.Find("19", {}), IsOk());
  // What runs is not given up for what comes.
  std::vector<std::unique_ptr<KeptReader>> running;
  for (int i = 0; i < 20 && process_->kept.CanKeep(); ++i) {
    running.push_back(Begin(absl::StrCat("running ", i), {Ask("hi")}));
  }
  EXPECT_LT(running.size(), 10);
  EXPECT_FALSE(process_->kept.CanKeep());
}

// The disk is full: who reads notices nothing, and the next one is told that nothing is kept.
TEST_F(KeptAnswersTest, WhereTheJournalCannotBeWrittenAnswersGoOn) {
  process_.reset();
  disk_bytes_ = 48 << 10;
  Start();
  process_->AddReplica();
  EXPECT_TRUE(process_->kept.CanKeep());
  KeptHead head;
  head.id = "a";
  head.body = std::string(100 << 10, 'x');
  const auto reader = process_->kept.Begin(&process_->service, {Ask("hi")}, head, [] {}).value();
  process_->Output(1, "x");
  process_->journal->Flush();
  process_->Output(1, "y", serving::Finish::kEos);
  Read read;
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "xy");
  EXPECT_TRUE(read.over);
}

TEST_F(KeptAnswersTest, TokensAreCountedAsTheyAreMadeWithoutAReaderToo) {
  process_->AddReplica();
  int64_t counted = 0;
  KeptHead head;
  head.id = "a";
  auto reader = process_->kept.Begin(
      &process_->service, {Ask("hi")}, head, [] {}, [&](int64_t tokens) { counted += tokens; });
  process_->Output(1, "abc");
  EXPECT_EQ(counted, 3);
  reader->reset();
  process_->Output(1, "d", serving::Finish::kEos);
  EXPECT_EQ(counted, 5);
}

}  // namespace
}  // namespace skein::coordinator
