#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/format/gguf.h"
#include "model/tokenizer/gguf_tokenizer.h"
#include "model/tokenizer/sentence_piece_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_config.h"
#include "model/tokenizer/tokenizer_json.h"

namespace skein::model {
namespace {

// The largest in use (Gemma 3) has 33 MB; the tree that is built of it takes several times as much.
constexpr int64_t kMaxFileBytes = 64 << 20;
// The largest SentencePiece model in use (Gemma 3) has 4.7 MB; tables take some 30 times as much.
constexpr int64_t kMaxModelBytes = 16 << 20;

// Without a tokenizer.json, of which `missing` tells.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& folder,
                                                             const absl::Status& missing) {
  const std::string path = folder + "/tokenizer.model";
  const absl::StatusOr<std::string> bytes = ReadFile(path, kMaxModelBytes);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(
        absl::StrCat(std::string(missing.message()), ", and there is no tokenizer.model"));
  }
  if (!bytes.ok()) return bytes.status();
  SKEIN_ASSIGN_OR_RETURN(const TokenizerConfig config, LoadTokenizerConfig(folder));
  absl::StatusOr<std::unique_ptr<PipelineTokenizer>> tokenizer =
      ParseSentencePieceTokenizer(*bytes, config);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return *std::move(tokenizer);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& model) {
  if (IsGgufPath(model)) {
    SKEIN_ASSIGN_OR_RETURN(const GgufMetadata metadata, ReadGgufMetadata(model));
    absl::StatusOr<std::unique_ptr<PipelineTokenizer>> tokenizer = ParseGgufTokenizer(metadata);
    if (!tokenizer.ok()) return Annotate(tokenizer.status(), model);
    return *std::move(tokenizer);
  }
  const std::string path = model + "/tokenizer.json";
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return LoadSentencePiece(model, text.status());
  if (!text.ok()) return text.status();
  absl::StatusOr<std::unique_ptr<PipelineTokenizer>> tokenizer = ParseTokenizerJson(*text);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return *std::move(tokenizer);
}

}  // namespace skein::model
