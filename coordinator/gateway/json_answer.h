// JSON that is there, as an answer.
#pragma once

#include <memory>

#include "coordinator/gateway/event_stream.h"
#include "coordinator/gateway/http_server.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// Bytes that are no UTF-8 become U+FFFD.
inline std::unique_ptr<HttpAnswer> JsonAnswer(const nlohmann::ordered_json& json,
                                              HttpHead head = {}) {
  return std::make_unique<WholeAnswer>(std::move(head), JsonText(json));
}

}  // namespace skein::coordinator
