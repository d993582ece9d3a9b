#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string StreamingDetokenizer::PushBytes(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Unit unit = ReadUtf8(rest);
    if (unit.kind == Utf8Kind::kCutOff) break;
    text += unit.kind == Utf8Kind::kCharacter ? rest.substr(0, unit.size) : kReplacement;
    rest.remove_prefix(unit.size);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string StreamingDetokenizer::Finish() {
  if (pending_.empty()) return "";
  pending_.clear();
  return std::string(kReplacement);
}

}  // namespace skein::model
