// What a GPU says of itself, as people read it.
#pragma once

#include <string>
#include <vector>

#include "topology/host/gpus.h"
#include "topology/interconnect.h"

namespace skein::client {

// "GPU0: 79.00 GiB of 80.00 GiB free, 1980 of 1980 MHz, ECC on, 18 NVLinks", then a line each for
// what keeps it from doing what its kind can, and for who computes on it.
std::vector<std::string> DescribeHealth(const topology::Gpu& gpu,
                                        const topology::GpuHealth& health);

}  // namespace skein::client
