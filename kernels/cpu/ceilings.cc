#include "kernels/cpu/ceilings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace skein::kernels {
namespace {

// A task reads so many bytes, which takes long against handing it out.
constexpr int64_t kPiece = int64_t{1} << 20;

// The sum of what was read goes here, so that the loads stay.
std::atomic<uint64_t> sink{0};

}  // namespace

absl::StatusOr<ReadProbe> ReadProbe::Create(int threads, int64_t bytes,
                                            const ThreadPool::Cores& cores) {
  const int64_t pieces = bytes / kPiece;
  const SimdOps* simd = ChooseSimdOps(0);
  if (threads < 1 || pieces < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(threads, " threads that read ", bytes, " bytes"));
  }
  if (simd == nullptr) return absl::UnimplementedError("this CPU has no fused multiply-add");
  SKEIN_ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(threads, cores));
  SKEIN_ASSIGN_OR_RETURN(auto memory,
                         HostMemory::Allocate(pieces * kPiece, "reading", /*huge_pages=*/true));
  // Pages that were never touched would all be the one page of zeros.
  pool->ForEach(pieces, [&](int64_t piece, int) {
    std::memset(memory.data() + piece * kPiece, static_cast<int>(piece), kPiece);
  });
  return ReadProbe(simd, std::move(pool), std::move(memory));
}

ReadProbe::ReadProbe(const SimdOps* simd, std::unique_ptr<ThreadPool> pool, HostMemory memory)
    : simd_(simd), pool_(std::move(pool)), memory_(std::move(memory)) {}

namespace {

absl::StatusOr<double> Measure(int threads, const ThreadPool::Cores& cores,
                               int64_t (*SimdOps::*multiply)(int64_t, float*)) {
  constexpr int kTries = 10;
  constexpr absl::Duration kTime = absl::Milliseconds(20);
  constexpr int64_t kRounds = 10000;  // some 50 us
  const SimdOps* simd = ChooseSimdOps(0);
  if (simd == nullptr) return absl::UnimplementedError("this CPU has no fused multiply-add");
  SKEIN_ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(threads, cores));
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    std::atomic<int64_t> multiply_adds{0};
    const absl::Time start = absl::Now();
    pool->ForEach(threads, [&](int64_t, int) {
      float result = 0;
      int64_t done = 0;
      while (absl::Now() < start + kTime) done += (simd->*multiply)(kRounds, &result);
      multiply_adds += done;
      sink.fetch_add(std::bit_cast<uint32_t>(result), std::memory_order_relaxed);
    });
    best = std::max(
        best, 2 * static_cast<double>(multiply_adds) / absl::ToDoubleSeconds(absl::Now() - start));
  }
  return best;
}

}  // namespace

absl::StatusOr<double> MeasureArithmetic(int threads, const ThreadPool::Cores& cores) {
  return Measure(threads, cores, &SimdOps::multiply_add);
}
absl::StatusOr<double> MeasureByteArithmetic(int threads, const ThreadPool::Cores& cores) {
  return Measure(threads, cores, &SimdOps::multiply_bytes);
}

double ReadProbe::Pass(int64_t bytes, int64_t begin) {
  const int64_t first = begin / kPiece;
  const int64_t pieces = std::min(bytes, memory_.bytes() - first * kPiece) / kPiece;
  const absl::Time start = absl::Now();
  pool_->ForEach(pieces, [&](int64_t piece, int) {
    sink.fetch_add(simd_->read(memory_.data() + (first + piece) * kPiece, kPiece),
                   std::memory_order_relaxed);
  });
  return static_cast<double>(pieces * kPiece) / absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace skein::kernels
