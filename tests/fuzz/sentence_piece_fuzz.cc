// Parses any bytes as a SentencePiece model; a tokenizer that is accepted must encode and decode.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/tokenizer/sentence_piece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = skein::model::ParseSentencePieceTokenizer(bytes, {});
  if (!tokenizer.ok()) return 0;
  const auto ids =
      (*tokenizer)->Encode("To be,  or\tnot <s> 42\u00e9 \ufb01", {.parse_special = true});
  if (!ids.ok()) return 0;
  for (int32_t id : *ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    (void)(*tokenizer)->TokenBytes(id, /*skip_special=*/true);
  }
  return 0;
}
