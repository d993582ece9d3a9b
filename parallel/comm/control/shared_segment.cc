#include "parallel/comm/control/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::comm {
namespace {

constexpr size_t kCookieBytes = 32;
constexpr size_t kHeaderBytes = 64;  // the cookie
constexpr size_t kBellBytes = 64;    // a cache line each
static_assert(kCookieBytes <= kHeaderBytes && sizeof(Bell) <= kBellBytes);

}  // namespace

SharedSegment::SharedSegment(int fd, int ranks, size_t ring_bytes)
    : fd_(fd), ranks_(ranks), ring_bytes_(ring_bytes) {}

SharedSegment::~SharedSegment() {
  if (base_ != nullptr) munmap(base_, bytes());
  CloseFile();
}

void SharedSegment::CloseFile() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

size_t SharedSegment::bytes() const {
  return kHeaderBytes + ranks_ * (kBellBytes + 2 * (sizeof(Ring::State) + ring_bytes_));
}

absl::Status SharedSegment::Map() {
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("mapping ", bytes(), " bytes of shared memory"));
  }
  base_ = static_cast<char*>(memory);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(int ranks, size_t ring_bytes,
                                                                     std::string_view cookie) {
  const int fd = memfd_create("skein-control", MFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "memfd_create");
  std::unique_ptr<SharedSegment> segment(new SharedSegment(fd, ranks, ring_bytes));
  if (ftruncate(fd, static_cast<off_t>(segment->bytes())) != 0) {
    return ErrnoStatus(errno, absl::StrCat("making ", segment->bytes(), " bytes of shared memory"));
  }
  SKEIN_RETURN_IF_ERROR(segment->Map());
  std::memcpy(segment->base_, cookie.data(), std::min(cookie.size(), kCookieBytes));
  return segment;
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Attach(pid_t pid, int fd, int ranks,
                                                                     size_t ring_bytes,
                                                                     std::string_view cookie) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", fd);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  std::unique_ptr<SharedSegment> segment(new SharedSegment(opened, ranks, ring_bytes));
  // In another pid namespace the number may be that of any process, with any file.
  if (lseek(opened, 0, SEEK_END) != static_cast<off_t>(segment->bytes())) {
    return absl::NotFoundError(absl::StrCat(path, " is not the memory that was looked for"));
  }
  SKEIN_RETURN_IF_ERROR(segment->Map());
  if (std::memcmp(segment->base_, cookie.data(), std::min(cookie.size(), kCookieBytes)) != 0) {
    return absl::NotFoundError(absl::StrCat(path, " is not the memory that was looked for"));
  }
  return segment;
}

Bell& SharedSegment::bell(int rank) const {
  return *reinterpret_cast<Bell*>(base_ + kHeaderBytes + rank * kBellBytes);
}

Ring SharedSegment::RingAt(int index) const {
  char* place =
      base_ + kHeaderBytes + ranks_ * kBellBytes + index * (sizeof(Ring::State) + ring_bytes_);
  return {reinterpret_cast<Ring::State*>(place), place + sizeof(Ring::State), ring_bytes_};
}

}  // namespace skein::comm
