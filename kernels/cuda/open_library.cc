#include "kernels/cuda/open_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/build_identity.h"

namespace skein::kernels::cuda {
namespace {

constexpr char kName[] = "libskein_cuda.so";

bool IsThere(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string LoaderError() {
  const char* const error = dlerror();
  return error == nullptr ? "the loader does not say why" : error;
}

}  // namespace

std::vector<std::string> CudaLibraryPlaces(const std::string& folder) {
  std::vector<std::string> places;
  // worker/worker, tests/engine/TEST and parallel/comm/nccl/TEST are so deep in Bazel's tree.
  for (const std::string_view where :
       {".", "../lib", "../kernels/cuda", "../../kernels/cuda", "../../../kernels/cuda"}) {
    places.push_back((std::filesystem::path(folder) / where / kName).lexically_normal().string());
  }
  return places;
}

absl::StatusOr<const CudaFunctions*> OpenCudaLibrary(absl::Span<const std::string> places) {
  const auto found = std::find_if(places.begin(), places.end(), IsThere);
  if (found == places.end()) {
    return absl::UnimplementedError(absl::StrCat("there is no ", places.front(),
                                                 ", nor one in ../lib: GPUs need it, and a ",
                                                 "build with --config=cuda makes it"));
  }
  const std::string& path = *found;
  // Now: what is too old for it is told here, and ends no program later.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " cannot be opened: ", LoaderError(),
                     "; it needs the libraries of CUDA 13, cuBLAS among them, where the loader "
                     "finds them (ldconfig, or LD_LIBRARY_PATH)"));
  }
  const auto entry = reinterpret_cast<CudaLibraryEntry*>(dlsym(handle, kCudaLibraryEntry));
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another version of Skein, or none of it: ", LoaderError()));
  }
  const CudaLibrary& library = *entry();
  if (std::string_view(library.build) != kBuildIdentity) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is of another build (", library.build,
                                                      ") than this program (", kBuildIdentity,
                                                      "): install both from one package"));
  }
  return library.functions;
}

}  // namespace skein::kernels::cuda
