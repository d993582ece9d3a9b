// A draw that a device has made.
#pragma once

#include <cstdint>

namespace skein::kernels {

struct DeviceDraw {
  float largest = 0;  // logit of the row; NaN where one is
  int32_t id = -1;
};

}  // namespace skein::kernels
