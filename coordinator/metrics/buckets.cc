#include "coordinator/metrics/buckets.h"

namespace skein::coordinator {

std::vector<double> FirstTokenBuckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,   0.75,
          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80., 160., 640.0, 2560.0};
}

std::vector<double> PerTokenBuckets() {
  return {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005,  // ours
          0.01,   0.025,  0.05,   0.075, 0.1,   0.15,  0.2,   0.3,  0.4, 0.5,
          0.75,   1.0,    2.5,    5.0,   7.5,   10.0,  20.0,  40.0, 80.0};
}

std::vector<double> RequestLatencyBuckets() {
  return {0.001, 0.01, 0.03, 0.1,  // ours
          0.3,   0.5,  0.8,  1.0,  1.5,  2.0,  2.5,   5.0,   10.0,  15.0,  20.0,
          30.0,  40.0, 50.0, 60.0, 120., 240., 480.0, 960.0, 1920., 7680.0};
}

std::vector<double> TokenBuckets(int64_t most) {
  std::vector<double> bounds;
  for (int64_t power = 1;; power *= 10) {
    for (const int64_t digit : {1, 2, 5}) {
      if (digit * power > most) return bounds;
      bounds.push_back(static_cast<double>(digit * power));
    }
  }
}

}  // namespace skein::coordinator
