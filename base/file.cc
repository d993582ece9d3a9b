#include "base/file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_util.h"

namespace skein {
namespace {

using Owner = std::unique_ptr<FILE, int (*)(FILE*)>;

absl::Status Failed(int error, const char* what, const std::string& path) {
  return ErrnoStatus(error, absl::StrCat("cannot ", what, " '", path, "'"));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const Owner file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) return Failed(errno, "read", path);
  std::string contents;
  std::array<char, 65536> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    contents.append(buffer.data(), count);
  }
  if (std::ferror(file.get()) != 0) return Failed(errno, "read", path);  // a folder, too
  return contents;
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
