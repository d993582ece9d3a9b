// What `attribute=` of a filter says: "function.name", or an index.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "model/template/runtime.h"
#include "model/template/value.h"

namespace skein::model {

class AttributePath {
 public:
  // null or none: the item itself.
  static absl::StatusOr<AttributePath> Parse(const Value* attribute);
  // Of "a,b": one for each.
  static absl::StatusOr<std::vector<AttributePath>> ParseSeveral(const Value* attribute);

  // `fallback`, if not null, takes the place of what is undefined.
  absl::StatusOr<Value> Get(Runtime& runtime, const Value& item,
                            const Value* fallback = nullptr) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace skein::model
