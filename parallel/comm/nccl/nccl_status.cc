#include "parallel/comm/nccl/nccl_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace skein::comm {
namespace {

absl::StatusCode CanonicalCode(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return absl::StatusCode::kOk;
    case ncclSystemError:  // of a socket, for the most part
    case ncclRemoteError:
      return absl::StatusCode::kUnavailable;
    case ncclInvalidArgument:
    case ncclInvalidUsage:  // as when two ranks have one GPU
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status NcclStatus(const NcclFunctions& nccl, ncclResult_t code, std::string_view what) {
  if (code == ncclSuccess) return absl::OkStatus();
  // NCCL keeps one text a process, and takes no communicator's.
  const char* const last = nccl.get_last_error(nullptr);
  const std::string text = last == nullptr ? "" : last;
  return {CanonicalCode(code), absl::StrCat(std::string(what), ": ", nccl.get_error_string(code),
                                            text.empty() ? "" : absl::StrCat(": ", text))};
}

}  // namespace skein::comm
