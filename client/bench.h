// skein bench: a mode of the worker's binary, which this one starts.
#pragma once

#include <string>
#include <vector>

namespace skein::client {

// Replaces this process by `worker bench ARGUMENTS...`. The binary is `worker`, or, when that is
// empty, the one beside this program or where Bazel puts it. Returns an exit code when it cannot.
int Bench(const std::string& worker, const std::vector<std::string>& arguments);

}  // namespace skein::client
