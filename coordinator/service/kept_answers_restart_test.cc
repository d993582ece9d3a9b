// Answers that outlive the coordinator's process.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "coordinator/service/kept_answers_fixture.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;

// Held-back text, characters in halves, penalties' history, mirostat's state, the seed.
TEST_F(KeptAnswersTest, AnotherProcessGoesOnWhereTheKilledOneStood) {
  process_->AddReplica();
  GenerateRequest asked = Ask("hi");
  asked.stops = {"END"};
  asked.sampling.values = {{"temperature", 1.0f}, {"mirostat_tau", 5.0f}};
  asked.n = 2;
  Read read;
  {
    const auto reader = Begin("a", {asked});
    process_->Output(1, "xy\xC3", serving::Finish::kNotFinished, 0, 2.5f);
    process_->Output(1, "EN", serving::Finish::kNotFinished, 1, 3.5f);
    ReadOn(*reader, read);
    EXPECT_EQ(read.text, "xy");
  }
  Restart();
  EXPECT_EQ(process_->dispatcher.counts().queued, 1);  // it waits for a replica
  const auto leader = process_->AddReplica();
  ASSERT_EQ(leader->starts.size(), 1);
  const serving::Request& request = leader->starts[0];
  EXPECT_EQ(request.prompt, (std::vector<int32_t>{'h', 'i'}));
  EXPECT_EQ(request.sampling.seed, read.accepted->seed);
  EXPECT_EQ(request.max_tokens, 20);
  ASSERT_EQ(request.answers.size(), 2);
  EXPECT_EQ(request.answers[0].output, (std::vector<int32_t>{'x', 'y', 0xC3}));
  EXPECT_EQ(request.answers[0].mu, 2.5f);
  EXPECT_EQ(request.answers[1].output, (std::vector<int32_t>{'E', 'N'}));
  EXPECT_EQ(request.answers[1].mu, 3.5f);
  const auto reader = Resume("a", read.events);
  process_->Output(1, "\xA9z", serving::Finish::kNotFinished, 0, 2.0f);
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "xyéz");
  process_->Output(1, "Dx", serving::Finish::kNotFinished, 1, 2.0f);
  ReadOn(*reader, read);
  ASSERT_EQ(read.finished.size(), 1);
  EXPECT_EQ(read.finished[0].answer, 1);
  EXPECT_EQ(read.finished[0].stop, "END");
  EXPECT_EQ(read.finished[0].usage.completion_tokens, 3);
  process_->Output(1, "", serving::Finish::kEos, 0);
  ReadOn(*reader, read);
  EXPECT_TRUE(read.over);
  EXPECT_EQ(read.text, "xyéz");
  EXPECT_EQ(read.finished.back().usage.completion_tokens, 6);
}

// What its end tells of its beginning.
TEST_F(KeptAnswersTest, UsageIsOfTheWholeAnswer) {
  process_->AddReplica();
  Read read;
  {
    const auto reader = Begin("a", {Ask("hi")});
    clock_.Advance(absl::Seconds(2));
    SKEIN_EXPECT_OK(process_->dispatcher.OnStepOutput(
        ReplicaId(1),
        {.answers = {
             {.request_id = serving::RequestId(1), .tokens = {{.id = 'x'}}, .cached_tokens = 1}}}));
    ReadOn(*reader, read);
  }
  clock_.Advance(absl::Seconds(3));
  Restart();
  process_->AddReplica();
  const auto reader = Resume("a", read.events);
  process_->Output(1, "", serving::Finish::kEos);
  ReadOn(*reader, read);
  ASSERT_EQ(read.finished.size(), 1);
  const Usage& usage = read.finished[0].usage;
  EXPECT_EQ(usage.prompt_tokens, 2);
  EXPECT_EQ(usage.completion_tokens, 2);
  EXPECT_EQ(usage.cached_tokens, 1);
  EXPECT_EQ(usage.queue_time, absl::ZeroDuration());
  EXPECT_EQ(usage.first_token_time, absl::Seconds(2));
  EXPECT_EQ(usage.total_time, absl::Seconds(5));
}

// Workers may take longer than others would be waited for; a client does not.
TEST_F(KeptAnswersTest, AfterARestartItWaitsForAReplicaAndForTheWindow) {
  process_->AddReplica();
  Begin("a", {Ask("hi")});
  process_->journal->Flush();
  Restart();
  clock_.Advance(kWindow - absl::Seconds(1));
  process_->dispatcher.Tick();
  process_->kept.Tick();
  EXPECT_EQ(process_->dispatcher.counts().queued, 1);
  auto reader = Resume("a", 1);
  clock_.Advance(absl::Seconds(30));
  process_->dispatcher.Tick();
  process_->kept.Tick();
  EXPECT_EQ(process_->dispatcher.counts().queued, 1);
  reader.reset();
  clock_.Advance(kWindow);
  process_->kept.Tick();
  EXPECT_EQ(process_->dispatcher.counts().queued, 0);
}

