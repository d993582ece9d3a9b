// Checks what a replica says of a request. A worker that says what cannot be is broken or lies: its
// job ends, and the request goes on elsewhere.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "serving/output.h"
#include "serving/request.h"

namespace skein::coordinator {

// Where an answer stands.
struct AnswerState {
  int64_t tokens = 0;                 // that came so far
  std::optional<int32_t> last_token;  // the last of them
};

// InvalidArgument says what is wrong with `output` as the next one of the answer: ids that are no
// tokens, log probabilities that are none, more tokens than were asked for, tokens after the end,
// an end without its reason or without the embedding that was asked for, [hidden_size] of finite
// numbers, or one that was not. A failure that the replica admits (kFailed) is in order.
absl::Status CheckOutput(const serving::AnswerOutput& output, const serving::Request& request,
                         const AnswerState& answer, int32_t vocab_size, int64_t hidden_size);

}  // namespace skein::coordinator
