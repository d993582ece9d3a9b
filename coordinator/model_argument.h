// What --model of the coordinator, and `skein model add`, say of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/planner/planner.h"

namespace skein::coordinator {

// Of one model.
struct ModelLimits {
  plan::Constraints constraints;  // of its jobs
  int64_t max_queue = 256;        // requests that wait at most
};

struct ModelArgument {
  std::vector<std::string> names;  // the first one is in answers; none: the path's last component
  std::string path;
  std::string chat_template;  // a file; "": the model's own
  ModelLimits limits;
};

// Reads "PATH", "NAME=PATH" or "NAME,ALIAS=PATH"; behind it, after a blank, flags of the
// coordinator that are a model's own may stand ("chat=/models/llama --context-length=4096"). What
// no flag says is as in `defaults`. InvalidArgument says what is wrong.
absl::StatusOr<ModelArgument> ParseModelArgument(const std::string& text,
                                                 const ModelArgument& defaults);

}  // namespace skein::coordinator
