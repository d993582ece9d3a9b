// Cards that are not quite alike, for tests.
#pragma once

#include "topology/interconnect.h"
#include "topology/rates.h"
#include "topology/topology.h"

namespace skein::plan {

// One card as if it had so much of its rates.
inline void Scale(topology::Gpu& gpu, double share) {
  for (topology::ReadRate& rate : gpu.rates.reads) {
    rate.alone_bytes_per_s *= share;
    rate.together_bytes_per_s *= share;
  }
  for (topology::ProductRate& rate : gpu.rates.products) rate.operations_per_s *= share;
}

// No two cards have quite the same rates, as probes find them.
inline topology::Topology AsMeasured(topology::Topology topology) {
  int at = 0;
  for (topology::Host& host : topology.hosts) {
    for (topology::Gpu& gpu : host.interconnect.gpus) {
      gpu.rates.origin = topology::Origin::kMeasured;
      gpu.rates.spread = 0.03;
      Scale(gpu, 1 - 1e-5 * (++at * 7919 % 3001));
    }
  }
  return topology;
}

}  // namespace skein::plan
