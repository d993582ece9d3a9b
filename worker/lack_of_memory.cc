#include "worker/lack_of_memory.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/units.h"

namespace skein::worker {

absl::Status ExplainLack(const absl::Status& status, int64_t planned_bytes,
                         const absl::StatusOr<topology::GpuState>& now) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      std::string(status.message()), "; as this rank reported, ", FormatBytes(planned_bytes),
      " of its GPU were free for it, and now ",
      now.ok() ? topology::FormatGpuUsers(*now)
               : absl::StrCat("nobody tells who has them: ", std::string(now.status().message()))));
}

}  // namespace skein::worker
