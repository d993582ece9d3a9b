// White space at a place of a text, as Unicode's White_Space says.
#pragma once

#include <cstddef>
#include <string_view>

namespace skein::model {

// The end of the white space that begins at `at`; `at` where there is none.
size_t WhiteSpaceEnd(std::string_view text, size_t at);
// The begin of the white space that ends at `at`, not before `least`.
size_t WhiteSpaceBegin(std::string_view text, size_t at, size_t least);

}  // namespace skein::model
