#include "parallel/comm/shared_memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::comm {
namespace {

constexpr size_t kCookieBytes = 32;
constexpr size_t kHeaderBytes = 64;  // the cookie
static_assert(kCookieBytes <= kHeaderBytes);

}  // namespace

SharedMemory::SharedMemory(int fd, size_t bytes) : fd_(fd), mapped_(kHeaderBytes + bytes) {}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) munmap(base_, mapped_);
  CloseFile();
}

void SharedMemory::CloseFile() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

std::byte* SharedMemory::data() const { return base_ + kHeaderBytes; }

absl::Status SharedMemory::Map() {
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("mapping ", mapped_, " bytes of shared memory"));
  }
  base_ = static_cast<std::byte*>(memory);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(size_t bytes,
                                                                   std::string_view cookie) {
  const int fd = memfd_create("skein", MFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "memfd_create");
  std::unique_ptr<SharedMemory> memory(new SharedMemory(fd, bytes));
  if (ftruncate(fd, static_cast<off_t>(memory->mapped_)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("making ", memory->mapped_, " bytes of shared memory"));
  }
  SKEIN_RETURN_IF_ERROR(memory->Map());
  std::memcpy(memory->base_, cookie.data(), std::min(cookie.size(), kCookieBytes));
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Attach(pid_t pid, int fd, size_t bytes,
                                                                   std::string_view cookie) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", fd);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  std::unique_ptr<SharedMemory> memory(new SharedMemory(opened, bytes));
  // In another pid namespace the number may be that of any process, with any file.
  if (lseek(opened, 0, SEEK_END) != static_cast<off_t>(memory->mapped_)) {
    return absl::NotFoundError(absl::StrCat(path, " is not the memory that was looked for"));
  }
  SKEIN_RETURN_IF_ERROR(memory->Map());
  if (std::memcmp(memory->base_, cookie.data(), std::min(cookie.size(), kCookieBytes)) != 0) {
    return absl::NotFoundError(absl::StrCat(path, " is not the memory that was looked for"));
  }
  return memory;
}

}  // namespace skein::comm
