// Fields of a request's JSON body. Unknown ones are ignored, as other servers do; known ones of
// another type are errors that name the field. null is as good as absent.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/gateway/api_error.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// None: it is no list of token ids.
std::optional<std::vector<uint32_t>> TokenIdsOf(const nlohmann::json& list);

// Not thread-safe. The first error counts: what is read after it is of no use.
class BodyReader {
 public:
  // `object` outlives it, and is one. `where` stands before fields in errors ("messages[2].").
  explicit BodyReader(const nlohmann::json& object, std::string where = "")
      : object_(object), where_(std::move(where)) {}

  // null: absent.
  const nlohmann::json* Find(std::string_view field) const;
  std::optional<bool> Bool(std::string_view field);
  std::optional<int64_t> Int(std::string_view field, int64_t low, int64_t high);
  std::optional<double> Number(std::string_view field);
  std::optional<std::string> String(std::string_view field);

  void Fail(std::string_view field, std::string_view why);
  void Fail(ApiError error) {
    if (!error_.has_value()) error_ = std::move(error);
  }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::json& object_;
  const std::string where_;
  std::optional<ApiError> error_;
};

}  // namespace skein::coordinator
