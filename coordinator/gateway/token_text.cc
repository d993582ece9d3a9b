#include "coordinator/gateway/token_text.h"

#include <algorithm>

namespace skein::coordinator {

std::string TokenText(const model::Tokenizer& tokenizer, int32_t id) {
  return tokenizer.TokenBytes(id, /*skip_special=*/false);
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace skein::coordinator
