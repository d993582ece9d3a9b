// A draw that a device has made, or what it tells of a token.
#pragma once

#include <cstdint>

namespace skein::kernels {

struct DeviceDraw {
  struct Token {
    float logit = 0;
    int32_t id = -1;
  };
  static constexpr int kMostTold = 20;
  // For log probabilities, of logits as they came.
  struct Told {
    double sum = 0;        // of e^(logit - largest)
    float largest = 0;     // NaN where one is
    float logit = 0;       // the drawn token's, or the one's that was asked about
    Token top[kMostTold];  // the most likely ones, as many as were asked for, in any order
  };
  float largest = 0;  // logit that was drawn from; NaN where one is
  int32_t id = -1;
  float mu = 0;  // under mirostat: its state after the draw, where there is a temperature
  Told told;     // where it was asked for
};

}  // namespace skein::kernels
