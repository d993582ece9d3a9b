#include "kernels/cpu/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/host_memory.h"

namespace skein::kernels {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // a task: long against handing it out
constexpr size_t kMinPasses = 3;

}  // namespace

absl::StatusOr<double> MeasureReadBandwidth(int threads, int64_t bytes, absl::Duration duration) {
  const int64_t pieces = bytes / kPiece;
  const SimdOps* simd = ChooseSimdOps(0);
  if (threads < 1 || pieces < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(threads, " threads that read ", bytes, " bytes"));
  }
  if (simd == nullptr) return absl::UnimplementedError("this CPU has no fused multiply-add");
  SKEIN_ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(threads));
  SKEIN_ASSIGN_OR_RETURN(auto memory,
                         HostMemory::Allocate(pieces * kPiece, "reading", /*huge_pages=*/true));
  // Untouched pages would all be the one page of zeros.
  pool->ForEach(pieces, [&](int64_t piece, int) {
    std::memset(memory.data() + piece * kPiece, static_cast<int>(piece), kPiece);
  });

  std::atomic<uint64_t> sum{0};  // keeps the loads
  std::vector<double> rates;
  const absl::Time end = absl::Now() + duration;
  while (rates.size() < kMinPasses || absl::Now() < end) {
    const absl::Time start = absl::Now();
    pool->ForEach(pieces, [&](int64_t piece, int) {
      sum.fetch_add(simd->read(memory.data() + piece * kPiece, kPiece), std::memory_order_relaxed);
    });
    rates.push_back(static_cast<double>(pieces * kPiece) /
                    absl::ToDoubleSeconds(absl::Now() - start));
  }
  std::nth_element(rates.begin(), rates.begin() + rates.size() / 2, rates.end());
  return rates[rates.size() / 2];
}

}  // namespace skein::kernels
