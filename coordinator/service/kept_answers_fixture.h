// A dispatcher, a service and a journal, which a test leaves behind and makes anew as a process
// that is killed and started again would.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/test_util.h"
#include "coordinator/service/dispatcher_fixture.h"
#include "coordinator/service/kept_answers.h"
#include "coordinator/service/model_registry.h"
#include "coordinator/service/request_observer.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

inline constexpr absl::Duration kWindow = absl::Seconds(60);

// Neither is the registry's: they outlive it.
inline HostedModel Hosted(const ServedModel& model, Dispatcher& dispatcher,
                          RequestObserver& observer = RequestObserver::None()) {
  const std::shared_ptr<void> nobody;
  return {.model = {nobody, &model}, .dispatcher = {nobody, &dispatcher}, .observer = &observer};
}

// What one process has, but its journal's file.
struct Process {
  Process(const std::string& folder, const ServedModel& model, SimulatedClock& clock,
          int64_t max_bytes, int64_t disk_bytes)
      : dispatcher({.max_queue = 100}, &clock),
        service(&models, &clock),
        journal(Journal::Open({.folder = folder, .max_bytes = disk_bytes}).value()),
        kept({.window = kWindow, .max_bytes = max_bytes}, journal.get(), &clock) {
    SKEIN_EXPECT_OK(models.Add(Hosted(model, dispatcher)));
    kept.Restore(&service);
  }
  std::shared_ptr<FakeLeader> AddReplica(int32_t max_num_seqs = 8) {
    auto leader = std::make_shared<FakeLeader>();
    dispatcher.OnReplicaUp({ReplicaId(1), "replica", max_num_seqs, leader, /*page_size=*/4,
                            /*pages=*/100, /*context_length=*/100});
    return leader;
  }
  void Output(uint64_t request, const std::string& text,
              serving::Finish finish = serving::Finish::kNotFinished, int32_t answer = 0,
              std::optional<float> mu = std::nullopt) {
    serving::AnswerOutput output{
        .request_id = serving::RequestId(request), .answer = answer, .finish = finish};
    for (const char byte : text) {
      output.tokens.push_back({.id = static_cast<uint8_t>(byte), .mu = mu.value_or(0)});
    }
    if (finish == serving::Finish::kEos) output.tokens.push_back({.id = FakeTokenizer::kEos});
    SKEIN_EXPECT_OK(dispatcher.OnStepOutput(ReplicaId(1), {.answers = {output}}));
  }

  Dispatcher dispatcher;
  ModelRegistry models;
  InferenceService service;
  std::unique_ptr<Journal> journal;
  KeptAnswers kept;
};

// What a client has read.
struct Read {
  std::string text;
  int64_t events = 0;
  std::optional<Accepted> accepted;
  std::vector<Finished> finished;
  bool over = false;
  absl::Status why;
};

class KeptAnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    Start();
  }
  void Start() {
    process_ = std::make_unique<Process>(folder_, model_, clock_, max_bytes_, disk_bytes_);
  }
  void Restart() {
    process_.reset();
    Start();
  }

  static GenerateRequest Ask(const std::string& prompt) {
    GenerateRequest request;
    request.input = prompt;
    request.max_tokens = 20;
    return request;
  }
  std::unique_ptr<KeptReader> Begin(const std::string& id,
                                    const std::vector<GenerateRequest>& requests,
                                    const std::string& key = "") {
    KeptHead head;
    head.id = id;
    head.key = key;
    auto reader = process_->kept.Begin(&process_->service, requests, head, [] {});
    EXPECT_THAT(reader, IsOk());
    return *std::move(reader);
  }
  std::unique_ptr<KeptReader> Resume(const std::string& id, int64_t from,
                                     const std::string& key = "") {
    const auto answer = process_->kept.Find(id, {.key = key});
    EXPECT_THAT(answer, IsOk());
    auto reader = (*answer)->Read(from, [] {});
    EXPECT_THAT(reader, IsOk());
    return *std::move(reader);
  }
  // Adds what is there now.
  void ReadOn(KeptReader& reader, Read& read) {
    process_->journal->Flush();
    while (!read.over) {
      KeptReader::Told told = reader.Next();
      read.over = told.over;
      read.why = told.why;
      if (!told.event.has_value()) return;
      ++read.events;
      Event& event = told.event->event;
      if (const auto* accepted = std::get_if<Accepted>(&event)) read.accepted = *accepted;
      if (const auto* tokens = std::get_if<Tokens>(&event)) read.text += tokens->text;
      if (const auto* finished = std::get_if<Finished>(&event)) read.finished.push_back(*finished);
    }
  }

  const std::string folder_ = ::testing::TempDir() + "/kept";
  int64_t max_bytes_ = 1 << 20;
  int64_t disk_bytes_ = 1 << 30;
  ServedModel model_ = MakeFakeModel();
  // Journals know the time of day.
  SimulatedClock clock_{absl::Now()};
  std::unique_ptr<Process> process_;
};

}  // namespace skein::coordinator
