// Figures of hosts in files, as JSON: one that somebody gives, and what was measured of a host, in
// a folder: a file for each key, which says all that the figures depend on.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "topology/topology.h"

namespace skein::convert {

// A file of `worker probe` or `skein topo --json`. Errors name it.
absl::StatusOr<topology::Topology> ReadFigures(const std::string& file);

// What is kept under `key`: of the host its rates, links and exchanges, and the fabric. Nothing
// where there is no such file, it cannot be read, or it is another key's.
std::optional<topology::Topology> ReadKept(const std::string& folder, const std::string& key);

// Keeps a topology of one host; a reader sees all of it or nothing. Errors of the system name the
// path.
absl::Status Keep(const std::string& folder, const std::string& key, topology::Topology topology);

}  // namespace skein::convert
