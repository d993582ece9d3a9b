// A load test's result for people and for programs. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "client/load/statistics.h"

namespace skein::client {

struct LoadTest {
  std::string model;
  std::string load;     // "8 streams", "5 requests/s"
  std::string lengths;  // "prompts of 128 tokens, answers of 64"
  Limits limits;
  int64_t asked = 0;         // requests
  bool interrupted = false;  // what ran then is CANCELLED, what had not begun has no record
  Summary summary;
  absl::Span<const RequestRecord> records;
};

// A table of at most 96 columns.
std::string FormatLoadTest(const LoadTest& test);

// One object: what was asked, the summary, every request; times in seconds.
std::string LoadTestToJson(const LoadTest& test);

// A stand-alone SVG, light or dark as the viewer asks: the share of requests (of tokens) that took
// at most so long, cut off where all but 1% are in, and the tokens per second over time.
std::string LoadTestToSvg(const LoadTest& test);

}  // namespace skein::client
