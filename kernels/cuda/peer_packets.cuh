// How kernels send to other devices, and wait for what these send.
//
// Data are words that say themselves that they are there (present_words.cuh): no fence and no flag
// is needed, and links carry nothing else. Who has read a word puts kAbsent in its place. A rank
// that writes to a half again has the heads of the sum between, whose sender had read that half and
// cleared it: two halves are enough. Block 0 of each such kernel exchanges heads alone, so that the
// others send data at once.
//
// Heads are packets, of 16 bytes: two words, each with the number of the sum beside it. So are the
// data of a persistent step, which has the head of its first sum alone: persistent/shards.cuh.
#pragma once

#include <cstdint>

#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/present_words.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

inline constexpr int kPacketBytes = 16;
inline constexpr int kPacketData = 8;
// Looks between two at the host's memory, which is 1 us away.
inline constexpr int kLooks = 1024;

__device__ inline void StorePacket(void* to, uint32_t a, uint32_t b, uint32_t number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(number),
               "r"(b), "r"(number)
               : "memory");
}
__device__ inline uint4 LoadPacket(const void* from) {
  uint4 packet;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.x), "=r"(packet.y), "=r"(packet.z), "=r"(packet.w)
               : "l"(from)
               : "memory");
  return packet;
}
// Words for another device, and from one: of the whole system.
__device__ inline void SendWords(void* to, uint2 words) {
  asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(PresentWord(words.x)),
               "r"(PresentWord(words.y))
               : "memory");
}
__device__ inline void SendWords(void* to, uint4 words) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "r"(PresentWord(words.x)), "r"(PresentWord(words.y)), "r"(PresentWord(words.z)),
               "r"(PresentWord(words.w))
               : "memory");
}
__device__ inline void SeeWords(const void* from, uint2& words) {
  asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "l"(from)
               : "memory");
}
__device__ inline void SeeWords(const void* from, uint4& words) {
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
}
__device__ inline void ClearWords(uint2* at) { StoreWords(at, make_uint2(kAbsent, kAbsent)); }
__device__ inline void ClearWords(uint4* at) {
  StoreWords(at, make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
}

__device__ inline uint32_t LoadWord(const uint32_t* from) {
  return *const_cast<const volatile uint32_t*>(from);
}
__device__ inline void StoreWord(uint32_t* to, uint32_t word) {
  *const_cast<volatile uint32_t*>(to) = word;
}

// Where a sum's words and packets go, and its number.
struct PeerPlaces {
  uint32_t number = 0;
  int64_t half = 0;  // bytes into each exchange buffer

  __device__ explicit PeerPlaces(const PeerMemory& memory)
      : PeerPlaces(LoadWord(&memory.turn->number) + 1) {}
  __device__ explicit PeerPlaces(uint32_t number)
      : number(number), half((number & 1) * kHalfBytes) {}

  // Of the `unit`th one of words in a rank's buffer.
  template <typename Words>
  __device__ Words* WordsAt(const PeerMemory& memory, int rank, int64_t unit) const {
    char* const words = static_cast<char*>(memory.exchange[rank]) + half + kWordsBegin;
    return reinterpret_cast<Words*>(words) + unit;
  }
  // Of the `packet`th one of data in a rank's buffer.
  __device__ char* At(const PeerMemory& memory, int rank, int64_t packet) const {
    return static_cast<char*>(memory.exchange[rank]) + half + kHeadsBytes + packet * kPacketBytes;
  }
  // Of a sender's head.
  __device__ char* Head(const PeerMemory& memory, int rank, int sender) const {
    return static_cast<char*>(memory.exchange[rank]) + half + sender * 2 * kPacketBytes;
  }
};

// Waits for a packet. Returns false where nobody is to be waited for. late() is called with each
// look at the host's memory, and says whether to end.
template <typename Late>
__device__ bool AwaitPacket(const PeerMemory& memory, const char* from, uint32_t number,
                            uint2& data, Late late) {
  uint4 packet = LoadPacket(from);
  for (int looks = 1; packet.y != number || packet.w != number; ++looks) {
    if (looks % kLooks == 0) {
      if (LoadWord(&memory.report->aborted) != 0) return false;
      if (late()) return false;
    }
    packet = LoadPacket(from);
  }
  data = make_uint2(packet.x, packet.z);
  return true;
}

__device__ inline void TellHead(PeerSumHead& to, const PeerSumHead& head) {
  StoreWord(&to.step, head.step);
  StoreWord(&to.order, head.order);
  StoreWord(&to.sum, head.sum);
  StoreWord(&to.size, head.size);
}

// For block 0: each thread sends this rank's head to a rank, and holds that one's against it. The
// head speaks for so many sums, from that of the places on, and names the last one. ends(rank) is
// called now and then while a rank's head is waited for, and says whether to end.
template <typename Ends>
__device__ void ExchangeHeads(const PeerMemory& memory, const PeerPlaces& places, uint32_t size,
                              int sums, const Ends& ends) {
  const auto other = static_cast<int>(threadIdx.x);
  if (other >= memory.ranks || other == memory.rank) return;
  const PeerTurn& turn = *memory.turn;
  const PeerSumHead own = {LoadWord(&turn.step), LoadWord(&turn.order),
                           places.number - LoadWord(&turn.earlier) + sums - 1, size};
  char* const to = places.Head(memory, other, memory.rank);
  StorePacket(to, own.step, own.order, places.number);
  StorePacket(to + kPacketBytes, own.sum, own.size, places.number);
  const char* const from = places.Head(memory, memory.rank, other);
  PeerReport& report = *memory.report;
  bool told = false;
  // Again and again: others may take it back.
  const auto late = [&] {
    told = true;
    PeerSumHead waits = own;
    waits.sum -= sums - 1;
    TellHead(report.waits, waits);
    __threadfence_system();
    StoreWord(&report.late[other], 1);
    return ends(other);
  };
  uint2 first, second;
  if (!AwaitPacket(memory, from, places.number, first, late)) return;
  if (!AwaitPacket(memory, from + kPacketBytes, places.number, second, late)) return;
  if (told) StoreWord(&report.late[other], 0);
  if (first.x == own.step && first.y == own.order && second.x == own.sum && second.y == own.size) {
    return;
  }
  // A sum behind one that disagrees tells nothing new.
  if (LoadWord(&report.aborted) != 0) return;
  TellHead(report.own, own);
  TellHead(report.theirs[other], {first.x, first.y, second.x, second.y});
  __threadfence_system();
  StoreWord(&report.wrong[other], 1);
  StoreWord(&report.aborted, 1);
}

__device__ inline void ExchangeHeads(const PeerMemory& memory, const PeerPlaces& places,
                                     uint32_t size) {
  ExchangeHeads(memory, places, size, 1, [](int) { return false; });
}

// At the end of every block, for all of its threads. The block that comes last counts the sum: all
// have read the number by then.
__device__ inline void CountSum(const PeerMemory& memory, const PeerPlaces& places) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(&memory.turn->blocks, 1) == gridDim.x - 1) {
    memory.turn->blocks = 0;
    memory.turn->number = places.number;
  }
}

