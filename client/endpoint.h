// Where a coordinator listens, and how it is spoken to.
#pragma once

#include <optional>
#include <string>

#include "base/tls/mutual_tls.h"

namespace skein::client {

struct Endpoint {
  std::string address;           // HOST:PORT
  std::optional<MutualTls> tls;  // none: plain
};

}  // namespace skein::client
