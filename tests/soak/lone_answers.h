// Requests of a soak, and the answers that each of them gets when nobody else is served.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace skein::testing {

struct LoneAnswer {
  v1::GenerateRequest request;
  std::vector<uint32_t> tokens;
  std::string text;
};

// `count` requests with prompts and answers of random lengths, of which many begin alike, greedy
// and sampled; answered one after the other by a job of one rank.
std::vector<LoneAnswer> MakeLoneAnswers(int count, uint32_t min_tokens, uint32_t max_tokens);

}  // namespace skein::testing
