#include <cerrno>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"

namespace skein::model {
namespace {

// The largest in use (Gemma 3) has 33 MB; the tree that is built of it takes several times as much.
constexpr size_t kMaxFileBytes = 64 << 20;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return ErrnoStatus(errno, path);
  std::string text;
  char buffer[1 << 16];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    text.append(buffer, size);
    if (text.size() > kMaxFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": has more than ", kMaxFileBytes, " bytes"));
    }
  }
  if (std::ferror(file.get())) return ErrnoStatus(errno, path);
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<std::unique_ptr<ByteLevelTokenizer>> tokenizer = ParseTokenizerJson(text);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return *std::move(tokenizer);
}

}  // namespace skein::model
