// Whole files: those that a user names, and what the kernel tells in files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein {

// A descriptor that is open for reading, the caller's to close.
struct OpenedFile {
  int descriptor = -1;
  int64_t size_bytes = 0;
};

// Opens a regular file, or a link to one. InvalidArgument, at once, for a pipe, a device, a folder
// and whatever else reading could wait on or never end; errors begin with the path.
absl::StatusOr<OpenedFile> OpenRegularFile(const std::string& path);

// The whole of a regular file. Errors as of OpenRegularFile; InvalidArgument when it has more than
// `max_bytes`, told before anything is read where the system knows its size.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

// The whole of a regular file of at most 64 MiB; nothing where it cannot be read. For what the
// kernel tells in /proc and /sys, where a file that is gone and one that is empty are the same.
std::string ReadFileOrEmpty(const std::string& path);

// The whole of a file, a pipe or a terminal, at most `max_bytes`. Waits until it ends: for programs
// that a user may interrupt.
absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path, int64_t max_bytes);

// The whole of standard input, likewise.
absl::StatusOr<std::string> ReadStandardInput(int64_t max_bytes);

// Makes the file, or overwrites it. An error names the path and quotes the system.
absl::Status WriteFile(const std::string& path, const std::string& contents);

// Tells whether WriteFile has a chance, before the work whose result is to be written. The file
// stays as it is, or absent.
absl::Status CheckWritable(const std::string& path);

}  // namespace skein
