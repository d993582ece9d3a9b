// What the log says of those who are refused.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace skein::coordinator {

// Thread-safe. Strangers who try again and again neither fill the disk nor hide others.
class Refusals {
 public:
  // `reason`: of few kinds, of each of which some lines are told.
  void Say(const std::string& reason, const std::string& line, absl::Time now);

 private:
  Mutex mutex_;
  absl::Time until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::map<std::string, int> lines_ ABSL_GUARDED_BY(mutex_);  // of each reason, up to `until_`
  int64_t unsaid_ ABSL_GUARDED_BY(mutex_) = 0;                // since the last line
};

}  // namespace skein::coordinator
