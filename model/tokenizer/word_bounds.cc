#include "model/tokenizer/word_bounds.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "model/tokenizer/code_point_set.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

const CodePointSet& OfWords() {
  static const auto* const set = [] {
    auto* const made = new CodePointSet(0x200C, 0x200D);  // joiners
    for (const std::string_view category : {"L", "M", "Nd", "Nl", "Pc"}) {
      made->Add(*GeneralCategory(category));
    }
    // Letters in circles and squares are alphabetic, though they are symbols.
    for (const auto& [first, last] : {std::pair<uint32_t, uint32_t>(0x24B6, 0x24E9),
                                      {0x1F130, 0x1F149},
                                      {0x1F150, 0x1F169},
                                      {0x1F170, 0x1F189}}) {
      made->Add(CodePointSet(first, last));
    }
    return made;
  }();
  return *set;
}

}  // namespace

bool BeginsWithWord(std::string_view text) {
  size_t at = 0;
  return !text.empty() && OfWords().Contains(ReadCodePoint(text, at));
}

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  size_t last = text.size() - 1;
  while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
  return OfWords().Contains(ReadCodePoint(text, last));
}

}  // namespace skein::model
