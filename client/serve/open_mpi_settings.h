// What scripts/env.sh sets, for programs that start mpirun themselves.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace skein::client {

// Variables of the environment and their values. `root`: whether mpirun runs as root, which it
// refuses otherwise.
std::vector<std::pair<std::string, std::string>> OpenMpiSettings(bool root);

}  // namespace skein::client