// Of values[kBegin] to values[kEnd - 1], as base/tree_sum.h.
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

// A word of data: a float, or two of 16 bits.
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

template <typename T, int kRanks>
__device__ uint2 SumOf(const uint2 (&all)[kRanks]) {
  uint32_t words[2][kRanks];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) words[0][r] = all[r].x, words[1][r] = all[r].y;
  return make_uint2(SumOf<T, kRanks>(words[0]), SumOf<T, kRanks>(words[1]));
}
template <typename T, int kRanks>
__device__ uint4 SumOf(const uint4 (&all)[kRanks]) {
  uint2 low[kRanks], high[kRanks];
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    low[r] = make_uint2(all[r].x, all[r].y);
    high[r] = make_uint2(all[r].z, all[r].w);
  }
  const uint2 first = SumOf<T, kRanks>(low), second = SumOf<T, kRanks>(high);
  return make_uint4(first.x, first.y, second.x, second.y);
}

// Waits until see() says that all is there. Returns false where nobody is to be waited for.
template <typename See>
__device__ bool AwaitAll(const PeerMemory& memory, const See& see) {
  for (int looks = 1; !see(); ++looks) {
    if (looks % kLooks == 0 && LoadWord(&memory.report->aborted) != 0) return false;
  }
  return true;
}

// Takes words of this rank's buffer. Returns false, and takes nothing, where nobody is to be waited
// for.
template <typename Words>
__device__ bool TakeWords(const PeerMemory& memory, Words* from, Words& words) {
  const bool here = AwaitAll(memory, [&] {
    SeeWords(from, words);
    return Present(words);
  });
  if (here) ClearWords(from);
  return here;
}

// Gives the sum of `mine` and what the others have sent, which lies at from(rank). Returns false
// where nobody is to be waited for.
template <typename T, int kRanks, typename Words, typename From>
__device__ bool TakeSum(const PeerMemory& memory, const Words& mine, const From& from, Words& sum) {
  Words all[kRanks];
  const bool here = AwaitAll(memory, [&] {
  // All loads are on their way at once.
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      all[r] = mine;
      if (r != memory.rank) SeeWords(from(r), all[r]);
    }
    bool present = true;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) present &= r == memory.rank || Present(all[r]);
    return present;
  });
  if (here) {
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r != memory.rank) ClearWords(from(r));
    }
  }
  sum = SumOf<T, kRanks>(all);
  return here;
}

}  // namespace skein::kernels::cuda
