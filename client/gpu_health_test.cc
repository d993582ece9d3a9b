#include "client/gpu_health.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kGiB = int64_t{1} << 30;

const topology::Gpu kGpu{.name = "GPU3", .memory_bytes = 80 * kGiB};

TEST(GpuHealthTest, AWellOneTakesOneLine) {
  EXPECT_THAT(
      DescribeHealth(kGpu, {.free_bytes = 79 * kGiB,
                            .ecc = true,
                            .errors_since_boot = 0,
                            .errors_ever = 0,
                            .clock_mhz = 1200,
                            .most_clock_mhz = 1980,
                            .nvlinks_up = 18}),
      ElementsAre("GPU3: 79.00 GiB of 80.00 GiB free, 1200 of 1980 MHz, ECC on, 18 NVLinks"));
  EXPECT_THAT(DescribeHealth(kGpu, {.free_bytes = kGiB, .mig = true, .ecc = false}),
              ElementsAre("GPU3: 1.00 GiB of 80.00 GiB free, ECC off, cut into slices (MIG)"));
}

TEST(GpuHealthTest, WhatKeepsItFromItsRateIsWarnedOf) {
  EXPECT_THAT(
      DescribeHealth(
          kGpu, {.free_bytes = 60 * kGiB,
                 .errors_since_boot = 2,
                 .errors_ever = 7,
                 .slowed_by = {"heat (hardware)", "power"},
                 .nvlinks_up = 17,
                 .nvlinks_down = 1,
                 .processes = {{.pid = 4711, .name = "python", .bytes = 19 * kGiB}, {.pid = 12}}}),
      ElementsAre("GPU3: 60.00 GiB of 80.00 GiB free, 17 NVLinks",
                  "  warning: slowed by heat (hardware), power",
                  "  warning: 2 errors of its memory since boot that ECC could not correct",
                  "  warning: 1 NVLink of it not active",
                  "  in use by python (pid 4711), which has 19.00 GiB",
                  "  in use by a process (pid 12)"));
}

// It was mended by a restart, and may come back.
TEST(GpuHealthTest, OlderErrorsAreNoWarning) {
  EXPECT_THAT(
      DescribeHealth(kGpu, {.free_bytes = 80 * kGiB, .errors_since_boot = 0, .errors_ever = 1}),
      ElementsAre("GPU3: 80.00 GiB of 80.00 GiB free",
                  "  1 error of its memory before this boot that ECC could not correct"));
}

}  // namespace
}  // namespace skein::client
