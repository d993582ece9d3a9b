// Loads all kernels before the first step: CUDA loads a kernel when it is first launched, and takes
// memory of the device for it.
#pragma once

#include "absl/status/status.h"

namespace skein::kernels::cuda {

// A kernel of each source file, by which CUDA finds the file's others.
const void* KernelOfAddBias();
const void* KernelOfBatchInvariantLinear();
const void* KernelOfBf16Step();
const void* KernelOfCopyPage();
const void* KernelOfDecodeAttention();
const void* KernelOfDecodePlan();
const void* KernelOfF16Step();
const void* KernelOfFewRowsLinear();
const void* KernelOfGatherRows();
const void* KernelOfGreedyDraws();
const void* KernelOfMakeRows();
const void* KernelOfPeerSum();
const void* KernelOfPeerSumNorm();
const void* KernelOfPrefillAttention();
const void* KernelOfPrefillAttentionWgmma();
const void* KernelOfPrepareBatch();
const void* KernelOfQkNorm();
const void* KernelOfRmsNorm();
const void* KernelOfRopeAppendKv();
const void* KernelOfSampledDraws();
const void* KernelOfWideTileLinear();
const void* KernelOfStreamKLinear();
const void* KernelOfSwiGlu();

// Loads all kernels of these files on the current device. Costs some 10 ms at the first time.
absl::Status LoadKernels();

}  // namespace skein::kernels::cuda
