// Tells whether anything can be predicted of a device.
#pragma once

#include "topology/rates.h"

namespace skein::topology {

inline bool HasRates(const DeviceRates& rates) {
  return !rates.reads.empty() && !rates.products.empty();
}

}  // namespace skein::topology
