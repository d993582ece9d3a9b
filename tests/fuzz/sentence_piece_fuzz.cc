// Parses any bytes as a tokenizer_config.json, a NUL, and a SentencePiece model; a tokenizer that
// is accepted must encode and decode.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/tokenizer/sentence_piece_tokenizer.h"
#include "model/tokenizer/tokenizer_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(bytes.find('\0'), bytes.size());
  const auto config = skein::model::ParseTokenizerConfig(bytes.substr(0, end));
  if (!config.ok()) return 0;
  const auto tokenizer = skein::model::ParseSentencePieceTokenizer(
      bytes.substr(std::min(end + 1, bytes.size())), *config);
  if (!tokenizer.ok()) return 0;
  std::string text("To be,  or\tnot <s> 42\u00e9 \ufb01\0<x>\0a", 31);
  for (int i = 0; i < 6; ++i) text += text;
  const auto ids = (*tokenizer)->Encode(text, {.parse_special = true});
  if (!ids.ok()) return 0;
  for (int32_t id : *ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    (void)(*tokenizer)->TokenBytes(id, /*skip_special=*/true);
  }
  return 0;
}
