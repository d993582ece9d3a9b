// Reads the model that is served.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

// Reads the folder or GGUF file `path`; InvalidArgument for "synthetic:..." models, which have no
// tokenizer. `chat_template`: a file with the template for chats, which must be a good one; "": the
// model's own, and where that is none, or cannot be used, chats are refused and say why. `names`:
// what clients call it, the first one in answers; none: the path's last component.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& path, int64_t context_length,
                                            const std::string& chat_template = "",
                                            const std::vector<std::string>& names = {});

}  // namespace skein::coordinator
