#include "parallel/comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::comm {
namespace {

// 22809 is 2.28.9.
std::string Version(int code) {
  return absl::StrCat(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

// What the loader does not find; files that are there and cannot be opened are errors.
bool IsMissing(const std::string& place) {
  std::error_code ignored;
  return place.find('/') == std::string::npos || !std::filesystem::exists(place, ignored);
}

absl::StatusOr<void*> Open(absl::Span<const std::string> places) {
  std::string why;
  for (const std::string& place : places) {
    void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    const std::string error = dlerror();
    if (!IsMissing(place)) {
      return absl::FailedPreconditionError(absl::StrCat("NCCL cannot be opened: ", error));
    }
    if (why.empty()) why = error;
  }
  return absl::UnimplementedError(absl::StrCat("there is no NCCL: ", why));
}

template <typename F>
absl::Status Find(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("NCCL has no ", name,
                                                    ": it is older than this was built for (",
                                                    Version(NCCL_VERSION_CODE), "), or none"));
}

}  // namespace

absl::StatusOr<NcclFunctions> OpenNcclLibrary(absl::Span<const std::string> places) {
  SKEIN_ASSIGN_OR_RETURN(void* const handle, Open(places));
  NcclFunctions nccl;
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclGetVersion", nccl.get_version));
  int version = 0;
  const ncclResult_t code = nccl.get_version(&version);
  // Patches of one minor version have one interface.
  if (code != ncclSuccess || version / 100 < NCCL_VERSION_CODE / 100) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL is of version ", Version(version), ", older than this was built for, ",
                     NCCL_MAJOR, ".", NCCL_MINOR, ": install that or a newer one"));
  }
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclGetErrorString", nccl.get_error_string));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclGetLastError", nccl.get_last_error));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclGetUniqueId", nccl.get_unique_id));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclCommInitRankConfig", nccl.comm_init_rank_config));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclCommGetAsyncError", nccl.comm_get_async_error));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclCommFinalize", nccl.comm_finalize));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclCommDestroy", nccl.comm_destroy));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclCommAbort", nccl.comm_abort));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclAllReduce", nccl.all_reduce));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclSend", nccl.send));
  SKEIN_RETURN_IF_ERROR(Find(handle, "ncclRecv", nccl.recv));
  return nccl;
}

}  // namespace skein::comm
