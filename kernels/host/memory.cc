#include "kernels/host/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/units.h"

namespace skein::kernels {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t Pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

absl::StatusOr<HostMemory> HostMemory::Allocate(int64_t bytes, const char* what, bool huge_pages) {
  HostMemory memory;
  if (bytes == 0) return memory;
  const bool huge = huge_pages && bytes >= kHugePage;
  const int64_t mapped = Pages(bytes) + (huge ? kHugePage : 0);
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", FormatBytes(bytes), " (",
                                                     bytes, " bytes) for ", what, ": ",
                                                     std::strerror(errno)));
  }
  auto* begin = static_cast<std::byte*>(start);
  if (huge) {
    // The slack before and after goes back, so that no huge page reaches beyond what was asked for.
    const int64_t before = -reinterpret_cast<intptr_t>(start) & (kHugePage - 1);
    if (before > 0) munmap(begin, before);
    begin += before;
    if (before < kHugePage) munmap(begin + Pages(bytes), kHugePage - before);
    // Only advice: a kernel without them is no error.
    (void)madvise(begin, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  memory.data_ = begin;
  memory.bytes_ = bytes;
  return memory;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, Pages(bytes_));
}

}  // namespace skein::kernels
