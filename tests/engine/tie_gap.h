// By how much less likely a token of a back end's greedy answer may be, in logits of
// checkpoints/bard, than the one of a back end that rounds otherwise.
#pragma once

namespace skein::worker {

// Activations are rounded to 8 bits some 6 times in each of 8 layers: errors of 2^-9 each, which
// add up as a random walk's, make 0.0135 of what the most likely logits differ by, some 3. Two
// logits, twice the deviation.
inline constexpr float kTieGap = 0.12f;
// An int8 cache keeps a vector in steps of s = 2.9 / 127 of its root mean square. Two vectors that
// differ by d = 0.0135 / 2, as half way through the layers, are kept a step apart in d / s of their
// elements: by sqrt(d * s) = 0.0124, nearly twice d. Twice the gap.
inline constexpr float kInt8TieGap = 0.24f;
// F16 has 11 bits.
inline constexpr float kF16TieGap = kTieGap / 8;

}  // namespace skein::worker
