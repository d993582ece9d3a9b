// What rendering one template may use.
#pragma once

#include <cstdint>

namespace skein::model {

struct RenderLimits {
  // Expressions and statements evaluated, and one for each 128 bytes or 8 values that an operation
  // goes through: each is some 100 ns, so that a hostile template ends within a second. Published
  // templates take some 100 for a message and 20 for a key of a tool.
  int64_t steps = 10'000'000;
  // Of statements, expressions and calls inside each other: 2 MiB of stack together, a quarter of
  // what a thread has. A macro that calls itself takes about 10 a call.
  int depth = 800;
  // A context of a million tokens is about 4 MB of text.
  int64_t output_bytes = 16 << 20;
  // Values alive at a time, the conversation's included, which takes three times what its JSON has.
  int64_t memory_bytes = 256 << 20;
};

}  // namespace skein::model
