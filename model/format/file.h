// Read-only files by positioned reads.
//
// Why pread and not mmap: a mapped page that is touched stays in the process's resident set, so
// that column slices of a mapped file pile up pages nobody asked for (the whole file, at 2 KiB of
// each 8 KiB row, MADV_RANDOM or not), and a file that shrinks while it is mapped kills the process
// with SIGBUS. pread copies from the page cache as a read of a mapping would, costs the process
// only the buffers it passes, and turns a shrunken file or a bad disk into a Status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace skein::model {

// An open regular file. Owns its descriptor. Any thread may read at any time.
class File {
 public:
  // Errors as of OpenRegularFile.
  static absl::StatusOr<File> Open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  // when it was opened

  // Fills `out` from `offset_bytes`. DataLoss when the file ends before (it shrank since Open).
  absl::Status ReadAt(int64_t offset_bytes, absl::Span<std::byte> out) const;

  // Copies `count` runs of `run_bytes`, each `stride_bytes` after the one before, to `out` without
  // gaps. Takes at most 1 MiB of memory; short gaps are read and dropped. That keeps a disk's
  // read-ahead going, and beats a call per run on cached files by 1.4 times (half of rows of 8 KiB)
  // to 20 (an eighth of rows of 512 B); an eighth of rows of 28 KiB takes twice as long as by
  // calls.
  absl::Status ReadStrided(int64_t offset_bytes, int64_t run_bytes, int64_t stride_bytes,
                           int64_t count, std::byte* out) const;

 private:
  File(std::string path, int fd, int64_t size_bytes)
      : path_(std::move(path)), fd_(fd), size_bytes_(size_bytes) {}

  std::string path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
};

}  // namespace skein::model
