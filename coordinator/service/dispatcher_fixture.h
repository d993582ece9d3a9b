// A dispatcher with replicas that a test adds, answers for and takes away, and a clock that it
// moves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/test_util.h"
#include "coordinator/service/dispatcher.h"
#include "coordinator/service/fake_tokenizer.h"
#include "gtest/gtest.h"

namespace skein::coordinator {

class FakeLeader final : public RankLink {
 public:
  void SendPlan(const plan::Plan&) override {}
  void SendUpdates(serving::RequestUpdates updates) override {
    for (const serving::Request& request : updates.requests) requests.push_back(request.id.value());
    for (const serving::Request& request : updates.requests) starts.push_back(request);
    for (const serving::RequestId id : updates.cancelled) cancelled.push_back(id.value());
    for (const auto& answer : updates.cancelled_answers) cancelled_answers.push_back(answer);
  }
  uint64_t messages_sent() const override { return 0; }
  void SendShutdown(const std::string&, int) override {}
  void Close(const absl::Status&) override {}

  std::vector<uint64_t> requests;
  std::vector<serving::Request> starts;  // the same, whole
  std::vector<uint64_t> cancelled;
  std::vector<serving::CancelledAnswer> cancelled_answers;
};

struct Asked {
  std::vector<int32_t> prompt = {1};
  int n = 1;
  int32_t priority = 0;
  std::vector<std::string> stops = {};
  absl::Time deadline = absl::InfiniteFuture();
  int32_t prompt_logprobs = -1;  // none
};

class DispatcherTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeLeader> AddReplica(uint64_t id, int32_t max_num_seqs = 1,
                                         int64_t context_length = 100) {
    auto leader = std::make_shared<FakeLeader>();
    dispatcher_.OnReplicaUp({ReplicaId(id), absl::StrCat("replica ", id), max_num_seqs, leader,
                             /*page_size=*/4, /*pages=*/100, context_length});
    return leader;
  }

  std::shared_ptr<Generation> MakeRequest(uint64_t id, const Asked& asked = {}) {
    ValidRequest valid;
    valid.request.prompt = asked.prompt;
    valid.request.max_tokens = 10;
    valid.request.eos_token_ids = model_.eos_token_ids;
    valid.request.priority = asked.priority;
    valid.request.deadline = asked.deadline;
    valid.request.prompt_logprobs = asked.prompt_logprobs;
    valid.request.answers.clear();
    for (int i = 0; i < asked.n; ++i) {
      valid.request.answers.push_back({.index = i});
    }
    valid.stops = asked.stops;
    return std::make_shared<Generation>(serving::RequestId(id), absl::StrCat("req-", id), valid,
                                        &model_, &clock_, [](Generation::Ready) {});
  }

  std::shared_ptr<Generation> Admit(uint64_t id, const Asked& asked = {}) {
    auto generation = MakeRequest(id, asked);
    SKEIN_EXPECT_OK(dispatcher_.Admit(generation));
    return generation;
  }

  void Down(const std::vector<uint64_t>& ids, const std::string& why = "the job is gone") {
    std::vector<ReplicaId> replicas;
    for (const uint64_t id : ids) replicas.emplace_back(id);
    dispatcher_.OnReplicasDown(replicas, absl::UnavailableError(why));
  }

  void Output(uint64_t replica, uint64_t request, const std::string& text, serving::Finish finish,
              int32_t answer = 0) {
    serving::AnswerOutput output{
        .request_id = serving::RequestId(request), .answer = answer, .finish = finish};
    for (const char byte : text) output.tokens.push_back({.id = static_cast<uint8_t>(byte)});
    if (finish == serving::Finish::kEos) output.tokens.push_back({.id = FakeTokenizer::kEos});
    SKEIN_EXPECT_OK(dispatcher_.OnStepOutput(ReplicaId(replica), {.answers = {output}}));
  }

  // The error that ended the request; OK if none did.
  static absl::Status ErrorOf(Generation& generation) {
    while (const std::optional<Event> event = generation.Next()) {
      if (const auto* error = std::get_if<absl::Status>(&*event)) return *error;
    }
    return absl::OkStatus();
  }

  static std::string TextOf(Generation& generation) {
    std::string text;
    while (const std::optional<Event> event = generation.Next()) {
      if (const auto* tokens = std::get_if<Tokens>(&*event)) text += tokens->text;
    }
    return text;
  }

  const ServedModel model_ = MakeFakeModel();
  SimulatedClock clock_;
  std::vector<bool> serving_;
  Dispatcher dispatcher_{
      {.max_queue = 2, .on_serving = [this](bool serving) { serving_.push_back(serving); }},
      &clock_};
};

}  // namespace skein::coordinator
