#include "parallel/comm/p2p/crossover.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/stream.h"
#include "base/units.h"
#include "base/view.h"

namespace skein::comm {
namespace {

constexpr int64_t kLeastBytes = int64_t{8} << 10;  // a row of 4,096
// Of one graph: between them there is no launch, as in a step.
constexpr int kSums = 16;
constexpr double kBudgetSeconds = 0.02;  // of a size's samples, where devices are shared
constexpr int32_t kMostSamples = 9;

class SumTimer {
 public:
  SumTimer(Communicator& group, DeviceTransport& rest, DeviceTimer& timer, absl::Duration timeout)
      : group_(group), rest_(rest), timer_(timer), timeout_(timeout) {}

  // The median seconds of one sum, which `give` gives the stream.
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> give) {
    SKEIN_RETURN_IF_ERROR(timer_.Capture([&]() -> absl::Status {
      for (int sum = 0; sum < kSums; ++sum) SKEIN_RETURN_IF_ERROR(give());
      return absl::OkStatus();
    }));
    SKEIN_ASSIGN_OR_RETURN(const double first, Replay());  // the warm-up
    const double fit = kBudgetSeconds / std::max(first, 1e-9);
    auto samples = static_cast<int32_t>(std::clamp(fit, 1.0, double{kMostSamples}));
    // Rank 0 decides: all replay as often.
    SKEIN_RETURN_IF_ERROR(group_.Broadcast(HostView(absl::MakeSpan(&samples, 1)), 0, kHostStream));
    std::vector<double> seconds;
    for (int32_t i = 0; i < samples; ++i) {
      SKEIN_ASSIGN_OR_RETURN(seconds.emplace_back(), Replay());
    }
    std::nth_element(seconds.begin(), seconds.begin() + samples / 2, seconds.end());
    return seconds[samples / 2] / kSums;
  }

 private:
  absl::StatusOr<double> Replay() {
    const absl::Time deadline = absl::Now() + timeout_;
    return timer_.Replay([&]() -> absl::Status {
      SKEIN_RETURN_IF_ERROR(rest_.Check());
      if (absl::Now() < deadline) return absl::OkStatus();
      return absl::DeadlineExceededError(
          absl::StrCat("a first sum was not over within ", absl::FormatDuration(timeout_)));
    });
  }

  Communicator& group_;
  DeviceTransport& rest_;
  DeviceTimer& timer_;
  const absl::Duration timeout_;
};

}  // namespace

int64_t CrossoverOf(absl::Span<const SumTimes> times) {
  int64_t most = 0;
  for (const SumTimes& at : times) {
    if (at.over_memory > at.over_rest) break;
    most = at.bytes;
  }
  return most;
}

std::string DescribeTimes(absl::Span<const SumTimes> times) {
  return absl::StrJoin(times, ", ", [](std::string* out, const SumTimes& at) {
    absl::StrAppendFormat(out, "%s %.1f and %.1f us", FormatBytes(at.bytes), at.over_memory * 1e6,
                          at.over_rest * 1e6);
  });
}

absl::StatusOr<std::vector<SumTimes>> TimeSums(Communicator& group, PeerSums& sums,
                                               DeviceTransport& rest, DeviceTimer& timer,
                                               absl::Duration timeout) {
  SKEIN_ASSIGN_OR_RETURN(void* const data, timer.Memory(sums.most_bytes()));
  SumTimer both(group, rest, timer, timeout);
  std::vector<SumTimes> times;
  for (int64_t bytes = kLeastBytes; bytes <= sums.most_bytes(); bytes *= 2) {
    const View view = {data, DType::kBF16, 1, bytes / 2};  // zeros, which stay so
    SumTimes& at = times.emplace_back(SumTimes{.bytes = bytes});
    SKEIN_ASSIGN_OR_RETURN(at.over_memory,
                           both.Time([&] { return sums.Sum(view, timer.stream()); }));
    const Call call = {.operation = Operation::kAllReduce, .bytes = bytes};
    SKEIN_ASSIGN_OR_RETURN(at.over_rest, both.Time([&] {
      return rest.AllReduce(call, view, timer.stream(), Patience());
    }));
  }
  return times;
}

}  // namespace skein::comm
