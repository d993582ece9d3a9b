// Each thread sends 8 bytes of its rank's data to all others, as one packet of 16 bytes: two words
// of data, each with the number of the sum beside it. It then looks at its own buffer until the
// others' packets are there. A word and its number are written at once, so that no fence and no
// flag is needed. Packets of a sum go to the half of the buffer that the last sum did not use. A
// rank that writes to a half again has all packets of the sum between, whose sender had read that
// half: so two halves are enough.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPacket = 16;
constexpr int kData = 8;
// Looks between two at the host's memory, which is 1 us away.
constexpr int kLooks = 1024;

__device__ void StorePacket(void* to, const uint4& packet) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(packet.x),
               "r"(packet.y), "r"(packet.z), "r"(packet.w)
               : "memory");
}
__device__ uint4 LoadPacket(const void* from) {
  uint4 packet;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.x), "=r"(packet.y), "=r"(packet.z), "=r"(packet.w)
               : "l"(from)
               : "memory");
  return packet;
}
__device__ uint32_t LoadWord(const uint32_t* from) {
  return *const_cast<const volatile uint32_t*>(from);
}

// Of values[kBegin] to values[kEnd - 1].
template <int kBegin, int kEnd>
__device__ float TreeOf(const float* values) {
  if constexpr (kEnd - kBegin == 1) {
    return values[kBegin];
  } else {
    constexpr int kCount = kEnd - kBegin;
    constexpr int kLeft = kCount > 4 ? 4 : (kCount > 2 ? 2 : 1);
    return TreeOf<kBegin, kBegin + kLeft>(values) + TreeOf<kBegin + kLeft, kEnd>(values);
  }
}

// A word of data: a float, or two of BF16.
template <typename T, int kRanks>
__device__ uint32_t SumOf(const uint32_t (&words)[kRanks]) {
  float low[kRanks];
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) low[r] = __uint_as_float(words[r]);
    return __float_as_uint(TreeOf<0, kRanks>(low));
  } else {
    float high[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      const float2 pair = FloatsOf<T>(words[r]);
      low[r] = pair.x;
      high[r] = pair.y;
    }
    return RoundedPair<T>(TreeOf<0, kRanks>(low), TreeOf<0, kRanks>(high));
  }
}

// Blocks of kThreads packets.
template <typename T, int kRanks>
__global__ void __launch_bounds__(kThreads) PeerSumKernel(PeerSum op) {
  WaitForPrevious();
  LetNextBegin();
  const uint32_t number = LoadWord(op.turn) + 1;
  const int64_t unit = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (unit < op.bytes / kData) {
    const int64_t half = (number & 1) * kRanks;
    const auto place = [&](int from) {
      return (half + from) * (kMostPeerSumBytes / kData) * kPacket + unit * kPacket;
    };
    auto* const data = static_cast<uint2*>(op.data) + unit;
    const uint2 mine = *data;
    uint32_t first[kRanks], second[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r == op.rank) continue;
      StorePacket(static_cast<char*>(op.exchange[r]) + place(op.rank),
                  make_uint4(mine.x, number, mine.y, number));
    }
    bool here = true;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r == op.rank) {
        first[r] = mine.x;
        second[r] = mine.y;
        continue;
      }
      const char* const from = static_cast<const char*>(op.exchange[op.rank]) + place(r);
      uint4 packet = LoadPacket(from);
      for (int looks = 1; here && (packet.y != number || packet.w != number); ++looks) {
        if (looks % kLooks == 0) here = LoadWord(op.aborted) == 0;
        packet = LoadPacket(from);
      }
      first[r] = packet.x;
      second[r] = packet.z;
    }
    if (here) *data = make_uint2(SumOf<T, kRanks>(first), SumOf<T, kRanks>(second));
  }
  __syncthreads();
  // The block that comes last counts the sum: all have read the number by then.
  if (threadIdx.x != 0) return;
  if (atomicAdd(&op.turn[1], 1) == gridDim.x - 1) {
    op.turn[1] = 0;
    op.turn[0] = number;
  }
}

template <typename T>
absl::Status LaunchFor(const PeerSum& op, Stream stream) {
  const auto blocks = static_cast<unsigned>((op.bytes / kData + kThreads - 1) / kThreads);
  const LaunchShape shape = {.name = "peer sum", .grid = {blocks}, .block = {kThreads}};
  switch (op.ranks) {
    case 2:
      return Launch(PeerSumKernel<T, 2>, shape, stream, op);
    case 3:
      return Launch(PeerSumKernel<T, 3>, shape, stream, op);
    case 4:
      return Launch(PeerSumKernel<T, 4>, shape, stream, op);
    case 5:
      return Launch(PeerSumKernel<T, 5>, shape, stream, op);
    case 6:
      return Launch(PeerSumKernel<T, 6>, shape, stream, op);
    case 7:
      return Launch(PeerSumKernel<T, 7>, shape, stream, op);
    default:
      return Launch(PeerSumKernel<T, 8>, shape, stream, op);
  }
}

}  // namespace

absl::Status Enqueue(const PeerSum& op, Stream stream) {
  if (op.ranks < 2 || op.ranks > kMostPeers || op.rank < 0 || op.rank >= op.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a peer sum of rank ", op.rank, " of ", op.ranks));
  }
  if (op.bytes < 0 || op.bytes > kMostPeerSumBytes || op.bytes % kData != 0 ||
      reinterpret_cast<uintptr_t>(op.data) % kData != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a peer sum of ", op.bytes,
                                                   " bytes: they are multiples of ", kData,
                                                   ", aligned so, up to ", kMostPeerSumBytes));
  }
  if (op.bytes == 0) return absl::OkStatus();
  if (op.dtype == DType::kF32) return LaunchFor<float>(op, stream);
  if (op.dtype == DType::kBF16) return LaunchFor<__nv_bfloat16>(op, stream);
  return absl::UnimplementedError(
      absl::StrCat("a peer sum of ", std::string(DTypeName(op.dtype)), "; there are F32 and BF16"));
}

const void* KernelOfPeerSum() { return reinterpret_cast<const void*>(PeerSumKernel<float, 2>); }

}  // namespace skein::kernels::cuda
