// Parses any bytes as tokenizer.json; a tokenizer that is accepted must encode and decode. Of its
// own file, as if users had written that, it makes no special token.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/utf8.h"

namespace {

using skein::Range;
using skein::model::Tokenizer;

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            const std::vector<Range>& plain) {
  const auto ids =
      tokenizer.Encode(text, {.add_special_tokens = false, .parse_special = true, .plain = plain});
  if (!ids.ok()) return {};
  for (const int32_t id : *ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    (void)tokenizer.TokenBytes(id, /*skip_special=*/true);
  }
  return *ids;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = skein::model::ParseTokenizerJson(text);
  if (!parsed.ok()) return 0;
  const Tokenizer& tokenizer = **parsed;
  Encode(tokenizer, "To be, or\tnot 42", {});
  const std::string_view own = text.substr(0, skein::model::FindInvalidUtf8(text));
  const auto end = static_cast<int64_t>(own.size());
  Encode(tokenizer, own, {{end / 4, end / 3}, {end / 2, end - 1}});
  // What is unknown becomes a special token, and so does a character that is one.
  if (text.find("unk") != std::string_view::npos) return 0;
  for (const int32_t id : Encode(tokenizer, own, {{0, end}})) {
    constexpr size_t kMaxCharacterBytes = 4;
    if (tokenizer.IsSpecial(id) &&
        tokenizer.TokenBytes(id, /*skip_special=*/false).size() > kMaxCharacterBytes) {
      std::abort();
    }
  }
  return 0;
}
