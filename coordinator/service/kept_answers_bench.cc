// What keeping answers costs: CPU of the process for each event, with and without a journal, and
// how long a step's tokens wait until they are kept. One token a step for each stream.
//   kept_answers_bench [FOLDER [STREAMS [STEPS]]]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/service/dispatcher_fixture.h"
#include "coordinator/service/kept_answers.h"

namespace skein::coordinator {
namespace {

constexpr std::chrono::milliseconds kStep(5);  // as workers would take

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& of) {
    return static_cast<double>(of.tv_sec) + 1e-6 * static_cast<double>(of.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Run(Journal* journal, int streams, int steps) {
  const ServedModel model = MakeFakeModel({}, 1 << 20);
  Dispatcher dispatcher({.max_queue = streams}, &RealClock::Get());
  ModelRegistry models;
  const std::shared_ptr<void> nobody;  // the registry owns neither
  if (!models.Add({.model = {nobody, &model}, .dispatcher = {nobody, &dispatcher}}).ok()) return;
  InferenceService service(&models, &RealClock::Get());
  dispatcher.OnReplicaUp(
      {ReplicaId(1), "replica", streams, std::make_shared<FakeLeader>(), 16, 1 << 20, 1 << 20});
  std::unique_ptr<KeptAnswers> kept;
  if (journal != nullptr) {
    kept = std::make_unique<KeptAnswers>(KeptAnswers::Options(), journal, &RealClock::Get());
  }
  GenerateRequest request;
  request.input = "hi";
  std::vector<std::shared_ptr<Generation>> generations;
  std::vector<std::unique_ptr<KeptReader>> readers;
  for (int i = 0; i < streams; ++i) {
    if (kept == nullptr) {
      generations.push_back(service.Generate(request, [](Generation::Ready) {}).value());
      continue;
    }
    KeptHead head;
    head.id = absl::StrCat(i);
    readers.push_back(kept->Begin(&service, {request}, head, [] {}).value());
  }
  serving::StepOutput output;
  for (int i = 1; i <= streams; ++i) {
    output.answers.push_back(
        {.request_id = serving::RequestId(static_cast<uint64_t>(i)), .tokens = {{.id = 'x'}}});
  }
  int64_t told = 0;
  std::vector<double> waits;
  const double before = CpuSeconds();
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    if (!dispatcher.OnStepOutput(ReplicaId(1), output).ok()) std::abort();
    if (journal != nullptr) journal->Flush();
    waits.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
    for (const auto& generation : generations) {
      while (generation->Next().has_value()) ++told;
    }
    for (const auto& reader : readers) {
      while (reader->Next().event.has_value()) ++told;
    }
    std::this_thread::sleep_until(begin + kStep);
  }
  const double cpu = CpuSeconds() - before;
  std::sort(waits.begin(), waits.end());
  const auto at = [&](double share) {
    return waits[static_cast<size_t>(share * static_cast<double>(waits.size() - 1))];
  };
  std::printf(
      "%-16s %3d streams: %5.1f us of CPU an event; a step until all is there: "
      "median %5.0f us, 99%% %5.0f us, most %6.0f us\n",
      journal == nullptr ? "without journal" : "with journal", streams,
      1e6 * cpu / static_cast<double>(told), at(0.5), at(0.99), at(1));
}

int Main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "/tmp/kept_answers_bench";
  const int streams = argc > 2 ? std::atoi(argv[2]) : 64;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 2000;
  Run(nullptr, streams, steps);
  std::filesystem::remove_all(folder);
  auto journal = Journal::Open({.folder = folder});
  if (!journal.ok()) {
    std::fprintf(stderr, "%s\n", std::string(journal.status().message()).c_str());
    return 1;
  }
  Run(journal->get(), streams, steps);
  journal->reset();
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace skein::coordinator

int main(int argc, char** argv) { return skein::coordinator::Main(argc, argv); }
