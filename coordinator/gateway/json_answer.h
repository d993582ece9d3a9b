// JSON that is there, as an answer.
#pragma once

#include <memory>

#include "coordinator/gateway/http_server.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// Bytes that are no UTF-8 become U+FFFD.
inline std::unique_ptr<HttpAnswer> JsonAnswer(const nlohmann::ordered_json& json,
                                              HttpHead head = {}) {
  return std::make_unique<WholeAnswer>(
      std::move(head),
      json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace skein::coordinator
