#include "model/format/file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::model {
namespace {

// Runs are gathered from windows of this size: it stays in a core's L2 cache, so that the second
// copy is nearly free, and is far above what a system call costs.
constexpr int64_t kWindowBytes = 1 << 20;

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path));
  return File(path, opened.descriptor, opened.size_bytes);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

absl::Status File::ReadAt(int64_t offset_bytes, absl::Span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const int64_t offset = offset_bytes + static_cast<int64_t>(done);
    const ssize_t got = pread(fd_, out.data() + done, out.size() - done, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat(path_, ": reading at offset ", offset));
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(
          path_, ": ends at offset ", offset, ", ", out.size() - done, " bytes early (it had ",
          size_bytes_, " bytes when it was opened); restore the file and load again"));
    }
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status File::ReadStrided(int64_t offset_bytes, int64_t run_bytes, int64_t stride_bytes,
                               int64_t count, std::byte* out) const {
  const size_t run = static_cast<size_t>(run_bytes);
  if (run_bytes == stride_bytes) {
    return ReadAt(offset_bytes, {out, run * static_cast<size_t>(count)});
  }
  const int64_t runs_per_window = std::min(count, kWindowBytes / stride_bytes);
  if (runs_per_window < 2) {
    for (int64_t i = 0; i < count; ++i, out += run) {
      SKEIN_RETURN_IF_ERROR(ReadAt(offset_bytes + i * stride_bytes, {out, run}));
    }
    return absl::OkStatus();
  }
  std::vector<std::byte> window(static_cast<size_t>(runs_per_window * stride_bytes));
  for (int64_t i = 0; i < count; i += runs_per_window) {
    const int64_t runs = std::min(runs_per_window, count - i);
    const size_t bytes = static_cast<size_t>((runs - 1) * stride_bytes) + run;
    SKEIN_RETURN_IF_ERROR(ReadAt(offset_bytes + i * stride_bytes, {window.data(), bytes}));
    for (int64_t j = 0; j < runs; ++j, out += run) {
      std::memcpy(out, window.data() + j * stride_bytes, run);
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::model
