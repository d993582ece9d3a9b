#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/gguf.h"
#include "model/tokenizer/gguf_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"

namespace skein::model {
namespace {

// The largest in use (Gemma 3) has 33 MB; the tree that is built of it takes several times as much.
constexpr int64_t kMaxFileBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& model) {
  if (IsGgufPath(model)) {
    SKEIN_ASSIGN_OR_RETURN(const GgufMetadata metadata, ReadGgufMetadata(model));
    absl::StatusOr<std::unique_ptr<BpeTokenizer>> tokenizer = ParseGgufTokenizer(metadata);
    if (!tokenizer.ok()) return Annotate(tokenizer.status(), model);
    return *std::move(tokenizer);
  }
  const std::string path = model + "/tokenizer.json";
  SKEIN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  absl::StatusOr<std::unique_ptr<BpeTokenizer>> tokenizer = ParseTokenizerJson(text);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return *std::move(tokenizer);
}

}  // namespace skein::model
