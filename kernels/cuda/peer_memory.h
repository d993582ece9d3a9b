// What kernels share that sum over devices of one host: a rank's end of a group, as they take it.
//
// A rank's exchange buffer has two halves, which sums use in turn. A half begins with a head for
// each rank, which tells what sum the data are of; behind it lie the packets of sums inside of a
// persistent step, then the words of all other sums.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace skein {

inline constexpr int kMostPeers = 8;

// What ranks of a group must agree on, sum by sum; or for all sums of a step by one kernel at once,
// of which it names the last one.
struct PeerSumHead {
  uint32_t step = 0;   // its low bits
  uint32_t order = 0;  // digest of what the step computes
  uint32_t sum = 0;    // its number in the step, from 1
  uint32_t size = 0;   // bytes; the dtype in the highest 8 bits
};

// Of the host's memory: what kernels tell it, and it them.
struct PeerReport {
  uint32_t aborted = 0;  // not 0: nobody is waited for, data are void
  PeerSumHead waits;     // of the sum that somebody is late for
  PeerSumHead own;       // of the sum that others disagree with
  // By rank, not 0: its head has been waited for long; it came with another sum's.
  uint32_t late[kMostPeers] = {};
  uint32_t wrong[kMostPeers] = {};
  PeerSumHead theirs[kMostPeers] = {};  // of those that are wrong
};

// On the rank's device, all zeros at first.
struct PeerTurn {
  uint32_t number = 0;   // of the last sum; it is in packets, too
  uint32_t blocks = 0;   // of the sum under way that are over
  uint32_t step = 0;     // as in heads
  uint32_t order = 0;    // likewise
  uint32_t earlier = 0;  // the number of the last sum before the step
};

struct PeerMemory {
  int rank = 0;
  int ranks = 1;
  void* exchange[kMostPeers] = {};  // by rank, as this device addresses them: ExchangeBytes each
  PeerTurn* turn = nullptr;
  PeerReport* report = nullptr;
  int64_t one_shot_bytes = 0;  // larger sums take two; the same on all ranks
};

namespace kernels::cuda {

// PeerSumHead::size.
constexpr uint32_t SizeOfHead(DType dtype, int64_t bytes) {
  return static_cast<uint32_t>(bytes) | (static_cast<uint32_t>(dtype) << 24);
}

inline constexpr int64_t kMostPeerSumBytes = int64_t{1} << 20;

// Parts of a half.
inline constexpr int64_t kHeadsBytes = 32 * kMostPeers;
// Packets are twice their data, of 2 ranks or, of less data, of more.
inline constexpr int64_t kPacketsBytes = 4 * kMostPeerSumBytes;
// Two shots of all ranks' parts, which are rounded up to a row of a sum with a norm, or one of 2
// ranks' data.
inline constexpr int64_t kMostNormCols = 16384;
inline constexpr int64_t kWordsBytes = 2 * kMostPeerSumBytes + kMostPeers * 2 * kMostNormCols;
inline constexpr int64_t kWordsBegin = kHeadsBytes + kPacketsBytes;
inline constexpr int64_t kHalfBytes = kWordsBegin + kWordsBytes;
inline constexpr int64_t kExchangeBytes = 2 * kHalfBytes;

}  // namespace kernels::cuda
}  // namespace skein
