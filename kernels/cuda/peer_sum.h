// A small sum over the devices of one host, in one kernel.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

inline constexpr int kMostPeers = 8;
// Beyond, each rank's part would better be summed by one rank and gathered.
inline constexpr int64_t kMostPeerSumBytes = 128 * 1024;

// Bytes of an exchange buffer: two turns, in each of which every rank has a slot of packets. A
// packet is 16 bytes, half of them data.
constexpr int64_t ExchangeBytes(int ranks) { return 2 * ranks * 2 * kMostPeerSumBytes; }

// data[i] = the sum of all ranks' data[i], as floats, joined as a binary tree, rounded once.
struct PeerSum {
  DType dtype = DType::kBF16;  // or F32
  int64_t bytes = 0;           // a multiple of 8, to kMostPeerSumBytes
  void* data = nullptr;        // 8-byte aligned
  int rank = 0;
  int ranks = 2;  // to kMostPeers
  // By rank, as this device addresses them: ExchangeBytes, zero before the first sum.
  void* exchange[kMostPeers] = {};
  uint32_t* turn = nullptr;  // [2], this rank's, zero before the first sum
  // Of the host's memory: once it is not 0, nobody is waited for, and data are void.
  const uint32_t* aborted = nullptr;
};

// Queues it. InvalidArgument or Unimplemented for what breaks the above.
absl::Status Enqueue(const PeerSum& op, Stream stream);

}  // namespace skein::kernels::cuda
