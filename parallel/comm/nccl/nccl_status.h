// NCCL's error codes as absl::Status. Private to this folder.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "parallel/comm/nccl/nccl_library.h"

namespace skein::comm {

// "<what>: <what NCCL says of the code>: <its last error>"; OK for ncclSuccess. Unavailable for a
// lost peer or a broken connection.
absl::Status NcclStatus(const NcclFunctions& nccl, ncclResult_t code, std::string_view what);

}  // namespace skein::comm
