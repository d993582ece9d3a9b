// Names and values that stand beside a line's message, for programs to read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace skein {

// Names are lower case with underscores, and none of time, level, host, source and message.
using LogFields =
    std::vector<std::pair<std::string, std::variant<std::string, int64_t, double, bool>>>;

// For as long as it lives, what its thread logs has these fields, behind those of the ones that
// live already. Goes on the thread that made it, the last one first.
class WithLogFields {
 public:
  // The fields outlive it.
  explicit WithLogFields(const LogFields& fields) : fields_(fields), outer_(innermost_) {
    innermost_ = this;
  }
  ~WithLogFields() { innermost_ = outer_; }
  WithLogFields(const WithLogFields&) = delete;

  // Of this thread, the outermost first.
  template <typename Visit>
  static void ForEach(const Visit& visit) {
    ForEachFrom(innermost_, visit);
  }

 private:
  template <typename Visit>
  static void ForEachFrom(const WithLogFields* from, const Visit& visit) {
    if (from == nullptr) return;
    ForEachFrom(from->outer_, visit);
    for (const auto& [name, value] : from->fields_) visit(name, value);
  }

  const LogFields& fields_;
  const WithLogFields* const outer_;
  inline static thread_local const WithLogFields* innermost_ = nullptr;
};

}  // namespace skein
