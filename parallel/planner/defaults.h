// What a replica gets where nobody asks.
#pragma once

#include <cstdint>

#include "base/device_kind.h"

namespace skein::plan {

// Sequences at once, enough that decoding reads weights for many, and rows of a micro-batch.
struct Defaults {
  int32_t max_num_seqs = 0;
  int32_t micro_batch_rows = 0;
};

constexpr Defaults DefaultsOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      // From some 10 rows on a product is bound by arithmetic and no longer by reading weights:
      // prompts gain nothing from more, while running streams wait for all of it.
      return {16, 256};
    case DeviceKind::kCuda:
      // Reading weights, and attention, cost 256 streams of an 8B on an H200 little more than one.
      // Prompts have what they leave of a step: with 2,048 rows products reach 90% of their rate.
      return {256, 2048};
  }
  return {};
}

}  // namespace skein::plan
