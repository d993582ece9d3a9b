// A text made of another one, which keeps track of marked bytes: those that users wrote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"

namespace skein::model {

struct MarkedText {
  std::string text;
  // Sorted and disjoint. An empty one stands between two bytes where marked ones left nothing.
  std::vector<Range> marked;
};

// Goes through a text once, from its begin to its end. Costs time linear in both texts.
class Rewrite {
 public:
  // `from` outlives this.
  explicit Rewrite(const MarkedText& from) : from_(from) {}

  // How much of the text is done.
  size_t at() const { return at_; }
  // The bytes up to `end` stay as they are.
  void Keep(size_t end);
  // `by` takes the place of the bytes up to `end`, which may be none; it is marked where one of
  // these is.
  void Replace(size_t end, std::string_view by);
  const std::string& made() const { return made_.text; }
  // What was made; call once, when all is done.
  MarkedText Take();

 private:
  void Mark(size_t begin, size_t end);

  const MarkedText& from_;
  size_t at_ = 0;
  size_t next_ = 0;  // the first mark that is not done
  MarkedText made_;
};

}  // namespace skein::model
