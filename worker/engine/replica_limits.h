// What a replica can take, and which requests can never run on it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "serving/request.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {

struct ReplicaLimits {
  SchedulerLimits scheduler;
  PreemptionRates rates;  // prefill_tokens_per_s holds until it was observed
  int32_t max_num_seqs = 1;
  int64_t pages = 0;
  int64_t swap_pages = 0;
  int64_t context_length = 0;
  int64_t vocab_size = 0;
};

// InvalidArgument for a request that can never run: empty, too long, tokens outside of the
// vocabulary, more answers than run at once, an embedding beside an answer. ResourceExhausted for
// one that needs more pages than there are.
absl::Status CheckRequest(const serving::Request& request, const ReplicaLimits& limits);

}  // namespace skein::worker
