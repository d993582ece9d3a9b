// Each thread has 8 bytes of data, or in two shots 8 of each rank's part. It sends them to each
// rank that sums them, and looks at its own buffer until the others' are there: it waits for nobody
// but the threads of its number on the other ranks.
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/peer_packets.cuh"
#include "kernels/cuda/peer_sum.h"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnit = sizeof(uint2);

struct Params {
  PeerMemory memory;
  uint2* data;
  int64_t units;  // of 8 bytes
  uint32_t size;  // as a head tells it
};

// Blocks of kThreads units behind block 0. Unit u of sender s is unit s * units + u of the words.
template <typename T, int kRanks>
__global__ void __launch_bounds__(kThreads) OneShotKernel(Params op) {
  WaitForPrevious();
  LetNextBegin();
  const PeerMemory& memory = op.memory;
  const PeerPlaces places(memory);
  const int64_t unit = (int64_t{blockIdx.x} - 1) * kThreads + threadIdx.x;
  if (blockIdx.x == 0) {
    ExchangeHeads(memory, places, op.size);
  } else if (unit < op.units) {
    const uint2 mine = op.data[unit];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r == memory.rank) continue;
      SendWords(places.WordsAt<uint2>(memory, r, memory.rank * op.units + unit), mine);
    }
    uint2 sum;
    const auto from = [&](int r) {
      return places.WordsAt<uint2>(memory, memory.rank, r * op.units + unit);
    };
    if (TakeSum<T, kRanks>(memory, mine, from, sum)) op.data[unit] = sum;
  }
  CountSum(memory, places);
}

// Rank r sums units [r * part, (r + 1) * part) of all. Blocks of kThreads units of each part behind
// block 0. Words as above, of parts; those of the second shot lie behind them.
template <typename T, int kRanks>
__global__ void __launch_bounds__(kThreads) TwoShotKernel(Params op) {
  WaitForPrevious();
  LetNextBegin();
  const PeerMemory& memory = op.memory;
  const PeerPlaces places(memory);
  const int64_t part = (op.units + kRanks - 1) / kRanks;
  const int64_t unit = (int64_t{blockIdx.x} - 1) * kThreads + threadIdx.x;
  // Whether rank r's part has the unit, and where in the data.
  const auto has = [&](int r) { return unit < part && r * part + unit < op.units; };
  const auto at = [&](int r) { return r * part + unit; };
  if (blockIdx.x == 0) {
    ExchangeHeads(memory, places, op.size);
    CountSum(memory, places);
    return;
  }
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    if (r == memory.rank || !has(r)) continue;
    SendWords(places.WordsAt<uint2>(memory, r, at(memory.rank)), op.data[at(r)]);
  }
  const int64_t second = kRanks * part;
  bool here = true;
  if (has(memory.rank)) {
    uint2 sum;
    const auto from = [&](int r) { return places.WordsAt<uint2>(memory, memory.rank, at(r)); };
    here = TakeSum<T, kRanks>(memory, op.data[at(memory.rank)], from, sum);
    if (here) op.data[at(memory.rank)] = sum;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (r == memory.rank || !here) continue;
      SendWords(places.WordsAt<uint2>(memory, r, second + at(memory.rank)), sum);
    }
  }
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    if (r == memory.rank || !has(r) || !here) continue;
    uint2 sum;
    here = TakeWords(memory, places.WordsAt<uint2>(memory, memory.rank, second + at(r)), sum);
    if (here) op.data[at(r)] = sum;
  }
  CountSum(memory, places);
}

// A block of one thread.
__global__ void BeginPeerStepKernel(BeginPeerStep op) {
  WaitForPrevious();
  LetNextBegin();
  op.turn->step = op.step;
  op.turn->order = op.order;
  op.turn->earlier = op.turn->number;
}

template <typename T, int kRanks>
absl::Status Start(const PeerSum& op, Stream stream) {
  const bool one = op.shots == PeerSum::Shots::kOne ||
                   (op.shots == PeerSum::Shots::kBySize && op.bytes <= op.memory.one_shot_bytes);
  const int64_t units = op.bytes / kUnit;
  const int64_t of_block = one ? units : (units + kRanks - 1) / kRanks;
  const auto blocks = static_cast<unsigned>(1 + (of_block + kThreads - 1) / kThreads);
  const LaunchShape shape = {.name = "peer sum", .grid = {blocks}, .block = {kThreads}};
  const Params params = {.memory = op.memory,
                         .data = static_cast<uint2*>(op.data),
                         .units = units,
                         .size = SizeOfHead(op.dtype, op.bytes)};
  return one ? Launch(OneShotKernel<T, kRanks>, shape, stream, params)
             : Launch(TwoShotKernel<T, kRanks>, shape, stream, params);
}

template <typename T>
absl::Status StartFor(const PeerSum& op, Stream stream) {
  switch (op.memory.ranks) {
    case 2:
      return Start<T, 2>(op, stream);
    case 3:
      return Start<T, 3>(op, stream);
    case 4:
      return Start<T, 4>(op, stream);
    case 5:
      return Start<T, 5>(op, stream);
    case 6:
      return Start<T, 6>(op, stream);
    case 7:
      return Start<T, 7>(op, stream);
    default:
      return Start<T, 8>(op, stream);
  }
}

}  // namespace

absl::Status Enqueue(const PeerSum& op, Stream stream) {
  const PeerMemory& memory = op.memory;
  if (memory.ranks < 2 || memory.ranks > kMostPeers || memory.rank < 0 ||
      memory.rank >= memory.ranks || memory.one_shot_bytes > MostOneShotBytes(memory.ranks)) {
    return absl::InvalidArgumentError(absl::StrCat("a peer sum of rank ", memory.rank, " of ",
                                                   memory.ranks, ", with one shot to ",
                                                   memory.one_shot_bytes, " bytes"));
  }
  const int64_t most =
      op.shots == PeerSum::Shots::kOne ? MostOneShotBytes(memory.ranks) : kMostPeerSumBytes;
  if (op.bytes < 0 || op.bytes > most || op.bytes % kUnit != 0 ||
      reinterpret_cast<uintptr_t>(op.data) % kUnit != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a peer sum of ", op.bytes,
                                                   " bytes: they are multiples of ", kUnit,
                                                   ", aligned so, up to ", most));
  }
  if (op.bytes == 0) return absl::OkStatus();
  if (op.dtype == DType::kF32) return StartFor<float>(op, stream);
  if (op.dtype == DType::kBF16) return StartFor<__nv_bfloat16>(op, stream);
  if (op.dtype == DType::kF16) return StartFor<__half>(op, stream);
  return absl::UnimplementedError(absl::StrCat("a peer sum of ", std::string(DTypeName(op.dtype)),
                                               "; there are F32, BF16 and F16"));
}

absl::Status ClearExchange(void* exchange) {
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemset(exchange, 0, kExchangeBytes));
  for (int half = 0; half < 2; ++half) {
    char* const words = static_cast<char*>(exchange) + half * kHalfBytes + kWordsBegin;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaMemset(words, 0xff, kWordsBytes));
  }
  return CudaStatus(cudaDeviceSynchronize(), "cudaMemset of an exchange buffer");
}

absl::Status Enqueue(const BeginPeerStep& op, Stream stream) {
  return Launch(BeginPeerStepKernel, {.name = "begin of a step", .grid = {1}, .block = {1}}, stream,
                op);
}

const void* KernelOfPeerSum() { return reinterpret_cast<const void*>(OneShotKernel<float, 2>); }

}  // namespace skein::kernels::cuda
