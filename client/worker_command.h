// Commands of the worker's binary, which this one starts: what needs a device, or a model's
// numbers.
#pragma once

#include <string>
#include <vector>

namespace skein::client {

// Replaces this process by `worker COMMAND ARGUMENTS...`. The binary is `worker`, or, when that is
// empty, the one beside this program or where Bazel puts it. Returns an exit code when it cannot.
int WorkerCommand(const std::string& worker, const std::string& command,
                  const std::vector<std::string>& arguments);

}  // namespace skein::client
