// Opens libnccl.so.2. Private to this folder: it shows NCCL's header.
#pragma once

#include <nccl.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace skein::comm {

// The functions that are called, under their names in the library.
struct NcclFunctions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
};

// Opens the first of these files, paths or names for the loader, that is there; it stays open for
// good. Errors as OpenNccl's.
absl::StatusOr<NcclFunctions> OpenNcclLibrary(absl::Span<const std::string> places);

}  // namespace skein::comm
