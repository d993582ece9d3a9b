// Parses any bytes as tokenizer.json; a tokenizer that is accepted must encode and decode.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = skein::model::ParseTokenizerJson(text);
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->Encode("To be, or\tnot 42", {.parse_special = true});
  if (!ids.ok()) return 0;
  for (int32_t id : *ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    (void)(*tokenizer)->TokenBytes(id, /*skip_special=*/true);
  }
  return 0;
}
