#include "kernels/cuda/load_kernels.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_status.h"

namespace skein::kernels::cuda {
namespace {

constexpr const void* (*kFiles[])() = {
    KernelOfAddBias,
    KernelOfBatchInvariantLinear,
    KernelOfBf16Step,
    KernelOfCopyPage,
    KernelOfDecodeAttention,
    KernelOfDecodePlan,
    KernelOfF16Step,
    KernelOfFewRowsLinear,
    KernelOfGatherRows,
    KernelOfGreedyDraws,
    KernelOfMakeRows,
    KernelOfPeerSum,
    KernelOfPeerSumNorm,
    KernelOfPrefillAttention,
    KernelOfPrefillAttentionWgmma,
    KernelOfPrepareBatch,
    KernelOfQkNorm,
    KernelOfRmsNorm,
    KernelOfRopeAppendKv,
    KernelOfSampledDraws,
    KernelOfWideTileLinear,
    KernelOfStreamKLinear,
    KernelOfSwiGlu,
};

// Functions of the driver came with this version of CUDA, or before.
constexpr unsigned kVersion = 12040;

template <typename Function>
absl::StatusOr<Function*> OfDriver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found));
  if (found == cudaDriverEntryPointSuccess) return reinterpret_cast<Function*>(function);
  return absl::FailedPreconditionError(
      absl::StrCat("the GPU's driver has no ", name, ": install a newer driver"));
}

absl::Status Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": the GPU's driver answers ", result));
}

}  // namespace

absl::Status LoadKernels() {
  SKEIN_ASSIGN_OR_RETURN(auto* const module_of,
                         OfDriver<decltype(cuFuncGetModule)>("cuFuncGetModule"));
  SKEIN_ASSIGN_OR_RETURN(auto* const count_of,
                         OfDriver<decltype(cuModuleGetFunctionCount)>("cuModuleGetFunctionCount"));
  SKEIN_ASSIGN_OR_RETURN(auto* const list, OfDriver<decltype(cuModuleEnumerateFunctions)>(
                                               "cuModuleEnumerateFunctions"));
  SKEIN_ASSIGN_OR_RETURN(auto* const load, OfDriver<decltype(cuFuncLoad)>("cuFuncLoad"));
  for (const auto& file : kFiles) {
    cudaFunction_t one = nullptr;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaGetFuncBySymbol(&one, file()));
    CUmodule module = nullptr;
    SKEIN_RETURN_IF_ERROR(Check(module_of(&module, one), "cuFuncGetModule"));
    unsigned count = 0;
    SKEIN_RETURN_IF_ERROR(Check(count_of(&count, module), "cuModuleGetFunctionCount"));
    std::vector<CUfunction> kernels(count);
    SKEIN_RETURN_IF_ERROR(Check(list(kernels.data(), count, module), "cuModuleEnumerateFunctions"));
    for (CUfunction kernel : kernels) SKEIN_RETURN_IF_ERROR(Check(load(kernel), "cuFuncLoad"));
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
