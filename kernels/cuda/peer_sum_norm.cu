// A block for each row, behind block 0, which exchanges heads. A thread has vectors of the row, as
// in rms_norm.cu, and sends them to every other rank, or in two shots to the one that sums the row
// and sends that to all. While they travel it reads the residual.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/peer_packets.cuh"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/peer_sum_norm.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kMaxThreads = 1024;
// Of a row, that a thread has. More of them, with all ranks' packets, are more than its registers.
constexpr int kMaxVectors = 2;
static_assert(kMostNormCols == int64_t{kMaxThreads} * kMaxVectors * kVector);

int64_t BytesOf(const RmsNorm& norm) { return DTypeBytes(norm.dtype, norm.rows * norm.cols); }

template <typename T, typename Residual, int kVectors, int kRanks, bool kTwoShots>
__global__ void __launch_bounds__(kMaxThreads)
    PeerSumNormKernel(PeerMemory memory, RmsNorm op, T* all, uint32_t size) {
  __shared__ float scratch[kWarp];
  LetNextBegin();
  WaitForPrevious();
  const PeerPlaces places(memory);
  if (blockIdx.x == 0) {
    ExchangeHeads(memory, places, size);
    CountSum(memory, places);
    return;
  }
  const int64_t row = int64_t{blockIdx.x} - 1;
  auto* const residual = static_cast<Residual*>(op.residual) + row * op.residual_stride;
  T* const delta = all + row * op.cols;
  const auto col = [&](int v) {
    return (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
  };
  // Rank r sums rows r, r + kRanks and so on.
  const int owner = static_cast<int>(row % kRanks);
  const bool sums = !kTwoShots || owner == memory.rank;
  const int64_t rows = kTwoShots ? (op.rows + kRanks - 1) / kRanks : op.rows;  // that a rank sums
  const int64_t row_of_rank = kTwoShots ? row / kRanks : row;
  // A vector's place in rank `to`'s buffer, of what rank `from` has of a row, and of a row's sum.
  const auto part = [&](int to, int from, int v) {
    return places.WordsAt<uint4>(memory, to,
                                 ((from * rows + row_of_rank) * op.cols + col(v)) / kVector);
  };
  const auto whole = [&](int to, int v) {
    return places.WordsAt<uint4>(memory, to, ((kRanks * rows + row) * op.cols + col(v)) / kVector);
  };

  uint4 mine[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (col(v) >= op.cols) break;
    mine[v] = *reinterpret_cast<const uint4*>(delta + col(v));
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r == memory.rank || (kTwoShots && r != owner)) continue;
      SendWords(part(r, memory.rank, v), mine[v]);
    }
  }
  float x[kVectors][kVector];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (col(v) >= op.cols) break;
    LoadVector(residual + col(v), x[v]);
    // Where nobody is waited for, data are void.
    uint4 sum;
    if (sums) {
      TakeSum<T, kRanks>(memory, mine[v], [&](int r) { return part(memory.rank, r, v); }, sum);
    } else {
      TakeWords(memory, whole(memory.rank, v), sum);
    }
    if (kTwoShots && sums) {
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r != memory.rank) SendWords(whole(r, v), sum);
      }
    }
    *reinterpret_cast<uint4*>(delta + col(v)) = sum;
    float add[kVector];
    Unpack<T>(sum, add);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      x[v][i] = Rounded<Residual>(x[v][i] + add[i]);
    }
    StoreVector(residual + col(v), x[v]);
#pragma unroll
    for (int i = 0; i < kVector; ++i) squares += x[v][i] * x[v][i];
  }

  const float mean = BlockSum(squares, scratch) / static_cast<float>(op.cols);
  const float scale = 1.0f / sqrtf(mean + op.eps);
  auto* const out = static_cast<T*>(op.out) + row * op.out_stride;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (col(v) >= op.cols) break;
    float gain[kVector];
    LoadVector(op.gain + col(v), gain);
#pragma unroll
    for (int i = 0; i < kVector; ++i) gain[i] *= x[v][i] * scale;
    StoreVector(out + col(v), gain);
  }
  CountSum(memory, places);
}

template <typename T, typename Residual, int kRanks, bool kTwoShots>
absl::Status StartShots(const PeerSumNorm& op, Stream stream) {
  const RmsNorm& norm = op.norm;
  // As RmsNorm's, so that squares are added in its order.
  const int64_t vectors = norm.cols / kVector;
  const int64_t threads = std::min<int64_t>((vectors + kWarp - 1) / kWarp * kWarp, kMaxThreads);
  const LaunchShape shape = {"peer sum and RmsNorm", dim3(static_cast<unsigned>(norm.rows + 1)),
                             dim3(static_cast<unsigned>(threads))};
  const uint32_t size = SizeOfHead(norm.dtype, BytesOf(norm));
  const auto start = [&](auto* kernel) {
    return Launch(kernel, shape, stream, op.memory, norm, static_cast<T*>(op.delta), size);
  };
  return vectors <= threads ? start(PeerSumNormKernel<T, Residual, 1, kRanks, kTwoShots>)
                            : start(PeerSumNormKernel<T, Residual, kMaxVectors, kRanks, kTwoShots>);
}

template <typename T, typename Residual, int kRanks>
absl::Status Start(const PeerSumNorm& op, Stream stream) {
  // Of two ranks one shot carries as little.
  if constexpr (kRanks > 2) {
    if (BytesOf(op.norm) > op.memory.one_shot_bytes) {
      return StartShots<T, Residual, kRanks, true>(op, stream);
    }
  }
  return StartShots<T, Residual, kRanks, false>(op, stream);
}

}  // namespace

bool HasKernel(const PeerSumNorm& op) {
  const int ranks = op.memory.ranks;
  const RmsNorm& norm = op.norm;
  return (ranks == 2 || ranks == 4 || ranks == 8) &&
         (norm.dtype == DType::kBF16 || norm.dtype == DType::kF16) &&
         norm.delta_dtype == norm.dtype && norm.cols <= kMostNormCols &&
         BytesOf(norm) <= kMostPeerSumBytes;
}

absl::Status Enqueue(const PeerSumNorm& op, Stream stream) {
  const RmsNorm& norm = op.norm;
  if (!HasKernel(op) || norm.cols <= 0 || norm.cols % kVector != 0 ||
      (norm.residual_stride | norm.out_stride) % kVector != 0 || norm.delta_stride != norm.cols ||
      norm.out == nullptr || norm.delta != op.delta ||
      !Aligned16({norm.residual, norm.delta, norm.gain, norm.out})) {
    return absl::InvalidArgumentError(absl::StrCat("a peer sum with RmsNorm of ", norm.rows, " x ",
                                                   norm.cols, " over ", op.memory.ranks,
                                                   " ranks: there is no kernel"));
  }
  if (norm.rows == 0) return absl::OkStatus();
  return With16BitType(norm.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(norm.residual_dtype, norm.dtype,
                          [&]<typename Residual>(TypeTag<Residual>) {
                            switch (op.memory.ranks) {
                              case 2:
                                return Start<T, Residual, 2>(op, stream);
                              case 4:
                                return Start<T, Residual, 4>(op, stream);
                              default:
                                return Start<T, Residual, 8>(op, stream);
                            }
                          });
  });
}

const void* KernelOfPeerSumNorm() {
  return reinterpret_cast<const void*>(PeerSumNormKernel<__nv_bfloat16, float, 1, 2, false>);
}

}  // namespace skein::kernels::cuda
