// Requests of a soak, and the answers that each of them gets when nobody else is served.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace skein::testing {

struct Answer;

struct LoneAnswer {
  // That `got` ended well and is this answer, to the last byte.
  void ExpectEqual(const Answer& got) const;

  v1::GenerateRequest request;
  std::vector<uint32_t> tokens;
  std::string text;
  v1::Finished::Reason reason = v1::Finished::REASON_UNSPECIFIED;
};

// `count` requests with prompts and answers of random lengths, of which many begin alike, greedy
// and sampled; answered one after the other by a job of one rank, which computes every prompt
// whole.
std::vector<LoneAnswer> MakeLoneAnswers(int count, uint32_t min_tokens, uint32_t max_tokens);

}  // namespace skein::testing
