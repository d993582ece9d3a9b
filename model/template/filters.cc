#include "model/template/filters.h"

#include "model/template/errors.h"

namespace skein::model {
namespace {

Filter FindFilter(std::string_view name) {
  for (const auto find : {FindTextFilter, FindListFilter, FindSelectingFilter, FindNumberFilter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

}  // namespace

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> ApplyFilter(Runtime& runtime, std::string_view name, const Value& input,
                                  const Arguments& arguments) {
  const Filter filter = FindFilter(name);
  if (filter == nullptr) return Invalid("no filter is named '", name, "'");
  return filter(runtime, input, arguments);
}

}  // namespace skein::model
