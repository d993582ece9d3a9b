// A block for each row, behind block 0, which exchanges heads. A thread has vectors of the row, as
// in rms_norm.cu; each is two packets to every other rank. While they travel it reads the residual.
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

template <typename T, typename Residual, int kVectors, int kRanks>
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
  const int64_t vectors = op.rows * op.cols / kVector;  // of a rank
  const auto col = [&](int v) {
    return (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
  };
  // The first of a vector's two packets from a rank.
  const auto packet = [&](int rank, int v) {
    return 2 * (rank * vectors + (row * op.cols + col(v)) / kVector);
  };

  uint4 mine[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (col(v) >= op.cols) break;
    mine[v] = *reinterpret_cast<const uint4*>(delta + col(v));
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r == memory.rank) continue;
      char* const to = places.At(memory, r, packet(memory.rank, v));
      StorePacket(to, mine[v].x, mine[v].y, places.number);
      StorePacket(to + kPacketBytes, mine[v].z, mine[v].w, places.number);
    }
  }
  float x[kVectors][kVector];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (col(v) >= op.cols) break;
    LoadVector(residual + col(v), x[v]);
    uint2 low, high;
    // Where nobody is waited for, data are void.
    SumUnit<T, kRanks>(
        memory, places, make_uint2(mine[v].x, mine[v].y), [&](int r) { return packet(r, v); }, low);
    SumUnit<T, kRanks>(
        memory, places, make_uint2(mine[v].z, mine[v].w), [&](int r) { return packet(r, v) + 1; },
        high);
    const uint4 sum = make_uint4(low.x, low.y, high.x, high.y);
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

template <typename T, typename Residual, int kRanks>
absl::Status Start(const PeerSumNorm& op, Stream stream) {
  const RmsNorm& norm = op.norm;
  // As RmsNorm's, so that squares are added in its order.
  const int64_t vectors = norm.cols / kVector;
  const int64_t threads = std::min<int64_t>((vectors + kWarp - 1) / kWarp * kWarp, kMaxThreads);
  const LaunchShape shape = {"peer sum and RmsNorm", dim3(static_cast<unsigned>(norm.rows + 1)),
                             dim3(static_cast<unsigned>(threads))};
  const uint32_t size = SizeOfHead(norm.dtype, DTypeBytes(norm.dtype, norm.rows * norm.cols));
  const auto start = [&](auto* kernel) {
    return Launch(kernel, shape, stream, op.memory, norm, static_cast<T*>(op.delta), size);
  };
  return vectors <= threads ? start(PeerSumNormKernel<T, Residual, 1, kRanks>)
                            : start(PeerSumNormKernel<T, Residual, kMaxVectors, kRanks>);
}

}  // namespace

bool HasKernel(const PeerSumNorm& op) {
  const int ranks = op.memory.ranks;
  const RmsNorm& norm = op.norm;
  return (ranks == 2 || ranks == 4 || ranks == 8) &&
         (norm.dtype == DType::kBF16 || norm.dtype == DType::kF16) &&
         norm.delta_dtype == norm.dtype &&
         norm.cols <= int64_t{kMaxThreads} * kMaxVectors * kVector &&
         DTypeBytes(norm.dtype, norm.rows * norm.cols) <= op.memory.one_shot_bytes;
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
  return reinterpret_cast<const void*>(PeerSumNormKernel<__nv_bfloat16, float, 1, 2>);
}

}  // namespace skein::kernels::cuda
