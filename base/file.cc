#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein {
namespace {

using Owner = std::unique_ptr<FILE, int (*)(FILE*)>;

absl::Status Failed(int error, const char* what, const std::string& path) {
  return ErrnoStatus(error, absl::StrCat("cannot ", what, " '", path, "'"));
}

absl::Status TooLarge(const std::string& path, const std::string& what, int64_t max_bytes) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, " is more than the ", max_bytes,
                                                 " bytes that a file of this kind may have"));
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }

  int get() const { return value_; }
  int Release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

absl::StatusOr<std::string> ReadToEnd(int descriptor, const std::string& name, int64_t max_bytes) {
  std::string contents;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, name);  // a folder, too
    if (count == 0) return contents;
    contents.append(buffer.data(), static_cast<size_t>(count));
    if (static_cast<int64_t>(contents.size()) > max_bytes) {
      return TooLarge(name, "what it gives", max_bytes);
    }
  }
}

}  // namespace

absl::StatusOr<OpenedFile> OpenRegularFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe returns at once, to be refused below.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (file.get() < 0) return ErrnoStatus(errno, path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file, but ", KindOf(info.st_mode)));
  }
  return OpenedFile{file.Release(), info.st_size};
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  SKEIN_ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path));
  const Descriptor file(opened.descriptor);
  if (opened.size_bytes > max_bytes) {
    return TooLarge(path, absl::StrCat(opened.size_bytes, " bytes"), max_bytes);
  }
  return ReadToEnd(file.get(), path, max_bytes);
}

std::string ReadFileOrEmpty(const std::string& path) {
  // The longest are cpuinfo and mountinfo: some MB on the largest hosts.
  constexpr int64_t kMaxBytes = 64 << 20;
  return ReadFile(path, kMaxBytes).value_or("");
}

absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path, int64_t max_bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return Failed(errno, "read", path);
  return ReadToEnd(file.get(), absl::StrCat("cannot read '", path, "'"), max_bytes);
}

absl::StatusOr<std::string> ReadStandardInput(int64_t max_bytes) {
  return ReadToEnd(STDIN_FILENO, "standard input", max_bytes);
}

absl::Status WriteFile(const std::string& path, const std::string& contents) {
  Owner file(std::fopen(path.c_str(), "wbe"), std::fclose);
  if (file == nullptr) return Failed(errno, "write", path);
  const bool written =
      std::fwrite(contents.data(), 1, contents.size(), file.get()) == contents.size();
  const int error = errno;
  // What is buffered may fail only here.
  if (std::fclose(file.release()) != 0) return Failed(errno, "write", path);
  return written ? absl::OkStatus() : Failed(error, "write", path);
}

absl::Status CheckWritable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path.empty()) return Failed(ENOENT, "write", path);
  if (fs::is_directory(path, ignored)) return Failed(EISDIR, "write", path);
  // The "/." fails where what should be a folder is none.
  const fs::path parent = "./" / fs::path(path).parent_path() / ".";
  const std::string target = fs::exists(path, ignored) ? path : parent.string();
  return access(target.c_str(), W_OK) == 0 ? absl::OkStatus() : Failed(errno, "write", path);
}

}  // namespace skein
