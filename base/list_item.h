// Lists as terminals show them.
#pragma once

#include <string>

namespace skein {

// `text` as an item, "- ...\n", broken at blanks so that lines have at most 96 columns; further
// ones are indented. A longer word stays whole.
std::string ListItem(const std::string& text);

}  // namespace skein
