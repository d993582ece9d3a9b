// Characters of words, as the regular expression \w of UTS 18 has them: letters and what else is
// alphabetic, marks, decimal digits, connectors and joiners.
#pragma once

#include <string_view>

namespace skein::model {

// `text` is valid UTF-8.
bool BeginsWithWord(std::string_view text);
bool EndsWithWord(std::string_view text);

}  // namespace skein::model
