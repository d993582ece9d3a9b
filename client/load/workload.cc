#include "client/load/workload.h"

#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::client {
namespace {

absl::Status CheckLengths(const plan::Lengths& lengths, const Workload& workload) {
  const std::string what =
      absl::StrCat("a prompt of ", lengths.prompt, " and an answer of ", lengths.answer, " tokens");
  if (lengths.prompt < 1 || lengths.answer < 1) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": each has at least 1"));
  }
  if (lengths.prompt > workload.context_length ||
      lengths.answer > workload.context_length - lengths.prompt) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " do not fit into the context of ", workload.context_length));
  }
  if (lengths.prompt < workload.shared_prefix) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the shared prefix alone has ", workload.shared_prefix));
  }
  return absl::OkStatus();
}

class Random {
 public:
  Random(uint64_t seed, uint64_t stream) {
    std::seed_seq sequence = {seed & 0xffffffff, seed >> 32, stream & 0xffffffff, stream >> 32};
    engine_.seed(sequence);
  }
  // The library's distributions differ between libraries. The modulo's bias is below 1e-9 for any
  // vocabulary.
  uint32_t Token(int64_t vocabulary) {
    return static_cast<uint32_t>(engine_() % static_cast<uint64_t>(vocabulary));
  }
  // With mean 1.
  double Exponential() {
    return -std::log1p(-std::ldexp(static_cast<double>(engine_() >> 11), -53));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

absl::StatusOr<std::vector<PlannedRequest>> PlanRequests(const Workload& workload,
                                                         uint64_t stream) {
  for (const plan::Lengths& lengths : workload.lengths) {
    SKEIN_RETURN_IF_ERROR(CheckLengths(lengths, workload));
  }
  constexpr uint64_t kPrefixStream = ~uint64_t{0};
  Random prefix_random(workload.seed, kPrefixStream);
  std::vector<uint32_t> prefix;
  for (int64_t i = 0; i < workload.shared_prefix; ++i) {
    prefix.push_back(prefix_random.Token(workload.vocabulary));
  }
  Random random(workload.seed, stream);
  std::vector<PlannedRequest> requests;
  double at_s = 0;
  for (int64_t i = 0; i < workload.requests; ++i) {
    const plan::Lengths& lengths =
        workload.lengths[static_cast<size_t>(i) % workload.lengths.size()];
    PlannedRequest request;
    request.model = workload.model;
    request.prompt = prefix;
    while (static_cast<int64_t>(request.prompt.size()) < lengths.prompt) {
      request.prompt.push_back(random.Token(workload.vocabulary));
    }
    request.answer_tokens = lengths.answer;
    if (workload.rate_per_s > 0) at_s += random.Exponential() / workload.rate_per_s;
    request.at = absl::Seconds(at_s);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace skein::client
