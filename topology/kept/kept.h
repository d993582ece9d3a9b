// Keeps what was measured of a host, in files of a folder: one for each key, which says all that
// the figures depend on.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "topology/topology.h"

namespace skein::topology {

// What is kept under `key`: of the host its rates, links and exchanges, and the fabric. Nothing
// where there is no such file, it cannot be read, or it is another key's.
std::optional<Topology> ReadKept(const std::string& folder, const std::string& key);

// Keeps a topology of one host; a reader sees all of it or nothing. Errors of the system name the
// path.
absl::Status Keep(const std::string& folder, const std::string& key, Topology topology);

}  // namespace skein::topology
