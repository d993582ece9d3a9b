// Opens libskein_cuda.so.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/cuda_library.h"

namespace skein::kernels::cuda {

// Where the library may lie, the first first, for a program in `folder`: beside it, in ../lib, and
// where Bazel puts it.
std::vector<std::string> CudaLibraryPlaces(const std::string& folder);

// Of the first of these files that is there; it stays open for good. Unimplemented where none is.
// FailedPrecondition, with what the loader says, for one that cannot be opened, as where a library
// that it needs is missing or too old, and, with both builds, for one of another build.
absl::StatusOr<const CudaFunctions*> OpenCudaLibrary(absl::Span<const std::string> places);

}  // namespace skein::kernels::cuda
