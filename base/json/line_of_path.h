// Finds the line of a JSON text that an error is of, for errors that name values by their path.
#pragma once

#include <cstdint>
#include <string_view>

namespace skein {

// The line, from 1, of the value that `error` begins with: "hosts[1]: gpus[0].cores: 0 ..." or, as
// protobuf says it, "(hosts[1].gpus[0]) cores: ...". Of what is not there, that of the last part
// which is; a name may be that of a member of an object in between. `json` is well-formed.
int64_t LineOfPath(std::string_view json, std::string_view error);

}  // namespace skein
