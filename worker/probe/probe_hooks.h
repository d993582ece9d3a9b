// What a rank that measures its device calls meanwhile.
#pragma once

#include <functional>
#include <string_view>

namespace skein::worker {

struct ProbeHooks {
  // Told what is measured next; may be null.
  std::function<void(std::string_view)> progress;
  // Returns once the ranks beside which this one measures are about to measure the same, so that
  // they share caches and memory as they do when they serve; may be null.
  std::function<void()> meet;
};

}  // namespace skein::worker
