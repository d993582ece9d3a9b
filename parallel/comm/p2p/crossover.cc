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
constexpr int32_t kMostSamples = 9;

}  // namespace

absl::StatusOr<InGraph> TimeInGraph(Communicator& group, DeviceTimer& timer, const GraphTiming& how,
                                    absl::FunctionRef<absl::Status()> check,
                                    absl::FunctionRef<absl::Status()> give) {
  SKEIN_RETURN_IF_ERROR(timer.Capture([&]() -> absl::Status {
    for (int call = 0; call < how.calls; ++call) SKEIN_RETURN_IF_ERROR(give());
    return absl::OkStatus();
  }));
  const auto replay = [&] {
    const absl::Time deadline = absl::Now() + how.timeout;
    return timer.Replay([&]() -> absl::Status {
      SKEIN_RETURN_IF_ERROR(check());
      if (absl::Now() < deadline) return absl::OkStatus();
      return absl::DeadlineExceededError(
          absl::StrCat("what was timed was not over within ", absl::FormatDuration(how.timeout)));
    });
  };
  // The warm-up. A rank may come late to one of them.
  SKEIN_ASSIGN_OR_RETURN(const double first, replay());
  SKEIN_ASSIGN_OR_RETURN(const double second, replay());
  const double fit = absl::ToDoubleSeconds(how.budget) / std::max(std::min(first, second), 1e-9);
  auto samples = static_cast<int32_t>(std::clamp(fit, 1.0, double{kMostSamples}));
  // Rank 0 decides: all replay as often.
  SKEIN_RETURN_IF_ERROR(group.Broadcast(HostView(absl::MakeSpan(&samples, 1)), 0, kHostStream));
  std::vector<double> seconds;
  for (int32_t i = 0; i < samples; ++i) {
    SKEIN_ASSIGN_OR_RETURN(seconds.emplace_back(), replay());
  }
  std::nth_element(seconds.begin(), seconds.begin() + samples / 2, seconds.end());
  return InGraph{.seconds = seconds[samples / 2] / how.calls, .samples = samples};
}

int64_t CrossoverOf(absl::Span<const SumTimes> times) {
  int64_t most = 0;
  for (const SumTimes& at : times) {
    if (at.over_memory > at.over_rest) break;
    most = at.bytes;
  }
  return most;
}

int64_t OneShotOf(absl::Span<const SumTimes> times) {
  int64_t most = 0;
  for (const SumTimes& at : times) {
    if (!at.one_shot) break;
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
  const auto time = [&](absl::FunctionRef<absl::Status()> give) -> absl::StatusOr<double> {
    SKEIN_ASSIGN_OR_RETURN(
        const InGraph timed,
        TimeInGraph(group, timer, {.timeout = timeout}, [&] { return rest.Check(); }, give));
    return timed.seconds;
  };
  std::vector<SumTimes> times;
  for (int64_t bytes = kLeastBytes; bytes <= sums.most_bytes(); bytes *= 2) {
    const View view = {data, DType::kBF16, 1, bytes / 2};  // zeros, which stay so
    SumTimes& at = times.emplace_back(SumTimes{.bytes = bytes});
    const auto over_memory = [&](PeerSums::Shots shots) {
      return time([&, shots] { return sums.Sum(view, timer.stream(), shots); });
    };
    at.one_shot = bytes <= sums.most_one_shot_bytes();
    using Shots = PeerSums::Shots;
    SKEIN_ASSIGN_OR_RETURN(at.over_memory, over_memory(at.one_shot ? Shots::kOne : Shots::kTwo));
    if (at.one_shot && group.size() > 2) {
      SKEIN_ASSIGN_OR_RETURN(const double two, over_memory(Shots::kTwo));
      at.one_shot = at.over_memory <= two;
      at.over_memory = std::min(at.over_memory, two);
    }
    const Call call = {.operation = Operation::kAllReduce, .bytes = bytes};
    SKEIN_ASSIGN_OR_RETURN(
        at.over_rest, time([&] { return rest.AllReduce(call, view, timer.stream(), Patience()); }));
  }
  return times;
}

}  // namespace skein::comm