// Only the word that it ends was not kept.
TEST_F(KeptAnswersTest, AWholeAnswerIsNotGoneOnWith) {
  process_->AddReplica();
  Begin("a", {Ask("hi")});
  process_->journal->Append(
      1, "",
      {EncodeEvent(0, Tokens{.text = "x", .tokens = {{.id = 'x'}, {.id = FakeTokenizer::kEos}}})},
      nullptr);
  Restart();
  EXPECT_EQ(process_->dispatcher.counts().queued, 0);
  Read read;
  ReadOn(*Resume("a", 1), read);
  EXPECT_TRUE(read.over);
  ASSERT_EQ(read.finished.size(), 1);
  EXPECT_EQ(read.finished[0].reason, Finished::Reason::kEos);
}

// One process after the other, each with what those before it had told.
TEST_F(KeptAnswersTest, AgainAndAgain) {
  Read read;
  {
    process_->AddReplica();
    const auto reader = Begin("a", {Ask("hi")});
    ReadOn(*reader, read);
  }
  for (int i = 0; i < 4; ++i) {
    Restart();
    process_->AddReplica();
    const auto reader = Resume("a", read.events);
    process_->Output(1, absl::StrCat(i));
    ReadOn(*reader, read);
    process_->Output(1, "-");  // kept, but not read
  }
  EXPECT_EQ(read.text, "0-1-2-3");
  EXPECT_EQ(process_->AddReplica()->starts.size(), 0);
}

TEST_F(KeptAnswersTest, WhatHasEndedIsToldAndNotComputedAgain) {
  process_->AddReplica();
  Begin("a", {Ask("hi")});
  process_->Output(1, "all", serving::Finish::kEos);
  Begin("b", {Ask("ho")});
  process_->dispatcher.FailAll(absl::InternalError("broken"));
  Restart();
  EXPECT_EQ(process_->dispatcher.counts().queued, 0);
  Read read;
  ReadOn(*Resume("a", 1), read);
  EXPECT_EQ(read.text, "all");
  EXPECT_TRUE(read.over);
  Read broken;
  ReadOn(*Resume("b", 0), broken);
  EXPECT_EQ(broken.events, 2);
  EXPECT_EQ(broken.why, absl::InternalError("broken"));
}

TEST_F(KeptAnswersTest, ThoseOfALongAbsenceOrAnotherModelAreNotGoneOnWith) {
  process_->AddReplica();
  Begin("a", {Ask("hi")});
  process_->journal->Flush();
  model_.identity = "other weights";
  Restart();
  EXPECT_EQ(process_->dispatcher.counts().queued, 0);
  EXPECT_EQ(process_->kept.Find("a", {}).value()->model(), nullptr);
  model_.name = "another";
  process_->AddReplica();
  Begin("b", {Ask("hi")});
  model_.name = "fake";
  Restart();
  EXPECT_EQ(process_->kept.Find("b", {}).value()->model(), nullptr);
  // The next process has the model again.
  model_.name = "another";
  Restart();
  ASSERT_NE(process_->kept.Find("b", {}).value()->model(), nullptr);
  process_->AddReplica();
  process_->Output(1, "x", serving::Finish::kEos);
  Read read;
  ReadOn(*Resume("b", 1), read);
  EXPECT_EQ(read.text, "x");
  EXPECT_TRUE(read.over && read.why.ok());
  process_.reset();
  clock_.Advance(kWindow + absl::Seconds(2));
  Start();
  EXPECT_TRUE(absl::IsNotFound(process_->kept.Find("a", {}).status()));
}

TEST_F(KeptAnswersTest, SeveralPromptsAreOneSequence) {
  process_->AddReplica();
  auto reader = Begin("a", {Ask("hi"), Ask("ho")});
  process_->Output(1, "x", serving::Finish::kEos);
  Read read;
  ReadOn(*reader, read);
  EXPECT_FALSE(read.over);
  reader.reset();
  Restart();
  const auto leader = process_->AddReplica();
  ASSERT_EQ(leader->starts.size(), 1);
  EXPECT_EQ(leader->starts[0].prompt[1], 'o');
  reader = Resume("a", read.events);
  process_->Output(leader->requests[0], "y", serving::Finish::kEos);
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "xy");
  EXPECT_TRUE(read.over);
}

// A drain's end is none of the answer's.
TEST_F(KeptAnswersTest, APlannedEndLosesNothingEither) {
  process_->AddReplica();
  Read read;
  {
    const auto reader = Begin("a", {Ask("hi")});
    process_->Output(1, "one ");
    process_->kept.StartDrain();
    process_->dispatcher.StartDrain();
    process_->Output(1, "two ");
    process_->dispatcher.FailAll(absl::UnavailableError("the coordinator is shutting down"));
    ReadOn(*reader, read);
    EXPECT_EQ(read.text, "one two ");
    EXPECT_TRUE(read.over);
    EXPECT_TRUE(absl::IsUnavailable(read.why));
    EXPECT_EQ(read.events, 3);
  }
  Restart();
  process_->AddReplica();
  read.over = false;
  const auto reader = Resume("a", read.events);
  process_->Output(1, "three", serving::Finish::kEos);
  ReadOn(*reader, read);
  EXPECT_EQ(read.text, "one two three");
  EXPECT_EQ(read.why, absl::OkStatus());
}

}  // namespace
}  // namespace skein::coordinator
