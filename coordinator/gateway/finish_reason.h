// Why answers end, in OpenAI's words.
#pragma once

#include "coordinator/service/request.h"

namespace skein::coordinator {

inline const char* FinishReason(const Finished& finished) {
  return finished.reason == Finished::Reason::kMaxTokens ? "length" : "stop";
}

}  // namespace skein::coordinator
