// What metrics cost: nanoseconds of each call, by one thread and by two at once, and a scrape.
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "coordinator/metrics/load_for_tests.h"
#include "coordinator/metrics/metrics.h"

namespace skein::coordinator {
namespace {

using Clock = std::chrono::steady_clock;

double Nanoseconds(Clock::duration of) {
  return std::chrono::duration<double, std::nano>(of).count();
}

double Time(int threads, int calls, const std::function<void()>& call) {
  std::vector<std::thread> others;
  const auto work = [&] {
    for (int i = 0; i < calls; ++i) call();
  };
  const Clock::time_point begin = Clock::now();
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return Nanoseconds(Clock::now() - begin) / calls;
}

void Show(const char* what, int calls, const std::function<void()>& call) {
  std::printf("%-40s %9.0f ns alone, %9.0f ns beside another\n", what, Time(1, calls, call),
              Time(2, calls, call));
}

// A job of as many replicas of one rank each.
MetricsSnapshot WithReplicas(int count) {
  MetricsSnapshot snapshot = ScriptedSnapshot();
  JobStatus& job = snapshot.jobs.front();
  job.replicas.resize(count, job.replicas.front());
  job.ranks.resize(count, job.ranks.front());
  for (int i = 0; i < count; ++i) job.replicas[i].replica = job.ranks[i].rank = i;
  return snapshot;
}

void Main() {
  Metrics metrics({.version = "1", .snapshot = ScriptedSnapshot});
  RequestObserver& observer = metrics.observer("bard", 131072);
  Show("a look at the clock", 3'000'000, [] { RealClock::Get().Now(); });
  Show("tokens of an answer's step", 3'000'000,
       [&] { observer.OnTokens(1, absl::Milliseconds(3)); });
  Show("a request, without its steps", 300'000, [&] {
    observer.OnAdmitted(500);
    observer.OnDispatched(absl::Milliseconds(20));
    observer.OnFirstToken(absl::Milliseconds(90));
    observer.OnAnswerEnd(RequestObserver::AnswerEnd::kEos, 200, absl::Milliseconds(3));
    observer.OnRequestEnd(absl::StatusCode::kOk, absl::Seconds(1));
  });
  Show("an HTTP answer", 300'000, [&] { metrics.OnHttpAnswer("/v1/chat/completions", 200); });
  for (const int replicas : {1, 8, 64}) {
    Metrics of(
        {.version = "1", .snapshot = [snapshot = WithReplicas(replicas)] { return snapshot; }});
    const double time = Time(1, 200, [&] { of.Text(); });
    std::printf("%-40s %9.0f us, %zu bytes\n",
                absl::StrCat("a scrape, replicas: ", replicas).c_str(), time / 1000,
                of.Text().size());
  }
}

}  // namespace
}  // namespace skein::coordinator

int main() { skein::coordinator::Main(); }
