// Sums over shards of the persistent kernel: every shard sends what it has of a vector to all, and
// each adds it up for itself, in the shards' order, so that all have the same bits.
//
// What is sent lies in the exchange buffers of peer_memory.h, as packets: four columns of a row
// each, in the order of operands. A step's sums have consecutive numbers and use the halves in
// turn. Where a shard writes to a half again, it has had all of the sum between from the others,
// who had read the half before they gave that: every sum depends on all of the last one
// (schedule.cc), and a step begins when the last one's kernel has ended.
//
// Shards find out in the step's first sum whether they follow the same order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/peer_packets.cuh"
#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/persistent/step.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// The packets of one sum. number: of the step's first one.
class ShardSum {
 public:
  __device__ ShardSum(const PersistentStep& step, uint32_t first_number, const StepOp& op, int cols)
      : step_(step), places_(first_number + op.sum), of_shard_(step.rows * (cols / 4)) {}

  // A packet's place among those of a shard.
  __device__ int PacketOf(int tile, int row, int quad) const {
    return static_cast<int>(OperandPlace(tile, step_.rows, row, quad) / 8);
  }
  __device__ __noinline__ void Send(int packet, uint2 words) const {
    const PeerMemory& peers = step_.peers;
    for (int to = 0; to < peers.ranks; ++to) {
      StorePacket(places_.At(peers, to, int64_t{peers.rank} * of_shard_ + packet), words.x, words.y,
                  places_.number);
    }
  }
  // Adds what all shards have sent. number: of the operation.
  template <typename T>
  __device__ void AddTo(float (&sum)[4], int packet, int number) const {
    const PeerMemory& peers = step_.peers;
    const char* const from = places_.At(peers, peers.rank, packet);
    const int64_t stride = int64_t{of_shard_} * kPacketBytes;
    uint4 packets[kMostPeers];
    Wait wait;
    uint32_t missing;
    for (int looks = 1;; ++looks) {
      missing = 0;
#pragma unroll
      for (int r = 0; r < kMostPeers; ++r) {
        if (r < peers.ranks) packets[r] = LoadPacket(from + r * stride);
      }
#pragma unroll
      for (int r = 0; r < kMostPeers; ++r) {
        if (r >= peers.ranks) continue;
        if (packets[r].y != places_.number || packets[r].w != places_.number) missing |= 1u << r;
      }
      if (missing == 0) break;
      if (looks % kLooks == 0 && Ends(missing, number, Size<T>(), wait)) break;
    }
    if (missing == 0 && wait.told != 0) TakeBack(wait);
#pragma unroll
    for (int r = 0; r < kMostPeers; ++r) {
      if (r >= peers.ranks) continue;
      const float2 low = FloatsOf<T>(packets[r].x);
      const float2 high = FloatsOf<T>(packets[r].z);
      sum[0] += low.x, sum[1] += low.y, sum[2] += high.x, sum[3] += high.y;
    }
  }

  // Of the step's first sum, by the first warp of all.
  template <typename T>
  __device__ __noinline__ void ExchangeHeadsOfStep(int number) const {
    const uint64_t since = Nanoseconds();
    ExchangeHeads(step_.peers, places_, Size<T>(), step_.sums, [&](int rank) {
      if (LoadWord(&step_.report->aborted) != 0) return true;
      if (Nanoseconds() - since < step_.most_nanoseconds) return false;
      GiveUp(step_, static_cast<uint32_t>(number), static_cast<uint32_t>(rank));
      return true;
    });
    // Those of this shard that wait for each other hear of no other word.
    if (LoadWord(&step_.peers.report->aborted) != 0) StoreWord(&step_.report->aborted, 1);
    __syncwarp();
  }

 private:
  struct Wait {
    uint64_t since = 0;
    uint32_t told = 0;  // by shard: that it is late
  };

  // As a head has it.
  template <typename T>
  __device__ uint32_t Size() const {
    constexpr DType kDType = std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16;
    return SizeOfHead(kDType, int64_t{of_shard_} * kPacketData);
  }
  // Whether data are void. Code that hardly ever runs is kept out of the way.
  __device__ __noinline__ bool Ends(uint32_t missing, int number, uint32_t size, Wait& wait) const {
    const PeerMemory& peers = step_.peers;
    if (LoadWord(&step_.report->aborted) != 0) return true;
    if (LoadWord(&peers.report->aborted) != 0) {  // those wait, too, who wait for this block
      StoreWord(&step_.report->aborted, 1);
      return true;
    }
    const PeerTurn& turn = *peers.turn;
    TellHead(peers.report->waits, {LoadWord(&turn.step), LoadWord(&turn.order),
                                   places_.number - LoadWord(&turn.earlier), size});
    __threadfence_system();
    missing &= ~(1u << peers.rank);
    for (int r = 0; r < peers.ranks; ++r) {
      if ((missing >> r & 1) != 0) StoreWord(&peers.report->late[r], 1);
    }
    wait.told |= missing;
    const uint64_t now = Nanoseconds();
    if (wait.since == 0) wait.since = now;
    if (now - wait.since < step_.most_nanoseconds) return false;
    // The first shard that is missing; kNone where it is this one.
    GiveUp(step_, static_cast<uint32_t>(number),
           static_cast<uint32_t>(__ffs(static_cast<int>(missing)) - 1));
    return true;
  }
  __device__ __noinline__ void TakeBack(const Wait& wait) const {
    for (int r = 0; r < step_.peers.ranks; ++r) {
      if ((wait.told >> r & 1) != 0) StoreWord(&step_.peers.report->late[r], 0);
    }
  }

  const PersistentStep& step_;
  const PeerPlaces places_;
  const int of_shard_;  // packets
};

// By one thread of every block, when it has read the number of the step's first sum: the last one
// counts the step's.
__device__ inline void CountSums(const PersistentStep& step, uint32_t first_number) {
  PeerTurn& turn = *step.peers.turn;
  if (atomicAdd(&turn.blocks, 1) != gridDim.x - 1) return;
  turn.blocks = 0;
  turn.number = first_number + step.sums - 1;
}

}  // namespace skein::kernels::cuda
