#include "base/list_item.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein {

std::string ListItem(const std::string& text) {
  constexpr size_t kColumns = 96;
  std::string out = "-";
  size_t column = 1;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ' '))) {
    if (column > 2 && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, "\n ");
      column = 1;
    }
    absl::StrAppend(&out, " ", word);
    column += 1 + word.size();
  }
  absl::StrAppend(&out, "\n");
  return out;
}

}  // namespace skein
